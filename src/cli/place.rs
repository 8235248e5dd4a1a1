//! Where to read: this machine, a recorded host, or named files of either.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::facts::Snapshot;
use crate::host::fixture::{self, PreparedFixture};
use crate::host::{Machine, Origin, Source};

/// How long a command that only shows a host may take to read it; a healthy one takes a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// The options that say where to read; each but none marks what is read as not this machine's own word.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Place {
    /// A recorded host, read with the simulated driver
    #[arg(long, value_name = "DIR", conflicts_with_all = ["root", "nvml", "cuda"])]
    pub fixture: Option<PathBuf>,
    /// The root folder to read /proc, /sys, /etc and /dev from
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The NVML library to open
    #[arg(long, value_name = "FILE")]
    pub nvml: Option<PathBuf>,
    /// The CUDA driver library to open
    #[arg(long, value_name = "FILE")]
    pub cuda: Option<PathBuf>,
}

/// A machine that was opened, and the private copy that it lives in if it is a recorded one.
pub struct Opened {
    pub machine: Machine,
    pub snapshot: Snapshot,
    pub deadline: Instant,
    _fixture: Option<PreparedFixture>,
}

impl Place {
    /// Reads the host and opens its driver. Fails only where a recorded host cannot be made ready.
    pub fn open(&self) -> Result<Opened, Box<dyn Error>> {
        let prepared = self.fixture.as_deref().map(fixture::prepare).transpose()?;
        let source = prepared.as_ref().map_or_else(|| self.source(), PreparedFixture::source);
        let deadline = Instant::now() + PATIENCE;
        let (machine, snapshot) = Machine::open(source, deadline);
        Ok(Opened { machine, snapshot, deadline, _fixture: prepared })
    }

    fn source(&self) -> Source {
        if self.root.is_none() && self.nvml.is_none() && self.cuda.is_none() {
            return Source::live();
        }
        Source {
            origin: Origin::Overridden,
            root: self.root.clone().unwrap_or_else(|| PathBuf::from("/")),
            nvml: self.nvml.clone(),
            cuda: self.cuda.clone(),
            run_folder: None,
        }
    }
}
