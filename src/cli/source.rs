//! Which machine a subcommand looks at: this one, one of its folders, or a recording.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Failure;
use crate::facts::Snapshot;
use crate::host::fixture::{self, PreparedFixture};
use crate::host::{Machine, Origin, Source};

/// Patience for the opening sweep where no plan says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Arguments {
    /// Look at a recorded host instead of this one
    #[arg(long, value_name = "DIR", conflicts_with_all = ["nvml", "cuda", "root"], help_heading = "Where to look")]
    pub fixture: Option<PathBuf>,
    /// Open this NVML library (the record is marked `overridden`)
    #[arg(long, value_name = "FILE", help_heading = "Where to look")]
    pub nvml: Option<PathBuf>,
    /// Take this CUDA library (the record is marked `overridden`)
    #[arg(long, value_name = "FILE", help_heading = "Where to look")]
    pub cuda: Option<PathBuf>,
    /// Read /proc, /sys and /etc under this folder (the record is marked `overridden`)
    #[arg(long, value_name = "DIR", help_heading = "Where to look")]
    pub root: Option<PathBuf>,
}

/// A source, and the private copy that it stands on for as long as it is used.
pub struct Opened {
    pub source: Source,
    /// Removed when dropped.
    pub fixture: Option<PreparedFixture>,
}

impl Arguments {
    pub fn origin(&self) -> Origin {
        if self.fixture.is_some() {
            Origin::Simulated
        } else if self.nvml.is_some() || self.cuda.is_some() || self.root.is_some() {
            Origin::Overridden
        } else {
            Origin::Live
        }
    }

    /// Prepares the recording, if there is one.
    pub fn open(&self) -> Result<Opened, Failure> {
        if let Some(folder) = &self.fixture {
            let prepared = fixture::prepare(folder).map_err(Failure::misused)?;
            return Ok(Opened { source: prepared.source(), fixture: Some(prepared) });
        }
        let source = Source {
            origin: self.origin(),
            root: self.root.clone().unwrap_or_else(|| PathBuf::from("/")),
            nvml: self.nvml.clone(),
            cuda: self.cuda.clone(),
            run_folder: None,
        };
        Ok(Opened { source, fixture: None })
    }

    /// Opens the machine and takes one snapshot, for subcommands that only look.
    pub fn look(&self) -> Result<(Opened, Machine, Snapshot), Failure> {
        let opened = self.open()?;
        let (machine, snapshot) = Machine::open(opened.source.clone(), Instant::now() + PATIENCE);
        Ok((opened, machine, snapshot))
    }
}
