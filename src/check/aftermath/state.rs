//! What changed on one GPU besides its counters: what it is, how it is set, what it waits for.

use crate::check::look::Look;
use crate::facts::Gpu;
use crate::outcome::{Action, Finding, Grade};
use crate::reading::Reading;

/// Holds the GPU at the end of the run against itself at the start. What was not known at the
/// start is the earlier steps' to judge; what is not known any more is undecided.
pub fn judge(before: &Gpu, after: &Gpu, look: &mut Look<'_>) {
    judge_same(before, after, look);
    judge_link(before, after, look);
    judge_memory(before, after, look);
}

/// Nobody but a person or a tool changes these, and the earlier steps have judged the old ones.
fn judge_same(before: &Gpu, after: &Gpu, look: &mut Look<'_>) {
    same("UUID", &before.uuid, &after.uuid, look);
    same("serial number", &before.serial, &after.serial, look);
    same("ECC mode", &before.ecc_mode, &after.ecc_mode, look);
    same("MIG mode", &before.mig_mode, &after.mig_mode, look);
    same("power limit", &before.power_limit, &after.power_limit, look);
    let total = |gpu: &Gpu| gpu.memory.as_ref().map(|memory| memory.total);
    same("memory size", &total(before), &total(after), look);
}

fn judge_link(before: &Gpu, after: &Gpu, look: &mut Look<'_>) {
    let Some((before, after)) = both("PCIe link width", &before.link_width, &after.link_width, look) else { return };
    if after < before {
        look.find(
            Finding::new(Grade::Failed, "link-narrow", look.subject(), "PCIe link became narrow", Action::Reseat)
                .compared(format!("x{before}, as at the start"), format!("x{after} at the end"))
                .advise(
                    "Power off; reseat the riser or module, look for a bent pin or dirt in the connector; run again.",
                ),
        );
    }
}

fn judge_memory(before: &Gpu, after: &Gpu, look: &mut Look<'_>) {
    // A corrupt InfoROM may answer with its own code: then this is a stated defect.
    if let Some((true, false)) = both("InfoROM checksum", &before.inforom_valid, &after.inforom_valid, look) {
        look.find(arose(look, "inforom-corrupt", "InfoROM corrupt", Action::Replace));
    }
    let exceeded = |gpu: &Gpu| gpu.sram.as_ref().map(|status| status.b_threshold_exceeded != 0);
    if let Some((false, true)) = both("SRAM error status", &exceeded(before), &exceeded(after), look) {
        look.find(arose(look, "sram-threshold", "SRAM threshold exceeded", Action::Replace));
    }
    let repair = |gpu: &Gpu| {
        gpu.repair.as_ref().map(|repair| repair.b_channel_repair_pending != 0 || repair.b_tpc_repair_pending != 0)
    };
    if let Some((false, true)) = both("repair status", &repair(before), &repair(after), look) {
        look.find(arose(look, "repair-pending", "Repair pending", Action::ResetGpu));
    }
    let pages = |gpu: &Gpu| gpu.retired_pages_pending.as_ref().map(|pending| *pending != 0);
    if let Some((false, true)) = both("pages pending retirement", &pages(before), &pages(after), look) {
        look.find(arose(look, "pages-pending", "Pages await retirement", Action::ResetGpu));
    }
}

fn arose(look: &Look<'_>, code: &'static str, title: &str, action: Action) -> Finding {
    let advice = match action {
        Action::Replace => "Replace the GPU; attach nvidia-smi -q to the return.".to_owned(),
        _ => format!("nvidia-smi -r -i {} on the drained host, or reboot; run again.", look.subject()),
    };
    Finding::new(Grade::Failed, code, look.subject(), title, action)
        .compared("as at the start of the run", "it arose during the run")
        .advise(&advice)
}

fn same<T: PartialEq + std::fmt::Debug + Clone>(
    what: &str,
    before: &Reading<T>,
    after: &Reading<T>,
    look: &mut Look<'_>,
) {
    let Some((before, after)) = both(what, before, after, look) else { return };
    if before != after {
        look.unread::<()>(
            Finding::new(
                Grade::Undecided,
                "state-changed",
                look.subject(),
                "Changed during the run",
                Action::Investigate,
            )
            .compared(format!("{what} {before:?} to the end"), format!("{after:?} at the end"))
            .advise("Somebody worked on this GPU while it was judged: find out who, drain the node, run again."),
        );
    }
}

/// Both values; nothing where there was none at the start, and a finding where there is none any more.
fn both<T: Clone>(what: &str, before: &Reading<T>, after: &Reading<T>, look: &mut Look<'_>) -> Option<(T, T)> {
    let before = before.value()?;
    let after = look.require(after, &format!("{what} at the end"))?;
    Some((before.clone(), after.clone()))
}
