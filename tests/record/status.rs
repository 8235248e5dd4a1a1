//! Whether a host stands accepted: every way in which it does not, and the one in which it does.

use std::time::Duration;

use nodegate::decision::{Decision, Level, Stage};
use nodegate::facts::host::{LogEntry, LogExtent, LogKind};
use nodegate::predicate::Details;
use nodegate::reading::{Code, Reading};
use nodegate::record::standing::{Flag, Tier};
use nodegate::record::status::{Event, Events, Live, Reason, Refusal, Standing, Wanted, judge};
use nodegate::record::{Documents, HostKey, PublicKey, Receipt, Unsigned, Verified, verify};

use super::sample;

const WANTED: Wanted =
    Wanted { stage: Stage::Rack, level: Level::Quick, max_age: Some(Duration::from_secs(24 * 3600)), receipt: false };

/// A verified record with this number in the chain.
fn record(seq: u64, change: impl FnOnce(&mut Details)) -> Verified {
    record_of(seq, &sample::documents(), change)
}

fn record_of(seq: u64, documents: &Documents, change: impl FnOnce(&mut Details)) -> Verified {
    let mut details = sample::details_with(|details| details.seq = seq);
    change(&mut details);
    let key = HostKey::generate(Default::default());
    let simulated = std::mem::replace(&mut details.simulated, false);
    let Unsigned::Live(live) = Unsigned::new(details, documents).unwrap() else { unreachable!() };
    let key_slice: [PublicKey; 1] = [key.public_key().clone()];
    let mut verified = verify(&key.sign(&live).unwrap().to_json(), &key_slice).unwrap();
    verified.details.simulated = simulated;
    verified
}

fn live() -> Live {
    Live {
        node: sample::documents().node,
        class: sample::digest("class"),
        suite: sample::digest("suite"),
        boot_id: Some(sample::BOOT.to_owned()),
        events: Events::Seen(Vec::new()),
        elsewhere: false,
        receipts: Default::default(),
        now: "2026-11-30T22:00:00Z".parse().unwrap(),
    }
}

fn live_with(change: impl FnOnce(&mut Live)) -> Live {
    let mut live = live();
    change(&mut live);
    live
}

/// The judgement over these records, the last of which is the chain's head.
fn standing(records: &[Verified], live: &Live) -> Result<Standing, Refusal> {
    let head = records.iter().map(|record| record.details.seq).max().unwrap_or(0);
    judge(&joined(records), head, live, &WANTED)
}

/// The same records as one chain, each with the digest of the one before.
fn joined(records: &[Verified]) -> Vec<Verified> {
    let mut records = records.to_vec();
    for index in 1..records.len() {
        records[index].details.prev = Some(records[index - 1].payload);
    }
    records
}

fn reasons(records: &[Verified], live: &Live) -> Vec<Reason> {
    let refusal = standing(records, live).unwrap_err();
    assert!(!refusal.rejected, "{refusal:?}");
    refusal.reasons
}

macro_rules! assert_reason {
    ($records:expr, $live:expr, $pattern:pat) => {
        let reasons = reasons($records, $live);
        assert!(reasons.iter().any(|reason| matches!(reason, $pattern)), "{reasons:?}");
    };
}

#[test]
fn a_host_stands_accepted_by_a_record_of_this_host_and_gpus_under_the_present_class() {
    let standing = standing(&[record(1, |_| {})], &live()).unwrap();
    assert_eq!((standing.seq, standing.stage, standing.level), (1, Stage::Rack, Level::Quick));
}

#[test]
fn no_record_accepts_nothing() {
    assert_reason!(&[], &live(), Reason::NoRecord);
}

#[test]
fn a_record_of_another_host_or_gpu_set_accepts_nothing() {
    let other_host = Documents::of(&sample::snapshot(sample::OTHER_SERIAL, &sample::GPUS));
    assert_reason!(&[record_of(1, &other_host, |_| {})], &live(), Reason::OtherHost { .. });
    let one_gpu = Documents::of(&sample::snapshot(sample::SERIAL, &sample::GPUS[..1]));
    assert_reason!(&[record_of(1, &one_gpu, |_| {})], &live(), Reason::OtherGpus { .. });
}

#[test]
fn a_host_that_cannot_be_told_from_others_accepts_nothing() {
    for (serial, gpus) in [("None", &sample::GPUS[..]), (sample::SERIAL, &[]), (sample::SERIAL, &["None"])] {
        let documents = Documents::of(&sample::snapshot(serial, gpus));
        let record = record_of(1, &documents, |_| {});
        assert!(standing(&[record], &live_with(|live| live.node = documents.node)).is_err(), "{serial} {gpus:?}");
    }
}

#[test]
fn a_simulated_overridden_or_partial_record_accepts_nothing() {
    assert_reason!(&[record(1, |details| details.simulated = true)], &live(), Reason::Simulated { .. });
    assert_reason!(&[record(1, |details| details.overridden = true)], &live(), Reason::Overridden { .. });
    assert_reason!(&[record(1, |details| details.partial = true)], &live(), Reason::Partial { .. });
}

#[test]
fn a_lower_stage_or_level_is_not_enough_and_a_higher_one_is() {
    let wanted = Wanted { stage: Stage::Image, level: Level::Standard, ..WANTED };
    let judge = |stage, level| {
        let record = record(1, |details| (details.stage, details.level) = (stage, level));
        judge(&[record], 1, &live(), &wanted)
    };
    assert!(judge(Stage::Image, Level::Standard).is_ok());
    assert!(judge(Stage::Service, Level::Soak).is_ok());
    assert!(matches!(judge(Stage::Rack, Level::Soak).unwrap_err().reasons[..], [Reason::Stage { .. }]));
    assert!(matches!(judge(Stage::Service, Level::Quick).unwrap_err().reasons[..], [Reason::Level { .. }]));
}

#[test]
fn another_class_or_suite_accepts_nothing() {
    let changed_class = live_with(|live| live.class = sample::digest("class 2"));
    assert_reason!(&[record(1, |_| {})], &changed_class, Reason::OtherClass { .. });
    let changed_suite = live_with(|live| live.suite = sample::digest("suite 2"));
    assert_reason!(&[record(1, |_| {})], &changed_suite, Reason::OtherSuite { .. });
}

#[test]
fn a_record_must_not_be_older_than_asked_nor_come_from_the_future() {
    let at = |text: &str| live_with(|live| live.now = text.parse().unwrap());
    let record = [record(1, |_| {})];
    assert!(standing(&record, &at("2026-12-01T20:41:07Z")).is_ok());
    assert_reason!(&record, &at("2026-12-01T20:41:08Z"), Reason::TooOld { .. });
    assert_reason!(&record, &at("2026-11-30T20:41:07Z"), Reason::ClockBackwards { .. });
    let any_age = Wanted { max_age: None, ..WANTED };
    assert!(judge(&record, 1, &at("2036-01-01T00:00:00Z"), &any_age).is_ok());
    assert!(judge(&record, 1, &at("2016-01-01T00:00:00Z"), &any_age).is_err());
}

#[test]
fn a_time_that_cannot_be_read_is_not_taken_for_a_good_one() {
    let broken = record(1, |details| details.finished_at = "yesterday".to_owned());
    assert_reason!(&[broken], &live(), Reason::Unreadable { .. });
}

#[test]
fn the_last_word_counts() {
    let accepted = || record(1, |_| {});
    let then = |change: fn(&mut Details)| standing(&[accepted(), record(2, change)], &live());
    assert!(then(|details| details.decision = Decision::Rejected).unwrap_err().rejected);
    assert!(!then(|details| details.decision = Decision::Undecided).unwrap_err().rejected);
    assert_eq!(then(|_| {}).unwrap().seq, 2);
}

#[test]
fn a_later_run_that_only_asked_less_does_not_take_the_acceptance_away() {
    let accepted = || record(1, |details| details.level = Level::Soak);
    let wanted = Wanted { level: Level::Standard, ..WANTED };
    let then = |change: fn(&mut Details)| judge(&joined(&[accepted(), record(2, change)]), 2, &live(), &wanted);
    assert_eq!(then(|details| details.level = Level::Quick).unwrap().seq, 1);
    let partial = then(|details| (details.partial, details.decision) = (true, Decision::Undecided));
    assert_eq!(partial.unwrap().seq, 1);
    let partial = then(|details| (details.partial, details.decision) = (true, Decision::Rejected));
    assert!(partial.unwrap_err().rejected);
}

#[test]
fn a_rejection_with_a_gpu_missing_stands_when_the_gpu_is_back() {
    let one_gpu = Documents::of(&sample::snapshot(sample::SERIAL, &sample::GPUS[..1]));
    let rejected = record_of(2, &one_gpu, |details| details.decision = Decision::Rejected);
    assert!(standing(&[record(1, |_| {}), rejected], &live()).unwrap_err().rejected);
}

#[test]
fn a_record_that_was_taken_out_of_the_chain_is_missed() {
    let refusal = judge(&[record(1, |_| {})], 2, &live(), &WANTED).unwrap_err();
    assert_eq!(refusal.reasons, [Reason::NewestMissing { head: 2, found: 1 }]);
}

#[test]
fn a_record_that_was_taken_out_of_the_middle_is_missed_too() {
    let less = |seq| record(seq, |details| (details.partial, details.decision) = (true, Decision::Undecided));
    let whole = joined(&[record(1, |_| {}), less(2), less(3)]);
    assert_eq!(judge(&whole, 3, &live(), &WANTED).unwrap().seq, 1);
    let gap = [whole[0].clone(), whole[2].clone()];
    let refusal = judge(&gap, 3, &live(), &WANTED).unwrap_err();
    assert_eq!(refusal.reasons.last(), Some(&Reason::Gap { after: 1, before: 3 }));
    // Another record in the place of the one that was there, under the same number.
    let replaced = [whole[0].clone(), less(2), whole[2].clone()];
    assert_eq!(
        judge(&replaced, 3, &live(), &WANTED).unwrap_err().reasons.last(),
        Some(&Reason::Gap { after: 2, before: 3 })
    );
    let twice = [whole[0].clone(), record(1, |details| details.partial = true)];
    assert_eq!(judge(&twice, 1, &live(), &WANTED).unwrap_err().reasons, [Reason::Fork { seq: 1 }]);
}

#[test]
fn a_look_at_another_root_says_nothing_of_this_host() {
    assert_reason!(&[record(1, |_| {})], &live_with(|live| live.elsewhere = true), Reason::LookedElsewhere);
}

#[test]
fn an_acceptance_ends_with_the_waiver_that_it_rests_on() {
    let waived = |until: &str, by: Option<usize>| {
        let waiver = nodegate::predicate::Waiver {
            step: "pcie-link".to_owned(),
            finding: "link-narrow".to_owned(),
            subject: "host".to_owned(),
            reason: "ordered".to_owned(),
            who: "ada".to_owned(),
            until: until.to_owned(),
        };
        let subject = nodegate::ident::Subject::host();
        let mut judgement = nodegate::outcome::Judgement::expecting([subject.clone()]);
        judgement.judged(&subject);
        let (grade, action) = (nodegate::outcome::Grade::Failed, nodegate::outcome::Action::Reseat);
        judgement.find(nodegate::outcome::Finding::new(grade, "link-narrow", subject, "Narrow", action));
        let outcome = judgement.close("").waive(|_| by);
        [record(1, |details| {
            details.waivers = vec![waiver];
            details.steps[2].outcome = outcome;
        })]
    };
    assert!(standing(&waived("2026-11-30", Some(0)), &live()).is_ok());
    assert_reason!(&waived("2026-11-29", Some(0)), &live(), Reason::WaiverEnded { .. });
    assert_reason!(&waived("2026-11-30", Some(7)), &live(), Reason::WaiverEnded { .. });
    assert!(standing(&waived("2026-11-29", None), &live()).is_ok(), "a waiver that covered nothing");
}

#[test]
fn a_clock_that_was_set_back_hides_no_event() {
    let seen = |sequence| {
        let at = "2026-11-30T20:00:00Z".parse().unwrap();
        live_with(|live| live.events = Events::Seen(vec![Event { at, sequence, text: "Xid 79".to_owned() }]))
    };
    assert!(standing(&[record(1, |_| {})], &seen(1000)).is_ok());
    assert_reason!(&[record(1, |_| {})], &seen(1001), Reason::EventSince { .. });
}

#[test]
fn an_event_since_the_record_counts_and_one_before_it_does_not() {
    let record = |seq, _| record(seq, |details| details.clock.log_end = None);
    let at = |text: &str| vec![Event { at: text.parse().unwrap(), sequence: 7, text: "Xid 79".to_owned() }];
    let seen = |text: &str| live_with(|live| live.events = Events::Seen(at(text)));
    assert!(standing(&[record(1, ())], &seen("2026-11-30T20:00:00Z")).is_ok());
    assert_reason!(&[record(1, ())], &seen("2026-11-30T21:00:00Z"), Reason::EventSince { .. });
    let rebooted = live_with(|live| {
        live.boot_id = Some("another".to_owned());
        live.events = Events::Seen(at("2026-11-30T20:00:00Z"));
    });
    assert_reason!(&[record(1, ())], &rebooted, Reason::EventSince { .. });
}

#[test]
fn a_reboot_alone_takes_nothing_away() {
    assert!(standing(&[record(1, |_| {})], &live_with(|live| live.boot_id = Some("another".to_owned()))).is_ok());
}

#[test]
fn a_log_that_cannot_be_read_leaves_it_undecided() {
    let unknown = live_with(|live| live.events = Events::Unknown("no permission".to_owned()));
    assert_reason!(&[record(1, |_| {})], &unknown, Reason::LogUnknown { .. });
}

fn live_from_log(state: Reading<LogExtent>, entries: Vec<LogEntry>) -> Events {
    let mut snapshot = sample::snapshot(sample::SERIAL, &sample::GPUS);
    snapshot.host.kernel.uptime = Reading::Value(3600.0);
    snapshot.host.kernel_log.state = state;
    snapshot.host.kernel_log.entries = entries;
    Live::of(
        &snapshot,
        sample::digest("class"),
        sample::digest("suite"),
        false,
        "2026-11-30T22:00:00Z".parse().unwrap(),
    )
    .events
}

#[test]
fn the_log_of_the_live_host_gives_its_events_with_their_time() {
    let entry = |kind| LogEntry { sequence: 7, microseconds: 60_000_000, kind, text: "line".to_owned() };
    let extent = LogExtent { first: 0, last: 9, complete: true, unknown: 0 };
    let events = live_from_log(
        Reading::Value(extent),
        vec![entry(LogKind::Xid { code: 79, bus_id: None }), entry(LogKind::Unknown)],
    );
    let event = Event { at: "2026-11-30T21:01:00Z".parse().unwrap(), sequence: 7, text: "line".to_owned() };
    assert_eq!(events, Events::Seen(vec![event]));
    let cut = LogExtent { complete: false, ..extent };
    assert!(matches!(live_from_log(Reading::Value(cut), Vec::new()), Events::Unknown(_)));
    assert!(matches!(live_from_log(Reading::Failed(Code::NO_PERMISSION), Vec::new()), Events::Unknown(_)));
}

/// What a collector signed about a record.
fn receipt(record: &Verified, received_at: &str, flags: &[Flag]) -> Receipt {
    Receipt {
        payload: record.payload,
        received_at: received_at.parse().unwrap(),
        run_id: record.details.run_id.clone(),
        tier: Some(Tier::Token),
        flags: flags.to_vec(),
        ledger: None,
    }
}

fn live_holding(receipts: &[Receipt]) -> Live {
    live_with(|live| live.receipts = receipts.iter().map(|receipt| (receipt.payload, receipt.clone())).collect())
}

#[test]
fn where_a_receipt_is_asked_for_only_a_record_that_counts_at_the_collector_does() {
    let wanted = Wanted { receipt: true, ..WANTED };
    let record = record(1, |_| {});
    let judged = |receipts: &[Receipt]| judge(std::slice::from_ref(&record), 1, &live_holding(receipts), &wanted);
    let refused = |receipts: &[Receipt]| judged(receipts).unwrap_err().reasons;

    assert!(matches!(refused(&[])[..], [Reason::NoReceipt { .. }]));
    let flagged = receipt(&record, "2026-11-30T20:41:07Z", &[Flag::PendingKey]);
    assert!(refused(&[flagged])[0].to_string().contains("waits for approval"));
    let clean = receipt(&record, "2026-11-30T20:41:07Z", &[]);
    assert_eq!(judged(std::slice::from_ref(&clean)).unwrap().receipt, Some(clean));
}

#[test]
fn a_receipt_makes_a_record_older_that_a_clock_had_made_young_and_never_younger() {
    let record = record(1, |details| details.finished_at = "2026-11-30T21:00:00Z".to_owned());
    let judged = |received_at: &str| {
        let live = live_holding(&[receipt(&record, received_at, &[])]);
        judge(std::slice::from_ref(&record), 1, &live, &WANTED)
    };
    assert!(judged("2026-11-30T21:00:01Z").is_ok());
    let refusal = judged("2026-11-28T21:00:00Z").unwrap_err();
    assert!(matches!(refusal.reasons[..], [Reason::TooOld { .. }]), "{:?}", refusal.reasons);
    // A collector whose clock is ahead says nothing against a record.
    assert!(judged("2026-12-05T21:00:00Z").is_ok());
}
