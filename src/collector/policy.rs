//! The acceptance policy: what a fleet asks of a record before it counts as accepted.
//!
//! A policy never refuses a record. It says why one does not count, the same on the page, in the
//! API and in the metrics, since all of them ask [`standing`].

mod file;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::model::{KeyState, Record, Standing};
use crate::decision::{Decision, Level, Stage};
use crate::ident::{ClassId, Digest};
use crate::record::standing::{Flag, Tier};

pub use file::load;

/// What a record needs in order to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub stage: Stage,
    pub level: Level,
    pub tier: Tier,
    /// Empty: any class.
    pub classes: Vec<AllowedClass>,
    /// Digests of suites; empty: any suite.
    pub suites: Vec<Digest>,
    /// Whether a run with waived findings counts.
    pub waivers: bool,
    /// Whether a run counts that was told where to read (`--nvml`, `--cuda`, `--root`).
    pub overridden: bool,
    /// Whether a record must carry a nonce of the collector.
    pub require_challenge: bool,
    /// How old a nonce may be when its record comes in.
    pub challenge_age: Duration,
    /// How long an accepted record counts; none: until the next one.
    pub expiry: Option<Duration>,
    /// How many days back a rejection counts as recent.
    pub recent_days: u32,
}

/// A class that may be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedClass {
    pub id: ClassId,
    /// None: any revision of it.
    pub digest: Option<Digest>,
}

/// A day, seconds.
const DAY: u64 = 86_400;

impl Default for Policy {
    /// What holds where a policy says nothing.
    fn default() -> Self {
        Policy {
            stage: Stage::Rack,
            level: Level::Quick,
            tier: Tier::FirstUse,
            classes: Vec::new(),
            suites: Vec::new(),
            waivers: true,
            overridden: false,
            require_challenge: false,
            challenge_age: Duration::from_secs(DAY),
            expiry: None,
            recent_days: 30,
        }
    }
}

impl Policy {
    /// What an accepted record misses, in one line; none where it misses nothing.
    pub fn misses(&self, record: &Record) -> Option<String> {
        let mut misses = Vec::new();
        if record.stage < self.stage {
            misses.push(format!("stage {} is below {}", record.stage, self.stage));
        }
        if record.level < self.level {
            misses.push(format!("level {} is below {}", record.level, self.level));
        }
        if record.tier < self.tier {
            misses.push(format!("tier {} is below {}", record.tier, self.tier));
        }
        if !self.allows_class(record) {
            misses.push(format!("class {} is not allowed", record.class));
        }
        if !self.suites.is_empty() && !self.suites.contains(&record.suite_digest) {
            misses.push(format!("suite {} is not allowed", record.suite_digest));
        }
        if record.waived && !self.waivers {
            misses.push("findings are waived".to_owned());
        }
        (!misses.is_empty()).then(|| misses.join("; "))
    }

    /// Everything that speaks against this record now: what its receipt said, without what
    /// depends on key and policy, and those two as they are now.
    pub fn flags(&self, record: &Record) -> Vec<Flag> {
        let of_now = [Flag::PendingKey, Flag::RevokedKey, Flag::NoNonce, Flag::Policy];
        let mut flags: Vec<Flag> = record.flags.iter().copied().filter(|flag| !of_now.contains(flag)).collect();
        match record.key_state {
            KeyState::Pending => flags.push(Flag::PendingKey),
            // One that was never approved stays known as that.
            KeyState::Revoked => {
                flags.extend(record.flags.iter().filter(|flag| **flag == Flag::PendingKey));
                flags.push(Flag::RevokedKey);
            }
            KeyState::Approved | KeyState::Retired => {}
        }
        if self.require_challenge && !record.challenged {
            flags.push(Flag::NoNonce);
        }
        if record.decision == Decision::Accepted && self.misses(record).is_some() {
            flags.push(Flag::Policy);
        }
        flags.sort_unstable();
        flags
    }

    /// When an accepted record stops counting.
    pub fn expires_at(&self, record: &Record) -> Option<Timestamp> {
        let expiry = jiff::SignedDuration::try_from(self.expiry?).ok()?;
        Some(record.received_at.checked_add(expiry).unwrap_or(Timestamp::MAX))
    }

    /// The beginning of what is recent.
    pub fn recent(&self, now: Timestamp) -> Timestamp {
        let days = jiff::SignedDuration::from_hours(24 * i64::from(self.recent_days));
        now.checked_sub(days).unwrap_or(Timestamp::MIN)
    }

    fn allows_class(&self, record: &Record) -> bool {
        let fits = |class: &AllowedClass| {
            class.id.as_str() == record.class && class.digest.is_none_or(|digest| digest == record.class_digest)
        };
        self.classes.is_empty() || self.classes.iter().any(fits)
    }
}

/// What is thought of a node whose newest record this is.
pub fn standing(record: &Record, policy: &Policy, now: Timestamp) -> Standing {
    match record.decision {
        Decision::Rejected => Standing::Rejected,
        Decision::Undecided => Standing::Undecided,
        Decision::Accepted => {
            let allowed = |flag: &Flag| *flag == Flag::Overridden && policy.overridden;
            let counts = policy.flags(record).iter().all(allowed);
            match policy.expires_at(record) {
                _ if !counts => Standing::Uncounted,
                Some(end) if end <= now => Standing::Expired,
                _ => Standing::Accepted,
            }
        }
    }
}

#[cfg(test)]
mod tests;
