//! What the kernel log says that it did not say before, and what it said before the run.

use std::collections::BTreeMap;

use crate::check::Pulse;
use crate::check::look::Look;
use crate::check::xid::{Entry, Verdict, XidPolicy};
use crate::facts::Snapshot;
use crate::facts::host::{LogEntry, LogExtent, LogKind};
use crate::ident::{BusId, Subject};
use crate::outcome::{Action, Finding, Grade};

/// Judges the records since the opening's last, and the Xids before it.
pub fn judge(opening: &Snapshot, closing: &Snapshot, pulses: &[Pulse], look: &mut Look<'_>) {
    let before = look.require(&opening.host.kernel_log.state, "kernel log at the start").copied();
    let after = look.require(&closing.host.kernel_log.state, "kernel log at the end").copied();
    let (Some(before), Some(after)) = (before, after) else { return };
    judge_extent(before, after, look);
    let entries = &closing.host.kernel_log.entries;
    let new = entries.iter().filter(|entry| entry.sequence > before.last);
    for (finding, time) in worst_of_each(new.filter_map(judge_entry)) {
        look.find(Finding { during: step_at(time, pulses), ..finding });
    }
    let old = opening.host.kernel_log.entries.iter().filter(|entry| entry.sequence <= before.last);
    for (finding, _) in worst_of_each(old.filter_map(judge_old)) {
        look.find(finding);
    }
    let unknown = after.unknown.saturating_sub(before.unknown);
    look.measure(look.number("unknown-driver-messages", unknown.into(), ""));
}

fn judge_extent(before: LogExtent, after: LogExtent, look: &mut Look<'_>) {
    if after.first > before.last.saturating_add(1) || after.last < before.last {
        look.unread::<()>(
            Finding::new(Grade::Undecided, "log-lost", look.subject(), "Kernel log lost records", Action::Investigate)
                .compared(
                    format!("every record after {}", before.last),
                    format!("records {} to {}", after.first, after.last),
                )
                .advise(
                    "Stop what floods the log (dmesg -w shows it) or give the kernel a larger log_buf_len; run again.",
                ),
        );
    }
    if !before.complete {
        // What was said before cannot be known any more; a site that accepts that waives it.
        look.find(
            Finding::new(Grade::Undecided, "log-lost", look.subject(), "Kernel log begins late", Action::Reboot)
                .compared("the log since the start of the host", format!("it begins at record {}", before.first))
                .advise("journalctl -k -b | grep -i xid may still have what is gone; reboot and run again, or waive log-lost for this host."),
        );
    }
}

/// A finding with how often it was seen and when first.
fn worst_of_each(findings: impl Iterator<Item = (String, Finding, u64)>) -> Vec<(Finding, u64)> {
    let mut seen: BTreeMap<(Subject, String), (Finding, u64, u32)> = BTreeMap::new();
    for (key, finding, time) in findings {
        let entry = seen.entry((finding.subject.clone(), key)).or_insert_with(|| (finding, time, 0));
        entry.2 += 1;
    }
    // One finding for each code and subject: the gravest, which names the others beside it.
    let mut merged: Vec<(Finding, u64)> = Vec::new();
    for (mut finding, time, count) in seen.into_values() {
        if count > 1 {
            finding.found = format!("{} ({count} times)", finding.found);
        }
        let same = |(other, _): &&mut (Finding, u64)| other.code == finding.code && other.subject == finding.subject;
        match merged.iter_mut().find(same) {
            None => merged.push((finding, time)),
            Some((kept, kept_time)) => {
                let (grave, light) = if finding.grade > kept.grade {
                    (finding.clone(), kept.clone())
                } else {
                    (kept.clone(), finding.clone())
                };
                let found = format!("{}; {}", grave.found, light.found);
                *kept = Finding { found: crate::ident::printable(&found, 300), ..grave };
                *kept_time = time.min(*kept_time);
            }
        }
    }
    merged
}

/// Where a message belongs: the GPU or device that it names, else the host.
fn subject_of(bus_id: Option<BusId>) -> Subject {
    bus_id.map_or_else(Subject::host, Subject::gpu)
}

/// A new message, with a key that tells its kind from others of one code, and its time.
fn judge_entry(entry: &LogEntry) -> Option<(String, Finding, u64)> {
    let policy = XidPolicy::builtin();
    let finding = match &entry.kind {
        LogKind::Xid { code, bus_id } => graded("xid", "Xid", *code, policy.xid(*code), subject_of(*bus_id))?,
        LogKind::SXid { code, bus_id } => graded("sxid", "SXid", *code, policy.sxid(*code), subject_of(*bus_id))?,
        LogKind::AdapterFailed { bus_id } => lost(subject_of(*bus_id), "RmInitAdapter failed"),
        LogKind::FallenOffBus { bus_id } => lost(subject_of(*bus_id), "fallen off the bus, says the kernel log"),
        LogKind::ApiMismatch { client } => mismatch(client),
        LogKind::Aer { severity, bus_id } => aer(severity, subject_of(*bus_id)),
        LogKind::Unknown if entry.text.contains("Xid") => illegible(&entry.text),
        LogKind::Unknown => return None,
    };
    Some((finding.found.clone(), finding, entry.microseconds))
}

/// A message by the policy. A number that nobody graded leaves it open; what the policy
/// ignores, or judges by its cause, is no finding.
fn graded(code: &'static str, kind: &str, number: u32, entry: Option<&Entry>, subject: Subject) -> Option<Finding> {
    let Some(entry) = entry else {
        return Some(
            Finding::new(Grade::Undecided, code, subject, &format!("{kind} of unknown meaning"), Action::Investigate)
                .compared(format!("no new {kind}"), format!("{kind} {number}, which the policy does not know"))
                .advise(&format!("Look {kind} {number} up in NVIDIA's catalogue; dmesg has its line; run again.")),
        );
    };
    let (grade, title) = match entry.verdict {
        Verdict::Reject => (Grade::Failed, format!("{kind} during the run")),
        Verdict::Warn => (Grade::Warned, format!("{kind} during the run")),
        Verdict::Ignore | Verdict::Consequence => return None,
    };
    let finding = Finding::new(grade, code, subject, &title, entry.action)
        .compared(format!("no new {kind}"), format!("{kind} {number}: {}", entry.reason.trim_end_matches('.')));
    let advice = advice_for(entry.action, &finding.subject);
    Some(finding.advise(&advice))
}

fn advice_for(action: Action, subject: &Subject) -> String {
    match action {
        Action::ResetGpu => {
            format!("Keep dmesg; nvidia-smi -r -i {subject} on the drained host, or reboot; run again.")
        }
        Action::Reboot => "Keep dmesg; reboot the host; run again.".to_owned(),
        Action::Reseat => format!("Keep dmesg; power off, reseat {subject} and its power; if it returns, replace it."),
        Action::Replace => format!("Keep dmesg for the return; replace {subject}."),
        _ => "Keep dmesg | grep -i xid for the ticket; run again; if it returns, ask the vendor.".to_owned(),
    }
}

fn lost(subject: Subject, found: &str) -> Finding {
    Finding::new(Grade::Failed, "gpu-lost", subject, "GPU lost", Action::Reseat)
        .compared("no GPU lost", found)
        .advise("Keep dmesg for the ticket; power off, reseat the GPU and its power; if it is lost again, replace it.")
}

/// The driver reports an error, and which cannot be read.
fn illegible(line: &str) -> Finding {
    Finding::new(Grade::Undecided, "xid", Subject::host(), "Xid that cannot be read", Action::Investigate)
        .compared("no new Xid", line)
        .advise("Look its number up in NVIDIA's catalogue; run again; report the line, its form is not known.")
}

fn mismatch(client: &str) -> Finding {
    Finding::new(Grade::Failed, "library-mismatch", Subject::host(), "Driver parts differ", Action::Reboot)
        .compared("clients of the kernel module's version", format!("a client of version {client}"))
        .advise("Another driver version is installed beside the loaded module, or in a container: remove it or reboot; run again.")
}

fn aer(severity: &str, subject: Subject) -> Finding {
    let fatal = severity.to_ascii_lowercase().replace("non-fatal", "").replace("nonfatal", "").contains("fatal");
    let (grade, code) = if fatal { (Grade::Failed, "aer-fatal") } else { (Grade::Warned, "aer") };
    Finding::new(grade, code, subject, "PCIe error reported", Action::Reseat)
        .compared("no new PCIe error report", severity)
        .advise("Reseat the riser or module on this path; if it returns, replace the card or the riser.")
}

/// Xids from before the run only warn: the counters and the recovery action judge what lasts.
fn judge_old(entry: &LogEntry) -> Option<(String, Finding, u64)> {
    let policy = XidPolicy::builtin();
    let (kind, code, bus_id, known) = match entry.kind {
        LogKind::Xid { code, bus_id } => ("Xid", code, bus_id, policy.xid(code)),
        LogKind::SXid { code, bus_id } => ("SXid", code, bus_id, policy.sxid(code)),
        _ => return None,
    };
    if known.is_some_and(|known| matches!(known.verdict, Verdict::Ignore | Verdict::Consequence)) {
        return None;
    }
    let whose = if kind == "Xid" && bus_id.is_some() { "GPU" } else { "host" };
    let reason = known.map_or("not in the policy", |known| known.reason.trim_end_matches('.'));
    let finding = Finding::new(
        Grade::Warned,
        "xid-since-boot",
        subject_of(bus_id),
        "Xid before the run",
        Action::Monitor,
    )
    .compared("no Xid since the host started", format!("{kind} {code}: {reason}"))
    .advise(&format!(
        "dmesg has its line. If another problem of this {whose} is listed, mend that first; else reboot and run again."
    ));
    Some((format!("{kind} {code}"), finding, entry.microseconds))
}

/// The step in whose window the time falls, or the last that had begun by then.
fn step_at(time: u64, pulses: &[Pulse]) -> Option<String> {
    let within = pulses.iter().find(|pulse| (pulse.began..=pulse.ended).contains(&time));
    let before = || pulses.iter().rfind(|pulse| pulse.began <= time);
    within.or_else(before).map(|pulse| pulse.step.to_string())
}
