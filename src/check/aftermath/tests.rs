//! Tests of `aftermath` on facts made for them.

use super::*;
use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread, unread_optional};
use crate::facts::gpu::RemappedRows;
use crate::facts::host::{LogEntry, LogExtent, LogKind};
use crate::facts::snapshot::SessionState;
use crate::facts::{Answer, Answers, Gpu, Question};
use crate::reading::{Code, Reading};

const GPU: &str = "0000:1b:00.0";

fn check() -> Aftermath {
    Aftermath { corrected_delta_warn: 10, replay_delta_warn: 5, xid: XidRule::Policy }
}

/// A step that ran from `began` for a second, with these counters after it.
fn pulse(step: &str, began: u64, answers: Answers) -> Pulse {
    Pulse { step: step.parse().unwrap(), began, ended: began + 1_000_000, answers }
}

fn uncorrected(count: u64) -> Answers {
    [(Question::new("nvmlDeviceGetTotalEccErrors", &[0, 1, 0]), Answer::value(count))].into_iter().collect()
}

fn entry(sequence: u64, microseconds: u64, kind: LogKind) -> LogEntry {
    LogEntry { sequence, microseconds, kind, text: String::new() }
}

fn xid(code: u32) -> LogKind {
    LogKind::Xid { code, bus_id: Some(sample::bus_id(0)) }
}

#[track_caller]
fn after(change: impl FnOnce(&mut Snapshot), status: &str, findings: &[(&str, &str)]) -> Outcome {
    let opening = sample::host(2);
    let mut closing = opening.clone();
    change(&mut closing);
    let outcome = check().judge(&opening, &closing, &[]);
    assert_outcome(&outcome, status, findings);
    outcome
}

fn log(kind: LogKind) -> impl FnOnce(&mut Snapshot) {
    move |closing: &mut Snapshot| {
        closing.host.kernel_log.entries.push(entry(1001, 9_000_000, kind));
        extend(closing, 0, 1001);
    }
}

fn extend(closing: &mut Snapshot, first: u64, last: u64) {
    closing.host.kernel_log.state = Reading::Value(LogExtent { first, last, complete: first == 0, unknown: 0 });
}

#[test]
fn a_bus_that_was_not_read_at_the_end_has_lost_no_gpu() {
    let mut closing = sample::host(2);
    closing.host.pci.clear();
    closing.host.pci_listing = Reading::Unasked;
    let outcome = check().judge(&sample::host(2), &closing, &[]);
    assert_eq!(outcome.status(), crate::outcome::Status::Undecided, "{outcome:?}");
}

#[test]
fn a_run_without_trace_passes() {
    let outcome = after(|_| {}, "passed", &[]);
    assert_eq!(outcome.judged().len(), 3);
}

#[test]
fn uncorrectable_errors_that_rose_fail_and_are_attributed() {
    let opening = sample::host(1);
    let mut closing = opening.clone();
    closing.gpus[0].ecc.uncorrected_volatile = Reading::Value(2);
    closing.gpus[0].ecc.uncorrected_aggregate = Reading::Value(2);
    let pulses = [pulse("ecc", 0, uncorrected(0)), pulse("power", 0, uncorrected(1)), pulse("mig", 0, uncorrected(2))];
    let outcome = check().judge(&opening, &closing, &pulses);
    assert_outcome(&outcome, "failed", &[("ecc-rose", GPU)]);
    assert_eq!(outcome.findings[0].during.as_deref(), Some("power"));
}

#[test]
fn small_counters_warn_only_above_their_limit() {
    let corrected =
        |count| move |closing: &mut Snapshot| closing.gpus[0].ecc.corrected_volatile = Reading::Value(count);
    after(corrected(10), "passed", &[]);
    after(corrected(11), "warned", &[("corrected-rose", GPU)]);
    let replays = |count| move |closing: &mut Snapshot| closing.gpus[0].pcie_replays = Reading::Value(count);
    after(replays(125), "passed", &[]);
    after(replays(126), "warned", &[("replays-rose", GPU)]);
}

#[test]
fn a_counter_that_runs_backwards_leaves_it_open() {
    let back = |closing: &mut Snapshot| closing.gpus[0].pcie_replays = Reading::Value(3);
    after(back, "undecided", &[("counter-backwards", GPU)]);
}

#[test]
fn remaps_and_recovery_actions_that_are_new_fail() {
    let rows = |unc_rows, is_pending, failure_occurred| {
        move |closing: &mut Snapshot| {
            closing.gpus[0].remapped_rows =
                Reading::Value(RemappedRows { corr_rows: 0, unc_rows, is_pending, failure_occurred });
        }
    };
    after(rows(1, 1, 0), "failed", &[("remap-rose", GPU)]);
    after(rows(0, 1, 0), "failed", &[("remap-rose", GPU)]);
    after(rows(0, 0, 1), "failed", &[("row-remap-failure", GPU)]);
    let recovery = |closing: &mut Snapshot| closing.gpus[0].recovery_action = Reading::Value(2);
    after(recovery, "failed", &[("recovery-action", GPU)]);
}

#[test]
fn what_was_wrong_before_the_run_is_not_reported_again() {
    let mut opening = sample::host(1);
    opening.gpus[0].recovery_action = Reading::Value(1);
    opening.gpus[0].remapped_rows =
        Reading::Value(RemappedRows { corr_rows: 0, unc_rows: 4, is_pending: 1, failure_occurred: 1 });
    assert_outcome(&check().judge(&opening, &opening, &[]), "passed", &[]);
}

#[test]
fn a_gpu_that_went_is_lost_or_gone() {
    let lose = |closing: &mut Snapshot| {
        let lost = Reading::Failed(Code::GPU_IS_LOST);
        closing.gpus[0] = Gpu { index: 0, handle: lost, pci: Reading::Failed(Code::GPU_IS_LOST), ..Gpu::default() };
    };
    after(lose, "failed", &[("gpu-lost", GPU)]);
    let drop_first = |closing: &mut Snapshot| {
        closing.gpus.remove(0);
        closing.driver.device_count = Reading::Value(1);
    };
    after(drop_first, "failed", &[("gpu-gone", GPU)]);
    after(|closing| drop(closing.host.pci.remove(&sample::bus_id(0))), "failed", &[("gpu-gone", GPU)]);
    let opening = sample::host(1);
    assert_outcome(&check().judge(&opening, &sample::host(2), &[]), "undecided", &[("gpu-appeared", "0000:2b:00.0")]);
    after(|closing| closing.gpus.push(closing.gpus[0].clone()), "undecided", &[("gpu-appeared", "host")]);
    after(|closing| closing.gpus.push(Gpu::default()), "undecided", &[("gpu-appeared", "host")]);
}

#[test]
fn a_closing_look_that_failed_makes_no_gpu_go() {
    for state in unread::<u32>() {
        let opening = sample::host(1);
        let mut closing = opening.clone();
        (closing.driver.device_count, closing.gpus) = (state.clone(), Vec::new());
        assert_eq!(check().judge(&opening, &closing, &[]).status().as_str(), "undecided", "{state:?}");
        let mut closing = opening.clone();
        closing.host = crate::facts::HostFacts { pci_listing: state.clone(), ..Default::default() };
        assert_eq!(check().judge(&opening, &closing, &[]).status().as_str(), "undecided", "{state:?}");
    }
}

#[test]
fn new_messages_are_judged_by_the_policy() {
    let of_gpu: &[(&str, &str)] = &[("xid", GPU)];
    after(log(xid(48)), "failed", of_gpu);
    after(log(xid(13)), "warned", of_gpu);
    after(log(xid(99_999)), "undecided", of_gpu);
    after(log(xid(45)), "passed", &[]);
    after(log(xid(106)), "passed", &[]);
    after(log(LogKind::Xid { code: 48, bus_id: None }), "failed", &[("xid", "host")]);
    after(log(LogKind::SXid { code: 22003, bus_id: None }), "failed", &[("sxid", "host")]);
    after(log(LogKind::FallenOffBus { bus_id: Some(sample::bus_id(0)) }), "failed", &[("gpu-lost", GPU)]);
    after(log(LogKind::ApiMismatch { client: "535.1".into() }), "failed", &[("library-mismatch", "host")]);
    let aer = |severity: &str| LogKind::Aer { severity: severity.into(), bus_id: Some(sample::bus_id(0)) };
    after(log(aer("Uncorrected (Fatal)")), "failed", &[("aer-fatal", GPU)]);
    after(log(aer("Uncorrected (Non-Fatal)")), "warned", &[("aer", GPU)]);
    after(log(LogKind::Unknown), "passed", &[]);
}

#[test]
fn an_xid_that_cannot_be_read_is_none_that_did_not_come() {
    let line = |text: &'static str| {
        move |closing: &mut Snapshot| {
            let unknown = LogEntry { text: text.to_owned(), ..entry(1001, 9_000_000, LogKind::Unknown) };
            closing.host.kernel_log.entries.push(unknown);
            extend(closing, 0, 1001);
        }
    };
    after(line("NVRM: Xid (PCI:0000:1b:00): seventy-nine"), "undecided", &[("xid", "host")]);
    after(line("nvidia-nvswitch0: SXid (0000:c1:00.0: 20034"), "undecided", &[("xid", "host")]);
    after(line("NVRM: never seen"), "passed", &[]);
}

#[test]
fn what_changed_on_a_gpu_beside_its_counters_is_judged() {
    use crate::facts::gpu::{Mode, RepairStatus};
    let gpu = |change: fn(&mut Gpu)| move |closing: &mut Snapshot| change(&mut closing.gpus[0]);
    let changed: &[(&str, &str)] = &[("state-changed", GPU)];
    after(gpu(|gpu| gpu.uuid = Reading::Value("GPU-another".into())), "undecided", changed);
    after(gpu(|gpu| gpu.serial = Reading::Value("another".into())), "undecided", changed);
    after(gpu(|gpu| gpu.ecc_mode = Reading::Value(Mode { current: 1, pending: 0 })), "undecided", changed);
    after(gpu(|gpu| gpu.mig_mode = Reading::Value(Mode { current: 1, pending: 1 })), "undecided", changed);
    after(gpu(|gpu| gpu.power_limit = Reading::Value(200_000)), "undecided", changed);
    let shrink = |gpu: &mut Gpu| {
        gpu.memory = Reading::Value(crate::facts::gpu::Memory { total: 1, reserved: 0, free: 0, used: 0 })
    };
    after(gpu(shrink), "undecided", changed);
    after(gpu(|gpu| gpu.link_width = Reading::Value(8)), "failed", &[("link-narrow", GPU)]);
    after(gpu(|gpu| gpu.inforom_valid = Reading::Value(false)), "failed", &[("inforom-corrupt", GPU)]);
    let corrupt = |gpu: &mut Gpu| gpu.inforom_valid = Reading::Failed(Code::CORRUPTED_INFOROM);
    after(gpu(corrupt), "failed", &[("inforom-corrupt", GPU)]);
    let exceed = |gpu: &mut Gpu| {
        if let Reading::Value(status) = &mut gpu.sram {
            status.b_threshold_exceeded = 1;
        }
    };
    after(gpu(exceed), "failed", &[("sram-threshold", GPU)]);
    let (mut opening, mut closing) = (sample::host(1), sample::host(1));
    (opening.gpus[0].retired_pages_pending, closing.gpus[0].retired_pages_pending) =
        (Reading::Value(0), Reading::Value(1));
    assert_outcome(&check().judge(&opening, &closing, &[]), "failed", &[("pages-pending", GPU)]);
    let (mut opening, mut closing) = (sample::host(1), sample::host(1));
    let repair = |pending| Reading::Value(RepairStatus { b_channel_repair_pending: 0, b_tpc_repair_pending: pending });
    (opening.gpus[0].repair, closing.gpus[0].repair) = (repair(0), repair(1));
    assert_outcome(&check().judge(&opening, &closing, &[]), "failed", &[("repair-pending", GPU)]);
}

#[test]
fn the_gravest_of_several_messages_leads_and_the_others_stand_beside_it() {
    let several = |closing: &mut Snapshot| {
        for (sequence, code) in [(1001, 13), (1002, 48), (1003, 13)] {
            closing.host.kernel_log.entries.push(entry(sequence, 9_000_000, xid(code)));
        }
        extend(closing, 0, 1003);
    };
    let outcome = after(several, "failed", &[("xid", GPU)]);
    let found = &outcome.findings[0].found;
    assert!(found.starts_with("Xid 48") && found.contains("Xid 13") && found.contains("2 times"), "{found}");
}

#[test]
fn a_message_is_attributed_to_the_step_that_was_running() {
    let opening = sample::host(1);
    let mut closing = opening.clone();
    log(xid(48))(&mut closing);
    let pulses = [pulse("ecc", 1_000_000, Answers::default()), pulse("power", 8_500_000, Answers::default())];
    let outcome = check().judge(&opening, &closing, &pulses);
    assert_eq!(outcome.findings[0].during.as_deref(), Some("power"));
}

#[test]
fn messages_from_before_the_run_warn_once_with_their_count() {
    let mut opening = sample::host(1);
    opening.host.kernel_log.entries = vec![entry(5, 1, xid(79)), entry(6, 2, xid(79)), entry(7, 3, xid(106))];
    let outcome = check().judge(&opening, &opening, &[]);
    assert_outcome(&outcome, "warned", &[("xid-since-boot", GPU)]);
    assert!(outcome.findings[0].found.contains("2 times"), "{}", outcome.findings[0].found);
}

#[test]
fn a_log_with_a_hole_and_another_boot_leave_it_open() {
    after(|closing| extend(closing, 1002, 2000), "undecided", &[("log-lost", "host")]);
    after(|closing| extend(closing, 0, 10), "undecided", &[("log-lost", "host")]);
    after(|closing| extend(closing, 1001, 2000), "passed", &[]);
    let reboot = |closing: &mut Snapshot| closing.host.kernel.boot_id = Reading::Value("other".into());
    after(reboot, "undecided", &[("reboot-during-run", "host")]);
    let mut opening = sample::host(1);
    opening.host.kernel_log.state = Reading::Value(LogExtent { first: 400, last: 1000, complete: false, unknown: 0 });
    assert_outcome(&check().judge(&opening, &opening, &[]), "undecided", &[("log-lost", "host")]);
}

#[test]
fn a_driver_that_hung_during_the_run_leaves_it_open() {
    let hang = |closing: &mut Snapshot| closing.driver.session = SessionState::Hung(Default::default());
    after(hang, "undecided", &[("driver-hung", "host"), ("not-judged", GPU), ("not-judged", "0000:2b:00.0")]);
}

#[test]
fn nothing_unread_and_no_empty_host_ever_passes() {
    macro_rules! never {
        ($states:expr, $($field:ident).+ $([$index:literal] . $($rest:ident).+)?) => {
            assert_never_passes_unread(stringify!($($field).+), $states, |state| {
                let opening = sample::host(1);
                let mut closing = opening.clone();
                closing.$($field).+ $([$index].$($rest).+)? = state;
                check().judge(&opening, &closing, &[])
            })
        };
    }
    never!(unread(), host.kernel.boot_id);
    never!(unread(), host.kernel_log.state);
    never!(unread(), gpus[0].ecc.uncorrected_volatile);
    never!(unread(), gpus[0].ecc.uncorrected_aggregate);
    never!(unread(), gpus[0].ecc.corrected_volatile);
    never!(unread(), gpus[0].pcie_replays);
    never!(unread(), gpus[0].remapped_rows);
    never!(unread(), gpus[0].handle);
    never!(unread(), gpus[0].uuid);
    never!(unread(), gpus[0].link_width);
    never!(unread(), gpus[0].ecc_mode);
    never!(unread(), gpus[0].mig_mode);
    never!(unread(), gpus[0].sram);
    never!(unread_optional(), gpus[0].recovery_action);
    assert_outcome(&check().judge(&sample::host(0), &sample::host(0), &[]), "undecided", &[]);
    assert_eq!(check().judge(&Snapshot::default(), &Snapshot::default(), &[]).status().as_str(), "undecided");
}
