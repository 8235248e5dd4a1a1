//! One session with the driver for the whole run, held by a child.
//!
//! With persistence mode off, counters vanish when the last client closes the devices, so the
//! child keeps them open from the first question to the last. The parent hands it lists of
//! questions and takes one line an answer, in order: what is missing names what hangs.

mod client;
mod job;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use client::Session;
pub use job::serve;

use super::Origin;
use crate::facts::snapshot::{Library, SessionState};

/// The first line to the child. Paths are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    pub origin: Origin,
    pub root: PathBuf,
    pub nvml: Option<PathBuf>,
    pub cuda: Option<PathBuf>,
    /// Whether the kernel has the driver. Without it the library is not initialised: as root
    /// it would make device nodes and load modules.
    pub driver_loaded: bool,
}

/// The child's first two lines; every later one is an `Answer`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Event {
    /// What lies on the disk, before anything of it runs.
    Found { library: Option<Library>, cuda_library: Option<Library>, cuda_objection: Option<String> },
    /// How far the session came.
    Opened { state: SessionState, simulated: bool },
}
