//! Runs a plan in order and emits what happens.
//!
//! The gate knows no check by name. It opens nothing and prints nothing: the machine comes in
//! opened, events go out, and what is left is the list of steps with their outcomes.

#[cfg(test)]
mod closed;
mod details;
mod place;
mod ready;

use std::time::Instant;

pub use details::{Account, account};
pub use place::{misses_a_gpu, name_the_missing};
pub use ready::not_ready_yet;

use crate::check::{Context, Pulse};
use crate::decision::{Decision, Judged, decide};
use crate::event::Event;
use crate::facts::Snapshot;
use crate::facts::snapshot::Wedge;
use crate::host::{Machine, clock};
use crate::ident::{StepId, printable};
use crate::outcome::{Finding, Outcome, Status};
use crate::plan::{Plan, PlannedStep, Work};
use crate::predicate::{Step, Waiver};

/// What a run has come to.
#[derive(Debug)]
pub struct Verdict {
    pub steps: Vec<Step>,
    pub decision: Decision,
    /// Why, where the steps alone do not say it.
    pub reason: Option<String>,
}

impl Verdict {
    /// A driver that does not let our session go is not one to accept a host on, however well its
    /// steps went: whatever comes next on this host may hang in the same way.
    pub fn after_close(mut self, wedge: Option<Wedge>) -> Verdict {
        if let Some(wedge) = wedge.filter(|_| self.decision == Decision::Accepted) {
            self.decision = Decision::Undecided;
            self.reason = Some(format!(
                "{} did not end within {:.0} s (process {}, state {}): reboot the host",
                wedge.question, wedge.waited, wedge.pid, wedge.process_state
            ));
        }
        self
    }
}

/// The machine as it was when the run began.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    pub snapshot: &'a Snapshot,
    /// How often it was opened until it was ready.
    pub openings: u32,
}

/// Why a run ends before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Interrupted,
    OutOfTime,
}

impl Stop {
    fn as_str(self) -> &'static str {
        match self {
            Stop::Interrupted => "interrupted",
            Stop::OutOfTime => "the run's own deadline has passed",
        }
    }
}

/// Runs the plan's steps in order on an opened machine.
///
/// `interrupted` is asked before each step; `listen` hears every event. A bad machine is an
/// outcome; this function has no error.
pub fn run(
    plan: &mut Plan,
    machine: &mut Machine,
    opening: &Opening<'_>,
    interrupted: &dyn Fn() -> bool,
    listen: &mut dyn FnMut(&Event),
) -> Verdict {
    let end = Instant::now() + plan.deadline;
    let Opening { snapshot: opening, openings } = *opening;
    let mut run = Run { machine, opening, openings, end, pulses: Vec::new(), steps: Vec::new(), listen };
    let waivers = std::mem::take(&mut plan.waivers);
    let mut stop = None;
    for (index, planned) in plan.steps.iter_mut().enumerate() {
        stop = stop.or_else(|| run.must_stop(interrupted));
        run.step(index, planned, &waivers, stop);
    }
    // A signal during the last step leaves it undecided or not judged in full: the run was cut short.
    let stop = stop.or_else(|| run.must_stop(interrupted));
    let steps = run.steps;
    plan.waivers = waivers;
    conclude(plan, steps, stop)
}

struct Run<'a> {
    machine: &'a mut Machine,
    opening: &'a Snapshot,
    openings: u32,
    end: Instant,
    pulses: Vec<Pulse>,
    steps: Vec<Step>,
    listen: &'a mut dyn FnMut(&Event),
}

impl Run<'_> {
    fn must_stop(&self, interrupted: &dyn Fn() -> bool) -> Option<Stop> {
        if interrupted() {
            Some(Stop::Interrupted)
        } else if Instant::now() >= self.end {
            Some(Stop::OutOfTime)
        } else {
            None
        }
    }

    fn step(&mut self, index: usize, planned: &mut PlannedStep, waivers: &[Waiver], stop: Option<Stop>) {
        let started_at = clock::utc_now();
        (self.listen)(&Event::StepStarted { id: planned.id.clone(), index, at: started_at.clone() });
        let began = Instant::now();
        let outcome = match stop {
            Some(stop) => Outcome::skipped(stop.as_str()),
            None => self.outcome(planned),
        };
        let mut outcome = outcome.waive(|finding| waiver_of(waivers, &planned.id, finding));
        place::fill(&mut outcome.findings, self.opening);
        let step = Step {
            id: planned.id.clone(),
            check: planned.check.clone(),
            require: planned.require,
            outcome,
            started_at,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let (status, took) = (step.outcome.status().as_str(), began.elapsed());
        tracing::debug!(step = step.id.as_str(), status, ?took, cause = printable(&step.outcome.cause, 200), "judged");
        (self.listen)(&Event::StepEnded { step: Box::new(step.clone()) });
        self.steps.push(step);
    }

    fn outcome(&mut self, planned: &mut PlannedStep) -> Outcome {
        match &mut planned.work {
            Work::Absent { reason } => return Outcome::absent(reason),
            Work::LeftOut { reason } => return Outcome::skipped(reason),
            Work::Run(_) => {}
        }
        if let Some(outcome) = self.unmet_need(&planned.needs) {
            return outcome;
        }
        let Work::Run(check) = &mut planned.work else {
            return Outcome::skipped("not in the plan");
        };
        let id = planned.id.clone();
        self.machine.mark(&id);
        let window = clock::monotonic_microseconds();
        let listen = &mut *self.listen;
        let mut progress = |text: &str, share: f64| {
            listen(&Event::StepProgress { id: id.clone(), text: text.to_owned(), share });
        };
        let outcome = check.run(&mut Context {
            opening: self.opening,
            openings: self.openings,
            machine: self.machine,
            deadline: (Instant::now() + planned.timeout).min(self.end),
            pulses: &self.pulses,
            progress: &mut progress,
        });
        self.pulse(&planned.id, window);
        outcome
    }

    /// What a step ends in because of a step that it needs: nothing is measured on a ground that
    /// does not hold, and not knowing stays not knowing.
    fn unmet_need(&self, needs: &[StepId]) -> Option<Outcome> {
        needs.iter().find_map(|need| {
            let status = self.steps.iter().find(|step| step.id == *need).map(|step| step.outcome.status());
            match status {
                Some(Status::Passed | Status::Warned | Status::Waived | Status::Absent) => None,
                Some(Status::Failed) => Some(Outcome::skipped(&format!("needs {need}, which failed"))),
                Some(Status::Undecided) => Some(Outcome::undecided(&format!("needs {need}, which is undecided"))),
                Some(Status::Skipped) | None => Some(Outcome::skipped(&format!("needs {need}, which did not run"))),
            }
        })
    }

    /// Reads the counters again, so that `aftermath` can say during which step they rose.
    fn pulse(&mut self, step: &StepId, began: u64) {
        let answers = self.machine.pulse();
        self.pulses.push(Pulse { step: step.clone(), began, ended: clock::monotonic_microseconds(), answers });
    }
}

fn waiver_of(waivers: &[Waiver], step: &StepId, finding: &Finding) -> Option<usize> {
    waivers.iter().position(|waiver| {
        waiver.step == step.as_str()
            && waiver.finding == finding.code.as_str()
            && waiver.subject == finding.subject.as_str()
    })
}

fn conclude(plan: &Plan, steps: Vec<Step>, stop: Option<Stop>) -> Verdict {
    let judged: Vec<Judged<'_>> = steps
        .iter()
        .map(|step| Judged { id: &step.id, check: &step.check, require: step.require, outcome: &step.outcome })
        .collect();
    // An interrupted run never accepts, whatever its steps had found by then.
    let decision = match decide(&judged, plan.can_accept) {
        Decision::Accepted if stop.is_some() => Decision::Undecided,
        decision => decision,
    };
    let reason = match stop {
        Some(stop) => Some(stop.as_str().to_owned()),
        None if decision == Decision::Undecided => plan.cannot_accept_because.clone(),
        None => None,
    };
    Verdict { steps, decision, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Require;
    use crate::ident::Subject;
    use crate::outcome::{Action, Grade, Judgement};
    use crate::plan::testing;

    fn passed(check: &str) -> Step {
        let mut judgement = Judgement::expecting([Subject::host()]);
        judgement.judged(&Subject::host());
        Step {
            id: check.parse().unwrap(),
            check: check.parse().unwrap(),
            require: Require::Must,
            outcome: judgement.close("fine"),
            started_at: String::new(),
            duration_ms: 0,
        }
    }

    #[test]
    fn a_run_that_was_cut_short_never_accepts_whatever_its_steps_had_found() {
        let mut plan = testing::plan();
        (plan.can_accept, plan.cannot_accept_because) = (true, None);
        let concluded = |stop| {
            let steps = crate::decision::FLOOR.iter().map(|check| passed(check)).collect();
            let verdict = conclude(&plan, steps, stop);
            (verdict.decision, verdict.reason)
        };
        assert_eq!(concluded(None), (Decision::Accepted, None));
        for stop in [Stop::Interrupted, Stop::OutOfTime] {
            assert_eq!(concluded(Some(stop)), (Decision::Undecided, Some(stop.as_str().to_owned())));
        }
    }

    #[test]
    fn a_waiver_covers_its_step_finding_and_subject_and_nothing_else() {
        let waiver = |step: &str, finding: &str, subject: &str| Waiver {
            step: step.to_owned(),
            finding: finding.to_owned(),
            subject: subject.to_owned(),
            reason: String::new(),
            who: String::new(),
            until: String::new(),
        };
        let finding = Finding::new(Grade::Failed, "link-narrow", Subject::host(), "Narrow", Action::Reseat);
        let covered = |waiver| waiver_of(&[waiver], &"pcie-link".parse().unwrap(), &finding);
        assert_eq!(covered(waiver("pcie-link", "link-narrow", "host")), Some(0));
        for (step, code, subject) in [
            ("ecc", "link-narrow", "host"),
            ("pcie-link", "link-slow", "host"),
            ("pcie-link", "link-narrow", "0000:1b:00.0"),
            ("pcie-link", "link-narrow", "*"),
            ("pcie-link", "link-narrow", ""),
        ] {
            assert_eq!(covered(waiver(step, code, subject)), None, "{step} {code} {subject}");
        }
    }
}
