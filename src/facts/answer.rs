//! The driver's answers by function and arguments.
//!
//! One form for everything: the session child answers in it, a capture writes it to
//! `driver.json`, and the simulated driver replays it (`fixtures/FORMAT.md`).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reading::{Code, Reading};

/// One NVML call: the C function's name and its input arguments, GPU index first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Question {
    #[serde(rename = "f")]
    pub function: String,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<u32>,
}

impl Question {
    pub fn new(function: &str, arguments: &[u32]) -> Self {
        Question { function: function.to_owned(), arguments: arguments.to_vec() }
    }

    /// The arguments as `driver.json` writes them: `"0,1,0"`, and `""` for none.
    pub fn key(&self) -> String {
        self.arguments.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.function, self.key())
    }
}

/// What the driver answered: `{"v": …}` or `{"rc": n}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Value { v: Value },
    Refused { rc: Code },
}

impl Answer {
    pub fn value(value: impl Into<Value>) -> Self {
        Answer::Value { v: value.into() }
    }

    pub fn refused(code: Code) -> Self {
        Answer::Refused { rc: code }
    }

    /// The answer as a reading of type `T`; a value of another shape is `Failed(GARBLED)`.
    pub fn reading<T: DeserializeOwned>(&self) -> Reading<T> {
        match self {
            Answer::Value { v } => match T::deserialize(v) {
                Ok(value) => Reading::Value(value),
                Err(_) => Reading::Failed(Code::GARBLED),
            },
            Answer::Refused { rc } if *rc == Code::NOT_SUPPORTED => Reading::Unsupported,
            Answer::Refused { rc } => Reading::Failed(*rc),
        }
    }
}

/// All answers of one sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<Question, Answer>);

impl Answers {
    pub fn insert(&mut self, question: Question, answer: Answer) {
        self.0.insert(question, answer);
    }

    pub fn extend(&mut self, other: Answers) {
        self.0.extend(other.0);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Question, &Answer)> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reading for this call; `Unasked` if nobody asked.
    pub fn reading<T: DeserializeOwned>(&self, function: &str, arguments: &[u32]) -> Reading<T> {
        match self.0.get(&Question::new(function, arguments)) {
            Some(answer) => answer.reading(),
            None => Reading::Unasked,
        }
    }
}

impl FromIterator<(Question, Answer)> for Answers {
    fn from_iter<I: IntoIterator<Item = (Question, Answer)>>(answers: I) -> Self {
        Answers(answers.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_a_reading_with_four_states() {
        let answers: Answers = [
            (Question::new("nvmlDeviceGetPowerUsage", &[0]), Answer::value(72_000)),
            (Question::new("nvmlDeviceGetPowerUsage", &[1]), Answer::refused(Code(3))),
            (Question::new("nvmlDeviceGetPowerUsage", &[2]), Answer::refused(Code(15))),
            (Question::new("nvmlDeviceGetPowerUsage", &[3]), Answer::value("hot")),
        ]
        .into_iter()
        .collect();
        let power = |gpu| answers.reading::<u32>("nvmlDeviceGetPowerUsage", &[gpu]);
        assert_eq!(power(0), Reading::Value(72_000));
        assert_eq!(power(1), Reading::Unsupported);
        assert_eq!(power(2), Reading::Failed(Code::GPU_IS_LOST));
        assert_eq!(power(3), Reading::Failed(Code::GARBLED));
        assert_eq!(power(4), Reading::Unasked);
    }
}
