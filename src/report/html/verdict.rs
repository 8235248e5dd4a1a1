//! What is to be thought of a record, in a word: an accepted record that does not count never looks
//! like one that does.

use super::Shape;
use crate::decision::Decision;
use crate::predicate::Details;

/// Why a record says less than its decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Against {
    /// `simulated`.
    pub word: String,
    /// What it means, for people.
    pub meaning: String,
}

/// A decision with what stands against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub shape: Shape,
    /// `accepted`, or `accepted, does not count`.
    pub word: String,
    pub against: Vec<Against>,
}

impl Against {
    pub fn new(word: &str, meaning: &str) -> Against {
        Against { word: word.to_owned(), meaning: meaning.to_owned() }
    }

    /// What a record says of itself.
    pub fn of(details: &Details) -> Vec<Against> {
        [
            (details.simulated, "simulated", "a recorded host, not a machine; its key was thrown away"),
            (details.overridden, "overridden", "the run was told where to read (--nvml, --cuda or --root)"),
            (details.partial, "partial", "steps were left out (--only or --skip)"),
        ]
        .into_iter()
        .filter(|(holds, ..)| *holds)
        .map(|(_, word, meaning)| Against::new(word, meaning))
        .collect()
    }
}

impl Verdict {
    /// Of a record by itself: what it says of itself is all that is known against it.
    pub fn of(details: &Details) -> Verdict {
        Verdict::new(details.decision, Against::of(details))
    }

    /// An accepted record with anything against it does not count.
    pub fn new(decision: Decision, against: Vec<Against>) -> Verdict {
        match decision {
            Decision::Accepted if !against.is_empty() => Verdict::uncounted(against),
            decision => Verdict { shape: decision.into(), word: decision.to_string(), against },
        }
    }

    pub fn uncounted(against: Vec<Against>) -> Verdict {
        Verdict { shape: Shape::Void, word: "accepted, does not count".to_owned(), against }
    }

    /// Accepted, longer ago than counts.
    pub fn expired(against: Vec<Against>) -> Verdict {
        Verdict { shape: Shape::Expired, word: "accepted, expired".to_owned(), against }
    }

    /// With what the record says of itself too, each word once. It changes nothing of the word.
    pub fn with(mut self, details: &Details) -> Verdict {
        for mark in Against::of(details) {
            if self.against.iter().all(|known| known.word != mark.word) {
                self.against.push(mark);
            }
        }
        self
    }
}
