//! A healthy host for the tests of the judges: H100 modules as the public captures show them
//! (k8s-test-infra `qx-h100.xml`, Apache-2.0), identities invented.

use std::collections::BTreeMap;

use crate::facts::gpu::{
    EccTotals, GspMode, Memory, Mode, PciInfo, PowerConstraints, RemapHistogram, RemappedRows, SramStatus,
};
use crate::facts::host::{DriverFacts, Kernel, KernelLog, LogExtent, Module, PciFunction, PciLink};
use crate::facts::snapshot::{DriverSession, Library, SessionState};
use crate::facts::{Gpu, HostFacts, Snapshot};
use crate::ident::{BusId, Digest};
use crate::reading::Reading::{self, Unsupported, Value};

/// A host with `count` healthy GPUs.
pub fn host(count: u32) -> Snapshot {
    Snapshot {
        host: HostFacts {
            pci_listing: Value(count),
            pci: (0..count).map(|index| (bus_id(index), function())).collect(),
            kernel: Kernel {
                boot_id: Value("0b0b0b0b-0000-4000-8000-000000000001".to_owned()),
                modules: Value(BTreeMap::from([(
                    "nvidia".to_owned(),
                    Module { state: "Live".to_owned(), used_by: vec![] },
                )])),
                ..Kernel::default()
            },
            driver: DriverFacts {
                module_version: Value("580.105.08".to_owned()),
                open_module: Value(true),
                device_nodes: (0..count).collect(),
                control_node: Value(true),
                ..DriverFacts::default()
            },
            kernel_log: KernelLog {
                state: Value(LogExtent { first: 0, last: 1000, complete: true, unknown: 0 }),
                entries: vec![],
            },
            foreign_pid_namespace: Value(false),
            ..HostFacts::default()
        },
        driver: DriverSession {
            session: SessionState::Answering,
            library: Some(library("/usr/lib/libnvidia-ml.so.580.105.08")),
            cuda_library: Some(library("/usr/lib/libcuda.so.580.105.08")),
            driver_version: Value("580.105.08".to_owned()),
            nvml_version: Value("13.580.105.08".to_owned()),
            cuda_version: Value(13_000),
            device_count: Value(count),
            excluded_count: Value(0),
        },
        gpus: (0..count).map(gpu).collect(),
        ..Snapshot::default()
    }
}

/// The address of the GPU with this index.
pub fn bus_id(index: u32) -> BusId {
    BusId { domain: 0, bus: (0x1b + 0x10 * index) as u8, device: 0, function: 0 }
}

/// Outcome, and each finding as code and subject, in order of the codes.
pub fn summary(outcome: &crate::outcome::Outcome) -> (&'static str, Vec<(String, String)>) {
    let mut findings: Vec<_> =
        outcome.findings.iter().map(|finding| (finding.code.to_string(), finding.subject.to_string())).collect();
    findings.sort();
    (outcome.status().as_str(), findings)
}

/// Asserts the outcome and its findings, given as code and subject.
#[track_caller]
pub fn assert_outcome(outcome: &crate::outcome::Outcome, status: &str, findings: &[(&str, &str)]) {
    let mut expected: Vec<_> =
        findings.iter().map(|(code, subject)| ((*code).to_owned(), (*subject).to_owned())).collect();
    expected.sort();
    assert_eq!(summary(outcome), (status, expected), "{outcome:#?}");
    if status == "passed" {
        assert_fits(outcome);
    }
}

/// Asserts that the closing text fits the screen.
#[track_caller]
pub fn assert_fits(outcome: &crate::outcome::Outcome) {
    assert!(outcome.cause.chars().count() <= super::LONGEST_CLOSING, "too long for a screen: {}", outcome.cause);
}

/// Asserts that with each of these readings gone, in every way in which it can go, `judge` ends
/// undecided or failed and never passes.
#[track_caller]
pub fn assert_never_passes_unread<T: Clone + std::fmt::Debug>(
    name: &str,
    states: impl IntoIterator<Item = Reading<T>>,
    mut judge: impl FnMut(Reading<T>) -> crate::outcome::Outcome,
) {
    for state in states {
        let outcome = judge(state.clone());
        assert_eq!(outcome.status().as_str(), "undecided", "{name} = {state:?}: {outcome:#?}");
        assert!(!outcome.is_complete(), "{name} = {state:?} counts as judged");
    }
}

/// Every way in which a reading that decides can be missing.
pub fn unread<T>() -> [Reading<T>; 5] {
    let [a, b, c, d] = unread_optional();
    [Unsupported, a, b, c, d]
}

/// Every way in which a reading that not every machine offers can be missing.
pub fn unread_optional<T>() -> [Reading<T>; 4] {
    use crate::reading::Code;
    [
        Reading::Unasked,
        Reading::Failed(Code::UNKNOWN),
        Reading::Failed(Code::NO_PERMISSION),
        Reading::Failed(Code::NOT_RECORDED),
    ]
}

fn library(resolved: &str) -> Library {
    Library {
        path: "/usr/lib/libnvidia-ml.so.1".to_owned(),
        resolved: resolved.to_owned(),
        digest: Digest([0; 32]),
        size: 1,
        owner: 0,
        simulated: false,
        stub: false,
    }
}

fn function() -> PciFunction {
    PciFunction {
        model: Value("10de:2330".parse().unwrap()),
        class: Value(0x03_0200),
        driver: Value("nvidia".to_owned()),
        link: PciLink { speed: Value(32.0), width: Value(16), ..PciLink::default() },
        ..PciFunction::default()
    }
}

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        handle: Value(true),
        uuid: Value(format!("GPU-0000000{index}-0000-4000-8000-000000000000")),
        serial: Value(format!("165052300100{index}")),
        vbios: Value("96.00.BC.00.01".to_owned()),
        inforom_image: Value("G520.0200.00.05".to_owned()),
        inforom_valid: Value(true),
        minor: Value(index),
        pci: Value(PciInfo {
            bus_id: format!("0000{}", bus_id(index)),
            pci_device_id: 0x2330_10de,
            pci_sub_system_id: 0,
        }),
        link_generation: Value(5),
        link_width: Value(16),
        pcie_replays: Value(120),
        memory: Value(Memory { total: 81_559 << 20, reserved: 600 << 20, free: 80_958 << 20, used: 1 << 20 }),
        ecc_mode: Value(Mode { current: 1, pending: 1 }),
        ecc: EccTotals {
            corrected_volatile: Value(0),
            uncorrected_volatile: Value(0),
            corrected_aggregate: Value(3),
            uncorrected_aggregate: Value(0),
            dram_uncorrected_aggregate: Value(0),
            dram_corrected_aggregate: Value(3),
        },
        sram: Value(SramStatus {
            aggregate_unc_parity: 0,
            aggregate_unc_sec_ded: 0,
            aggregate_cor: 0,
            volatile_unc_parity: 0,
            volatile_unc_sec_ded: 0,
            volatile_cor: 0,
            b_threshold_exceeded: 0,
        }),
        remapped_rows: Value(RemappedRows { corr_rows: 0, unc_rows: 0, is_pending: 0, failure_occurred: 0 }),
        remap_histogram: Value(RemapHistogram { max: 2560, high: 0, partial: 0, low: 0, none: 0 }),
        retired_pages_pending: Unsupported,
        retired_pages: [Unsupported, Unsupported],
        repair: Unsupported,
        recovery_action: Value(0),
        power_usage: Value(72_000),
        power_limit: Value(700_000),
        power_default_limit: Value(700_000),
        power_enforced_limit: Value(700_000),
        power_constraints: Value(PowerConstraints { min_limit: 200_000, max_limit: 700_000 }),
        temperature: Value(31),
        performance_state: Value(0),
        event_reasons: Value(1),
        persistence: Value(1),
        mig_mode: Value(Mode { current: 0, pending: 0 }),
        gsp_mode: Value(GspMode { is_enabled: 1, default_mode: 1 }),
        compute_processes: Value(vec![]),
        graphics_processes: Value(vec![]),
        ..Gpu::default()
    }
}
