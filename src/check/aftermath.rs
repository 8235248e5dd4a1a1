#![doc = include_str!("aftermath.md")]

use serde::Deserialize;

use super::look::{Look, expected_gpus};
use super::{Check, Context, Pulse, session};
use crate::facts::Snapshot;
use crate::ident::Subject;
use crate::outcome::{Action, Finding, Grade, Judgement, Outcome};

mod counters;
mod log;
mod state;

/// What may rise during a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Aftermath {
    /// More corrected errors than this on one GPU warn.
    pub corrected_delta_warn: u64,
    /// More PCIe replays than this on one GPU warn.
    pub replay_delta_warn: u64,
    pub xid: XidRule,
}

/// What decides about driver messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum XidRule {
    /// `checks/policy/xid.toml`.
    Policy,
}

impl Check for Aftermath {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        let closing = context.machine.snapshot(context.deadline);
        self.judge(context.opening, &closing, context.pulses)
    }
}

impl Aftermath {
    /// Judges what changed from the opening to the closing snapshot.
    pub fn judge(&self, opening: &Snapshot, closing: &Snapshot, pulses: &[Pulse]) -> Outcome {
        if let Some(silent) = session::silent(opening) {
            return silent;
        }
        let gpus = expected_gpus(opening);
        let host = Some(Subject::host()).filter(|_| !gpus.is_empty());
        let mut judgement = Judgement::expecting(gpus.into_iter().map(Subject::gpu).chain(host));
        let mut look = Look::at(&mut judgement, Subject::host());
        judge_boot(opening, closing, &mut look);
        log::judge(opening, closing, pulses, &mut look);
        if let Some(fault) = session::fault(&closing.driver.session) {
            look.unread::<()>(fault);
        }
        look.end();
        if closing.driver.is_answering() {
            for (bus_id, gpu) in opening.gpus_by_bus_id() {
                let mut look = Look::at(&mut judgement, Subject::gpu(bus_id));
                let was_on_bus = opening.host.pci.contains_key(&bus_id);
                let change = counters::Change { gpu, bus_id, was_on_bus, closing, pulses };
                change.judge(self, &mut look);
                look.end();
            }
            judge_arrivals(opening, closing, &mut judgement);
        }
        judgement.close("nothing rose during the run")
    }
}

fn judge_boot(opening: &Snapshot, closing: &Snapshot, look: &mut Look<'_>) {
    let before = look.require(&opening.host.kernel.boot_id, "boot id").cloned();
    let after = look.require(&closing.host.kernel.boot_id, "boot id").cloned();
    if let (Some(before), Some(after)) = (before, after)
        && before != after
    {
        look.unread::<()>(
            Finding::new(Grade::Undecided, "reboot-during-run", look.subject(), "Host restarted", Action::Investigate)
                .compared(format!("boot {before}"), format!("boot {after}"))
                .advise("Find out what restarted the host during the run; run again."),
        );
    }
}

/// A GPU that was not there before the run makes the earlier steps incomplete.
fn judge_arrivals(opening: &Snapshot, closing: &Snapshot, judgement: &mut Judgement) {
    let before = expected_gpus(opening);
    let appeared = |subject| {
        Finding::new(Grade::Undecided, "gpu-appeared", subject, "GPU appeared", Action::Investigate)
            .compared("the GPUs of the first reading", "one more")
            .advise("Run again: this GPU was judged by no step.")
    };
    let new: Vec<Subject> = expected_gpus(closing).difference(&before).copied().map(Subject::gpu).collect();
    // One more in the driver's list may have no address of its own.
    let nameless = new.is_empty() && closing.gpus.len() > opening.gpus.len();
    new.into_iter().chain(nameless.then(Subject::host)).for_each(|subject| judgement.find(appeared(subject)));
}

#[cfg(test)]
mod tests;
