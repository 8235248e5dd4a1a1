//! Test only: the whole suite over recorded hosts of which something is not known.
//!
//! The closed verdict end to end: whatever reading is missing, a host is accepted only if the
//! reading is one of those that decide nothing, and never rejected for what we did not find out.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::check::KINDS;
use crate::check::aftermath::Aftermath;
use crate::check::driver::Driver;
use crate::check::ecc::Ecc;
use crate::check::gpu_idle::GpuIdle;
use crate::check::gpu_inventory::GpuInventory;
use crate::check::memory_repair::MemoryRepair;
use crate::check::mig::Mig;
use crate::check::nvlink::NvLink;
use crate::check::pcie_link::PcieLink;
use crate::check::power::Power;
use crate::decision::{Decision, Judged, decide};
use crate::facts::snapshot::Library;
use crate::facts::{Answer, Answers, Question, Snapshot};
use crate::host::{Origin, replay};
use crate::ident::{Digest, PciModel};
use crate::outcome::Outcome;
use crate::plan::class::{self, Answer as ClassAnswer, Class, Wish};
use crate::plan::suite::{self, Suite};
use crate::reading::{Code, Reading};

/// Recorded hosts of one GPU or more for each way to repair memory, with ECC and without.
const HOSTS: [&str; 4] = ["hgx-h100-8", "t4", "rtx-4080-super", "l40s"];

/// Readings that decide nothing: they are shown, or other readings decide what they tell.
const INFORMATIVE: &[&str] = &[
    "driver.excluded_count",
    "gpus.*.addressing_mode",
    "gpus.*.architecture",
    "gpus.*.bar1",
    "gpus.*.board_id",
    "gpus.*.board_part_number",
    "gpus.*.brand",
    "gpus.*.clocks.*",
    "gpus.*.compute_capability",
    "gpus.*.compute_mode",
    "gpus.*.cpu_affinity",
    "gpus.*.device_max_generation",
    "gpus.*.ecc.dram_corrected_aggregate",
    "gpus.*.ecc.dram_uncorrected_aggregate",
    "gpus.*.ecc_default",
    "gpus.*.energy",
    "gpus.*.gsp_firmware",
    "gpus.*.inforom_image",
    "gpus.*.inforom_objects.*",
    "gpus.*.margin_temperature",
    "gpus.*.max_clocks.*",
    "gpus.*.max_link_generation",
    "gpus.*.max_link_width",
    "gpus.*.memory_affinity",
    "gpus.*.memory_temperature",
    "gpus.*.module_id",
    "gpus.*.name",
    "gpus.*.nvlinks.*.errors.*",
    "gpus.*.nvlinks.*.remote",
    "gpus.*.nvlinks.*.remote_type",
    "gpus.*.nvlinks.*.version",
    "gpus.*.platform",
    "gpus.*.power_constraints",
    "gpus.*.supported_event_reasons",
    "gpus.*.temperature_thresholds.*",
    "gpus.*.vbios",
    "gpus.*.virtualization",
    "host.cpu.model",
    "host.cpu.online",
    "host.cpu.sockets",
    "host.dmi.bios_version",
    "host.dmi.board_name",
    "host.dmi.board_serial",
    "host.dmi.chassis_serial",
    "host.dmi.product",
    "host.dmi.product_serial",
    "host.dmi.product_uuid",
    "host.dmi.vendor",
    "host.driver.open_module",
    "host.driver.parameters",
    "host.driver.version_text",
    "host.hostname",
    "host.kernel.command_line",
    "host.kernel.release",
    "host.kernel.uptime",
    "host.memory_total",
    "host.numa.*.cpus",
    "host.numa.*.distances",
    "host.numa.*.memory",
    "host.os.id",
    "host.os.machine_id",
    "host.os.pretty_name",
    "host.os.version_id",
    "host.pci.*.driver",
    "host.pci.*.link.correctable",
    "host.pci.*.link.fatal",
    "host.pci.*.link.max_speed",
    "host.pci.*.link.max_width",
    "host.pci.*.link.nonfatal",
    "host.pci.*.local_cpus",
    "host.pci.*.numa_node",
    "host.pci.*.subsystem",
];

/// Readings that decide on the first host, and that the classes of the others leave alone.
const BY_CLASS: &[&str] = &["gpus.*.gsp_mode", "gpus.*.persistence", "gpus.*.sram"];

/// The suite with the class that the bus chooses.
struct Gate {
    suite: Suite,
    class: Class,
}

impl Gate {
    fn of(host: &Snapshot) -> Gate {
        let suite = suite::builtin(KINDS).unwrap();
        let models: Vec<PciModel> =
            host.gpus_on_bus().iter().map(|bus_id| *host.host.pci[bus_id].model.value().unwrap()).collect();
        let class = class::choose(&models, None, &Wish::Auto, &suite, KINDS).unwrap().class;
        Gate { suite, class }
    }

    fn decide(&self, opening: &Snapshot, closing: &Snapshot) -> Decision {
        let outcomes: Vec<Outcome> = self
            .suite
            .steps
            .iter()
            .map(|step| match &self.class.answers[&step.id] {
                ClassAnswer::Absent(reason) => Outcome::absent(reason),
                ClassAnswer::Limits(limits) => {
                    let table = limits.iter().map(|limit| (limit.name.clone(), limit.value.clone())).collect();
                    judge(step.check.as_str(), table, opening, closing)
                }
            })
            .collect();
        let judged: Vec<Judged<'_>> = self
            .suite
            .steps
            .iter()
            .zip(&outcomes)
            .map(|(step, outcome)| Judged { id: &step.id, check: &step.check, require: step.require, outcome })
            .collect();
        decide(&judged, self.class.can_accept())
    }
}

fn judge(check: &str, table: toml::Table, opening: &Snapshot, closing: &Snapshot) -> Outcome {
    match check {
        "driver" => table.try_into::<Driver>().unwrap().judge(opening, Origin::Live),
        "gpu-inventory" => table.try_into::<GpuInventory>().unwrap().judge(opening),
        "gpu-idle" => table.try_into::<GpuIdle>().unwrap().judge(opening),
        "pcie-link" => table.try_into::<PcieLink>().unwrap().judge(opening),
        "nvlink" => table.try_into::<NvLink>().unwrap().judge(opening),
        "ecc" => table.try_into::<Ecc>().unwrap().judge(opening),
        "memory-repair" => MemoryRepair::build(table).unwrap().judge(opening),
        "power" => table.try_into::<Power>().unwrap().judge(opening, &vec![round(opening); 3]),
        "mig" => table.try_into::<Mig>().unwrap().judge(opening),
        "aftermath" => table.try_into::<Aftermath>().unwrap().judge(opening, closing, &[]),
        other => panic!("check `{other}` is not known here: add it"),
    }
}

/// What the driver would have answered to the samples of `power`.
fn round(host: &Snapshot) -> Answers {
    let mut answers = Answers::default();
    for gpu in &host.gpus {
        let mut put = |function: &str, rest: &[u32], reading: Reading<u64>| {
            let arguments: Vec<u32> = std::iter::once(gpu.index).chain(rest.iter().copied()).collect();
            let answer = match reading {
                Reading::Value(value) => Answer::value(value),
                Reading::Unsupported => Answer::refused(Code::NOT_SUPPORTED),
                Reading::Failed(code) => Answer::refused(code),
                Reading::Unasked => return,
            };
            answers.insert(Question::new(function, &arguments), answer);
        };
        put("nvmlDeviceGetPowerUsage", &[], gpu.power_usage.as_ref().map(|draw| u64::from(*draw)));
        put("nvmlDeviceGetTemperature", &[0], gpu.temperature.as_ref().map(|heat| u64::from(*heat)));
        put("nvmlDeviceGetCurrentClocksEventReasons", &[], gpu.event_reasons.as_ref().map(|mask| *mask));
    }
    answers
}

/// A recorded host as a live one would be read, without what no check looks at.
fn host(name: &str) -> Snapshot {
    let mut host = replay::snapshot(name);
    let library = |path: &str| Library {
        path: path.to_owned(),
        resolved: path.to_owned(),
        digest: Digest([0; 32]),
        size: 1,
        owner: 0,
        simulated: false,
        stub: false,
    };
    host.driver.library = Some(library("/usr/lib/libnvidia-ml.so.1"));
    host.driver.cuda_library = Some(library("/usr/lib/libcuda.so.1"));
    host.pairs.clear();
    host.host.foreign_pid_namespace = Reading::Value(false);
    let gpus = host.gpus_on_bus();
    host.host.pci.retain(|bus_id, _| gpus.contains(bus_id));
    host
}

/// Where the readings with a value stand in the snapshot, as JSON pointers.
fn readings(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) if object.len() == 1 && object.contains_key("value") => found.push(path.to_owned()),
        Value::Object(object) => {
            object.iter().for_each(|(key, value)| readings(value, &format!("{path}/{key}"), found));
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(index, value)| readings(value, &format!("{path}/{index}"), found));
        }
        _ => {}
    }
}

/// The pointer without indices and addresses.
fn kind_of(pointer: &str) -> String {
    let is_one_of_many = |part: &&str| part.contains(':') || part.parse::<usize>().is_ok();
    let parts = pointer.split('/').skip(1).map(|part| if is_one_of_many(&part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

fn without(host: &Value, pointer: &str, state: &Value) -> Snapshot {
    let mut changed = host.clone();
    *changed.pointer_mut(pointer).unwrap() = state.clone();
    serde_json::from_value(changed).unwrap()
}

#[test]
fn a_healthy_host_is_accepted_by_these_judges() {
    for name in HOSTS {
        let host = host(name);
        assert_eq!(Gate::of(&host).decide(&host, &host), Decision::Accepted, "{name}");
    }
}

#[test]
fn no_host_is_accepted_without_a_reading_that_decides_nor_rejected_for_one_that_is_missing() {
    let (mut accepted, mut rejected) = (BTreeSet::new(), BTreeSet::new());
    for name in HOSTS {
        let whole = host(name);
        let gate = Gate::of(&whole);
        let json = serde_json::to_value(&whole).unwrap();
        let mut pointers = Vec::new();
        readings(&json, "", &mut pointers);
        // The first of many stands for all of them.
        let mut kinds = BTreeSet::new();
        pointers.retain(|pointer| kinds.insert(kind_of(pointer)));
        for pointer in pointers {
            for state in [json!("unasked"), json!({"failed": 999}), json!({"failed": 4}), json!({"failed": 10_001})] {
                let missing = without(&json, &pointer, &state);
                let kind = kind_of(&pointer);
                for (place, opening, closing) in
                    [("always", &missing, &missing), ("opening", &missing, &whole), ("closing", &whole, &missing)]
                {
                    match gate.decide(opening, closing) {
                        Decision::Rejected => drop(rejected.insert(format!("{place} {kind}"))),
                        Decision::Accepted if place != "closing" => drop(accepted.insert((name, kind.clone()))),
                        Decision::Accepted | Decision::Undecided => {}
                    }
                }
            }
        }
    }
    assert_eq!(rejected, BTreeSet::new(), "rejected for what was not found out");
    let deciding = |(name, kind): &(&str, String)| {
        let left_alone = *name != HOSTS[0] && BY_CLASS.contains(&kind.as_str());
        !left_alone && !INFORMATIVE.contains(&kind.as_str())
    };
    assert_eq!(accepted.iter().filter(|it| deciding(it)).collect::<Vec<_>>(), Vec::<&(&str, String)>::new());
    let seen: BTreeSet<&str> = accepted.iter().map(|(_, kind)| kind.as_str()).collect();
    let listed = INFORMATIVE.iter().chain(BY_CLASS).copied().collect::<BTreeSet<_>>();
    assert_eq!(seen, listed, "the list names what decides");
}

/// Something that is wrong, or that is not known, at one GPU or the host.
#[derive(Clone, Debug)]
enum Mutation {
    /// A reading of the list of those that decide, by its number, in one of the ways to have none.
    Unread(usize, usize),
    /// The driver no longer shows this GPU; its count says so.
    DropFromDriver(usize),
    DropFromBus(usize),
    /// The driver shows this GPU twice.
    Double(usize),
    /// Two GPUs change places in the driver's order: nothing is wrong with that.
    Swap(usize, usize),
    /// The last word in the log's extent: records are missing.
    Hole,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<usize>(), 0usize..5).prop_map(|(at, state)| Mutation::Unread(at, state)),
        1 => any::<usize>().prop_map(Mutation::DropFromDriver),
        1 => any::<usize>().prop_map(Mutation::DropFromBus),
        1 => any::<usize>().prop_map(Mutation::Double),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Mutation::Swap(a, b)),
        1 => Just(Mutation::Hole),
    ]
}

impl Mutation {
    fn is_harmless(&self) -> bool {
        matches!(self, Mutation::Swap(..))
    }

    /// Whether a rejection would be just.
    fn is_stated_by_the_machine(&self) -> bool {
        matches!(self, Mutation::DropFromDriver(_) | Mutation::DropFromBus(_))
    }

    fn befall(&self, host: Snapshot) -> Snapshot {
        let mut host = host;
        let index = |at: &usize| at % host.gpus.len().max(1);
        match self {
            Mutation::Unread(at, state) => {
                let json = serde_json::to_value(&host).unwrap();
                let mut pointers = Vec::new();
                readings(&json, "", &mut pointers);
                pointers.retain(|pointer| !INFORMATIVE.contains(&kind_of(pointer).as_str()));
                let states = [
                    json!("unasked"),
                    json!({"failed": 999}),
                    json!({"failed": 4}),
                    json!({"failed": 10_002}),
                    json!({"failed": 2_000}),
                ];
                return without(&json, &pointers[at % pointers.len()], &states[*state]);
            }
            Mutation::DropFromDriver(at) => {
                let at = index(at);
                host.gpus.remove(at);
                host.driver.device_count = Reading::Value(host.gpus.len() as u32);
            }
            Mutation::DropFromBus(at) => {
                let bus_id = *host.host.pci.keys().nth(at % host.host.pci.len()).unwrap();
                host.host.pci.remove(&bus_id);
            }
            Mutation::Double(at) => {
                let again = host.gpus[index(at)].clone();
                host.gpus.push(again);
                host.driver.device_count = Reading::Value(host.gpus.len() as u32);
            }
            Mutation::Swap(a, b) => {
                let (a, b) = (index(a), index(b));
                host.gpus.swap(a, b);
            }
            Mutation::Hole => {
                if let Reading::Value(extent) = &mut host.host.kernel_log.state {
                    (extent.first, extent.complete) = (extent.last + 2, false);
                }
            }
        }
        host
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Eight GPUs, so that each mutation finds one; at the opening, the closing or both.
    #[test]
    fn whatever_befalls_a_host_it_is_accepted_only_if_nothing_did(
        mutations in proptest::collection::vec((mutation(), 1u8..4), 0..3),
    ) {
        static WHOLE: LazyLock<(Snapshot, Gate)> = LazyLock::new(|| {
            let whole = host(HOSTS[0]);
            let gate = Gate::of(&whole);
            (whole, gate)
        });
        let (whole, gate) = &*WHOLE;
        let (mut opening, mut closing) = (whole.clone(), whole.clone());
        for (mutation, place) in &mutations {
            if place & 1 != 0 {
                opening = mutation.befall(opening);
            }
            if place & 2 != 0 {
                closing = mutation.befall(closing);
            }
        }
        let decision = gate.decide(&opening, &closing);
        let harmless = |(mutation, place): &(Mutation, u8)| {
            // What the closing look does not need, the opening one has judged.
            mutation.is_harmless() || (*place == 2 && matches!(mutation, Mutation::Unread(..)))
        };
        if decision == Decision::Accepted {
            prop_assert!(mutations.iter().all(harmless), "{mutations:?}");
        }
        if mutations.iter().all(|(mutation, _)| mutation.is_harmless()) {
            prop_assert_eq!(decision, Decision::Accepted);
        }
        if decision == Decision::Rejected {
            let just = |(mutation, _): &(Mutation, u8)| {
                mutation.is_stated_by_the_machine() || matches!(mutation, Mutation::Double(_))
            };
            prop_assert!(mutations.iter().any(just), "{mutations:?}");
        }
    }
}
