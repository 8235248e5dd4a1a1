//! Why a host does not stand accepted, as data and in words.

use std::fmt;
use std::time::Duration;

use crate::decision::{Level, Stage};
use crate::record::standing::Flag;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NoRecord,
    /// The chain's head says that there is a newer record than those that are here.
    NewestMissing {
        head: u64,
        found: u64,
    },
    /// Two records that do not join: one between them is missing, or one was put in its place.
    Gap {
        after: u64,
        before: u64,
    },
    /// Two records under one number.
    Fork {
        seq: u64,
    },
    /// `--root`, `--nvml`, `--cuda` or a recording: not this machine's own word.
    LookedElsewhere,
    Rejected {
        run_id: String,
        at: String,
    },
    Undecided {
        run_id: String,
        at: String,
    },
    OtherHost {
        run_id: String,
    },
    OtherGpus {
        run_id: String,
    },
    NoIdentity,
    GpuUnnamed,
    Simulated {
        run_id: String,
    },
    Overridden {
        run_id: String,
    },
    Partial {
        run_id: String,
    },
    Stage {
        run_id: String,
        found: Stage,
        wanted: Stage,
    },
    Level {
        run_id: String,
        found: Level,
        wanted: Level,
    },
    OtherClass {
        run_id: String,
    },
    OtherSuite {
        run_id: String,
    },
    TooOld {
        run_id: String,
        age: Duration,
        max_age: Duration,
    },
    /// The record ends in the future.
    ClockBackwards {
        run_id: String,
        finished_at: String,
    },
    WaiverEnded {
        run_id: String,
        what: String,
    },
    Unreadable {
        run_id: String,
        what: &'static str,
    },
    EventSince {
        text: String,
    },
    LogUnknown {
        why: String,
    },
    /// No receipt of the collector is kept that verifies.
    NoReceipt {
        run_id: String,
    },
    /// The collector has it, and it does not count there.
    Flagged {
        run_id: String,
        flags: Vec<Flag>,
    },
}

impl Reason {
    /// Whether the reason only says that one newer record is not enough. The others speak
    /// about the host as it is now, and no record helps against them.
    pub(super) fn lets_an_older_record_speak(&self) -> bool {
        !matches!(
            self,
            Reason::NoIdentity
                | Reason::GpuUnnamed
                | Reason::NewestMissing { .. }
                | Reason::Gap { .. }
                | Reason::Fork { .. }
                | Reason::LookedElsewhere
                | Reason::LogUnknown { .. }
                | Reason::EventSince { .. }
                | Reason::ClockBackwards { .. }
                | Reason::Unreadable { .. }
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoRecord => f.write_str("no record that this host's own key verifies: run `nodegate run`"),
            Reason::NewestMissing { head, found } => {
                write!(f, "record {head} of the chain is missing or does not verify, the newest here is {found}")
            }
            Reason::Gap { after, before } => {
                write!(f, "records {after} and {before} of the chain do not join: one is missing or was replaced")
            }
            Reason::Fork { seq } => write!(f, "two records of the chain have the number {seq}"),
            Reason::LookedElsewhere => {
                f.write_str("told where to look (--root, --nvml, --cuda or --fixture): that says nothing of this host")
            }
            Reason::Rejected { run_id, at } => write!(f, "rejected by run {run_id}, {at}"),
            Reason::Undecided { run_id, at } => write!(f, "undecided by run {run_id}, {at}"),
            Reason::OtherHost { run_id } => write!(f, "run {run_id} was on another host"),
            Reason::OtherGpus { run_id } => write!(f, "run {run_id} was with other GPUs than those present now"),
            Reason::NoIdentity => f.write_str("this host has neither serial number nor machine id"),
            Reason::GpuUnnamed => f.write_str("not every GPU could be identified now, or there is none"),
            Reason::Simulated { run_id } => write!(f, "run {run_id} was on a recording"),
            Reason::Overridden { run_id } => write!(f, "run {run_id} was told where to read (--nvml, --cuda, --root)"),
            Reason::Partial { run_id } => write!(f, "run {run_id} left steps out (--only, --skip)"),
            Reason::Stage { run_id, found, wanted } => {
                write!(f, "run {run_id} was for stage {found}, asked for {wanted}")
            }
            Reason::Level { run_id, found, wanted } => {
                write!(f, "run {run_id} was at level {found}, asked for {wanted}")
            }
            Reason::OtherClass { run_id } => write!(f, "run {run_id} was held against another class or revision of it"),
            Reason::OtherSuite { run_id } => write!(f, "run {run_id} was made with another suite or revision of it"),
            Reason::TooOld { run_id, age, max_age } => {
                write!(f, "run {run_id} is {} old, asked for at most {}", Hours(*age), Hours(*max_age))
            }
            Reason::ClockBackwards { run_id, finished_at } => {
                write!(f, "run {run_id} ended at {finished_at}, which is in the future: the clock went backwards")
            }
            Reason::WaiverEnded { run_id, what } => {
                write!(f, "run {run_id} was accepted with a waiver that has ended: {what}")
            }
            Reason::Unreadable { run_id, what } => write!(f, "run {run_id}: {what} cannot be read"),
            Reason::EventSince { text } => write!(f, "the kernel reported since then: {text}"),
            Reason::NoReceipt { run_id } => {
                write!(f, "run {run_id} has no receipt of the collector that verifies: nodegate deliver --list")
            }
            Reason::Flagged { run_id, flags } => {
                let meanings: Vec<&str> = flags.iter().map(|flag| flag.meaning()).collect();
                write!(f, "run {run_id} does not count at the collector: {}", meanings.join("; "))
            }
            Reason::LogUnknown { why } => write!(f, "what the kernel reported since then is unknown: {why}"),
        }
    }
}

/// `26 h 5 min`.
struct Hours(Duration);

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.0.as_secs() / 60;
        match (minutes / 60, minutes % 60) {
            (0, minutes) => write!(f, "{minutes} min"),
            (hours, 0) => write!(f, "{hours} h"),
            (hours, minutes) => write!(f, "{hours} h {minutes} min"),
        }
    }
}
