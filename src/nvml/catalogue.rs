//! What else a gate can use: the questions that no fact is made of yet and a capture keeps.

use crate::facts::Question;

/// One GPU's remaining calls that need nothing but its index.
const PLAIN: &[&str] = &[
    "nvmlDeviceGetInforomConfigurationChecksum",
    "nvmlDeviceGetC2cModeInfoV",
    "nvmlDeviceGetPcieSpeed",
    "nvmlDeviceGetPcieLinkMaxSpeed",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMemoryInfo",
];

/// Fields by id (`nvml.h`): clock-event times, NVLink speed, PCIe replays and error counters,
/// remapped rows, C2C links, power, distances to the temperature limits.
const FIELDS: &[u32] = &[
    74, 75, 76, 90, 94, 95, 142, 143, 144, 145, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183,
    185, 186, 193, 194, 195, 196,
];

/// Fields with the link as their scope: remote id, replays, recoveries, CRC errors, state.
const LINK_FIELDS: &[u32] = &[146, 161, 162, 163, 165];

/// `nvmlMemoryErrorType_t`, `nvmlEccCounterType_t`, `nvmlMemoryLocation_t`: both kinds, both
/// counters, L1, L2, device memory, register file, texture, shared, CBU and SRAM.
const ERROR_LOCATIONS: std::ops::RangeInclusive<u32> = 0..=7;

/// The driver as a whole, with this many excluded GPUs.
pub fn rest_of_system(excluded: u32) -> Vec<Question> {
    let mut questions =
        vec![Question::new("nvmlSystemGetDriverBranch", &[]), Question::new("nvmlSystemGetConfComputeState", &[])];
    questions.extend((0..excluded).map(|index| Question::new("nvmlGetExcludedDeviceInfoByIndex", &[index])));
    questions
}

/// One GPU.
pub fn rest_of_gpu(gpu: u32) -> Vec<Question> {
    let mut questions: Vec<Question> = PLAIN.iter().map(|function| Question::new(function, &[gpu])).collect();
    questions.extend(FIELDS.iter().map(|id| Question::new("nvmlDeviceGetFieldValues", &[gpu, *id, 0])));
    // `nvmlPerfPolicyType_t`: power, thermal, sync boost, board limit, low utilisation, reliability.
    questions.extend((0..=5).map(|policy| Question::new("nvmlDeviceGetViolationStatus", &[gpu, policy])));
    for (kind, counter) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        questions.extend(
            ERROR_LOCATIONS
                .map(|location| Question::new("nvmlDeviceGetMemoryErrorCounter", &[gpu, kind, counter, location])),
        );
    }
    questions
}

/// One NVLink of one GPU.
pub fn rest_of_link(gpu: u32, link: u32) -> Vec<Question> {
    // `nvmlNvLinkCapability_t`: P2P, system memory, P2P atomics, system atomics, SLI, valid.
    let mut questions: Vec<Question> =
        (0..=5).map(|kind| Question::new("nvmlDeviceGetNvLinkCapability", &[gpu, link, kind])).collect();
    questions.extend(LINK_FIELDS.iter().map(|id| Question::new("nvmlDeviceGetFieldValues", &[gpu, *id, link])));
    questions
}
