//! The doorway to the machine: its root folder, its driver session, its processes and clock.

pub mod capture;
pub mod clock;
pub mod fixture;
pub mod kmsg;
pub mod library;
pub mod machine;
pub mod read;
pub mod recorded;
pub mod root;
pub mod session;

#[cfg(test)]
pub mod replay;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use machine::Machine;

/// Where a run reads, and therefore what its record is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// The private copy of a recorded host, in which the steps of the run are marked.
    pub run_folder: Option<PathBuf>,
}

impl Source {
    /// This machine, by the ways that a driver is found.
    pub fn live() -> Source {
        Source { origin: Origin::Live, root: PathBuf::from("/"), nvml: None, cuda: None, run_folder: None }
    }
}
