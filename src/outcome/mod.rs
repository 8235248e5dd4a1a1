//! What a step found: findings, measurements, and the outcome that follows from them.
//!
//! An [`Outcome`] is made by a [`Judgement`], which must name the subjects that it expected
//! before it judges any. There is no way to say "passed" directly: a step has passed when
//! every expected subject was judged and nothing was found.

pub mod blame;
mod flat;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use flat::Flat;

use crate::ident::{FindingCode, Subject, printable};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Passed,
    Warned,
    /// The machine is wrong.
    Failed,
    /// We could not find out.
    Undecided,
    /// It was in the plan and did not run.
    Skipped,
    /// Everything that was wrong is waived by the site.
    Waived,
    /// The class says that the step does not apply.
    Absent,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Warned => "warned",
            Status::Failed => "failed",
            Status::Undecided => "undecided",
            Status::Skipped => "skipped",
            Status::Waived => "waived",
            Status::Absent => "absent",
        }
    }
}

/// What a person should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    None,
    Monitor,
    Configure,
    RestartService,
    ResetGpu,
    Reboot,
    Reseat,
    Cool,
    Replace,
    Investigate,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::None => "none",
            Action::Monitor => "monitor",
            Action::Configure => "configure",
            Action::RestartService => "restart-service",
            Action::ResetGpu => "reset-gpu",
            Action::Reboot => "reboot",
            Action::Reseat => "reseat",
            Action::Cool => "cool",
            Action::Replace => "replace",
            Action::Investigate => "investigate",
        }
    }
}

/// What a finding says about its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Worth knowing, no reason to keep the host out.
    Warned,
    /// We could not find out.
    Undecided,
    /// The machine is wrong.
    Failed,
}

/// One thing that is wrong, or that could not be found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Stable; a waiver names it.
    pub code: FindingCode,
    pub grade: Grade,
    pub subject: Subject,
    /// The headline, e.g. `PCIe link narrow`.
    pub title: String,
    /// What was wanted, e.g. `x16`.
    pub expected: String,
    /// What the machine gave, e.g. `x8 (generation 5), in P0`.
    pub found: String,
    pub action: Action,
    /// What to do next, as a sentence.
    pub advice: String,
    /// Where it is, filled in by the gate: slot, bus address, UUID, serial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The step that was running when it arose, if not this one (`aftermath`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<String>,
    /// The waiver that covers it, by index into the plan's waivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived_by: Option<usize>,
}

impl Finding {
    /// A finding; `code` must be kebab-case.
    ///
    /// # Panics
    ///
    /// If `code` is not a name: codes are literals of ours, never input.
    pub fn new(grade: Grade, code: &'static str, subject: Subject, title: &str, action: Action) -> Self {
        Finding {
            code: code.parse().expect("finding codes are kebab-case literals"),
            grade,
            subject,
            title: title.to_owned(),
            expected: String::new(),
            found: String::new(),
            action,
            advice: String::new(),
            place: None,
            during: None,
            waived_by: None,
        }
    }

    /// What was wanted and what the machine gave. `found` is made printable.
    pub fn compared(mut self, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Self {
        self.expected = printable(&expected.to_string(), 300);
        self.found = printable(&found.to_string(), 300);
        self
    }

    /// What to do next, as a sentence.
    pub fn advise(mut self, advice: &str) -> Self {
        self.advice = printable(advice, 400);
        self
    }
}

/// Where a subject is, for the person who goes there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The day on which this was last in an accepted record, for what is not there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_accepted: Option<String>,
}

/// A number that was held against limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    pub name: String,
    pub subject: Subject,
    pub value: f64,
    pub unit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
    /// Where the limits come from: `class`, `site override` or `machine`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Measurement {
    pub fn new(name: &str, subject: &Subject, value: f64, unit: &str) -> Self {
        Measurement {
            name: name.to_owned(),
            subject: subject.clone(),
            value,
            unit: unit.to_owned(),
            floor: None,
            warn: None,
            ceiling: None,
            source: String::new(),
        }
    }
}

/// How a step ended, and on what evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    status: Status,
    /// One line for people: `8 of 8 GPUs`, `1 of 7 links narrow`, or why it did not run.
    pub cause: String,
    expected: BTreeSet<Subject>,
    judged: BTreeSet<Subject>,
    pub findings: Vec<Finding>,
    pub measurements: Vec<Measurement>,
    /// How often the machine was asked; more than 1 only where it may answer late.
    pub attempts: u32,
}

impl Outcome {
    /// The step did not run.
    pub fn skipped(cause: &str) -> Self {
        Outcome::without_evidence(Status::Skipped, cause)
    }

    /// The class says that the step does not apply.
    pub fn absent(reason: &str) -> Self {
        Outcome::without_evidence(Status::Absent, reason)
    }

    /// The step could not be carried out at all, without a finding about any subject.
    pub fn undecided(cause: &str) -> Self {
        Outcome::without_evidence(Status::Undecided, cause)
    }

    fn without_evidence(status: Status, cause: &str) -> Self {
        Outcome {
            status,
            cause: printable(cause, 300),
            expected: BTreeSet::new(),
            judged: BTreeSet::new(),
            findings: Vec::new(),
            measurements: Vec::new(),
            attempts: 0,
        }
    }

    pub fn status(&self) -> Status {
        self.status
    }

    pub fn expected(&self) -> &BTreeSet<Subject> {
        &self.expected
    }

    pub fn judged(&self) -> &BTreeSet<Subject> {
        &self.judged
    }

    /// Whether every expected subject was judged and there was at least one.
    pub fn is_complete(&self) -> bool {
        !self.expected.is_empty() && self.expected.is_subset(&self.judged)
    }

    /// Marks the findings that `waiver_of` names, and the step as waived if nothing else is wrong.
    /// An incomplete step stays undecided: a waiver covers a finding, never a missing look.
    pub fn waive(mut self, waiver_of: impl Fn(&Finding) -> Option<usize>) -> Self {
        for finding in self.findings.iter_mut().filter(|finding| finding.grade > Grade::Warned) {
            finding.waived_by = waiver_of(finding);
        }
        let blocking = || self.findings.iter().filter(|finding| finding.grade > Grade::Warned);
        let wrong = matches!(self.status, Status::Failed | Status::Undecided);
        if wrong
            && blocking().count() > 0
            && blocking().all(|finding| finding.waived_by.is_some())
            && self.is_complete()
        {
            self.status = Status::Waived;
        } else if self.status == Status::Failed
            && blocking().filter(|finding| finding.grade == Grade::Failed).all(|finding| finding.waived_by.is_some())
        {
            self.status = Status::Undecided;
        }
        self
    }
}

/// A judgement in the making. The only way to an outcome that passes.
#[derive(Debug)]
pub struct Judgement {
    outcome: Outcome,
}

impl Judgement {
    /// Starts a judgement over these subjects. None at all ends undecided.
    pub fn expecting(subjects: impl IntoIterator<Item = Subject>) -> Self {
        let mut outcome = Outcome::without_evidence(Status::Undecided, "");
        outcome.expected = subjects.into_iter().collect();
        outcome.attempts = 1;
        Judgement { outcome }
    }

    /// The subject was looked at and everything that decides about it was read.
    pub fn judged(&mut self, subject: &Subject) {
        self.outcome.judged.insert(subject.clone());
    }

    pub fn find(&mut self, finding: Finding) {
        self.outcome.findings.push(finding);
    }

    pub fn measure(&mut self, measurement: Measurement) {
        self.outcome.measurements.push(measurement);
    }

    pub fn attempts(&mut self, attempts: u32) {
        self.outcome.attempts = attempts;
    }

    pub fn findings(&self) -> &[Finding] {
        &self.outcome.findings
    }

    /// Ends the judgement. `summary` is the one line for a step that passed; a step that did not
    /// is summed up by its findings.
    ///
    /// A subject that is expected, was not judged and has no finding of its own gets one,
    /// `not-judged`, so that nothing is left out in silence.
    pub fn close(mut self, summary: &str) -> Outcome {
        let mut missing: Vec<Subject> = self.outcome.expected.difference(&self.outcome.judged).cloned().collect();
        missing.retain(|subject| {
            !self.outcome.findings.iter().any(|finding| finding.subject == *subject && finding.grade > Grade::Warned)
        });
        for subject in missing {
            self.outcome.findings.push(
                Finding::new(Grade::Undecided, "not-judged", subject, "Not judged", Action::None)
                    .compared("a reading of this GPU", "none: the driver does not show it"),
            );
        }
        let worst = self.outcome.findings.iter().map(|finding| finding.grade).max();
        self.outcome.status = match worst {
            Some(Grade::Failed) => Status::Failed,
            Some(Grade::Undecided) => Status::Undecided,
            _ if !self.outcome.is_complete() => Status::Undecided,
            Some(Grade::Warned) => Status::Warned,
            None => Status::Passed,
        };
        self.outcome.cause = match self.outcome.status {
            Status::Passed => printable(summary, 300),
            _ if self.outcome.expected.is_empty() && self.outcome.findings.is_empty() => "nothing to judge".to_owned(),
            _ => sum_up(&self.outcome.findings, summary),
        };
        self.outcome
    }
}

/// `PCIe link narrow (1), …`: titles of the worst grade with their counts.
fn sum_up(findings: &[Finding], otherwise: &str) -> String {
    let Some(worst) = findings.iter().map(|finding| finding.grade).max() else {
        return printable(otherwise, 300);
    };
    let mut titles: Vec<(&str, usize)> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.grade == worst) {
        match titles.iter_mut().find(|(title, _)| *title == finding.title) {
            Some((_, count)) => *count += 1,
            None => titles.push((&finding.title, 1)),
        }
    }
    let parts: Vec<String> = titles
        .into_iter()
        .map(|(title, count)| if count == 1 { title.to_owned() } else { format!("{title} ({count})") })
        .collect();
    printable(&parts.join(", "), 300)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str) -> Subject {
        Subject::named(name)
    }

    fn finding(grade: Grade, name: &str) -> Finding {
        Finding::new(grade, "link-narrow", subject(name), "PCIe link narrow", Action::Reseat)
    }

    #[test]
    fn a_step_passes_only_when_every_expected_subject_was_judged() {
        let mut judgement = Judgement::expecting([subject("a"), subject("b")]);
        judgement.judged(&subject("a"));
        let outcome = judgement.close("fine");
        assert_eq!(outcome.status(), Status::Undecided);
        assert_eq!(outcome.findings[0].code.as_str(), "not-judged");

        let mut judgement = Judgement::expecting([subject("a")]);
        judgement.judged(&subject("a"));
        assert_eq!(judgement.close("fine").status(), Status::Passed);
    }

    #[test]
    fn an_empty_set_never_passes() {
        assert_eq!(Judgement::expecting([]).close("fine").status(), Status::Undecided);
    }

    #[test]
    fn failure_outweighs_doubt_and_doubt_outweighs_a_warning() {
        let close = |grades: &[Grade]| {
            let mut judgement = Judgement::expecting([subject("a")]);
            judgement.judged(&subject("a"));
            grades.iter().for_each(|grade| judgement.find(finding(*grade, "a")));
            judgement.close("fine").status()
        };
        assert_eq!(close(&[Grade::Warned]), Status::Warned);
        assert_eq!(close(&[Grade::Undecided, Grade::Warned]), Status::Undecided);
        assert_eq!(close(&[Grade::Warned, Grade::Failed, Grade::Undecided]), Status::Failed);
    }

    #[test]
    fn a_waiver_covers_a_finding_and_never_a_missing_look() {
        let mut judgement = Judgement::expecting([subject("a")]);
        judgement.judged(&subject("a"));
        judgement.find(finding(Grade::Failed, "a"));
        let waived = judgement.close("fine").waive(|_| Some(0));
        assert_eq!((waived.status(), waived.findings[0].waived_by), (Status::Waived, Some(0)));

        let outcome = Judgement::expecting([subject("a")]).close("fine").waive(|_| Some(0));
        assert_eq!(outcome.status(), Status::Undecided);
    }

    #[test]
    fn waiving_one_of_two_findings_leaves_the_other() {
        let mut judgement = Judgement::expecting([subject("a"), subject("b")]);
        judgement.judged(&subject("a"));
        judgement.judged(&subject("b"));
        judgement.find(finding(Grade::Failed, "a"));
        judgement.find(finding(Grade::Failed, "b"));
        let outcome = judgement.close("fine").waive(|finding| (finding.subject.as_str() == "a").then_some(0));
        assert_eq!(outcome.status(), Status::Failed);
    }
}
