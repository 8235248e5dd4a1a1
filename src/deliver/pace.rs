//! How often a collector is tried: what is known of it across processes, and how long to wait.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ident::printable;
use crate::record::Spool;
use crate::wire::{Address, LONGEST_WAIT};

/// The shortest and the longest wait between two tries. Full jitter, "Exponential Backoff And
/// Jitter", AWS Architecture Blog, 2015: a random time up to a bound that doubles with each
/// failure, so that a fleet which lost its collector at once does not come back at once.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Doublings after which the bound is past [`LONGEST`] for sure.
const DOUBLINGS: u32 = 16;
/// The version of `delivery.json`. An older nodegate begins anew over a newer one.
const FORMAT: u32 = 1;
/// Characters of a cause.
const LONGEST_CAUSE: usize = 500;

/// How the collector was last found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    pub format: u32,
    /// The collector that all of this is about.
    pub collector: String,
    /// Tries in a row that brought nothing through.
    pub attempts: u32,
    /// It asked us to stay away until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_try: Option<Timestamp>,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl Note {
    /// What is noted of this collector. What was noted of another says nothing, and neither does a
    /// time that no collector can have asked for: the clock was set back since.
    pub fn read(spool: &Spool, address: &Address, now: Timestamp) -> Note {
        let fresh = Note {
            format: FORMAT,
            collector: address.to_string(),
            attempts: 0,
            not_before: None,
            last_try: None,
            cause: None,
        };
        let found = spool.note().and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
        let Some(mut note) = found.filter(|note| note.format == FORMAT && note.collector == fresh.collector) else {
            return fresh;
        };
        let latest = now.saturating_add(LONGEST_WAIT).unwrap_or(now);
        note.not_before = note.not_before.filter(|time| *time > now && *time <= latest);
        note.cause = note.cause.map(|cause| printable(&cause, LONGEST_CAUSE));
        note
    }

    /// Notes a try: what it failed by, and how long the collector asked us to stay away.
    pub(super) fn tried(&mut self, now: Timestamp, failure: Option<(&str, Option<Duration>)>, sent_some: bool) {
        self.last_try = Some(now);
        self.attempts = match failure {
            None => 0,
            Some(_) if sent_some => 1,
            Some(_) => self.attempts.saturating_add(1),
        };
        self.cause = failure.map(|(cause, _)| printable(cause, LONGEST_CAUSE));
        let wait = failure.and_then(|(_, wait)| wait);
        self.not_before = wait.and_then(|wait| now.saturating_add(wait).ok());
    }

    /// Writes it down. That this fails loses nothing but patience.
    pub(super) fn keep(&self, spool: &Spool) {
        let mut json = serde_json::to_vec(self).expect("a note of strings and numbers is JSON");
        json.push(b'\n');
        if let Err(error) = spool.keep_note(&json) {
            tracing::warn!(%error, "how the collector was found is not kept");
        }
    }
}

/// How long to wait before the next try; `random` is of the whole range of its type.
pub fn pause_before(note: &Note, now: Timestamp, random: u32) -> Duration {
    let bound = SHORTEST.saturating_mul(1 << note.attempts.min(DOUBLINGS)).min(LONGEST);
    let jitter = bound.mul_f64(f64::from(random) / f64::from(u32::MAX)).max(SHORTEST);
    let asked = note.not_before.and_then(|time| Duration::try_from(time.duration_since(now)).ok());
    jitter.max(asked.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-30T20:41:07Z".parse().unwrap()
    }

    fn at(folder: &std::path::Path, url: &str, now: Timestamp) -> Note {
        Note::read(&Spool::of(folder), &url.parse().unwrap(), now)
    }

    #[test]
    fn the_wait_grows_from_a_second_to_a_quarter_of_an_hour_and_is_random_below_that() {
        let folder = tempfile::tempdir().unwrap();
        let mut note = at(folder.path(), "https://c.example", now());
        let wait = |note: &Note, random| pause_before(note, now(), random).as_secs();
        assert_eq!((wait(&note, 0), wait(&note, u32::MAX)), (1, 1));
        for (attempts, longest) in [(1, 2), (2, 4), (9, 512), (10, 900), (16, 900), (u32::MAX, 900)] {
            note.attempts = attempts;
            assert_eq!((wait(&note, 0), wait(&note, u32::MAX)), (1, longest), "{attempts}");
            assert!(wait(&note, u32::MAX / 2) <= longest / 2 + 1);
        }
    }

    #[test]
    fn what_a_collector_asked_for_is_kept_and_holds_for_that_collector_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut note = at(folder.path(), "https://c.example", now());
        note.tried(now(), Some(("busy", Some(Duration::from_secs(3600)))), false);
        note.keep(&Spool::of(folder.path()));
        let again = at(folder.path(), "https://c.example", now());
        assert_eq!(again, note);
        assert_eq!(pause_before(&again, now(), 0).as_secs(), 3600);
        assert_eq!(at(folder.path(), "https://d.example", now()).not_before, None);
        // It is over, or the clock was set back by more than anybody can have asked for.
        for then in ["2026-11-30T21:41:07Z", "2026-11-28T20:41:07Z"] {
            assert_eq!(at(folder.path(), "https://c.example", then.parse().unwrap()).not_before, None, "{then}");
        }
        std::fs::write(folder.path().join("delivery.json"), "{\"format\":1").unwrap();
        assert_eq!(at(folder.path(), "https://c.example", now()).attempts, 0);
    }

    #[test]
    fn a_try_that_got_something_through_begins_the_count_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut note = at(folder.path(), "https://c.example", now());
        for _ in 0..5 {
            note.tried(now(), Some(("gone", None)), false);
        }
        assert_eq!(note.attempts, 5);
        note.tried(now(), Some(("gone", None)), true);
        assert_eq!((note.attempts, note.cause.as_deref()), (1, Some("gone")));
        note.tried(now(), None, false);
        assert_eq!((note.attempts, note.cause), (0, None));
    }
}
