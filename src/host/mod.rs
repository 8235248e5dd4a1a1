//! The doorway to the machine: its root folder, its driver session, its processes and clock.

pub mod capture;
pub mod kmsg;
pub mod read;
pub mod root;

use std::path::PathBuf;
use std::time::Instant;

use crate::facts::{Answers, Question, Snapshot};

/// Where a run reads, and therefore what its record is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This machine, by the ways that a driver is found.
    Live,
    /// This machine, but `--nvml`, `--cuda` or `--root` named where to read.
    Overridden,
    /// A recording with the simulated driver.
    Simulated,
}

/// Where to read.
#[derive(Clone, Debug)]
pub struct Source {
    pub origin: Origin,
    /// `/`, or the root folder of a recording.
    pub root: PathBuf,
    pub nvml: Option<PathBuf>,
    pub cuda: Option<PathBuf>,
}

/// The machine under test, with one driver session for the whole run.
pub struct Machine {
    pub source: Source,
}

impl Machine {
    /// Reads the host, opens the driver session and takes the opening snapshot.
    pub fn open(_source: Source, _deadline: Instant) -> (Machine, Snapshot) {
        unimplemented!()
    }

    /// Asks the driver more. After a hang every answer is `WEDGED`.
    pub fn ask(&mut self, _questions: &[Question], _deadline: Instant) -> Answers {
        unimplemented!()
    }

    /// A whole new snapshot.
    pub fn snapshot(&mut self, _deadline: Instant) -> Snapshot {
        unimplemented!()
    }
}
