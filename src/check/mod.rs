//! The checks: one trait, one table of kinds, one file per check.
//!
//! Each check file has the same five parts in the same order: module doc (*What a pass proves*,
//! *How it is measured*, *When it misleads*), parameters, `run`, `judge`, tests of `judge`.

pub mod aftermath;
mod document;
pub mod driver;
pub mod ecc;
pub mod gpu_idle;
pub mod gpu_inventory;
mod look;
pub mod memory_repair;
pub mod mig;
pub mod nvlink;
pub mod pcie_link;
pub mod power;
#[cfg(test)]
mod sample;
mod session;
pub mod version;
pub mod xid;

pub use document::{cost, documentation, needs};

use std::time::Instant;

use serde::de::DeserializeOwned;

use crate::facts::Snapshot;
use crate::host::Machine;
use crate::outcome::Outcome;

/// A check with its parameters. The parameters are the struct's own fields.
pub trait Check: std::fmt::Debug {
    /// Gathers through the doorways and judges. A bad machine is an outcome, never a panic.
    fn run(&self, context: &mut Context<'_>) -> Outcome;
}

/// Characters of a closing text that a screen of 80 columns shows.
const LONGEST_CLOSING: usize = 48;

/// What a check may use.
pub struct Context<'a> {
    /// The host and its driver before the first step.
    pub opening: &'a Snapshot,
    /// The doorway to more readings.
    pub machine: &'a mut Machine,
    /// How often the machine was opened until it was ready (`--wait-ready`); 1 without waiting.
    pub openings: u32,
    /// When this step must have ended.
    pub deadline: Instant,
    /// Readings after each step that has run, for `aftermath`.
    pub pulses: &'a [Pulse],
    /// Says how far long work has come: what is done now, and the share of the whole.
    pub progress: &'a mut dyn FnMut(&str, f64),
}

/// The counters as they stood when a step had ended.
#[derive(Clone, Debug)]
pub struct Pulse {
    pub step: crate::ident::StepId,
    /// CLOCK_MONOTONIC in microseconds, the kernel log's clock, when the step began and ended.
    pub began: u64,
    pub ended: u64,
    pub answers: crate::facts::Answers,
}

/// A kind of test, as the suite may use it.
pub struct Kind {
    pub id: &'static str,
    /// What a pass proves, one sentence.
    pub proves: &'static str,
    /// Seconds at level quick, standard and soak.
    pub cost: [f64; 3],
    /// Whether the node must be idle.
    pub idle: bool,
    /// What it needs beyond an ordinary user, e.g. `root for SRAM counters`.
    pub privileges: &'static str,
    /// Names of the parameters that a class may set.
    pub parameters: &'static [&'static str],
    /// The whole explanation: the check file's module doc.
    pub explanation: &'static str,
    /// Parameters from a class to a check. The error names the parameter.
    pub build: fn(toml::Table) -> Result<Box<dyn Check>, toml::de::Error>,
}

/// Every kind of check there is, in the order in which a run uses them.
pub const KINDS: &[Kind] = &[
    Kind {
        id: "driver",
        proves: "one trusted driver is loaded, its parts agree and it is new enough",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "",
        parameters: &["minimum", "denied", "minimum-cuda", "persistence", "gsp", "open-module"],
        explanation: include_str!("driver.md"),
        build: build::<driver::Driver>,
    },
    Kind {
        id: "gpu-inventory",
        proves: "every GPU is there, of the right model, and bus and driver show the same ones",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "",
        parameters: &["count", "models", "memory", "memory-tolerance", "vbios", "inforom", "serials"],
        explanation: include_str!("gpu_inventory.md"),
        build: build::<gpu_inventory::GpuInventory>,
    },
    Kind {
        id: "gpu-idle",
        proves: "nothing else uses the GPUs",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "the host's PID namespace",
        parameters: &["allow-graphics", "memory-used"],
        explanation: include_str!("gpu_idle.md"),
        build: build::<gpu_idle::GpuIdle>,
    },
    Kind {
        id: "pcie-link",
        proves: "each GPU's PCIe link has its width, and its generation outside idle states",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "",
        parameters: &["generation", "width", "idle-states"],
        explanation: include_str!("pcie_link.md"),
        build: build::<pcie_link::PcieLink>,
    },
    Kind {
        id: "nvlink",
        proves: "each GPU's NVLinks are active at full speed and its fabric is set up",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "",
        parameters: &["links", "speed", "fabric"],
        explanation: include_str!("nvlink.md"),
        build: build::<nvlink::NvLink>,
    },
    Kind {
        id: "ecc",
        proves: "ECC is in the mode of the class and counted no uncorrectable error",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "root for SRAM counters",
        parameters: &["mode", "uncorrected-volatile", "uncorrected-aggregate", "sram"],
        explanation: include_str!("ecc.md"),
        build: build::<ecc::Ecc>,
    },
    Kind {
        id: "memory-repair",
        proves: "no memory repair is pending or failed, and spares are left",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "",
        parameters: &["kind", "remapped-rows-warn", "remapped-rows-max", "banks-without-spares", "retired-pages-max"],
        explanation: include_str!("memory_repair.md"),
        build: |table| Ok(Box::new(memory_repair::MemoryRepair::build(table)?)),
    },
    Kind {
        id: "power",
        proves: "power limits are those of the class, and nothing brakes or overheats the GPUs",
        cost: [0.5, 0.5, 0.5],
        idle: false,
        privileges: "",
        parameters: &["limit", "tolerance", "draw-max", "temperature-max", "samples", "interval"],
        explanation: include_str!("power.md"),
        build: build::<power::Power>,
    },
    Kind {
        id: "mig",
        proves: "each GPU is in the MIG mode of the class, and no change is pending",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "",
        parameters: &["layout"],
        explanation: include_str!("mig.md"),
        build: build::<mig::Mig>,
    },
    Kind {
        id: "aftermath",
        proves: "our own work left no error, no lost GPU and no new driver message",
        cost: [0.5, 0.5, 0.5],
        idle: false,
        privileges: "root (or CAP_SYSLOG) for the kernel log",
        parameters: &["corrected-delta-warn", "replay-delta-warn", "xid"],
        explanation: include_str!("aftermath.md"),
        build: build::<aftermath::Aftermath>,
    },
];

fn build<C: Check + DeserializeOwned + 'static>(table: toml::Table) -> Result<Box<dyn Check>, toml::de::Error> {
    Ok(Box::new(table.try_into::<C>()?))
}

/// The kind with this id.
pub fn kind(id: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.id == id)
}

/// The id that is spelled most like this one, if any comes near.
pub fn nearest(id: &str) -> Option<&'static str> {
    let distance = |kind: &Kind| strsim::damerau_levenshtein(kind.id, id);
    let nearest = KINDS.iter().min_by_key(|kind| distance(kind))?;
    // Half the letters right is a slip of the fingers; less is another word.
    (distance(nearest) * 2 <= nearest.id.len()).then_some(nearest.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_lists_exactly_the_parameters_that_it_takes() {
        for kind in KINDS {
            let table = toml::Table::from_iter([("no-such-parameter".to_owned(), toml::Value::Boolean(true))]);
            let error = (kind.build)(table).unwrap_err().to_string();
            let expected = error.split("expected").nth(1).unwrap_or_else(|| panic!("{}: {error}", kind.id));
            let found: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            assert_eq!(found, kind.parameters, "{}", kind.id);
        }
    }

    #[test]
    fn every_kind_explains_itself_under_the_three_headings() {
        for kind in KINDS {
            let headings: Vec<&str> = kind.explanation.lines().filter(|line| line.starts_with('#')).collect();
            let expected = ["### What a pass proves", "### How it is measured", "### When it misleads"];
            assert_eq!(headings, expected, "{}", kind.id);
            assert!(kind.id.parse::<crate::ident::CheckId>().is_ok());
        }
    }

    #[test]
    fn the_floor_is_made_of_kinds_and_the_aftermath_comes_last() {
        assert!(crate::decision::FLOOR.iter().all(|id| kind(id).is_some()));
        assert_eq!(KINDS.last().map(|kind| kind.id), Some("aftermath"));
    }

    #[test]
    fn a_slip_of_the_fingers_finds_its_check_and_another_word_does_not() {
        assert_eq!(nearest("pcie-lnk"), Some("pcie-link"));
        assert_eq!(nearest("gpu-inventry"), Some("gpu-inventory"));
        assert_eq!(nearest("kubernetes"), None);
    }
}
