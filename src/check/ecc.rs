#![doc = include_str!("ecc.md")]

use serde::Deserialize;

use super::look::{Held, Look, each_gpu};
use super::{Check, Context, session};
use crate::facts::gpu::Mode;
use crate::facts::{Gpu, Snapshot};
use crate::outcome::blame::unanswered;
use crate::outcome::{Action, Finding, Grade, Outcome};
use crate::reading::{Code, Reading};

/// What a class may ask of error correction.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ecc {
    pub mode: EccMode,
    /// The most uncorrectable errors since the driver was loaded.
    #[serde(default)]
    pub uncorrected_volatile: u64,
    /// More uncorrectable errors since manufacture than this warn; absent: recorded only.
    pub uncorrected_aggregate: Option<u64>,
    pub sram: Sram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EccMode {
    On,
    Off,
    /// The GPU has no such mode.
    Unsupported,
    /// Either, or no such mode; where it is on, its counters are judged.
    Any,
}

/// Whether the GPU tells its SRAM error status; reading it takes root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sram {
    Judged,
    Unsupported,
}

impl Check for Ecc {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        self.judge(context.opening)
    }
}

impl Ecc {
    /// Judges error correction on each GPU.
    pub fn judge(&self, facts: &Snapshot) -> Outcome {
        if let Some(silent) = session::silent(facts) {
            return silent;
        }
        let judgement = each_gpu(facts, |look, gpu| {
            if self.judge_mode(&gpu.ecc_mode, look) {
                self.judge_counters(gpu, look);
                self.judge_sram(gpu, look);
            } else if self.mode != EccMode::On {
                self.judge_sram(gpu, look);
            }
        });
        judgement.close(match self.mode {
            EccMode::On => "on, no uncorrectable errors",
            EccMode::Off => "off, as the class wants",
            EccMode::Unsupported => "this class has no ECC",
            EccMode::Any => "where on, no uncorrectable errors",
        })
    }

    /// Whether ECC is on, so that there are counters to judge.
    fn judge_mode(&self, reading: &Reading<Mode>, look: &mut Look<'_>) -> bool {
        if self.mode == EccMode::Unsupported {
            return self.judge_absence(reading, look);
        }
        let mode = match self.mode {
            EccMode::Any => look.optional(reading, "ECC mode"),
            _ => look.require(reading, "ECC mode"),
        };
        let Some(mode) = mode else { return false };
        if mode.current.max(mode.pending) > 1 {
            let none = unanswered(&look.subject(), "ECC mode", Code::GARBLED);
            let found = format!("{}, {} pending", mode.current, mode.pending);
            return look.unread::<bool>(none.compared("0 or 1", found)).unwrap_or(false);
        }
        let wanted = match self.mode {
            EccMode::Any => mode.current,
            chosen => u32::from(chosen == EccMode::On),
        };
        let (code, title) = if wanted == 1 { ("ecc-off", "ECC off") } else { ("ecc-on", "ECC on") };
        if mode.current != mode.pending {
            look.find(pending(*mode, wanted, look));
        } else if mode.current != wanted {
            let advice = format!(
                "nvidia-smi -i {} -e {wanted}, then nvidia-smi -r -i {0} or reboot; run again.",
                look.subject()
            );
            look.find(
                Finding::new(Grade::Failed, code, look.subject(), title, Action::Configure)
                    .compared(word(wanted), word(mode.current))
                    .advise(&advice),
            );
        }
        mode.current == 1
    }

    /// A GPU whose class has no ECC must say so; one that has a mode is of another class.
    fn judge_absence(&self, reading: &Reading<Mode>, look: &mut Look<'_>) -> bool {
        if let Some(mode) = look.optional(reading, "ECC mode") {
            look.unread::<()>(
                Finding::new(Grade::Undecided, "ecc-unexpected", look.subject(), "ECC not expected", Action::Configure)
                    .compared("no ECC mode in this class", word(mode.current))
                    .advise("Name the class of this host (nodegate run --class ID); nodegate class list shows them."),
            );
        }
        false
    }

    fn judge_counters(&self, gpu: &Gpu, look: &mut Look<'_>) {
        if let Some(count) = look.require(&gpu.ecc.uncorrected_volatile, "uncorrected ECC errors, volatile").copied() {
            let number = look.number("ecc-uncorrected-volatile", count as f64, "");
            look.measure(number.at_most(self.uncorrected_volatile as f64));
            if count > self.uncorrected_volatile {
                let advice = format!(
                    "nvidia-smi -r -i {} on the drained host, or reboot; run again; if errors return, replace the GPU.",
                    look.subject()
                );
                look.find(
                    Finding::new(
                        Grade::Failed,
                        "ecc-uncorrected",
                        look.subject(),
                        "Uncorrectable ECC errors",
                        Action::ResetGpu,
                    )
                    .compared(format!("at most {} since the driver was loaded", self.uncorrected_volatile), count)
                    .advise(&advice),
                );
            }
        }
        if let Some(count) = look.require(&gpu.ecc.uncorrected_aggregate, "uncorrected ECC errors, aggregate").copied()
        {
            self.judge_aggregate(count, look);
        }
        for (name, reading) in [
            ("ecc-corrected-volatile", &gpu.ecc.corrected_volatile),
            ("ecc-corrected-aggregate", &gpu.ecc.corrected_aggregate),
        ] {
            if let Some(count) = look.require(reading, "corrected ECC errors").copied() {
                look.measure(look.number(name, count as f64, ""));
            }
        }
    }

    fn judge_aggregate(&self, count: u64, look: &mut Look<'_>) {
        let number = look.number("ecc-uncorrected-aggregate", count as f64, "");
        match self.uncorrected_aggregate {
            None => look.measure(number),
            Some(warn) => {
                look.measure(number.warning_above(warn as f64));
                if count > warn {
                    look.find(
                        Finding::new(
                            Grade::Warned,
                            "ecc-aggregate",
                            look.subject(),
                            "Many ECC errors in its life",
                            Action::Monitor,
                        )
                        .compared(format!("at most {warn} uncorrectable errors since manufacture"), count)
                        .advise("Watch this GPU; memory-repair says whether its memory can still be repaired."),
                    );
                }
            }
        }
    }

    fn judge_sram(&self, gpu: &Gpu, look: &mut Look<'_>) {
        let status = match self.sram {
            Sram::Judged => look.require(&gpu.sram, "SRAM error status (as root)"),
            Sram::Unsupported => gpu.sram.value(),
        };
        if status.is_some_and(|status| status.b_threshold_exceeded != 0) {
            look.find(
                Finding::new(
                    Grade::Failed,
                    "sram-threshold",
                    look.subject(),
                    "SRAM threshold exceeded",
                    Action::Replace,
                )
                .compared("SRAM errors below the GPU's own threshold", "threshold exceeded")
                .advise("Replace the GPU; attach nvidia-smi -q -d ECC to the return."),
            );
        }
    }
}

fn word(mode: u32) -> &'static str {
    if mode == 1 { "ECC on" } else { "ECC off" }
}

fn on_or_off(mode: u32) -> &'static str {
    if mode == 1 { "on" } else { "off" }
}

fn pending(mode: Mode, wanted: u32, look: &Look<'_>) -> Finding {
    let subject = look.subject();
    let advice = if mode.pending == wanted {
        format!("nvidia-smi -r -i {subject} on the drained host, or reboot; run again.")
    } else {
        format!("nvidia-smi -i {subject} -e {wanted} takes the change back; then reboot and run again.")
    };
    Finding::new(Grade::Failed, "ecc-pending", subject, "ECC change pending", Action::Reboot)
        .compared(
            word(wanted),
            format!("{} now, {} after the next reset", on_or_off(mode.current), on_or_off(mode.pending)),
        )
        .advise(&advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread, unread_optional};

    const GPU: &str = "0000:1b:00.0";

    fn check(mode: EccMode) -> Ecc {
        Ecc { mode, uncorrected_volatile: 0, uncorrected_aggregate: Some(4), sram: Sram::Judged }
    }

    #[track_caller]
    fn after(mode: EccMode, change: impl FnOnce(&mut Gpu), status: &str, findings: &[&str]) {
        let mut facts = sample::host(1);
        change(&mut facts.gpus[0]);
        let findings: Vec<_> = findings.iter().map(|code| (*code, GPU)).collect();
        assert_outcome(&check(mode).judge(&facts), status, &findings);
    }

    fn mode(current: u32, pending: u32) -> Reading<Mode> {
        Reading::Value(Mode { current, pending })
    }

    #[test]
    fn ecc_on_without_errors_passes() {
        after(EccMode::On, |_| {}, "passed", &[]);
    }

    #[test]
    fn a_mode_other_than_the_class_wants_fails() {
        after(EccMode::On, |gpu| gpu.ecc_mode = mode(0, 0), "failed", &["ecc-off"]);
        after(EccMode::On, |gpu| gpu.ecc_mode = mode(1, 0), "failed", &["ecc-pending"]);
        after(EccMode::On, |gpu| gpu.ecc_mode = mode(0, 1), "failed", &["ecc-pending"]);
        for sense in [mode(2, 2), mode(1, 2), mode(7, 1)] {
            after(EccMode::On, |gpu| gpu.ecc_mode = sense.clone(), "undecided", &["garbled"]);
            after(EccMode::Off, |gpu| gpu.ecc_mode = sense, "undecided", &["garbled"]);
        }
        after(EccMode::Off, |_| {}, "failed", &["ecc-on"]);
        after(EccMode::Off, |gpu| gpu.ecc_mode = mode(0, 0), "passed", &[]);
    }

    #[test]
    fn where_the_mode_is_the_owners_choice_errors_count_all_the_same() {
        after(EccMode::Any, |_| {}, "passed", &[]);
        after(EccMode::Any, |gpu| gpu.ecc_mode = mode(0, 0), "passed", &[]);
        after(EccMode::Any, |gpu| gpu.ecc_mode = Reading::Unsupported, "passed", &[]);
        after(EccMode::Any, |gpu| gpu.ecc_mode = mode(0, 1), "failed", &["ecc-pending"]);
        after(EccMode::Any, |gpu| gpu.ecc.uncorrected_volatile = Reading::Value(1), "failed", &["ecc-uncorrected"]);
        let quiet = Ecc { sram: Sram::Unsupported, ..check(EccMode::Any) };
        let mut facts = sample::host(1);
        facts.gpus[0].ecc_mode = Reading::Unsupported;
        if let Reading::Value(status) = &mut facts.gpus[0].sram {
            status.b_threshold_exceeded = 1;
        }
        assert_outcome(&quiet.judge(&facts), "failed", &[("sram-threshold", GPU)]);
    }

    #[test]
    fn a_gpu_without_ecc_passes_only_where_the_class_has_none() {
        let none = |gpu: &mut Gpu| gpu.ecc_mode = Reading::Unsupported;
        after(EccMode::Unsupported, none, "passed", &[]);
        after(EccMode::On, none, "undecided", &["unsupported"]);
        after(EccMode::Unsupported, |_| {}, "undecided", &["ecc-unexpected"]);
    }

    #[test]
    fn uncorrectable_errors_fail_old_ones_warn_and_the_sram_flag_fails() {
        after(EccMode::On, |gpu| gpu.ecc.uncorrected_volatile = Reading::Value(1), "failed", &["ecc-uncorrected"]);
        after(EccMode::On, |gpu| gpu.ecc.uncorrected_aggregate = Reading::Value(4), "passed", &[]);
        after(EccMode::On, |gpu| gpu.ecc.uncorrected_aggregate = Reading::Value(5), "warned", &["ecc-aggregate"]);
        let exceed = |gpu: &mut Gpu| {
            if let Reading::Value(status) = &mut gpu.sram {
                status.b_threshold_exceeded = 1;
            }
        };
        after(EccMode::On, exceed, "failed", &["sram-threshold"]);
    }

    #[test]
    fn nothing_unread_and_no_empty_host_ever_passes() {
        macro_rules! never {
            ($mode:expr, $states:expr, $($field:ident).+) => {
                assert_never_passes_unread(stringify!($($field).+), $states, |state| {
                    let mut facts = sample::host(1);
                    facts.gpus[0].$($field).+ = state;
                    check($mode).judge(&facts)
                })
            };
        }
        never!(EccMode::On, unread(), ecc_mode);
        never!(EccMode::Off, unread(), ecc_mode);
        never!(EccMode::Unsupported, unread_optional(), ecc_mode);
        never!(EccMode::Any, unread_optional(), ecc_mode);
        never!(EccMode::Any, unread(), ecc.uncorrected_volatile);
        never!(EccMode::On, unread(), ecc.uncorrected_volatile);
        never!(EccMode::On, unread(), ecc.uncorrected_aggregate);
        never!(EccMode::On, unread(), ecc.corrected_volatile);
        never!(EccMode::On, unread(), ecc.corrected_aggregate);
        never!(EccMode::On, unread(), sram);
        assert_outcome(&check(EccMode::On).judge(&sample::host(0)), "undecided", &[]);
    }
}
