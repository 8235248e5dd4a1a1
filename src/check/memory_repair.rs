#![doc = include_str!("memory_repair.md")]

use serde::Deserialize;
use serde::de::Error;

use super::look::{Held, Look, each_gpu};
use super::{Check, Context, session};
use crate::facts::gpu::{RemapHistogram, RemappedRows};
use crate::facts::{Gpu, Snapshot};
use crate::outcome::blame::unanswered;
use crate::outcome::{Action, Finding, Grade, Outcome};
use crate::reading::{Code, Reading};

/// How memory repairs itself, and how much repair is too much.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MemoryRepair {
    pub kind: RepairKind,
    /// More remapped rows than this warn.
    pub remapped_rows_warn: Option<u32>,
    /// More rows than this that were remapped for uncorrectable errors fail.
    pub remapped_rows_max: Option<u32>,
    /// More banks than this without a spare row fail.
    pub banks_without_spares: Option<u32>,
    /// More retired pages than this fail.
    pub retired_pages_max: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairKind {
    /// Ampere and later.
    RowRemap,
    /// Before.
    PageRetirement,
    None,
}

impl Check for MemoryRepair {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        self.judge(context.opening)
    }
}

impl MemoryRepair {
    /// The check, if it has the limits that its kind of repair needs.
    pub fn build(table: toml::Table) -> Result<Self, toml::de::Error> {
        let check: MemoryRepair = table.try_into()?;
        let missing = match check.kind {
            RepairKind::RowRemap if check.remapped_rows_warn.is_none() => "remapped-rows-warn",
            RepairKind::RowRemap if check.remapped_rows_max.is_none() => "remapped-rows-max",
            RepairKind::RowRemap if check.banks_without_spares.is_none() => "banks-without-spares",
            RepairKind::PageRetirement if check.retired_pages_max.is_none() => "retired-pages-max",
            _ => return Ok(check),
        };
        Err(toml::de::Error::custom(format!("missing field `{missing}`, which this kind of repair needs")))
    }

    /// Judges the repair of each GPU's memory.
    pub fn judge(&self, facts: &Snapshot) -> Outcome {
        if let Some(silent) = session::silent(facts) {
            return silent;
        }
        let judgement = each_gpu(facts, |look, gpu| {
            match self.kind {
                RepairKind::RowRemap => self.judge_remapping(gpu, look),
                RepairKind::PageRetirement => self.judge_pages(gpu, look),
                RepairKind::None => judge_whatever_there_is(gpu, look),
            }
            judge_repair_status(gpu, look);
            judge_recovery(&gpu.recovery_action, look);
        });
        judgement.close(match self.kind {
            RepairKind::RowRemap => "nothing pending, spares left",
            RepairKind::PageRetirement => "nothing pending, retired pages within limit",
            RepairKind::None if facts.gpus.iter().any(tells_of_repair) => "no repair data asked for; none pending",
            RepairKind::None => "no repair data asked for, and none given",
        })
    }

    fn judge_remapping(&self, gpu: &Gpu, look: &mut Look<'_>) {
        if let Some(rows) = look.require(&gpu.remapped_rows, "remapped rows (refused under MIG)") {
            judge_flags(*rows, look);
            self.judge_rows(*rows, look);
        }
        if let Some(histogram) = look.require(&gpu.remap_histogram, "row remapper histogram") {
            self.judge_spares(*histogram, look);
        }
    }

    fn judge_rows(&self, rows: RemappedRows, look: &mut Look<'_>) {
        let total = rows.corr_rows.saturating_add(rows.unc_rows);
        let number = look.number("remapped-rows", total.into(), "rows");
        look.measure(self.remapped_rows_warn.map_or(number.clone(), |warn| number.warning_above(warn.into())));
        let number = look.number("remapped-rows-uncorrectable", rows.unc_rows.into(), "rows");
        look.measure(self.remapped_rows_max.map_or(number.clone(), |max| number.at_most(max.into())));
        if let Some(max) = self.remapped_rows_max.filter(|max| rows.unc_rows > *max) {
            look.find(exhausted(
                look,
                &format!("at most {max} rows remapped for uncorrectable errors"),
                &rows.unc_rows.to_string(),
            ));
        } else if let Some(warn) = self.remapped_rows_warn.filter(|warn| total > *warn) {
            look.find(
                Finding::new(Grade::Warned, "remap-many", look.subject(), "Many remapped rows", Action::Monitor)
                    .compared(format!("at most {warn} remapped rows"), total)
                    .advise("Watch this GPU: its memory wears; it still has spares."),
            );
        }
    }

    fn judge_spares(&self, histogram: RemapHistogram, look: &mut Look<'_>) {
        let banks = [histogram.max, histogram.high, histogram.partial, histogram.low, histogram.none];
        if banks.iter().all(|count| *count == 0) {
            let none = unanswered(&look.subject(), "row remapper histogram", Code::GARBLED);
            return look.unread(none.compared("the banks of its memory", "no bank at all")).unwrap_or(());
        }
        let number = look.number("banks-without-spares", histogram.none.into(), "banks");
        look.measure(self.banks_without_spares.map_or(number.clone(), |max| number.at_most(max.into())));
        if let Some(max) = self.banks_without_spares.filter(|max| histogram.none > *max) {
            look.find(exhausted(
                look,
                &format!("at most {max} banks without a spare row"),
                &histogram.none.to_string(),
            ));
        }
    }

    fn judge_pages(&self, gpu: &Gpu, look: &mut Look<'_>) {
        if let Some(1..) = look.require(&gpu.retired_pages_pending, "pages pending retirement") {
            look.find(pages_pending(look));
        }
        let [single, double] = &gpu.retired_pages;
        let single = look.require(single, "pages retired for single-bit errors").map(Vec::len);
        let double = look.require(double, "pages retired for double-bit errors").map(Vec::len);
        let (Some(single), Some(double), Some(max)) = (single, double, self.retired_pages_max) else { return };
        let total = single + double;
        look.measure(look.number("retired-pages", total as f64, "pages").at_most(max.into()));
        if total > max as usize {
            let advice = "Replace the GPU; attach nvidia-smi -q -d PAGE_RETIREMENT to the return.";
            look.find(
                Finding::new(
                    Grade::Failed,
                    "pages-too-many",
                    look.subject(),
                    "Too many retired pages",
                    Action::Replace,
                )
                .compared(
                    format!("at most {max} retired pages"),
                    format!("{total} ({single} single-bit, {double} double-bit)"),
                )
                .advise(advice),
            );
        }
    }
}

/// Whether there was anything to read in which a repair could have been pending.
fn tells_of_repair(gpu: &Gpu) -> bool {
    gpu.remapped_rows.value().is_some() || gpu.retired_pages_pending.value().is_some() || gpu.repair.value().is_some()
}

/// A class without repair expects no answer; what answers all the same is not overlooked.
fn judge_whatever_there_is(gpu: &Gpu, look: &mut Look<'_>) {
    if let Some(rows) = look.optional(&gpu.remapped_rows, "remapped rows") {
        judge_flags(*rows, look);
    }
    if let Some(1..) = look.optional(&gpu.retired_pages_pending, "pages pending retirement") {
        look.find(pages_pending(look));
    }
}

fn judge_flags(rows: RemappedRows, look: &mut Look<'_>) {
    let total = rows.corr_rows.saturating_add(rows.unc_rows);
    let plural = if total == 1 { "" } else { "s" };
    let count = format!("{total} row{plural} remapped ({} for uncorrectable errors)", rows.unc_rows);
    if rows.failure_occurred != 0 {
        look.find(
            Finding::new(Grade::Failed, "row-remap-failure", look.subject(), "Row remap failed", Action::Replace)
                .compared("every row remap succeeded", format!("a remap failed; {count}"))
                .advise("Replace the GPU: a remap failure stays for life. Attach nvidia-smi -q -d ROW_REMAPPER to the return."),
        );
    }
    if rows.is_pending != 0 {
        let advice = format!("nvidia-smi -r -i {} on the drained host, or reboot; run again.", look.subject());
        look.find(
            Finding::new(Grade::Failed, "row-remap-pending", look.subject(), "Row remap pending", Action::ResetGpu)
                .compared("no remap pending", format!("waits for a reset; {count}"))
                .advise(&advice),
        );
    }
}

fn exhausted(look: &Look<'_>, wanted: &str, found: &str) -> Finding {
    Finding::new(Grade::Failed, "remap-exhausted", look.subject(), "Memory repair used up", Action::Replace)
        .compared(wanted, found)
        .advise("Replace the GPU: the next error in such a bank cannot be repaired.")
}

fn pages_pending(look: &Look<'_>) -> Finding {
    Finding::new(Grade::Failed, "pages-pending", look.subject(), "Pages await retirement", Action::ResetGpu)
        .compared("no page pending retirement", "pages pending")
        .advise(&format!("nvidia-smi -r -i {} on the drained host, or reboot; run again.", look.subject()))
}

fn judge_repair_status(gpu: &Gpu, look: &mut Look<'_>) {
    let Some(repair) = look.optional(&gpu.repair, "repair status") else { return };
    let parts = [("channel", repair.b_channel_repair_pending), ("TPC", repair.b_tpc_repair_pending)];
    let pending: Vec<&str> = parts.iter().filter(|(_, flag)| *flag != 0).map(|(name, _)| *name).collect();
    if !pending.is_empty() {
        let advice = format!("nvidia-smi -r -i {} on the drained host, or reboot; run again.", look.subject());
        look.find(
            Finding::new(Grade::Failed, "repair-pending", look.subject(), "Repair pending", Action::ResetGpu)
                .compared("no repair pending", format!("{} repair pending", pending.join(" and ")))
                .advise(&advice),
        );
    }
}

/// What the driver recommends, field 230 of `nvml.h`.
pub fn recovery(action: u64) -> Option<(&'static str, Action)> {
    match action {
        0 => None,
        1 => Some(("reset the GPU", Action::ResetGpu)),
        2 => Some(("reboot the node", Action::Reboot)),
        3 => Some(("drain peer-to-peer traffic", Action::ResetGpu)),
        4 => Some(("drain and reset", Action::ResetGpu)),
        _ => Some(("an action that this version does not know", Action::Investigate)),
    }
}

/// Judges the recovery action, unless a finding on this GPU already asks for the same.
pub fn judge_recovery(reading: &Reading<u64>, look: &mut Look<'_>) {
    // Drivers before the field refuse its id as an invalid argument (`nvmlDeviceGetFieldValues`).
    if reading.failure() == Some(Code::INVALID_ARGUMENT) {
        return;
    }
    let Some(number) = look.optional(reading, "recovery action").copied() else { return };
    if let Some((words, action)) = recovery(number).filter(|(_, action)| !look.already_asks_for(*action)) {
        let advice = match action {
            Action::Reboot => "Reboot the host; run again.".to_owned(),
            Action::Investigate => {
                "Read nvidia-smi -q (GPU Recovery Action) with a driver's own tool of that version; reboot; run again."
                    .to_owned()
            }
            _ => format!("nvidia-smi -r -i {} on the drained host, or reboot; run again.", look.subject()),
        };
        look.find(
            Finding::new(Grade::Failed, "recovery-action", look.subject(), "Driver asks for recovery", action)
                .compared("no recovery action", format!("{words} ({number})"))
                .advise(&advice),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread, unread_optional};
    use crate::facts::gpu::RepairStatus;

    const GPU: &str = "0000:1b:00.0";

    fn check(kind: &str) -> MemoryRepair {
        let text = format!(
            "kind = {kind:?}\nremapped-rows-warn = 8\nremapped-rows-max = 512\nbanks-without-spares = 0\nretired-pages-max = 60"
        );
        MemoryRepair::build(toml::from_str(&text).unwrap()).unwrap()
    }

    #[track_caller]
    fn after(kind: &str, change: impl FnOnce(&mut Gpu), status: &str, findings: &[&str]) {
        let mut facts = sample::host(1);
        change(&mut facts.gpus[0]);
        let findings: Vec<_> = findings.iter().map(|code| (*code, GPU)).collect();
        assert_outcome(&check(kind).judge(&facts), status, &findings);
    }

    fn rows(corr_rows: u32, unc_rows: u32, is_pending: u32, failure_occurred: u32) -> Reading<RemappedRows> {
        Reading::Value(RemappedRows { corr_rows, unc_rows, is_pending, failure_occurred })
    }

    fn with_pages(gpu: &mut Gpu) {
        gpu.remapped_rows = Reading::Unsupported;
        gpu.remap_histogram = Reading::Unsupported;
        gpu.retired_pages_pending = Reading::Value(0);
        gpu.retired_pages = [Reading::Value(vec![]), Reading::Value(vec![])];
    }

    #[test]
    fn whole_memory_passes_in_each_kind() {
        after("row-remap", |_| {}, "passed", &[]);
        after("page-retirement", with_pages, "passed", &[]);
        let none = |gpu: &mut Gpu| gpu.remapped_rows = Reading::Unsupported;
        after("none", none, "passed", &[]);
    }

    #[test]
    fn pending_failed_and_used_up_remaps_fail() {
        after("row-remap", |gpu| gpu.remapped_rows = rows(0, 1, 1, 0), "failed", &["row-remap-pending"]);
        after("row-remap", |gpu| gpu.remapped_rows = rows(0, 1, 0, 1), "failed", &["row-remap-failure"]);
        after("none", |gpu| gpu.remapped_rows = rows(0, 1, 0, 1), "failed", &["row-remap-failure"]);
        after("row-remap", |gpu| gpu.remapped_rows = rows(0, 513, 0, 0), "failed", &["remap-exhausted"]);
        after("row-remap", |gpu| gpu.remapped_rows = rows(5, 4, 0, 0), "warned", &["remap-many"]);
        let spent = RemapHistogram { max: 2559, high: 0, partial: 0, low: 0, none: 1 };
        after("row-remap", |gpu| gpu.remap_histogram = Reading::Value(spent), "failed", &["remap-exhausted"]);
    }

    #[test]
    fn a_memory_without_any_bank_proves_nothing() {
        let empty = RemapHistogram { max: 0, high: 0, partial: 0, low: 0, none: 0 };
        after("row-remap", |gpu| gpu.remap_histogram = Reading::Value(empty), "undecided", &["garbled"]);
        let worn = RemapHistogram { low: 1, ..empty };
        after("row-remap", |gpu| gpu.remap_histogram = Reading::Value(worn), "passed", &[]);
    }

    #[test]
    fn retired_pages_are_judged_where_the_class_has_them() {
        let pending = |gpu: &mut Gpu| {
            with_pages(gpu);
            gpu.retired_pages_pending = Reading::Value(1);
        };
        after("page-retirement", pending, "failed", &["pages-pending"]);
        let pages = |single, double| {
            move |gpu: &mut Gpu| {
                with_pages(gpu);
                gpu.retired_pages = [Reading::Value(vec![0; single]), Reading::Value(vec![0; double])];
            }
        };
        after("page-retirement", pages(40, 20), "passed", &[]);
        after("page-retirement", pages(40, 21), "failed", &["pages-too-many"]);
        after("page-retirement", pages(0, 61), "failed", &["pages-too-many"]);
    }

    #[test]
    fn repairs_and_recovery_that_the_driver_asks_for_fail_once() {
        let repair = RepairStatus { b_channel_repair_pending: 1, b_tpc_repair_pending: 0 };
        after("row-remap", |gpu| gpu.repair = Reading::Value(repair), "failed", &["repair-pending"]);
        for action in [1, 2, 3, 4, 9] {
            after("row-remap", |gpu| gpu.recovery_action = Reading::Value(action), "failed", &["recovery-action"]);
        }
        let pending_and = |action| {
            move |gpu: &mut Gpu| {
                gpu.remapped_rows = rows(0, 1, 1, 0);
                gpu.recovery_action = Reading::Value(action);
            }
        };
        after("row-remap", pending_and(1), "failed", &["row-remap-pending"]);
        after("row-remap", pending_and(2), "failed", &["recovery-action", "row-remap-pending"]);
    }

    #[test]
    fn an_old_driver_without_the_newer_questions_is_judged_by_the_older_ones() {
        let old = |gpu: &mut Gpu| {
            gpu.repair = Reading::Failed(Code::FUNCTION_NOT_FOUND);
            gpu.recovery_action = Reading::Failed(Code::INVALID_ARGUMENT);
        };
        after("row-remap", old, "passed", &[]);
    }

    #[test]
    fn a_kind_without_its_limits_is_refused_by_name() {
        for (kind, name) in [("row-remap", "remapped-rows-warn"), ("page-retirement", "retired-pages-max")] {
            let table = toml::from_str(&format!("kind = {kind:?}")).unwrap();
            assert!(MemoryRepair::build(table).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn nothing_unread_and_no_empty_host_ever_passes() {
        macro_rules! never {
            ($kind:literal, $states:expr, $field:ident $([$index:literal])?) => {
                assert_never_passes_unread(stringify!($field), $states, |state| {
                    let mut facts = sample::host(1);
                    if $kind == "page-retirement" {
                        with_pages(&mut facts.gpus[0]);
                    }
                    facts.gpus[0].$field $([$index])? = state;
                    check($kind).judge(&facts)
                })
            };
        }
        never!("row-remap", unread(), remapped_rows);
        never!("row-remap", unread(), remap_histogram);
        never!("none", unread_optional(), remapped_rows);
        never!("page-retirement", unread(), retired_pages_pending);
        never!("page-retirement", unread(), retired_pages[0]);
        never!("page-retirement", unread(), retired_pages[1]);
        never!("row-remap", unread_optional(), repair);
        never!("row-remap", unread_optional(), recovery_action);
        assert_outcome(&check("row-remap").judge(&sample::host(0)), "undecided", &[]);
    }
}
