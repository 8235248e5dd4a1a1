//! The checks: one trait, one table of kinds, one file per check.
//!
//! Each check file has the same five parts in the same order: module doc (*What a pass proves*,
//! *How it is measured*, *When it misleads*), parameters, `run`, `judge`, tests of `judge`.

pub mod driver;
pub mod ecc;
pub mod gpu_idle;
pub mod gpu_inventory;
mod look;
pub mod memory_repair;
pub mod mig;
pub mod pcie_link;
pub mod power;
#[cfg(test)]
mod sample;
mod session;
pub mod version;
pub mod xid;

use std::time::Instant;

use crate::facts::Snapshot;
use crate::host::Machine;
use crate::outcome::Outcome;

/// A check with its parameters. The parameters are the struct's own fields.
pub trait Check: std::fmt::Debug {
    /// Gathers through the doorways and judges. A bad machine is an outcome, never a panic.
    fn run(&self, context: &mut Context<'_>) -> Outcome;
}

/// What a check may use.
pub struct Context<'a> {
    /// The host and its driver before the first step.
    pub opening: &'a Snapshot,
    /// The doorway to more readings.
    pub machine: &'a mut Machine,
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
pub const KINDS: &[Kind] = &[];
