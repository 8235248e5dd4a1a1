//! Whether a host stands accepted now: a pure judgement over its records and what it is now.
//!
//! The newest word counts. A rejection or a full undecided run ends the search; a record that
//! is only less than what is asked for (another level, a partial run) lets an older one speak.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;

use super::identity::{NodeDocument, Strength};
use super::receipt::Receipt;
use super::verify::Verified;
use crate::decision::{Decision, Level, Stage};
use crate::facts::host::{KernelLog, LogKind};
use crate::facts::{HostFacts, Snapshot};
use crate::ident::{Digest, printable};
use crate::predicate::Details;
use crate::reading::Reading;

mod reason;

pub use reason::Reason;

/// The log's clock starts at boot, and where boot lies on the wall clock is known to about a
/// second: an event this close before the record's end counts as after it.
const SLACK: Duration = Duration::from_secs(2);

/// What a record must at least say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub stage: Stage,
    pub level: Level,
    /// None: a record of any age.
    pub max_age: Option<Duration>,
    /// Only one that the collector holds, and that counts there.
    pub receipt: bool,
}

/// The host as it is now, and what would be run on it.
#[derive(Clone, Debug)]
pub struct Live {
    pub node: NodeDocument,
    /// Digests of the class and suite that a run would use now.
    pub class: Digest,
    pub suite: Digest,
    /// A reboot since the record is allowed; what the log of a later boot says is then all new.
    pub boot_id: Option<String>,
    pub events: Events,
    /// Whether this is not the live machine by its own ways (`--root`, `--nvml`, a recording).
    pub elsewhere: bool,
    /// The collector's verified receipts, by the digest of the record's payload.
    pub receipts: BTreeMap<Digest, Receipt>,
    pub now: Timestamp,
}

/// What the kernel log says that speaks against an older record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Events {
    /// Xids, failed adapters, GPUs off the bus.
    Seen(Vec<Event>),
    /// The log could not be read, or its beginning is gone.
    Unknown(String),
}

/// One line of the kernel log that speaks against an older record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// By the wall clock as it is now.
    pub at: Timestamp,
    /// Its number in the log of this boot.
    pub sequence: u64,
    pub text: String,
}

/// The record that a host stands accepted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub run_id: String,
    pub seq: u64,
    pub stage: Stage,
    pub level: Level,
    pub finished_at: String,
    /// What the collector signed for it, where that is known.
    pub receipt: Option<Receipt>,
}

/// Why a host does not stand accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The last word on this host was a rejection.
    pub rejected: bool,
    pub reasons: Vec<Reason>,
}

impl Live {
    /// What decides of a live host, from its facts. `now` is the wall clock at the snapshot.
    pub fn of(snapshot: &Snapshot, class: Digest, suite: Digest, elsewhere: bool, now: Timestamp) -> Live {
        Live {
            node: super::identity::node_document(snapshot),
            class,
            suite,
            boot_id: snapshot.host.kernel.boot_id.value().cloned(),
            events: events(&snapshot.host, now),
            elsewhere,
            receipts: BTreeMap::new(),
            now,
        }
    }
}

/// Judges. `records` are those that verified with this host's own key, in any order; `head` is
/// the number of the chain's last record.
pub fn judge(records: &[Verified], head: u64, live: &Live, wanted: &Wanted) -> Result<Standing, Refusal> {
    let mut newest_first: Vec<&Verified> = records.iter().collect();
    newest_first.sort_by_key(|record| std::cmp::Reverse(record.details.seq));
    let mut reasons = identity_reasons(&live.node);
    if live.elsewhere {
        reasons.push(Reason::LookedElsewhere);
    }
    let found = newest_first.first().map_or(0, |record| record.details.seq);
    if found < head {
        reasons.push(Reason::NewestMissing { head, found });
    }
    if newest_first.is_empty() {
        reasons.push(Reason::NoRecord);
    }
    // Of two records under one number either may be the true one, and the other is not known to be older.
    if let Some(pair) = newest_first.windows(2).find(|pair| pair[0].details.seq == pair[1].details.seq) {
        reasons.push(Reason::Fork { seq: pair[0].details.seq });
        return Err(Refusal { rejected: false, reasons });
    }
    let mut newer: Option<&Verified> = None;
    for record in newest_first {
        // Whatever stood between two records that do not join may have been a rejection.
        if let Some(newer) = newer.filter(|newer| !follows(newer, record)) {
            reasons.push(Reason::Gap { after: record.details.seq, before: newer.details.seq });
            return Err(Refusal { rejected: false, reasons });
        }
        newer = Some(record);
        let run_id = || record.details.run_id.clone();
        let at = || record.details.finished_at.clone();
        if record.details.simulated {
            reasons.push(Reason::Simulated { run_id: run_id() });
        } else if record.host != live.node.host.digest() {
            reasons.push(Reason::OtherHost { run_id: run_id() });
        } else if record.details.decision == Decision::Rejected {
            reasons.insert(0, Reason::Rejected { run_id: run_id(), at: at() });
            return Err(Refusal { rejected: true, reasons });
        } else if record.details.decision == Decision::Undecided {
            let less_than_asked = record.details.partial || record.details.overridden;
            reasons.push(Reason::Undecided { run_id: run_id(), at: at() });
            if !less_than_asked {
                return Err(Refusal { rejected: false, reasons });
            }
        } else {
            let against = against(record, live, wanted);
            if against.is_empty() && reasons.iter().all(Reason::lets_an_older_record_speak) {
                return Ok(Standing::of(record, live.receipts.get(&record.payload)));
            }
            reasons.extend(against);
        }
    }
    Err(Refusal { rejected: false, reasons })
}

/// Whether the one record is the very next after the other in the chain.
fn follows(newer: &Verified, older: &Verified) -> bool {
    older.details.seq.checked_add(1) == Some(newer.details.seq) && newer.details.prev == Some(older.payload)
}

/// What speaks against an accepted record of this host.
fn against(record: &Verified, live: &Live, wanted: &Wanted) -> Vec<Reason> {
    let details = &record.details;
    let run_id = || details.run_id.clone();
    let mut reasons = Vec::new();
    let mut unless = |holds: bool, reason: Reason| {
        if !holds {
            reasons.push(reason)
        }
    };
    unless(record.node == live.node.digest(), Reason::OtherGpus { run_id: run_id() });
    unless(!details.overridden, Reason::Overridden { run_id: run_id() });
    unless(!details.partial, Reason::Partial { run_id: run_id() });
    unless(
        details.stage >= wanted.stage,
        Reason::Stage { run_id: run_id(), found: details.stage, wanted: wanted.stage },
    );
    unless(
        details.level >= wanted.level,
        Reason::Level { run_id: run_id(), found: details.level, wanted: wanted.level },
    );
    unless(details.plan.class.digest == live.class, Reason::OtherClass { run_id: run_id() });
    unless(details.plan.suite.digest == live.suite, Reason::OtherSuite { run_id: run_id() });
    let receipt = live.receipts.get(&record.payload);
    if wanted.receipt {
        reasons.extend(receipt_reason(details.run_id.clone(), receipt));
    }
    reasons.extend(ended_waivers(details, live.now));
    match details.finished_at.parse::<Timestamp>() {
        Ok(finished) => {
            // A clock that was ahead makes a record younger than its receipt; the older of the two counts.
            let known_since = receipt.map_or(finished, |receipt| finished.min(receipt.received_at));
            reasons.extend(age_reason(details.run_id.clone(), known_since, live.now, wanted));
            let same_boot = live.boot_id.is_some() && live.boot_id.as_ref() == details.boot_ids.last();
            reasons.extend(event_reasons(&live.events, same_boot.then_some((finished, details.clock.log_end))));
        }
        Err(_) => reasons.push(Reason::Unreadable { run_id: run_id(), what: "finishedAt" }),
    }
    reasons
}

fn identity_reasons(node: &NodeDocument) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if node.host.identity == Strength::None {
        reasons.push(Reason::NoIdentity);
    }
    if !node.names_every_gpu() {
        reasons.push(Reason::GpuUnnamed);
    }
    reasons
}

/// What the collector has against a record, or that it is not known to have it.
fn receipt_reason(run_id: String, receipt: Option<&Receipt>) -> Option<Reason> {
    let Some(receipt) = receipt else { return Some(Reason::NoReceipt { run_id }) };
    let flags = receipt.flags.clone();
    (!flags.is_empty()).then_some(Reason::Flagged { run_id, flags })
}

fn age_reason(run_id: String, finished: Timestamp, now: Timestamp, wanted: &Wanted) -> Option<Reason> {
    let Ok(age) = Duration::try_from(now.duration_since(finished)) else {
        return Some(Reason::ClockBackwards { run_id, finished_at: finished.to_string() });
    };
    let max_age = wanted.max_age?;
    (age > max_age).then_some(Reason::TooOld { run_id, age, max_age })
}

/// Waivers that the record was accepted by and that hold no longer.
fn ended_waivers(details: &Details, now: Timestamp) -> Vec<Reason> {
    let today = jiff::tz::TimeZone::UTC.to_datetime(now).date();
    let findings = details.steps.iter().flat_map(|step| &step.outcome.findings);
    let used: BTreeSet<usize> = findings.filter_map(|finding| finding.waived_by).collect();
    let holds = |index: &usize| {
        let until = details.waivers.get(*index).and_then(|waiver| waiver.until.parse::<Date>().ok());
        until.is_some_and(|until| until >= today)
    };
    let ended = used.iter().filter(|index| !holds(index));
    ended
        .map(|index| {
            let waiver = details.waivers.get(*index);
            let what =
                waiver.map_or("a waiver".to_owned(), |waiver| format!("{} on {}", waiver.finding, waiver.subject));
            Reason::WaiverEnded { run_id: details.run_id.clone(), what: printable(&what, 120) }
        })
        .collect()
}

/// `since` is when the record ended and where the log then was, within this boot; in another boot
/// everything is newer. The log's own numbers are asked first: the clock may have been set since.
fn event_reasons(events: &Events, since: Option<(Timestamp, Option<u64>)>) -> Vec<Reason> {
    match events {
        Events::Unknown(why) => vec![Reason::LogUnknown { why: why.clone() }],
        Events::Seen(seen) => {
            let is_new = |event: &&Event| match since {
                None => true,
                Some((_, Some(log_end))) => event.sequence > log_end,
                Some((since, None)) => event.at.saturating_add(SLACK).unwrap_or(event.at) > since,
            };
            seen.iter().filter(is_new).map(|event| Reason::EventSince { text: event.text.clone() }).collect()
        }
    }
}

/// The events of this boot with their wall-clock time.
fn events(host: &HostFacts, now: Timestamp) -> Events {
    let Some(uptime) = host.kernel.uptime.value() else {
        return Events::Unknown(format!("uptime {}", host.kernel.uptime.as_ref().map(|_| "")));
    };
    let Some(boot) = boot_time(now, *uptime) else { return Events::Unknown("uptime out of range".to_owned()) };
    match &host.kernel_log.state {
        Reading::Value(extent) if extent.complete => Events::Seen(entries(&host.kernel_log, boot)),
        Reading::Value(_) => Events::Unknown("its first records are gone".to_owned()),
        state => Events::Unknown(state.as_ref().map(|_| "").to_string()),
    }
}

fn entries(log: &KernelLog, boot: Timestamp) -> Vec<Event> {
    let speaks_against = |kind: &LogKind| match kind {
        LogKind::Xid { .. } | LogKind::SXid { .. } | LogKind::AdapterFailed { .. } | LogKind::FallenOffBus { .. } => {
            true
        }
        LogKind::ApiMismatch { .. } | LogKind::Aer { .. } | LogKind::Unknown => false,
    };
    log.entries
        .iter()
        .filter(|entry| speaks_against(&entry.kind))
        .map(|entry| {
            // A time past the calendar's end is newer than any record.
            let at = boot.checked_add(Duration::from_micros(entry.microseconds)).unwrap_or(Timestamp::MAX);
            Event { at, sequence: entry.sequence, text: entry.text.clone() }
        })
        .collect()
}

fn boot_time(now: Timestamp, uptime: f64) -> Option<Timestamp> {
    now.checked_sub(Duration::try_from_secs_f64(uptime).ok()?).ok()
}

impl Standing {
    fn of(record: &Verified, receipt: Option<&Receipt>) -> Standing {
        let details = &record.details;
        Standing {
            run_id: details.run_id.clone(),
            seq: details.seq,
            stage: details.stage,
            level: details.level,
            finished_at: details.finished_at.clone(),
            receipt: receipt.cloned(),
        }
    }
}
