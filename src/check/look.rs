//! Looking at one subject: what was read of it, what was found, and whether that is enough.
//!
//! Every check goes through a [`Look`], so that a subject counts as judged only when all that
//! decides about it was read, and a lost GPU is reported once and not once per reading.

use std::collections::BTreeSet;

use crate::facts::{Gpu, Snapshot};
use crate::ident::{BusId, Subject};
use crate::outcome::{Finding, Grade, Judgement, Measurement, blame};
use crate::reading::Reading;

/// A judgement over one subject. [`Look::end`] says whether it was complete.
pub struct Look<'a> {
    judgement: &'a mut Judgement,
    subject: Subject,
    complete: bool,
}

impl<'a> Look<'a> {
    pub fn at(judgement: &'a mut Judgement, subject: Subject) -> Self {
        Look { judgement, subject, complete: true }
    }

    pub fn subject(&self) -> Subject {
        self.subject.clone()
    }

    /// The value, or nothing and a finding that says why: the subject then is not judged.
    pub fn require<'r, T>(&mut self, reading: &'r Reading<T>, question: &str) -> Option<&'r T> {
        match blame::require(reading, &self.subject, question) {
            Ok(value) => Some(value),
            Err(finding) => self.unread(finding),
        }
    }

    /// The value, or nothing where the machine has no such thing; not finding out is a finding.
    pub fn optional<'r, T>(&mut self, reading: &'r Reading<T>, question: &str) -> Option<&'r T> {
        match blame::optional(reading, &self.subject, question) {
            Ok(value) => value,
            Err(finding) => self.unread(finding),
        }
    }

    /// Something that decides could not be read.
    pub fn unread<T>(&mut self, finding: Finding) -> Option<T> {
        self.complete = false;
        self.find(finding);
        None
    }

    /// Adds a finding; the same code on the same subject only once.
    pub fn find(&mut self, finding: Finding) {
        let known = |other: &Finding| other.code == finding.code && other.subject == finding.subject;
        if !self.judgement.findings().iter().any(known) {
            self.judgement.find(finding);
        }
    }

    /// Whether a finding of this step says that the subject is wrong and what to do is `action`.
    pub fn already_asks_for(&self, action: crate::outcome::Action) -> bool {
        let asks = |finding: &Finding| {
            finding.subject == self.subject && finding.grade == Grade::Failed && finding.action == action
        };
        self.judgement.findings().iter().any(asks)
    }

    pub fn measure(&mut self, measurement: Measurement) {
        self.judgement.measure(measurement);
    }

    /// A number of this subject, without limits yet.
    pub fn number(&self, name: &str, value: f64, unit: &str) -> Measurement {
        Measurement::new(name, &self.subject, value, unit)
    }

    /// Ends the look; the subject is judged if everything that decides was read.
    pub fn end(self) {
        if self.complete {
            self.judgement.judged(&self.subject);
        }
    }
}

/// The limits of a measurement, as a class gives them.
pub trait Held {
    fn at_least(self, floor: f64) -> Self;
    fn at_most(self, ceiling: f64) -> Self;
    fn warning_above(self, warn: f64) -> Self;
}

impl Held for Measurement {
    fn at_least(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self.source = "class".to_owned();
        self
    }

    fn at_most(mut self, ceiling: f64) -> Self {
        self.ceiling = Some(ceiling);
        self.source = "class".to_owned();
        self
    }

    fn warning_above(mut self, warn: f64) -> Self {
        self.warn = Some(warn);
        self.source = "class".to_owned();
        self
    }
}

/// The GPUs that a step has to judge: those on the PCI bus and those that the driver shows.
pub fn expected_gpus(snapshot: &Snapshot) -> BTreeSet<BusId> {
    snapshot.gpus_on_bus().into_iter().chain(snapshot.gpus_by_bus_id().into_keys()).collect()
}

/// Judges each expected GPU by what the driver says of it. One that the driver does not show
/// is not looked at, and the judgement says so when it closes.
pub fn each_gpu(snapshot: &Snapshot, judge: impl FnMut(&mut Look<'_>, &Gpu)) -> Judgement {
    each_gpu_and(None, snapshot, judge)
}

/// [`each_gpu`] with one more subject to judge, by the caller.
pub fn each_gpu_and(
    other: Option<Subject>,
    snapshot: &Snapshot,
    mut judge: impl FnMut(&mut Look<'_>, &Gpu),
) -> Judgement {
    let subjects = expected_gpus(snapshot).into_iter().map(Subject::gpu).chain(other);
    let mut judgement = Judgement::expecting(subjects);
    // Not by map: of two GPUs at one address both are looked at.
    for (bus_id, gpu) in snapshot.gpus_with_address() {
        let mut look = Look::at(&mut judgement, Subject::gpu(bus_id));
        judge(&mut look, gpu);
        look.end();
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Action, Status};
    use crate::reading::Code;

    #[test]
    fn a_subject_with_an_unread_answer_is_not_judged() {
        let mut judgement = Judgement::expecting([Subject::host()]);
        let mut look = Look::at(&mut judgement, Subject::host());
        assert_eq!(look.require(&Reading::<u32>::Failed(Code::UNKNOWN), "it"), None);
        look.end();
        let outcome = judgement.close("fine");
        assert_eq!(outcome.status(), Status::Undecided);
        assert!(outcome.judged().is_empty());
    }

    #[test]
    fn a_lost_gpu_is_reported_once_however_often_it_was_asked() {
        let mut judgement = Judgement::expecting([Subject::host()]);
        let mut look = Look::at(&mut judgement, Subject::host());
        for question in ["power", "temperature", "ECC mode"] {
            look.require(&Reading::<u32>::Failed(Code::GPU_IS_LOST), question);
        }
        assert!(look.already_asks_for(Action::Reseat) && !look.already_asks_for(Action::Cool));
        look.end();
        assert_eq!(judgement.findings().len(), 1);
    }

    #[test]
    fn a_gpu_that_the_driver_does_not_show_stays_undecided() {
        let mut snapshot = crate::check::sample::host(2);
        snapshot.gpus.pop();
        let outcome = each_gpu(&snapshot, |_, _| {}).close("fine");
        assert_eq!(outcome.status(), Status::Undecided);
        assert_eq!((outcome.findings.len(), outcome.findings[0].code.as_str()), (1, "not-judged"));
    }
}
