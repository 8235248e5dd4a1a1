//! The decision of a run: a pure function of what was planned and what came out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ident::{CheckId, StepId};
use crate::outcome::{Outcome, Status};

/// How far the host has come. A run covers its stage and those before.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Hardware and GPU exercise; the technician's.
    Rack,
    /// Adds host configuration, container, storage; the pipeline's.
    Image,
    /// Adds telemetry; the operator's.
    Service,
}

/// How deep a run goes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// At most a minute.
    Quick,
    /// About ten minutes.
    Standard,
    /// Hours.
    Soak,
}

/// What a step's outcome does to the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Require {
    /// It must pass.
    Must,
    /// It warns.
    Should,
    /// It is recorded.
    Inform,
}

/// The decision of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Accepted,
    Rejected,
    Undecided,
}

macro_rules! words {
    ($($type:ident { $($variant:ident $word:literal),+ })+) => {$(
        impl $type {
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    )+};
}

words! {
    Stage { Rack "rack", Image "image", Service "service" }
    Level { Quick "quick", Standard "standard", Soak "soak" }
    Require { Must "must", Should "should", Inform "inform" }
    Decision { Accepted "accepted", Rejected "rejected", Undecided "undecided" }
}

/// Checks without which nothing is accepted, unless the class says that one does not apply.
pub const FLOOR: [&str; 6] = ["driver", "gpu-inventory", "pcie-link", "ecc", "memory-repair", "aftermath"];

/// Those of the floor that mean something on every host with a GPU: a class cannot declare them
/// away, for then nothing would be known of which machine was accepted.
pub const CORE: [&str; 3] = ["driver", "gpu-inventory", "aftermath"];

/// One step with what came out of it.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    pub id: &'a StepId,
    pub check: &'a CheckId,
    pub require: Require,
    pub outcome: &'a Outcome,
}

/// Decides. `can_accept` is false where the class (`generic`) may reject but not accept.
///
/// As `docs/architecture.md` has it: any `must` step failed → rejected; else any undecided or skipped → undecided;
/// else the floor decides between accepted and undecided. A step of [`CORE`] that is absent by
/// class does not stand for it.
pub fn decide(steps: &[Judged<'_>], can_accept: bool) -> Decision {
    let required = || steps.iter().filter(|step| step.require == Require::Must);
    if required().any(|step| step.outcome.status() == Status::Failed) {
        return Decision::Rejected;
    }
    let floor_stands = FLOOR.iter().all(|check| {
        let core = CORE.contains(check);
        let stands = |step: &Judged<'_>| !core || step.outcome.status() != Status::Absent;
        required().any(|step| step.check.as_str() == *check && stands(step))
    });
    if can_accept && floor_stands && required().all(|step| is_settled(step.outcome)) {
        Decision::Accepted
    } else {
        Decision::Undecided
    }
}

/// Whether the outcome is evidence enough: passed, warned or waived over complete subjects, or absent.
fn is_settled(outcome: &Outcome) -> bool {
    match outcome.status() {
        Status::Passed | Status::Warned | Status::Waived => outcome.is_complete(),
        Status::Absent => true,
        Status::Failed | Status::Undecided | Status::Skipped => false,
    }
}
