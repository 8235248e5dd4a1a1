//! What rose on one GPU between the first reading and the last.

use super::{Aftermath, state};
use crate::check::Pulse;
use crate::check::look::Look;
use crate::check::memory_repair::judge_recovery;
use crate::facts::gpu::RemappedRows;
use crate::facts::{Answers, Gpu, Snapshot};
use crate::ident::BusId;
use crate::outcome::{Action, Finding, Grade, blame};
use crate::reading::{Code, Reading};

/// One GPU of the opening snapshot, and all that was read of it since.
pub struct Change<'a> {
    pub gpu: &'a Gpu,
    pub bus_id: BusId,
    /// Whether it stood on the PCI bus at the start; if not, that is inventory's finding.
    pub was_on_bus: bool,
    pub closing: &'a Snapshot,
    pub pulses: &'a [Pulse],
}

/// A counter: what it counts, and how a pulse asks for it.
struct Counter {
    what: &'static str,
    function: &'static str,
    arguments: &'static [u32],
}

const fn ecc(what: &'static str, arguments: &'static [u32]) -> Counter {
    Counter { what, function: "nvmlDeviceGetTotalEccErrors", arguments }
}

impl Change<'_> {
    pub fn judge(&self, limits: &Aftermath, look: &mut Look<'_>) {
        let after = match self.closing.gpus_by_bus_id().get(&self.bus_id) {
            Some(gpu) if gpu.handle.value().is_some() => *gpu,
            _ => return look.unread(self.departure(look)).unwrap_or(()),
        };
        let listed = look.require(&self.closing.host.pci_listing, "devices on the PCI bus at the end").is_some();
        if listed && self.was_on_bus && !self.closing.host.pci.contains_key(&self.bus_id) {
            look.find(self.gone(look, "the driver shows it, the bus does not"));
        }
        self.judge_uncorrected(after, look);
        self.judge_limited(after, limits, look);
        self.judge_rows(&after.remapped_rows, look);
        state::judge(self.gpu, after, look);
        if self.gpu.recovery_action != after.recovery_action {
            judge_recovery(&after.recovery_action, look);
        }
    }

    /// How the GPU went: refused by its handle, or no longer listed at all.
    fn departure(&self, look: &Look<'_>) -> Finding {
        let nameless =
            |gpu: &&Gpu| gpu.index == self.gpu.index && gpu.bus_id().is_none_or(|bus_id| bus_id == self.bus_id);
        let Some(gpu) = self.closing.gpus.iter().find(nameless) else {
            // A list that was not given lacks nobody.
            let counted =
                blame::require(&self.closing.driver.device_count, &look.subject(), "GPUs at the end of the run");
            if let Err(unread) = counted {
                return unread;
            }
            return self.gone(look, "the driver no longer lists it");
        };
        let code = gpu.handle.failure().or(gpu.pci.failure()).unwrap_or(Code::GARBLED);
        let mut finding = blame::unanswered(&look.subject(), "GPU handle at the end of the run", code);
        finding.during = self.first(|answers| {
            let handle: Reading<bool> = answers.reading("nvmlDeviceGetHandleByIndex_v2", &[self.gpu.index]);
            handle.failure().is_some()
        });
        finding
    }

    fn gone(&self, look: &Look<'_>, found: &str) -> Finding {
        Finding::new(Grade::Failed, "gpu-gone", look.subject(), "GPU gone", Action::Reseat)
            .compared("every GPU of the first reading", found)
            .advise("Keep dmesg for the ticket; power off, reseat the GPU and its power; run again.")
    }

    fn judge_uncorrected(&self, after: &Gpu, look: &mut Look<'_>) {
        for (counter, before, after) in [
            (
                ecc("uncorrectable ECC errors, volatile", &[1, 0]),
                &self.gpu.ecc.uncorrected_volatile,
                &after.ecc.uncorrected_volatile,
            ),
            (
                ecc("uncorrectable ECC errors, aggregate", &[1, 1]),
                &self.gpu.ecc.uncorrected_aggregate,
                &after.ecc.uncorrected_aggregate,
            ),
        ] {
            if let Some(delta @ 1..) = self.delta(&counter, before, after, look) {
                let advice = format!(
                    "nvidia-smi -r -i {} on the drained host, or reboot; run again; if errors return, replace the GPU.",
                    look.subject()
                );
                let mut finding = Finding::new(
                    Grade::Failed,
                    "ecc-rose",
                    look.subject(),
                    "Uncorrectable errors rose",
                    Action::ResetGpu,
                )
                .compared(format!("no new {}", counter.what), format!("{delta} more"))
                .advise(&advice);
                finding.during = self.when(&counter, before);
                look.find(finding);
            }
        }
    }

    /// Counters that may rise a little.
    fn judge_limited(&self, after: &Gpu, limits: &Aftermath, look: &mut Look<'_>) {
        let replays = Counter { what: "PCIe replays", function: "nvmlDeviceGetPcieReplayCounter", arguments: &[] };
        for (counter, before, after, limit, code, title, advice) in [
            (
                ecc("corrected ECC errors", &[0, 0]),
                &self.gpu.ecc.corrected_volatile,
                &after.ecc.corrected_volatile,
                limits.corrected_delta_warn,
                "corrected-rose",
                "Corrected errors rose",
                "If another problem of this GPU is listed, mend that first; else watch it, reboot and run again.",
            ),
            (
                replays,
                &self.gpu.pcie_replays,
                &after.pcie_replays,
                limits.replay_delta_warn,
                "replays-rose",
                "PCIe replays rose",
                "Watch this GPU; if it goes on, reseat the riser or module.",
            ),
        ] {
            let Some(delta) = self.delta(&counter, before, after, look) else { continue };
            let mut number = look.number(&counter.what.replace(' ', "-").to_lowercase(), delta as f64, "");
            (number.warn, number.source) = (Some(limit as f64), "class".to_owned());
            look.measure(number);
            if delta > limit {
                let mut finding = Finding::new(Grade::Warned, code, look.subject(), title, Action::Monitor)
                    .compared(format!("at most {limit} more {} in a run", counter.what), format!("{delta} more"))
                    .advise(advice);
                finding.during = self.when(&counter, before);
                look.find(finding);
            }
        }
    }

    /// By how much a counter rose; nothing where the machine has no such counter.
    fn delta(
        &self,
        counter: &Counter,
        before: &Reading<u64>,
        after: &Reading<u64>,
        look: &mut Look<'_>,
    ) -> Option<u64> {
        if matches!((before, after), (Reading::Unsupported, Reading::Unsupported)) {
            return None;
        }
        let before = *look.require(before, &format!("{} at the start", counter.what))?;
        let after = *look.require(after, &format!("{} at the end", counter.what))?;
        after.checked_sub(before).or_else(|| look.unread(backwards(look, counter.what, before, after)))
    }

    fn judge_rows(&self, after: &Reading<RemappedRows>, look: &mut Look<'_>) {
        if matches!((&self.gpu.remapped_rows, after), (Reading::Unsupported, Reading::Unsupported)) {
            return;
        }
        let Some(before) = look.require(&self.gpu.remapped_rows, "remapped rows at the start").copied() else { return };
        let Some(after) = look.require(after, "remapped rows at the end").copied() else { return };
        let total = |rows: RemappedRows| u64::from(rows.corr_rows) + u64::from(rows.unc_rows);
        let Some(delta) = total(after).checked_sub(total(before)) else {
            return look.unread(backwards(look, "remapped rows", total(before), total(after))).unwrap_or(());
        };
        let during = self.first(|answers| {
            let rows: Reading<RemappedRows> = answers.reading("nvmlDeviceGetRemappedRows", &[self.gpu.index]);
            rows.value().is_some_and(|rows| *rows != before)
        });
        if delta > 0 || after.is_pending > before.is_pending {
            let advice = format!("nvidia-smi -r -i {} on the drained host, or reboot; run again.", look.subject());
            let mut finding =
                Finding::new(Grade::Failed, "remap-rose", look.subject(), "Rows remapped", Action::ResetGpu)
                    .compared(
                        "no new row remap",
                        format!("{delta} more, {}", if after.is_pending != 0 { "pending" } else { "not pending" }),
                    )
                    .advise(&advice);
            finding.during = during.clone();
            look.find(finding);
        }
        if after.failure_occurred > before.failure_occurred {
            let mut finding =
                Finding::new(Grade::Failed, "row-remap-failure", look.subject(), "Row remap failed", Action::Replace)
                    .compared("every row remap succeeded", "a remap failed during the run")
                    .advise("Replace the GPU: a remap failure stays for life.");
            finding.during = during;
            look.find(finding);
        }
    }

    /// The step after which the counter first stood higher than before.
    fn when(&self, counter: &Counter, before: &Reading<u64>) -> Option<String> {
        let before = *before.value()?;
        let arguments: Vec<u32> = std::iter::once(self.gpu.index).chain(counter.arguments.iter().copied()).collect();
        self.first(|answers| {
            answers.reading::<u64>(counter.function, &arguments).value().is_some_and(|now| *now > before)
        })
    }

    fn first(&self, shows: impl Fn(&Answers) -> bool) -> Option<String> {
        self.pulses.iter().find(|pulse| shows(&pulse.answers)).map(|pulse| pulse.step.to_string())
    }
}

fn backwards(look: &Look<'_>, what: &str, before: u64, after: u64) -> Finding {
    Finding::new(Grade::Undecided, "counter-backwards", look.subject(), "Counter ran backwards", Action::Investigate)
        .compared(format!("{what} never fall"), format!("{before} at the start, {after} at the end"))
        .advise("Something reset the GPU or reloaded the driver during the run: stop it; run again.")
}
