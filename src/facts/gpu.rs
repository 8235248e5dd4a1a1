//! One GPU as NVML shows it, and the questions that it takes to know it.
//!
//! Units are NVML's: milliwatts, mebibytes are never used (memory is bytes), degrees
//! Celsius, MHz. Function names and shapes: `nvml.h` and `fixtures/FORMAT.md`.

use serde::{Deserialize, Serialize};

use super::answer::{Answers, Question};
use crate::ident::{BusId, PciModel};
use crate::reading::Reading;

/// A mode that is current and one that the next reset or reboot brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode {
    pub current: u32,
    pub pending: u32,
}

/// `nvmlPciInfo_t`, the parts that identify.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PciInfo {
    pub bus_id: String,
    /// Device number in the upper half, vendor in the lower.
    pub pci_device_id: u32,
    #[serde(default)]
    pub pci_sub_system_id: u32,
}

impl PciInfo {
    pub fn model(&self) -> PciModel {
        PciModel { vendor: (self.pci_device_id & 0xffff) as u16, device: (self.pci_device_id >> 16) as u16 }
    }
}

/// Bytes; `reserved` is what the driver keeps (v2 of the call only). `nvmlBAR1Memory_t` has
/// the same three numbers under names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    #[serde(alias = "bar1Total")]
    pub total: u64,
    #[serde(default)]
    pub reserved: u64,
    #[serde(alias = "bar1Free")]
    pub free: u64,
    #[serde(alias = "bar1Used")]
    pub used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeCapability {
    pub major: i32,
    pub minor: i32,
}

/// `nvmlDeviceGetRemappedRows`: counts since manufacture, and the two flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemappedRows {
    pub corr_rows: u32,
    pub unc_rows: u32,
    pub is_pending: u32,
    pub failure_occurred: u32,
}

/// `nvmlRowRemapperHistogramValues_t`: banks by what spare rows they have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemapHistogram {
    pub max: u32,
    pub high: u32,
    pub partial: u32,
    pub low: u32,
    pub none: u32,
}

/// `nvmlEccSramErrorStatus_t`, the parts that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SramStatus {
    pub aggregate_unc_parity: u64,
    pub aggregate_unc_sec_ded: u64,
    pub aggregate_cor: u64,
    pub volatile_unc_parity: u64,
    pub volatile_unc_sec_ded: u64,
    pub volatile_cor: u64,
    pub b_threshold_exceeded: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairStatus {
    pub b_channel_repair_pending: u32,
    pub b_tpc_repair_pending: u32,
}

/// Milliwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PowerConstraints {
    pub min_limit: u32,
    pub max_limit: u32,
}

/// A process that holds the GPU. A pid outside our namespace may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuProcess {
    pub pid: u32,
    /// Bytes; all ones where the driver does not know.
    pub used_gpu_memory: u64,
}

/// `nvmlGpuFabricInfoV_t`: state 0 not supported, 1 not started, 2 in progress, 3 completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fabric {
    pub state: u32,
    pub status: u32,
    #[serde(default)]
    pub clique_id: u32,
    /// 32 hex digits.
    #[serde(default)]
    pub cluster_uuid: String,
    #[serde(default)]
    pub health_mask: u32,
    /// 0 not told, 1 healthy, 2 unhealthy, 3 limited capacity (version 3 of the call).
    #[serde(default)]
    pub health_summary: u32,
}

/// `nvmlPlatformInfo_t`: where the board sits, as the platform says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    pub chassis_serial_number: String,
    pub slot_number: u32,
    pub tray_index: u32,
    pub host_id: u32,
    pub peer_type: u32,
    pub module_id: u32,
}

/// One MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigInstance {
    pub uuid: String,
    pub name: String,
}

/// One NVLink of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NvLink {
    pub state: Reading<u32>,
    pub version: Reading<u32>,
    /// 0 GPU, 1 IBM NPU, 2 NVSwitch, 255 unknown.
    pub remote_type: Reading<u32>,
    pub remote: Reading<PciInfo>,
    /// Replay, recovery, CRC flit, CRC data (`nvmlNvLinkErrorCounter_t` 0 to 3).
    pub errors: [Reading<u64>; 4],
    /// Megabytes a second (field 164 with the link as scope).
    pub speed: Reading<u64>,
}

/// Corrected and uncorrected, since boot (`volatile`) and since manufacture (`aggregate`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EccTotals {
    pub corrected_volatile: Reading<u64>,
    pub uncorrected_volatile: Reading<u64>,
    pub corrected_aggregate: Reading<u64>,
    pub uncorrected_aggregate: Reading<u64>,
    /// Device memory alone, uncorrected (`nvmlMemoryLocation_t` 2).
    pub dram_uncorrected_aggregate: Reading<u64>,
    pub dram_corrected_aggregate: Reading<u64>,
}

/// One GPU as NVML shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// NVML's index, for the driver only; people get a slot and a bus address.
    pub index: u32,
    pub handle: Reading<bool>,
    // What it is.
    pub name: Reading<String>,
    pub uuid: Reading<String>,
    pub serial: Reading<String>,
    pub brand: Reading<u32>,
    pub architecture: Reading<u32>,
    pub compute_capability: Reading<ComputeCapability>,
    pub board_id: Reading<u32>,
    pub board_part_number: Reading<String>,
    pub vbios: Reading<String>,
    pub inforom_image: Reading<String>,
    /// OEM, ECC and power objects (`nvmlInforomObject_t` 0 to 2).
    pub inforom_objects: [Reading<String>; 3],
    pub inforom_valid: Reading<bool>,
    pub gsp_firmware: Reading<String>,
    pub module_id: Reading<u32>,
    pub platform: Reading<Platform>,
    pub minor: Reading<u32>,
    pub virtualization: Reading<u32>,
    pub addressing_mode: Reading<u32>,
    // Where it is.
    pub pci: Reading<PciInfo>,
    pub numa_node: Reading<u32>,
    pub cpu_affinity: Reading<Vec<u64>>,
    pub memory_affinity: Reading<Vec<u64>>,
    // The link to the host.
    pub link_generation: Reading<u32>,
    pub link_width: Reading<u32>,
    pub max_link_generation: Reading<u32>,
    pub max_link_width: Reading<u32>,
    pub device_max_generation: Reading<u32>,
    pub pcie_replays: Reading<u64>,
    // Memory and its health.
    pub memory: Reading<Memory>,
    pub bar1: Reading<Memory>,
    pub ecc_mode: Reading<Mode>,
    pub ecc_default: Reading<u32>,
    pub ecc: EccTotals,
    pub sram: Reading<SramStatus>,
    pub remapped_rows: Reading<RemappedRows>,
    pub remap_histogram: Reading<RemapHistogram>,
    pub retired_pages_pending: Reading<u32>,
    /// Addresses retired for multiple single-bit errors and for double-bit errors (cause 0, 1).
    pub retired_pages: [Reading<Vec<u64>>; 2],
    pub repair: Reading<RepairStatus>,
    /// Field 230: 0 none, 1 reset, 2 reboot, 3 drain peers, 4 drain and reset.
    pub recovery_action: Reading<u64>,
    // Power, heat and clocks; milliwatts, degrees Celsius, MHz.
    pub power_usage: Reading<u32>,
    pub power_limit: Reading<u32>,
    pub power_default_limit: Reading<u32>,
    pub power_enforced_limit: Reading<u32>,
    pub power_constraints: Reading<PowerConstraints>,
    pub energy: Reading<u64>,
    pub temperature: Reading<u32>,
    pub memory_temperature: Reading<u64>,
    /// Distance to the slowdown limit.
    pub margin_temperature: Reading<i64>,
    /// Shutdown, slowdown, memory maximum, GPU maximum (`nvmlTemperatureThresholds_t` 0 to 3).
    pub temperature_thresholds: [Reading<u32>; 4],
    pub performance_state: Reading<u32>,
    pub event_reasons: Reading<u64>,
    pub supported_event_reasons: Reading<u64>,
    /// Graphics, SM, memory, video (`nvmlClockType_t` 0 to 3).
    pub clocks: [Reading<u32>; 4],
    pub max_clocks: [Reading<u32>; 4],
    // Modes.
    pub persistence: Reading<u32>,
    pub compute_mode: Reading<u32>,
    pub mig_mode: Reading<Mode>,
    pub mig_instances: Vec<Reading<MigInstance>>,
    pub gsp_mode: Reading<GspMode>,
    pub compute_processes: Reading<Vec<GpuProcess>>,
    pub graphics_processes: Reading<Vec<GpuProcess>>,
    // NVLink and fabric.
    pub nvlink_count: Reading<u32>,
    pub nvlinks: Vec<NvLink>,
    pub fabric: Reading<Fabric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GspMode {
    pub is_enabled: u32,
    pub default_mode: u32,
}

/// Fields that are read through `nvmlDeviceGetFieldValues`, by id (`nvml.h`).
pub mod field {
    pub const MEMORY_TEMPERATURE: u32 = 82;
    pub const NVLINK_COUNT: u32 = 91;
    pub const PCIE_REPLAYS: u32 = 94;
    pub const NVLINK_SPEED: u32 = 164;
    pub const RECOVERY_ACTION: u32 = 230;
}

/// Sixteen words of 64 CPUs hold the 1024 that Linux hosts come with.
pub const CPU_WORDS: u32 = 16;
/// Memory affinity: two words of 64 NUMA nodes (GB200 in NUMA mode counts past 32).
pub const NODE_WORDS: u32 = 2;

/// Questions about a GPU that need nothing but its index.
const PLAIN: &[&str] = &[
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetBoardId",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetInforomImageVersion",
    "nvmlDeviceValidateInforom",
    "nvmlDeviceGetGspFirmwareVersion",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetPlatformInfo",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetDefaultEccMode",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetGspFirmwareMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGpuFabricInfoV",
];

/// Functions and the arguments that follow the GPU index.
const WITH_ARGUMENTS: &[(&str, &[&[u32]])] = &[
    ("nvmlDeviceGetInforomVersion", &[&[0], &[1], &[2]]),
    ("nvmlDeviceGetCpuAffinity", &[&[CPU_WORDS]]),
    ("nvmlDeviceGetMemoryAffinity", &[&[NODE_WORDS, 0]]),
    ("nvmlDeviceGetTotalEccErrors", &[&[0, 0], &[1, 0], &[0, 1], &[1, 1]]),
    ("nvmlDeviceGetMemoryErrorCounter", &[&[0, 1, 2], &[1, 1, 2]]),
    ("nvmlDeviceGetRetiredPages_v2", &[&[0], &[1]]),
    ("nvmlDeviceGetTemperature", &[&[0]]),
    ("nvmlDeviceGetTemperatureThreshold", &[&[0], &[1], &[2], &[3]]),
    ("nvmlDeviceGetClockInfo", &[&[0], &[1], &[2], &[3]]),
    ("nvmlDeviceGetMaxClockInfo", &[&[0], &[1], &[2], &[3]]),
    (
        "nvmlDeviceGetFieldValues",
        &[&[field::MEMORY_TEMPERATURE, 0], &[field::NVLINK_COUNT, 0], &[field::RECOVERY_ACTION, 0]],
    ),
];

/// What can rise or change while we work: asked again after each step and at the end.
const PULSE: &[(&str, &[&[u32]])] = &[
    ("nvmlDeviceGetHandleByIndex_v2", &[&[]]),
    ("nvmlDeviceGetTotalEccErrors", &[&[0, 0], &[1, 0], &[0, 1], &[1, 1]]),
    ("nvmlDeviceGetRemappedRows", &[&[]]),
    ("nvmlDeviceGetPcieReplayCounter", &[&[]]),
    ("nvmlDeviceGetFieldValues", &[&[field::RECOVERY_ACTION, 0]]),
];

fn with_arguments(gpu: u32, functions: &[(&str, &[&[u32]])]) -> Vec<Question> {
    let mut questions = Vec::new();
    for (function, variants) in functions {
        for rest in *variants {
            let arguments: Vec<u32> = std::iter::once(gpu).chain(rest.iter().copied()).collect();
            questions.push(Question::new(function, &arguments));
        }
    }
    questions
}

impl Gpu {
    /// First round: the handle, and everything that needs nothing but the index.
    pub fn questions(index: u32) -> Vec<Question> {
        let mut questions = vec![Question::new("nvmlDeviceGetHandleByIndex_v2", &[index])];
        questions.extend(PLAIN.iter().map(|function| Question::new(function, &[index])));
        questions.extend(with_arguments(index, WITH_ARGUMENTS));
        questions
    }

    /// The few counters that are asked after each step.
    pub fn pulse(index: u32) -> Vec<Question> {
        with_arguments(index, PULSE)
    }

    /// Second round, from what the first one said: the version-1 memory call where version 2
    /// failed, each NVLink, each possible MIG instance where MIG is on.
    pub fn follow_up(index: u32, first: &Answers) -> Vec<Question> {
        let mut questions = Vec::new();
        let memory: Reading<Memory> = first.reading("nvmlDeviceGetMemoryInfo_v2", &[index]);
        if memory.value().is_none() {
            questions.push(Question::new("nvmlDeviceGetMemoryInfo", &[index]));
        }
        for link in 0..link_count(index, first) {
            for function in [
                "nvmlDeviceGetNvLinkState",
                "nvmlDeviceGetNvLinkVersion",
                "nvmlDeviceGetNvLinkRemoteDeviceType",
                "nvmlDeviceGetNvLinkRemotePciInfo_v2",
            ] {
                questions.push(Question::new(function, &[index, link]));
            }
            for counter in 0..4 {
                questions.push(Question::new("nvmlDeviceGetNvLinkErrorCounter", &[index, link, counter]));
            }
            questions.push(Question::new("nvmlDeviceGetFieldValues", &[index, field::NVLINK_SPEED, link]));
        }
        for instance in 0..mig_capacity(index, first) {
            questions.push(Question::new("nvmlDeviceGetMigDeviceHandleByIndex", &[index, instance]));
        }
        questions
    }

    /// The GPU from all answers about it.
    pub fn from_answers(index: u32, answers: &Answers) -> Gpu {
        let gpu = [index];
        let with = |function: &str, rest: &[u32]| {
            let arguments: Vec<u32> = gpu.iter().chain(rest).copied().collect();
            (function.to_owned(), arguments)
        };
        macro_rules! ask {
            ($function:expr) => {
                answers.reading($function, &gpu)
            };
            ($function:expr, $($rest:expr),+) => {{
                let (function, arguments) = with($function, &[$($rest),+]);
                answers.reading(&function, &arguments)
            }};
        }
        let memory = match ask!("nvmlDeviceGetMemoryInfo_v2") {
            Reading::Value(memory) => Reading::Value(memory),
            other => match ask!("nvmlDeviceGetMemoryInfo") {
                Reading::Unasked => other,
                version_1 => version_1,
            },
        };
        Gpu {
            index,
            handle: ask!("nvmlDeviceGetHandleByIndex_v2"),
            name: ask!("nvmlDeviceGetName"),
            uuid: ask!("nvmlDeviceGetUUID"),
            serial: ask!("nvmlDeviceGetSerial"),
            brand: ask!("nvmlDeviceGetBrand"),
            architecture: ask!("nvmlDeviceGetArchitecture"),
            compute_capability: ask!("nvmlDeviceGetCudaComputeCapability"),
            board_id: ask!("nvmlDeviceGetBoardId"),
            board_part_number: ask!("nvmlDeviceGetBoardPartNumber"),
            vbios: ask!("nvmlDeviceGetVbiosVersion"),
            inforom_image: ask!("nvmlDeviceGetInforomImageVersion"),
            inforom_objects: [0, 1, 2].map(|object| ask!("nvmlDeviceGetInforomVersion", object)),
            inforom_valid: ask!("nvmlDeviceValidateInforom"),
            gsp_firmware: ask!("nvmlDeviceGetGspFirmwareVersion"),
            module_id: ask!("nvmlDeviceGetModuleId"),
            platform: ask!("nvmlDeviceGetPlatformInfo"),
            minor: ask!("nvmlDeviceGetMinorNumber"),
            virtualization: ask!("nvmlDeviceGetVirtualizationMode"),
            addressing_mode: ask!("nvmlDeviceGetAddressingMode"),
            pci: ask!("nvmlDeviceGetPciInfo_v3"),
            numa_node: ask!("nvmlDeviceGetNumaNodeId"),
            cpu_affinity: ask!("nvmlDeviceGetCpuAffinity", CPU_WORDS),
            memory_affinity: ask!("nvmlDeviceGetMemoryAffinity", NODE_WORDS, 0),
            link_generation: ask!("nvmlDeviceGetCurrPcieLinkGeneration"),
            link_width: ask!("nvmlDeviceGetCurrPcieLinkWidth"),
            max_link_generation: ask!("nvmlDeviceGetMaxPcieLinkGeneration"),
            max_link_width: ask!("nvmlDeviceGetMaxPcieLinkWidth"),
            device_max_generation: ask!("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
            pcie_replays: ask!("nvmlDeviceGetPcieReplayCounter"),
            memory,
            bar1: ask!("nvmlDeviceGetBAR1MemoryInfo"),
            ecc_mode: ask!("nvmlDeviceGetEccMode"),
            ecc_default: ask!("nvmlDeviceGetDefaultEccMode"),
            ecc: EccTotals {
                corrected_volatile: ask!("nvmlDeviceGetTotalEccErrors", 0, 0),
                uncorrected_volatile: ask!("nvmlDeviceGetTotalEccErrors", 1, 0),
                corrected_aggregate: ask!("nvmlDeviceGetTotalEccErrors", 0, 1),
                uncorrected_aggregate: ask!("nvmlDeviceGetTotalEccErrors", 1, 1),
                dram_uncorrected_aggregate: ask!("nvmlDeviceGetMemoryErrorCounter", 1, 1, 2),
                dram_corrected_aggregate: ask!("nvmlDeviceGetMemoryErrorCounter", 0, 1, 2),
            },
            sram: ask!("nvmlDeviceGetSramEccErrorStatus"),
            remapped_rows: ask!("nvmlDeviceGetRemappedRows"),
            remap_histogram: ask!("nvmlDeviceGetRowRemapperHistogram"),
            retired_pages_pending: ask!("nvmlDeviceGetRetiredPagesPendingStatus"),
            retired_pages: [0, 1].map(|cause| ask!("nvmlDeviceGetRetiredPages_v2", cause)),
            repair: ask!("nvmlDeviceGetRepairStatus"),
            recovery_action: ask!("nvmlDeviceGetFieldValues", field::RECOVERY_ACTION, 0),
            power_usage: ask!("nvmlDeviceGetPowerUsage"),
            power_limit: ask!("nvmlDeviceGetPowerManagementLimit"),
            power_default_limit: ask!("nvmlDeviceGetPowerManagementDefaultLimit"),
            power_enforced_limit: ask!("nvmlDeviceGetEnforcedPowerLimit"),
            power_constraints: ask!("nvmlDeviceGetPowerManagementLimitConstraints"),
            energy: ask!("nvmlDeviceGetTotalEnergyConsumption"),
            temperature: ask!("nvmlDeviceGetTemperature", 0),
            memory_temperature: ask!("nvmlDeviceGetFieldValues", field::MEMORY_TEMPERATURE, 0),
            margin_temperature: ask!("nvmlDeviceGetMarginTemperature"),
            temperature_thresholds: [0, 1, 2, 3].map(|limit| ask!("nvmlDeviceGetTemperatureThreshold", limit)),
            performance_state: ask!("nvmlDeviceGetPerformanceState"),
            event_reasons: ask!("nvmlDeviceGetCurrentClocksEventReasons"),
            supported_event_reasons: ask!("nvmlDeviceGetSupportedClocksEventReasons"),
            clocks: [0, 1, 2, 3].map(|clock| ask!("nvmlDeviceGetClockInfo", clock)),
            max_clocks: [0, 1, 2, 3].map(|clock| ask!("nvmlDeviceGetMaxClockInfo", clock)),
            persistence: ask!("nvmlDeviceGetPersistenceMode"),
            compute_mode: ask!("nvmlDeviceGetComputeMode"),
            mig_mode: ask!("nvmlDeviceGetMigMode"),
            mig_instances: (0..mig_capacity(index, answers))
                .map(|instance| ask!("nvmlDeviceGetMigDeviceHandleByIndex", instance))
                .collect(),
            gsp_mode: ask!("nvmlDeviceGetGspFirmwareMode"),
            compute_processes: ask!("nvmlDeviceGetComputeRunningProcesses_v3"),
            graphics_processes: ask!("nvmlDeviceGetGraphicsRunningProcesses_v3"),
            nvlink_count: ask!("nvmlDeviceGetFieldValues", field::NVLINK_COUNT, 0),
            nvlinks: (0..link_count(index, answers)).map(|link| nvlink(index, link, answers)).collect(),
            fabric: ask!("nvmlDeviceGetGpuFabricInfoV"),
        }
    }

    /// The PCI address, if the driver gave one that reads as such.
    pub fn bus_id(&self) -> Option<BusId> {
        self.pci.value().and_then(|pci| pci.bus_id.parse().ok())
    }
}

fn nvlink(gpu: u32, link: u32, answers: &Answers) -> NvLink {
    NvLink {
        state: answers.reading("nvmlDeviceGetNvLinkState", &[gpu, link]),
        version: answers.reading("nvmlDeviceGetNvLinkVersion", &[gpu, link]),
        remote_type: answers.reading("nvmlDeviceGetNvLinkRemoteDeviceType", &[gpu, link]),
        remote: answers.reading("nvmlDeviceGetNvLinkRemotePciInfo_v2", &[gpu, link]),
        errors: [0, 1, 2, 3].map(|counter| answers.reading("nvmlDeviceGetNvLinkErrorCounter", &[gpu, link, counter])),
        speed: answers.reading("nvmlDeviceGetFieldValues", &[gpu, field::NVLINK_SPEED, link]),
    }
}

/// NVLinks that the GPU has by its own count; NVML knows at most 36 (`NVML_NVLINK_MAX_LINKS` is 18 before Rubin).
fn link_count(gpu: u32, answers: &Answers) -> u32 {
    let count: Reading<u32> = answers.reading("nvmlDeviceGetFieldValues", &[gpu, field::NVLINK_COUNT, 0]);
    count.value().map_or(0, |count| (*count).min(36))
}

/// How many MIG instances to look for: the capacity where MIG is on, none where it is off.
fn mig_capacity(gpu: u32, answers: &Answers) -> u32 {
    let mode: Reading<Mode> = answers.reading("nvmlDeviceGetMigMode", &[gpu]);
    let capacity: Reading<u32> = answers.reading("nvmlDeviceGetMaxMigDeviceCount", &[gpu]);
    match (mode, capacity) {
        (Reading::Value(Mode { current: 1, .. }), Reading::Value(capacity)) => capacity.min(16),
        _ => 0,
    }
}
