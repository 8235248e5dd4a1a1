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
        .filter_map(|(holds, word, meaning)| holds.then(|| Against::new(word, meaning)))
        .collect()
    }
}

impl Verdict {
    pub fn new(decision: Decision, against: Vec<Against>) -> Verdict {
        match decision {
            Decision::Accepted if !against.is_empty() => {
                Verdict { shape: Shape::Void, word: "accepted, does not count".to_owned(), against }
            }
            decision => Verdict { shape: decision.into(), word: decision.to_string(), against },
        }
    }

    /// Of a record by itself, with what others have against it; each word once.
    pub fn of(details: &Details, others: &[Against]) -> Verdict {
        let mut against = Against::of(details);
        for other in others {
            if against.iter().all(|known| known.word != other.word) {
                against.push(other.clone());
            }
        }
        Verdict::new(details.decision, against)
    }
}
