//! A step of a record: its own fields and its outcome's in one object.
//!
//! `#[serde(flatten)]` would read the same, by keeping all of the step in memory first: that was
//! half of what it cost a collector to read a record. Only reading makes one, as it is with an
//! [`Outcome`] alone.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Finding, Measurement, Outcome, Status};
use crate::decision::Require;
use crate::ident::{CheckId, StepId, Subject};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Flat {
    pub id: StepId,
    pub check: CheckId,
    pub require: Require,
    pub started_at: String,
    pub duration_ms: u64,
    status: Status,
    cause: String,
    expected: BTreeSet<Subject>,
    judged: BTreeSet<Subject>,
    findings: Vec<Finding>,
    measurements: Vec<Measurement>,
    attempts: u32,
}

impl Flat {
    /// The outcome, taken out.
    pub fn take_outcome(&mut self) -> Outcome {
        Outcome {
            status: self.status,
            cause: std::mem::take(&mut self.cause),
            expected: std::mem::take(&mut self.expected),
            judged: std::mem::take(&mut self.judged),
            findings: std::mem::take(&mut self.findings),
            measurements: std::mem::take(&mut self.measurements),
            attempts: self.attempts,
        }
    }
}
