//! What is different between two records: hardware, software, steps, findings, measurements.
//!
//! Pure. A GPU is known by its serial number or UUID, so that one which was moved to another slot is
//! the same GPU with another address, and its measurements are compared with its own.

mod gpus;
mod measurements;
mod text;

use serde::Serialize;

use crate::decision::{Decision, Level, Stage};
use crate::outcome::{Finding, Status};
use crate::predicate::Details;
use crate::report::{problem, record};

pub use gpus::{GpuChange, GpuName, Identities, What};
pub use measurements::MeasurementChange;
pub use text::text;

/// The version of this object as `--format json` prints it.
pub const FORMAT: u32 = 1;

/// Two records side by side, what is the same left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    pub format: u32,
    pub before: Side,
    pub after: Side,
    /// Why the two are not to be compared like two runs of one host under one plan.
    pub cautions: Vec<String>,
    pub gpus: Vec<GpuChange>,
    pub versions: Vec<VersionChange>,
    pub steps: Vec<StepChange>,
    pub new_findings: Vec<FoundAt>,
    pub gone_findings: Vec<FoundAt>,
    /// The largest change first.
    pub measurements: Vec<MeasurementChange>,
    /// Measurements that both have with the same value.
    pub same_measurements: usize,
}

/// One of the two records, as far as it says which it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    pub run_id: String,
    pub hostname: String,
    pub decision: Decision,
    pub stage: Stage,
    pub level: Level,
    pub class: String,
    pub seq: u64,
    pub finished_at: String,
    /// What makes it say less than its decision: `simulated`, `partial`, …
    pub marks: Vec<String>,
}

/// A name with the text that it had and the text that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionChange {
    pub what: &'static str,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// A step that ended otherwise, or that only one of the two has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepChange {
    pub step: String,
    pub before: Option<Status>,
    pub after: Option<Status>,
    /// The later outcome in a line; the earlier one's where the step is gone.
    pub cause: String,
}

/// A finding with the step that found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundAt {
    pub step: String,
    #[serde(flatten)]
    pub finding: Finding,
}

impl Difference {
    pub fn between(before: &Details, after: &Details) -> Difference {
        let identities = (Identities::of(before), Identities::of(after));
        let (measurements, same_measurements) = measurements::changes(before, after, &identities);
        Difference {
            format: FORMAT,
            before: Side::of(before),
            after: Side::of(after),
            cautions: cautions(before, after),
            gpus: gpus::changes(before, after),
            versions: versions(before, after),
            steps: steps(before, after),
            new_findings: findings_only_in((after, &identities.1), (before, &identities.0)),
            gone_findings: findings_only_in((before, &identities.0), (after, &identities.1)),
            measurements,
            same_measurements,
        }
    }

    /// Nothing that a reader would be told differs.
    pub fn is_empty(&self) -> bool {
        self.before.decision == self.after.decision
            && self.gpus.is_empty()
            && self.versions.is_empty()
            && self.steps.is_empty()
            && self.new_findings.is_empty()
            && self.gone_findings.is_empty()
            && self.measurements.is_empty()
    }
}

impl Side {
    fn of(details: &Details) -> Side {
        Side {
            run_id: details.run_id.clone(),
            hostname: details.host.hostname.clone(),
            decision: details.decision,
            stage: details.stage,
            level: details.level,
            class: details.plan.class.id.to_string(),
            seq: details.seq,
            finished_at: details.finished_at.clone(),
            marks: record::marks(details).into_iter().map(str::to_owned).collect(),
        }
    }
}

fn cautions(before: &Details, after: &Details) -> Vec<String> {
    let mut cautions = Vec::new();
    let serials = (&before.host.serial, &after.host.serial);
    if serials.0 != serials.1 || (serials.0.is_none() && before.host.hostname != after.host.hostname) {
        cautions.push("these are records of two hosts".to_owned());
    }
    if before.plan.class.digest != after.plan.class.digest {
        cautions.push("the limits differ: another class, or another revision of it".to_owned());
    }
    if before.plan.suite.digest != after.plan.suite.digest {
        cautions.push("the suites differ: not the same steps were planned".to_owned());
    }
    if (before.stage, before.level) != (after.stage, after.level) {
        cautions.push("stage or level differ: one run looked at more than the other".to_owned());
    }
    let time = |details: &Details| details.finished_at.parse::<jiff::Timestamp>().ok();
    if let (Some(first), Some(second)) = (time(before), time(after))
        && first > second
    {
        cautions.push("the first of the two is the later one".to_owned());
    }
    cautions
}

fn versions(before: &Details, after: &Details) -> Vec<VersionChange> {
    let list = |details: &Details| {
        let (host, inventory, plan) = (&details.host, &details.inventory, &details.plan);
        [
            ("driver", inventory.driver.clone()),
            ("CUDA", inventory.cuda.clone()),
            ("NVML", inventory.nvml.clone()),
            ("NVML library", inventory.nvml_library.map(|digest| digest.to_string())),
            ("kernel", host.kernel.clone()),
            ("system", host.os_image.clone()),
            ("CPU", inventory.cpu.clone()),
            ("agent", Some(format!("{} {}", details.agent.version, details.agent.digest))),
            ("class", Some(format!("{} {}", plan.class.id, plan.class.digest))),
            ("suite", Some(format!("{} {}", plan.suite.id, plan.suite.digest))),
            ("policy", Some(plan.policy.to_string())),
            ("site", plan.site.map(|digest| digest.to_string())),
        ]
    };
    let pairs = list(before).into_iter().zip(list(after));
    let changes = pairs.map(|((what, before), (_, after))| VersionChange { what, before, after });
    changes.filter(|change| change.before != change.after).collect()
}

fn steps(before: &Details, after: &Details) -> Vec<StepChange> {
    let status = |details: &Details, id: &str| {
        details.steps.iter().find(|step| step.id.as_str() == id).map(|step| step.outcome.status())
    };
    let gone = before.steps.iter().filter(|step| status(after, step.id.as_str()).is_none());
    let all = after.steps.iter().chain(gone);
    let change = |step: &crate::predicate::Step| StepChange {
        step: step.id.to_string(),
        before: status(before, step.id.as_str()),
        after: status(after, step.id.as_str()),
        cause: step.outcome.cause.clone(),
    };
    all.map(change).filter(|change| change.before != change.after).collect()
}

/// Findings that stand against the one and not against the other, by step, code and what they are about.
fn findings_only_in(here: (&Details, &Identities), there: (&Details, &Identities)) -> Vec<FoundAt> {
    fn about<'a>(identities: &'a Identities, finding: &'a Finding) -> &'a str {
        identities.of_subject(finding.subject.as_str())
    }
    let known: Vec<_> = problem::open_findings(there.0)
        .map(|(step, finding)| (step.id.as_str(), finding.code.as_str(), about(there.1, finding)))
        .collect();
    let only = problem::open_findings(here.0)
        .filter(|(step, finding)| !known.contains(&(step.id.as_str(), finding.code.as_str(), about(here.1, finding))));
    only.map(|(step, finding)| FoundAt { step: step.id.to_string(), finding: finding.clone() }).collect()
}

#[cfg(test)]
mod tests;
