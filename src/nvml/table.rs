//! Every NVML function that can be asked, with the number of its arguments and its shape.
//!
//! Value shapes: `fixtures/FORMAT.md`. Two functions have an older name that the same
//! driver may export instead; a fabric, a platform and a memory structure have older
//! versions (`fabric.rs`, `structure.rs`, and the question itself for memory).

use std::collections::HashMap;
use std::sync::LazyLock;

use nvml_wrapper_sys::bindings::*;

use super::call::{Given, done, text as read_text};
use super::driver::Driver;
use super::shape::{number, structure, symbol, system_number, system_text, text, two};
use super::{fabric, field, list, structure as show};
use crate::facts::Question;
use crate::reading::Code;

/// Answers from the table. A function that is not in it is `FUNCTION_NOT_FOUND`, a wrong
/// number of arguments `INVALID_ARGUMENT`.
pub(super) fn answer(driver: &Driver, question: &Question) -> Given {
    let entry = BY_NAME.get(question.function.as_str()).ok_or(Code::FUNCTION_NOT_FOUND)?;
    if question.arguments.len() != entry.arguments {
        return Err(Code::INVALID_ARGUMENT);
    }
    (entry.call)(driver, &question.arguments)
}

/// Whether the table has this function, with so many arguments.
#[cfg(test)]
pub(super) fn knows(question: &Question) -> bool {
    BY_NAME.get(question.function.as_str()).is_some_and(|entry| entry.arguments == question.arguments.len())
}

struct Entry {
    function: &'static str,
    arguments: usize,
    call: fn(&Driver, &[u32]) -> Given,
}

macro_rules! entries {
    ($($function:ident $arguments:literal => $call:expr;)+) => {
        &[$(Entry { function: stringify!($function), arguments: $arguments, call: $call }),+]
    };
}

static BY_NAME: LazyLock<HashMap<&str, &Entry>> =
    LazyLock::new(|| ENTRIES.iter().map(|entry| (entry.function, entry)).collect());

const ENTRIES: &[Entry] = entries! {
    // The driver as a whole.
    nvmlSystemGetDriverVersion 0 => system_text!(nvmlSystemGetDriverVersion);
    nvmlSystemGetNVMLVersion 0 => system_text!(nvmlSystemGetNVMLVersion);
    nvmlSystemGetCudaDriverVersion_v2 0 => system_number!(nvmlSystemGetCudaDriverVersion_v2, i32);
    nvmlSystemGetDriverBranch 0 => show::driver_branch;
    nvmlSystemGetConfComputeState 0 => show::confidential;
    nvmlDeviceGetCount_v2 0 => system_number!(nvmlDeviceGetCount_v2, u32);
    nvmlGetExcludedDeviceCount 0 => system_number!(nvmlGetExcludedDeviceCount, u32);
    nvmlGetExcludedDeviceInfoByIndex 1 => show::excluded;
    // What a GPU is.
    nvmlDeviceGetHandleByIndex_v2 1 => |driver, arguments| driver.ask_handle(arguments[0]).map(|_| true.into());
    nvmlDeviceGetName 1 => text!(nvmlDeviceGetName);
    nvmlDeviceGetUUID 1 => text!(nvmlDeviceGetUUID);
    nvmlDeviceGetSerial 1 => text!(nvmlDeviceGetSerial);
    nvmlDeviceGetBrand 1 => number!(nvmlDeviceGetBrand, u32);
    nvmlDeviceGetArchitecture 1 => number!(nvmlDeviceGetArchitecture, u32);
    nvmlDeviceGetCudaComputeCapability 1 => two!(nvmlDeviceGetCudaComputeCapability, i32, "major", "minor");
    nvmlDeviceGetBoardId 1 => number!(nvmlDeviceGetBoardId, u32);
    nvmlDeviceGetBoardPartNumber 1 => text!(nvmlDeviceGetBoardPartNumber);
    nvmlDeviceGetVbiosVersion 1 => text!(nvmlDeviceGetVbiosVersion);
    nvmlDeviceGetInforomImageVersion 1 => text!(nvmlDeviceGetInforomImageVersion);
    nvmlDeviceGetInforomVersion 2 => text!(nvmlDeviceGetInforomVersion, 1);
    nvmlDeviceGetInforomConfigurationChecksum 1 => number!(nvmlDeviceGetInforomConfigurationChecksum, u32);
    nvmlDeviceValidateInforom 1 => validate_inforom;
    nvmlDeviceGetGspFirmwareVersion 1 => gsp_firmware;
    nvmlDeviceGetGspFirmwareMode 1 => two!(nvmlDeviceGetGspFirmwareMode, u32, "isEnabled", "defaultMode");
    nvmlDeviceGetModuleId 1 => number!(nvmlDeviceGetModuleId, u32);
    nvmlDeviceGetPlatformInfo 1 => show::platform;
    nvmlDeviceGetMinorNumber 1 => number!(nvmlDeviceGetMinorNumber, u32);
    nvmlDeviceGetVirtualizationMode 1 => number!(nvmlDeviceGetVirtualizationMode, u32);
    nvmlDeviceGetAddressingMode 1 =>
        structure!(nvmlDeviceGetAddressingMode, nvmlDeviceAddressingMode_v1_t, 1, show::addressing);
    nvmlDeviceGetC2cModeInfoV 1 => structure!(nvmlDeviceGetC2cModeInfoV, nvmlC2cModeInfo_v1_t, 1, show::c2c);
    // Where it is, and what is near.
    nvmlDeviceGetPciInfo_v3 1 => structure!(nvmlDeviceGetPciInfo_v3, nvmlPciInfo_t, 0, show::pci);
    nvmlDeviceGetNumaNodeId 1 => number!(nvmlDeviceGetNumaNodeId, u32);
    nvmlDeviceGetCpuAffinity 2 => list::cpu_affinity;
    nvmlDeviceGetMemoryAffinity 3 => list::memory_affinity;
    nvmlDeviceGetTopologyCommonAncestor 2 => common_ancestor;
    nvmlDeviceGetP2PStatus 3 => p2p_status;
    // The link to the host.
    nvmlDeviceGetCurrPcieLinkGeneration 1 => number!(nvmlDeviceGetCurrPcieLinkGeneration, u32);
    nvmlDeviceGetCurrPcieLinkWidth 1 => number!(nvmlDeviceGetCurrPcieLinkWidth, u32);
    nvmlDeviceGetMaxPcieLinkGeneration 1 => number!(nvmlDeviceGetMaxPcieLinkGeneration, u32);
    nvmlDeviceGetMaxPcieLinkWidth 1 => number!(nvmlDeviceGetMaxPcieLinkWidth, u32);
    nvmlDeviceGetGpuMaxPcieLinkGeneration 1 => number!(nvmlDeviceGetGpuMaxPcieLinkGeneration, u32);
    nvmlDeviceGetPcieSpeed 1 => number!(nvmlDeviceGetPcieSpeed, u32);
    nvmlDeviceGetPcieLinkMaxSpeed 1 => number!(nvmlDeviceGetPcieLinkMaxSpeed, u32);
    nvmlDeviceGetPcieReplayCounter 1 => number!(nvmlDeviceGetPcieReplayCounter, u32);
    // Memory and its health.
    nvmlDeviceGetMemoryInfo 1 => structure!(nvmlDeviceGetMemoryInfo, nvmlMemory_t, 0, show::memory);
    nvmlDeviceGetMemoryInfo_v2 1 => structure!(nvmlDeviceGetMemoryInfo_v2, nvmlMemory_v2_t, 2, show::memory_2);
    nvmlDeviceGetBAR1MemoryInfo 1 => structure!(nvmlDeviceGetBAR1MemoryInfo, nvmlBAR1Memory_t, 0, show::bar1);
    nvmlDeviceGetMemoryBusWidth 1 => number!(nvmlDeviceGetMemoryBusWidth, u32);
    nvmlDeviceGetEccMode 1 => two!(nvmlDeviceGetEccMode, u32, "current", "pending");
    nvmlDeviceGetDefaultEccMode 1 => number!(nvmlDeviceGetDefaultEccMode, u32);
    nvmlDeviceGetTotalEccErrors 3 => number!(nvmlDeviceGetTotalEccErrors, u64, 1, 2);
    nvmlDeviceGetMemoryErrorCounter 4 => number!(nvmlDeviceGetMemoryErrorCounter, u64, 1, 2, 3);
    nvmlDeviceGetSramEccErrorStatus 1 =>
        structure!(nvmlDeviceGetSramEccErrorStatus, nvmlEccSramErrorStatus_v1_t, 1, show::sram);
    nvmlDeviceGetRemappedRows 1 => show::remapped_rows;
    nvmlDeviceGetRowRemapperHistogram 1 =>
        structure!(nvmlDeviceGetRowRemapperHistogram, nvmlRowRemapperHistogramValues_t, 0, show::histogram);
    nvmlDeviceGetRetiredPagesPendingStatus 1 => number!(nvmlDeviceGetRetiredPagesPendingStatus, u32);
    nvmlDeviceGetRetiredPages_v2 2 => list::retired_pages;
    nvmlDeviceGetRepairStatus 1 => structure!(nvmlDeviceGetRepairStatus, nvmlRepairStatus_v1_t, 1, show::repair);
    // Power, heat and clocks.
    nvmlDeviceGetPowerUsage 1 => number!(nvmlDeviceGetPowerUsage, u32);
    nvmlDeviceGetPowerManagementLimit 1 => number!(nvmlDeviceGetPowerManagementLimit, u32);
    nvmlDeviceGetPowerManagementDefaultLimit 1 => number!(nvmlDeviceGetPowerManagementDefaultLimit, u32);
    nvmlDeviceGetEnforcedPowerLimit 1 => number!(nvmlDeviceGetEnforcedPowerLimit, u32);
    nvmlDeviceGetPowerManagementLimitConstraints 1 =>
        two!(nvmlDeviceGetPowerManagementLimitConstraints, u32, "minLimit", "maxLimit");
    nvmlDeviceGetTotalEnergyConsumption 1 => number!(nvmlDeviceGetTotalEnergyConsumption, u64);
    nvmlDeviceGetTemperature 2 => number!(nvmlDeviceGetTemperature, u32, 1);
    nvmlDeviceGetTemperatureThreshold 2 => number!(nvmlDeviceGetTemperatureThreshold, u32, 1);
    nvmlDeviceGetMarginTemperature 1 =>
        structure!(nvmlDeviceGetMarginTemperature, nvmlMarginTemperature_v1_t, 1, show::margin);
    nvmlDeviceGetPerformanceState 1 => number!(nvmlDeviceGetPerformanceState, u32);
    nvmlDeviceGetCurrentClocksEventReasons 1 => event_reasons;
    nvmlDeviceGetSupportedClocksEventReasons 1 => supported_event_reasons;
    nvmlDeviceGetViolationStatus 2 =>
        structure!(nvmlDeviceGetViolationStatus, nvmlViolationTime_t, 0, show::violation, 1);
    nvmlDeviceGetClockInfo 2 => number!(nvmlDeviceGetClockInfo, u32, 1);
    nvmlDeviceGetMaxClockInfo 2 => number!(nvmlDeviceGetMaxClockInfo, u32, 1);
    // Modes and users.
    nvmlDeviceGetPersistenceMode 1 => number!(nvmlDeviceGetPersistenceMode, u32);
    nvmlDeviceGetComputeMode 1 => number!(nvmlDeviceGetComputeMode, u32);
    nvmlDeviceGetMigMode 1 => two!(nvmlDeviceGetMigMode, u32, "current", "pending");
    nvmlDeviceGetMaxMigDeviceCount 1 => number!(nvmlDeviceGetMaxMigDeviceCount, u32);
    nvmlDeviceGetMigDeviceHandleByIndex 2 => show::mig_instance;
    nvmlDeviceGetComputeRunningProcesses_v3 1 => list::compute_processes;
    nvmlDeviceGetGraphicsRunningProcesses_v3 1 => list::graphics_processes;
    // NVLink and fabric.
    nvmlDeviceGetNvLinkState 2 => number!(nvmlDeviceGetNvLinkState, u32, 1);
    nvmlDeviceGetNvLinkVersion 2 => number!(nvmlDeviceGetNvLinkVersion, u32, 1);
    nvmlDeviceGetNvLinkRemoteDeviceType 2 => number!(nvmlDeviceGetNvLinkRemoteDeviceType, u32, 1);
    nvmlDeviceGetNvLinkRemotePciInfo_v2 2 =>
        structure!(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlPciInfo_t, 0, show::pci, 1);
    nvmlDeviceGetNvLinkCapability 3 => number!(nvmlDeviceGetNvLinkCapability, u32, 1, 2);
    nvmlDeviceGetNvLinkErrorCounter 3 => number!(nvmlDeviceGetNvLinkErrorCounter, u64, 1, 2);
    nvmlDeviceGetGpuFabricInfoV 1 => fabric::fabric;
    nvmlDeviceGetFieldValues 3 => field::field;
};

fn validate_inforom(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceValidateInforom);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`.
    done(unsafe { function(device) })
}

/// The one text call that takes no length (`NVML_GSP_FIRMWARE_VERSION_BUF_SIZE` is 64).
fn gsp_firmware(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetGspFirmwareVersion);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`; the buffer is longer than the 64 bytes of the header.
    read_text(|buffer| unsafe { function(device, buffer.as_mut_ptr()) })
}

fn common_ancestor(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetTopologyCommonAncestor);
    let (a, b) = (driver.device(arguments[0])?, driver.device(arguments[1])?);
    // SAFETY: see the head of `shape.rs`.
    super::call::number(|out: &mut u32| unsafe { function(a, b, out) })
}

fn p2p_status(driver: &Driver, arguments: &[u32]) -> Given {
    let function = symbol!(driver, nvmlDeviceGetP2PStatus);
    let (a, b) = (driver.device(arguments[0])?, driver.device(arguments[1])?);
    // SAFETY: see the head of `shape.rs`.
    super::call::number(|out: &mut u32| unsafe { function(a, b, arguments[2], out) })
}

/// Drivers before 535 have the same call under its older name.
fn event_reasons(driver: &Driver, arguments: &[u32]) -> Given {
    let newer: fn(&Driver, &[u32]) -> Given = number!(nvmlDeviceGetCurrentClocksEventReasons, u64);
    let older: fn(&Driver, &[u32]) -> Given = number!(nvmlDeviceGetCurrentClocksThrottleReasons, u64);
    match newer(driver, arguments) {
        Err(Code::FUNCTION_NOT_FOUND) => older(driver, arguments),
        given => given,
    }
}

/// As [`event_reasons`].
fn supported_event_reasons(driver: &Driver, arguments: &[u32]) -> Given {
    let newer: fn(&Driver, &[u32]) -> Given = number!(nvmlDeviceGetSupportedClocksEventReasons, u64);
    let older: fn(&Driver, &[u32]) -> Given = number!(nvmlDeviceGetSupportedClocksThrottleReasons, u64);
    match newer(driver, arguments) {
        Err(Code::FUNCTION_NOT_FOUND) => older(driver, arguments),
        given => given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::snapshot::{DriverSession, Pair};
    use crate::facts::{Answer, Answers, Gpu};

    /// Answers that make a GPU ask everything that it can ask in the second round.
    fn first_round() -> Answers {
        [
            (Question::new("nvmlDeviceGetFieldValues", &[0, 91, 0]), Answer::value(18)),
            (
                Question::new("nvmlDeviceGetMigMode", &[0]),
                Answer::value(serde_json::json!({"current": 1, "pending": 1})),
            ),
            (Question::new("nvmlDeviceGetMaxMigDeviceCount", &[0]), Answer::value(7)),
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn every_question_of_the_facts_and_of_the_catalogue_is_in_the_table() {
        let mut questions = DriverSession::questions();
        questions.extend(Gpu::questions(0));
        questions.extend(Gpu::pulse(0));
        questions.extend(Gpu::follow_up(0, &first_round()));
        questions.extend(Pair::questions(0, 1));
        questions.extend(crate::nvml::rest_of_system(1));
        questions.extend(crate::nvml::rest_of_gpu(0));
        questions.extend(crate::nvml::rest_of_link(0, 3));
        let unknown: Vec<String> = questions.iter().filter(|q| !knows(q)).map(Question::to_string).collect();
        assert_eq!(unknown, Vec::<String>::new());
    }

    #[test]
    fn no_function_stands_twice_in_the_table() {
        assert_eq!(BY_NAME.len(), ENTRIES.len());
    }
}
