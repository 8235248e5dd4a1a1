"""Asks the simulated library everything through NVIDIA's own Python binding (nvidia-ml-py).

Prints one line per question, in the form of driver.json: the function, its arguments, and the
answer. The binding opens `libnvidia-ml.so.1` by the loader's search path.
"""

import json

import pynvml as nvml


def ask(function, arguments, call):
    """Prints what `call` gives, or the return code that it raises."""
    try:
        answer = {"v": call()}
    except nvml.NVMLError as error:
        answer = {"rc": error.value}
    print(json.dumps({"f": function, "a": arguments, "answer": answer}, default=bytes.decode))
    return answer.get("v")


def members(struct, *names):
    return {name: getattr(struct, name) for name in names}


def named(names, values):
    return dict(zip(names, values))


def pci(info):
    return members(info, "busId", "pciDeviceId", "pciSubSystemId")


def fabric(handle, struct):
    info = struct()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, nvml.byref(info))
    return {"clusterUuid": bytes(info.clusterUuid).hex(), **members(info, "state", "status", "cliqueId", "healthMask")}


def sram(handle):
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, nvml.byref(status))
    return members(status, *(name for name, _ in status._fields_ if name != "version"))


def process(info):
    return members(info, "pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId")


def field_value(entry):
    """The member of the union that the tag names."""
    nvml._nvmlCheckReturn(entry.nvmlReturn)
    name = ["dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"][entry.valueType]
    return getattr(entry.value, name)


TEXTS_AND_NUMBERS = [
    "Name", "UUID", "Serial", "Brand", "Architecture", "BoardId", "BoardPartNumber", "VbiosVersion",
    "InforomImageVersion", "GspFirmwareVersion", "ModuleId", "MinorNumber", "VirtualizationMode", "NumaNodeId",
    "CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth",
    "GpuMaxPcieLinkGeneration", "PcieReplayCounter", "PowerUsage", "PowerManagementLimit",
    "PowerManagementDefaultLimit", "EnforcedPowerLimit", "MarginTemperature", "PerformanceState",
    "CurrentClocksEventReasons", "SupportedClocksEventReasons", "PersistenceMode", "ComputeMode",
    "MaxMigDeviceCount", "AddressingMode",
]

SEVERAL = {
    "EccMode": ["current", "pending"],
    "MigMode": ["current", "pending"],
    "RemappedRows": ["corrRows", "uncRows", "isPending", "failureOccurred"],
    "PowerManagementLimitConstraints": ["minLimit", "maxLimit"],
    "CudaComputeCapability": ["major", "minor"],
    "RepairStatus": ["bChannelRepairPending", "bTpcRepairPending"],
}

FIELDS = [(82, 0), (91, 0), (94, 0), (144, 0), (193, 0), (194, 0), (196, 0), (230, 0), (271, 0), (164, 0), (164, 3)]


def plain(gpu, handle):
    for name in TEXTS_AND_NUMBERS:
        function = f"nvmlDeviceGet{name}"
        ask(function, [gpu], lambda: getattr(nvml, function)(handle))
    # The binding puts this one number into a list.
    ask("nvmlDeviceGetDefaultEccMode", [gpu], lambda: nvml.nvmlDeviceGetDefaultEccMode(handle)[0])
    for name, outputs in SEVERAL.items():
        function = f"nvmlDeviceGet{name}"
        ask(function, [gpu], lambda: named(outputs, getattr(nvml, function)(handle)))


def structs(gpu, handle):
    ask("nvmlDeviceGetPciInfo_v3", [gpu], lambda: pci(nvml.nvmlDeviceGetPciInfo_v3(handle)))
    ask("nvmlDeviceGetMemoryInfo", [gpu],
        lambda: members(nvml.nvmlDeviceGetMemoryInfo(handle), "total", "free", "used"))
    ask("nvmlDeviceGetMemoryInfo_v2", [gpu],
        lambda: members(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2), "total", "reserved", "free", "used"))
    ask("nvmlDeviceGetRowRemapperHistogram", [gpu],
        lambda: members(nvml.nvmlDeviceGetRowRemapperHistogram(handle), "max", "high", "partial", "low", "none"))
    ask("nvmlDeviceGetSramEccErrorStatus", [gpu], lambda: sram(handle))
    for struct in (nvml.c_nvmlGpuFabricInfo_v2_t, nvml.c_nvmlGpuFabricInfo_v3_t):
        ask("nvmlDeviceGetGpuFabricInfoV", [gpu], lambda: fabric(handle, struct))


def with_arguments(gpu, handle):
    for kind in (0, 1):
        for counter in (0, 1):
            ask("nvmlDeviceGetTotalEccErrors", [gpu, kind, counter],
                lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))
            ask("nvmlDeviceGetMemoryErrorCounter", [gpu, kind, counter, 2],
                lambda: nvml.nvmlDeviceGetMemoryErrorCounter(handle, kind, counter, 2))
    for clock in range(4):
        ask("nvmlDeviceGetClockInfo", [gpu, clock], lambda: nvml.nvmlDeviceGetClockInfo(handle, clock))
    for which in range(3):
        ask("nvmlDeviceGetInforomVersion", [gpu, which], lambda: nvml.nvmlDeviceGetInforomVersion(handle, which))
    ask("nvmlDeviceGetTemperature", [gpu, 0], lambda: nvml.nvmlDeviceGetTemperature(handle, 0))
    ask("nvmlDeviceGetTemperatureThreshold", [gpu, 0], lambda: nvml.nvmlDeviceGetTemperatureThreshold(handle, 0))
    ask("nvmlDeviceGetCpuAffinity", [gpu, 16], lambda: list(nvml.nvmlDeviceGetCpuAffinity(handle, 16)))
    ask("nvmlDeviceGetMemoryAffinity", [gpu, 2, 0], lambda: list(nvml.nvmlDeviceGetMemoryAffinity(handle, 2, 0)))


def lists(gpu, handle):
    for function in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"):
        ask(function, [gpu], lambda: [process(info) for info in getattr(nvml, function)(handle)])
    entries = nvml.nvmlDeviceGetFieldValues(handle, FIELDS)
    for (field, scope), entry in zip(FIELDS, entries):
        ask("nvmlDeviceGetFieldValues", [gpu, field, scope], lambda: field_value(entry))


def links(gpu, handle):
    for link in range(4):
        ask("nvmlDeviceGetNvLinkState", [gpu, link], lambda: nvml.nvmlDeviceGetNvLinkState(handle, link))
        ask("nvmlDeviceGetNvLinkVersion", [gpu, link], lambda: nvml.nvmlDeviceGetNvLinkVersion(handle, link))
        ask("nvmlDeviceGetNvLinkRemotePciInfo_v2", [gpu, link],
            lambda: pci(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))


def pairs(handles):
    for a, one in enumerate(handles):
        for b, other in enumerate(handles):
            if a != b:
                ask("nvmlDeviceGetTopologyCommonAncestor", [a, b],
                    lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(one, other))
                for capability in range(5):
                    ask("nvmlDeviceGetP2PStatus", [a, b, capability],
                        lambda: nvml.nvmlDeviceGetP2PStatus(one, other, capability))


def look_ups(handles):
    """Each way to a GPU leads to the same one."""
    for gpu, handle in enumerate(handles):
        assert nvml.nvmlDeviceGetIndex(handle) == gpu
        uuid, address = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetPciInfo_v3(handle).busId
        for found in (nvml.nvmlDeviceGetHandleByUUID(uuid), nvml.nvmlDeviceGetHandleByPciBusId(address)):
            assert nvml.nvmlDeviceGetIndex(found) == gpu


def main():
    nvml.nvmlInit()
    ask("nvmlSystemGetDriverVersion", [], nvml.nvmlSystemGetDriverVersion)
    ask("nvmlSystemGetNVMLVersion", [], nvml.nvmlSystemGetNVMLVersion)
    ask("nvmlSystemGetCudaDriverVersion_v2", [], nvml.nvmlSystemGetCudaDriverVersion_v2)
    count = ask("nvmlDeviceGetCount_v2", [], nvml.nvmlDeviceGetCount)
    handles = [nvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in range(count)]
    look_ups(handles)
    for gpu, handle in enumerate(handles):
        for part in (plain, structs, with_arguments, lists, links):
            part(gpu, handle)
    pairs(handles)
    nvml.nvmlShutdown()


main()
