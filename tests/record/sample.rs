//! A small, realistic run: two GPUs, three steps, and the host that it was on.

#![allow(dead_code, reason = "each test crate uses its own part")]

use nodegate::decision::{Decision, Level, Require, Stage};
use nodegate::facts::{Gpu, Snapshot};
use nodegate::ident::{Digest, Subject};
use nodegate::outcome::{Action, Finding, Grade, Judgement, Measurement, Outcome};
use nodegate::predicate::{
    Agent, ClassReference, Clock, Details, Host, Inventory, InventoryGpu, Operator, PlanReference, SCHEMA, Step,
    SuiteReference,
};
use nodegate::reading::Reading;
use nodegate::record::Documents;

pub const SERIAL: &str = "S452393X4309021";
pub const OTHER_SERIAL: &str = "S452393X4309022";
pub const BOOT: &str = "0b7c6f0e-6a53-4d6c-9f0e-6a1f3c1f2a10";

pub fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

/// A host with this board serial and these GPUs by UUID.
pub fn snapshot(serial: &str, uuids: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let value = |text: &str| Reading::Value(text.to_owned());
    snapshot.host.hostname = value("gpu-r12-u07");
    snapshot.host.dmi.board_serial = value(serial);
    snapshot.host.dmi.chassis_serial = value("To be filled by O.E.M.");
    snapshot.host.kernel.boot_id = value(BOOT);
    snapshot.host.kernel.uptime = Reading::Value(100_000.0);
    snapshot.gpus = uuids.iter().map(|uuid| Gpu { uuid: value(uuid), ..Gpu::default() }).collect();
    snapshot
}

pub const GPUS: [&str; 2] = ["GPU-3f0c1c2e-0000-4000-8000-000000000001", "GPU-9a7701d4-0000-4000-8000-000000000002"];

pub fn documents() -> Documents {
    Documents::of(&snapshot(SERIAL, &GPUS))
}

pub fn passed(summary: &str) -> Outcome {
    let mut judgement = Judgement::expecting([Subject::host()]);
    judgement.judged(&Subject::host());
    judgement.measure(Measurement::new("temperature", &Subject::host(), 41.5, "C"));
    judgement.close(summary)
}

pub fn found(grade: Grade) -> Outcome {
    let mut judgement = Judgement::expecting([Subject::host()]);
    judgement.judged(&Subject::host());
    judgement.find(
        Finding::new(grade, "link-narrow", Subject::host(), "PCIe link narrow", Action::Reseat).compared("x16", "x8"),
    );
    judgement.close("unused")
}

pub fn step(id: &str, outcome: Outcome) -> Step {
    Step {
        id: id.parse().unwrap(),
        check: id.parse().unwrap(),
        require: Require::Must,
        outcome,
        started_at: "2026-11-30T20:40:26Z".to_owned(),
        duration_ms: 120,
    }
}

/// An accepted live run at stage rack, level quick.
pub fn details() -> Details {
    Details {
        schema: SCHEMA,
        run_id: uuid::Uuid::now_v7().to_string(),
        decision: Decision::Accepted,
        reason: None,
        stage: Stage::Rack,
        level: Level::Quick,
        simulated: false,
        overridden: false,
        partial: false,
        agent: Agent { version: "0.1.0".to_owned(), digest: digest("agent") },
        host: Host {
            hostname: "gpu-r12-u07".to_owned(),
            vendor: Some("Supermicro".to_owned()),
            kernel: Some("6.8.0-40-generic".to_owned()),
            os_image: Some("Ubuntu 24.04.1 LTS".to_owned()),
            ..Host::default()
        },
        operator: Operator { name: Some("ada".to_owned()), ..Operator::default() },
        plan: PlanReference {
            suite: SuiteReference { id: "preflight".parse().unwrap(), revision: 1, digest: digest("suite") },
            class: ClassReference {
                id: "hgx-h100-8".parse().unwrap(),
                revision: 1,
                digest: digest("class"),
                chosen: "auto".to_owned(),
            },
            site: None,
            policy: digest("policy"),
        },
        seq: 0,
        prev: None,
        challenge: "none".to_owned(),
        boot_ids: vec![BOOT.to_owned()],
        clock: Clock { synchronised: Some(true), maximum_error: Some(31_000), log_end: Some(1000) },
        started_at: "2026-11-30T20:40:26Z".to_owned(),
        finished_at: "2026-11-30T20:41:07.125Z".to_owned(),
        topology: None,
        inventory: Inventory {
            driver: Some("580.105.08".to_owned()),
            nvml_library: Some(digest("libnvidia-ml.so.1")),
            gpus: GPUS
                .iter()
                .map(|uuid| InventoryGpu {
                    bus_id: "0000:1b:00.0".to_owned(),
                    uuid: Some((*uuid).to_owned()),
                    memory: Some("85520809984".to_owned()),
                    ..InventoryGpu::default()
                })
                .collect(),
            ..Inventory::default()
        },
        steps: vec![
            step("driver", passed("580.105.08, library and module agree")),
            step("gpu-inventory", passed("2 of 2 GPUs")),
            step("mig", Outcome::absent("full GPUs in this class")),
        ],
        waivers: Vec::new(),
        overrides: Vec::new(),
        evidence: Vec::new(),
        notices: Vec::new(),
    }
}

/// The same with changes.
pub fn details_with(change: impl FnOnce(&mut Details)) -> Details {
    let mut details = details();
    change(&mut details);
    details
}
