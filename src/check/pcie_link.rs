#![doc = include_str!("pcie_link.md")]

use serde::{Deserialize, Deserializer, de};

use super::look::{Held, Look, each_gpu};
use super::{Check, Context, session};
use crate::facts::host::PciLink;
use crate::facts::{Gpu, Snapshot};
use crate::outcome::blame::unanswered;
use crate::outcome::{Action, Finding, Grade, Outcome};
use crate::reading::{Code, Reading};

/// The link that a GPU of the class has.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PcieLink {
    #[serde(deserialize_with = "more_than_nothing")]
    pub generation: u32,
    /// Lanes.
    #[serde(deserialize_with = "more_than_nothing")]
    pub width: u32,
    /// The lowest P-state number from which on the generation is not measured.
    #[serde(deserialize_with = "more_than_nothing")]
    pub idle_states: u32,
}

/// A link of nothing is what every link reaches; it is no limit.
fn more_than_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(de::Error::custom("0 is no limit: every link reaches it")),
        number => Ok(number),
    }
}

impl Check for PcieLink {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        self.judge(context.opening)
    }
}

impl PcieLink {
    /// Judges the link of each GPU.
    pub fn judge(&self, facts: &Snapshot) -> Outcome {
        if let Some(silent) = session::silent(facts) {
            return silent;
        }
        let unlinked = PciLink::default();
        let judgement = each_gpu(facts, |look, gpu| {
            let function = gpu.bus_id().and_then(|bus_id| facts.host.pci.get(&bus_id));
            self.judge_gpu(gpu, function.map_or(&unlinked, |function| &function.link), look);
        });
        judgement.close(&self.closing(facts))
    }

    /// What was judged of links that are as they should be; a generation that is too low then
    /// is that of an idle GPU.
    fn closing(&self, facts: &Snapshot) -> String {
        let widths: Vec<u32> = facts.gpus.iter().filter_map(|gpu| gpu.link_width.value().copied()).collect();
        let generations = facts.gpus.iter().filter_map(|gpu| gpu.link_generation.value().copied());
        let reached: Vec<u32> = generations.filter(|generation| *generation >= self.generation).collect();
        let (all, awake) = (widths.len(), reached.len());
        let idle = all.saturating_sub(awake);
        let least = if widths.iter().any(|width| *width > self.width) { "at least " } else { "" };
        let width = format!("{least}x{}", self.width);
        let newer = if reached.iter().any(|generation| *generation > self.generation) { "+" } else { "" };
        let generation = format!("generation {}{newer}", self.generation);
        match (awake, idle) {
            (_, 0) => format!("{all} link{} {width}, {generation}", plural(all)),
            (0, _) => format!("{width}; generation not judged, {idle} GPU{} idle", plural(idle)),
            _ => format!("{width}, {generation} on {awake} of {all}, {idle} idle"),
        }
    }

    fn judge_gpu(&self, gpu: &Gpu, kernel: &PciLink, look: &mut Look<'_>) {
        let width = look.require(&gpu.link_width, "PCIe link width").copied();
        let generation = look.require(&gpu.link_generation, "PCIe link generation").copied();
        let state = look.require(&gpu.performance_state, "performance state").copied();
        if let Some(width) = width {
            self.judge_width(width, generation, state, look);
            disagreement("width", Some(width), &kernel.width, look);
        }
        if let (Some(generation), Some(state)) = (generation, state) {
            self.judge_generation(generation, state, look);
            let kernel = kernel.speed.as_ref().map(|speed| generation_of(*speed));
            let measured = Some(generation).filter(|_| state < self.idle_states);
            disagreement("generation", measured, &kernel, look);
        }
    }

    fn judge_width(&self, width: u32, generation: Option<u32>, state: Option<u32>, look: &mut Look<'_>) {
        look.measure(look.number("pcie-width", width.into(), "lanes").at_least(self.width.into()));
        if width < self.width {
            let generation = generation.map_or(String::new(), |generation| format!(" (generation {generation})"));
            let state = state.map_or(String::new(), |state| format!(", in P{state}"));
            look.find(
                Finding::new(Grade::Failed, "link-narrow", look.subject(), "PCIe link narrow", Action::Reseat)
                    .compared(format!("x{}", self.width), format!("x{width}{generation}{state}"))
                    .advise("Power off; reseat the riser or module, look for a bent pin or dirt in the connector; run again."),
            );
        }
    }

    /// A generation that is reached is evidence in any state; one that is not is evidence only
    /// in a state that keeps the link up.
    fn judge_generation(&self, generation: u32, state: u32, look: &mut Look<'_>) {
        if generation == 0 {
            let none = unanswered(&look.subject(), "PCIe link generation", Code::GARBLED);
            return look.unread(none.compared("a generation from 1 on", generation)).unwrap_or(());
        }
        let number = look.number("pcie-generation", generation.into(), "");
        if generation >= self.generation {
            look.measure(number.at_least(self.generation.into()));
        } else if state > LAST_STATE {
            look.unread::<()>(
                Finding::new(Grade::Undecided, "unreadable", look.subject(), "Link state unknown", Action::Investigate)
                    .compared(
                        format!("generation {} outside idle states", self.generation),
                        format!("generation {generation}, P-state unknown"),
                    )
                    .advise("Run again under load; if the P-state stays unknown, reboot."),
            );
        } else if state >= self.idle_states {
            let mut number = number;
            number.source = format!("not judged in P{state}");
            look.measure(number);
        } else {
            look.measure(number.at_least(self.generation.into()));
            look.find(
                Finding::new(Grade::Failed, "link-slow", look.subject(), "PCIe link slow", Action::Reseat)
                    .compared(format!("generation {}", self.generation), format!("generation {generation}, in P{state}"))
                    .advise("Look for a PCIe speed limit in the firmware setup; power off, reseat the riser or module; run again."),
            );
        }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// `NVML_PSTATE_15`; 32 stands for unknown, and what is between means nothing.
const LAST_STATE: u32 = 15;

/// The generation of a transfer rate, or 0: 2.5, 5, 8, 16, 32 and 64 GT/s (PCI Express Base Specification).
fn generation_of(speed: f64) -> u32 {
    [2.5, 5.0, 8.0, 16.0, 32.0, 64.0]
        .iter()
        .zip(1..)
        .find(|(known, _)| **known == speed)
        .map_or(0, |(_, generation)| generation)
}

/// The kernel's number must be NVML's. A machine whose sysfs has no such file is not doubted.
fn disagreement(what: &str, nvml: Option<u32>, kernel: &Reading<u32>, look: &mut Look<'_>) {
    let Some(kernel) = look.optional(kernel, &format!("PCIe link {what} in sysfs")).copied() else { return };
    if let Some(nvml) = nvml.filter(|nvml| *nvml != kernel) {
        look.unread::<()>(
            Finding::new(Grade::Undecided, "link-disagrees", look.subject(), "PCIe link in doubt", Action::Investigate)
                .compared("driver and kernel agree", format!("{what} {nvml} by NVML, {kernel} by sysfs"))
                .advise("Run again; if it stays, lspci -vv -s ADDRESS tells the link's own registers."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread, unread_optional};

    const GPU: &str = "0000:1b:00.0";

    fn check() -> PcieLink {
        PcieLink { generation: 5, width: 16, idle_states: 3 }
    }

    /// A host whose NVML and sysfs agree on this link in this state.
    fn link(generation: u32, width: u32, state: u32) -> Snapshot {
        let mut facts = sample::host(1);
        let gpu = &mut facts.gpus[0];
        (gpu.link_generation, gpu.link_width, gpu.performance_state) =
            (Reading::Value(generation), Reading::Value(width), Reading::Value(state));
        let kernel = &mut facts.host.pci.get_mut(&sample::bus_id(0)).unwrap().link;
        let speed = [0.0, 2.5, 5.0, 8.0, 16.0, 32.0, 64.0][generation as usize];
        (kernel.speed, kernel.width) = (Reading::Value(speed), Reading::Value(width));
        facts
    }

    #[test]
    fn a_full_link_passes() {
        assert_outcome(&check().judge(&link(5, 16, 0)), "passed", &[]);
        assert_outcome(&check().judge(&link(6, 16, 0)), "passed", &[]);
    }

    #[test]
    fn a_narrow_link_fails_in_any_state() {
        for state in [0, 8] {
            let outcome = check().judge(&link(5, 8, state));
            assert_outcome(&outcome, "failed", &[("link-narrow", GPU)]);
            assert_eq!(outcome.findings[0].found, format!("x8 (generation 5), in P{state}"));
        }
    }

    #[test]
    fn a_low_generation_fails_outside_idle_states_and_is_noted_inside() {
        assert_outcome(&check().judge(&link(4, 16, 2)), "failed", &[("link-slow", GPU)]);
        let idle = check().judge(&link(1, 16, 8));
        assert_outcome(&idle, "passed", &[]);
        assert!(idle.measurements.iter().any(|number| number.source == "not judged in P8" && number.floor.is_none()));
        for no_state in [16, 31, 32] {
            assert_outcome(&check().judge(&link(1, 16, no_state)), "undecided", &[("unreadable", GPU)]);
        }
        assert_outcome(&check().judge(&link(1, 16, 15)), "passed", &[]);
        assert_outcome(&check().judge(&link(1, 16, 3)), "passed", &[]);
        assert_outcome(&check().judge(&link(0, 16, 8)), "undecided", &[("garbled", GPU)]);
    }

    #[test]
    fn the_closing_text_claims_what_was_judged_and_no_more() {
        let closing = |check: &PcieLink, facts: &Snapshot| check.judge(facts).cause;
        assert_eq!(closing(&check(), &sample::host(8)), "8 links x16, generation 5");
        assert_eq!(closing(&check(), &link(6, 16, 0)), "1 link x16, generation 5+");
        assert_eq!(closing(&check(), &link(1, 16, 8)), "x16; generation not judged, 1 GPU idle");
        let floor = PcieLink { generation: 1, width: 8, idle_states: 3 };
        assert_eq!(closing(&floor, &link(1, 16, 8)), "1 link at least x8, generation 1");
        let mut facts = sample::host(8);
        for index in [2, 5] {
            let gpu = &mut facts.gpus[index];
            (gpu.link_generation, gpu.performance_state) = (Reading::Value(1), Reading::Value(8));
        }
        assert_eq!(closing(&check(), &facts), "x16, generation 5 on 6 of 8, 2 idle");
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        for zero in ["generation", "width", "idle-states"] {
            let value = |name: &str, number: u32| format!("{name} = {}\n", if name == zero { 0 } else { number });
            let text = value("generation", 5) + &value("width", 16) + &value("idle-states", 3);
            assert!(toml::from_str::<PcieLink>(&text).unwrap_err().to_string().contains("no limit"), "{zero}");
        }
    }

    #[test]
    fn driver_and_kernel_that_disagree_leave_it_open() {
        let mut facts = link(5, 16, 0);
        facts.host.pci.get_mut(&sample::bus_id(0)).unwrap().link.width = Reading::Value(8);
        assert_outcome(&check().judge(&facts), "undecided", &[("link-disagrees", GPU)]);
        let mut facts = link(5, 16, 0);
        facts.host.pci.get_mut(&sample::bus_id(0)).unwrap().link.speed = Reading::Value(16.0);
        assert_outcome(&check().judge(&facts), "undecided", &[("link-disagrees", GPU)]);
    }

    #[test]
    fn nothing_unread_and_no_empty_host_ever_passes() {
        macro_rules! never {
            ($field:ident) => {
                assert_never_passes_unread(stringify!($field), unread(), |state| {
                    let mut facts = sample::host(1);
                    facts.gpus[0].$field = state;
                    check().judge(&facts)
                })
            };
        }
        never!(link_width);
        never!(link_generation);
        never!(performance_state);
        assert_never_passes_unread("sysfs width", unread_optional(), |state| {
            let mut facts = sample::host(1);
            facts.host.pci.get_mut(&sample::bus_id(0)).unwrap().link.width = state;
            check().judge(&facts)
        });
        assert_outcome(&check().judge(&sample::host(0)), "undecided", &[]);
    }
}
