#![doc = include_str!("mig.md")]

use serde::Deserialize;

use super::look::{Look, each_gpu};
use super::{Check, Context, session};
use crate::facts::gpu::Mode;
use crate::facts::{Gpu, Snapshot};
use crate::ident::Subject;
use crate::outcome::blame::unanswered;
use crate::outcome::{Action, Finding, Grade, Judgement, Outcome};
use crate::reading::Code;

/// How the class partitions its GPUs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Mig {
    pub layout: Layout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Whole GPUs.
    Off,
    /// MIG mode on.
    On,
    /// The GPUs have no such mode.
    Unsupported,
    /// Either, but the same on all.
    Any,
}

impl Check for Mig {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        self.judge(context.opening)
    }
}

impl Mig {
    /// Judges the mode of each GPU, and whether they agree.
    pub fn judge(&self, facts: &Snapshot) -> Outcome {
        if let Some(silent) = session::silent(facts) {
            return silent;
        }
        let mut judgement = each_gpu(facts, |look, gpu| self.judge_gpu(gpu, look));
        if self.layout == Layout::Any {
            judge_mixture(facts, &mut judgement);
        }
        judgement.close(match self.layout {
            Layout::Off => "off on every GPU",
            Layout::On => "MIG on, as the class wants",
            Layout::Unsupported => "this class has no MIG",
            Layout::Any => "the same on every GPU",
        })
    }

    fn judge_gpu(&self, gpu: &Gpu, look: &mut Look<'_>) {
        let mode = match self.layout {
            Layout::Off | Layout::On => look.require(&gpu.mig_mode, "MIG mode"),
            Layout::Unsupported | Layout::Any => look.optional(&gpu.mig_mode, "MIG mode"),
        };
        let Some(mode) = mode else { return };
        if mode.current.max(mode.pending) > 1 {
            let none = unanswered(&look.subject(), "MIG mode", Code::GARBLED);
            let found = format!("{}, {} pending", mode.current, mode.pending);
            return look.unread(none.compared("0 or 1", found)).unwrap_or(());
        }
        if mode.current != mode.pending {
            look.find(pending(*mode, look.subject()));
        } else if mode.current == 1 && matches!(self.layout, Layout::Off | Layout::Unsupported) {
            look.find(wrong("mig-on", "MIG left on", 0, look.subject()));
        } else if mode.current == 0 && self.layout == Layout::On {
            look.find(wrong("mig-off", "MIG off", 1, look.subject()));
        }
    }
}

fn word(mode: u32) -> &'static str {
    if mode == 1 { "MIG on" } else { "MIG off" }
}

fn on_or_off(mode: u32) -> &'static str {
    if mode == 1 { "on" } else { "off" }
}

fn wrong(code: &'static str, title: &str, wanted: u32, subject: Subject) -> Finding {
    let advice =
        format!("nvidia-smi -i {subject} -mig {wanted}; nvidia-smi -r -i {subject} if it stays pending; run again.");
    Finding::new(Grade::Failed, code, subject, title, Action::Configure)
        .compared(word(wanted), word(1 - wanted))
        .advise(&advice)
}

fn pending(mode: Mode, subject: Subject) -> Finding {
    let advice = format!("nvidia-smi -r -i {subject} on the drained host, or reboot; run again.");
    Finding::new(Grade::Failed, "mig-pending", subject, "MIG change pending", Action::ResetGpu)
        .compared(
            "no change of MIG mode pending",
            format!("{} now, {} after the next reset", on_or_off(mode.current), on_or_off(mode.pending)),
        )
        .advise(&advice)
}

fn judge_mixture(facts: &Snapshot, judgement: &mut Judgement) {
    let modes: Vec<u32> = facts.gpus.iter().filter_map(|gpu| gpu.mig_mode.value()).map(|mode| mode.current).collect();
    let on = modes.iter().filter(|mode| **mode == 1).count();
    if on > 0 && on < modes.len() {
        judgement.find(
            Finding::new(Grade::Failed, "mig-mixed", Subject::host(), "MIG mixed", Action::Configure)
                .compared("the same MIG mode on every GPU", format!("on on {on} of {} GPUs", modes.len()))
                .advise("nvidia-smi -i ADDRESS -mig 0 (or 1) on those that differ; run again."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread, unread_optional};
    use crate::reading::Reading;

    const GPU: &str = "0000:1b:00.0";

    #[track_caller]
    fn with(layout: Layout, modes: &[Option<(u32, u32)>], status: &str, findings: &[(&str, &str)]) {
        let mut facts = sample::host(modes.len() as u32);
        for (gpu, mode) in facts.gpus.iter_mut().zip(modes) {
            gpu.mig_mode =
                mode.map_or(Reading::Unsupported, |(current, pending)| Reading::Value(Mode { current, pending }));
        }
        assert_outcome(&Mig { layout }.judge(&facts), status, findings);
    }

    #[test]
    fn the_mode_of_the_class_passes() {
        with(Layout::Off, &[Some((0, 0)), Some((0, 0))], "passed", &[]);
        with(Layout::On, &[Some((1, 1))], "passed", &[]);
        with(Layout::Unsupported, &[None], "passed", &[]);
        with(Layout::Any, &[Some((1, 1)), Some((1, 1))], "passed", &[]);
    }

    #[test]
    fn another_mode_fails_and_a_missing_one_is_open() {
        with(Layout::Off, &[Some((1, 1))], "failed", &[("mig-on", GPU)]);
        with(Layout::Unsupported, &[Some((1, 1))], "failed", &[("mig-on", GPU)]);
        with(Layout::On, &[Some((0, 0))], "failed", &[("mig-off", GPU)]);
        with(Layout::Off, &[Some((0, 1))], "failed", &[("mig-pending", GPU)]);
        for layout in [Layout::Off, Layout::On, Layout::Unsupported, Layout::Any] {
            with(layout, &[Some((2, 2))], "undecided", &[("garbled", GPU)]);
        }
        with(Layout::Off, &[None], "undecided", &[("unsupported", GPU)]);
        with(Layout::Any, &[Some((1, 1)), Some((0, 0))], "failed", &[("mig-mixed", "host")]);
    }

    #[test]
    fn nothing_unread_and_no_empty_host_ever_passes() {
        let judge = |layout| {
            move |state| {
                let mut facts = sample::host(1);
                facts.gpus[0].mig_mode = state;
                Mig { layout }.judge(&facts)
            }
        };
        assert_never_passes_unread("mig_mode", unread(), judge(Layout::Off));
        assert_never_passes_unread("mig_mode", unread(), judge(Layout::On));
        assert_never_passes_unread("mig_mode", unread_optional(), judge(Layout::Unsupported));
        assert_never_passes_unread("mig_mode", unread_optional(), judge(Layout::Any));
        with(Layout::Off, &[], "undecided", &[]);
    }
}
