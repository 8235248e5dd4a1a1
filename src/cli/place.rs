//! Where to read: this machine, a recorded host, or named files of either.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::plan::Surroundings;
use super::{Failure, key};
use crate::facts::{HostFacts, Snapshot};
use crate::host::fixture::{self, PreparedFixture};
use crate::host::machine::Sweep;
use crate::host::{Machine, Origin, Source, clock};
use crate::ident::printable;
use crate::plan::site::SITE_PATH;

/// How long a command that only shows a host may take to read it; a healthy one takes a second.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The options that say where to read; each but none marks what is read as not this machine's own word.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Where to look")]
pub struct Place {
    /// A recorded host, read with the simulated driver
    #[arg(long, value_name = "DIR", conflicts_with_all = ["root", "nvml", "cuda"])]
    pub fixture: Option<PathBuf>,
    /// The root folder to read /proc, /sys, /etc and /dev from (marks the record `overridden`)
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The NVML library to open (marks the record `overridden`)
    #[arg(long, value_name = "FILE")]
    pub nvml: Option<PathBuf>,
    /// The CUDA driver library to take (marks the record `overridden`)
    #[arg(long, value_name = "FILE")]
    pub cuda: Option<PathBuf>,
}

/// A source, and the private copy that it stands on if it is a recorded host.
pub struct Prepared {
    pub source: Source,
    _fixture: Option<PreparedFixture>,
}

/// A machine that was opened, and the private copy that it lives in if it is a recorded one.
pub struct Opened {
    pub machine: Machine,
    pub snapshot: Snapshot,
    pub deadline: Instant,
    _prepared: Prepared,
}

impl Place {
    /// What a record of this place is worth.
    pub fn origin(&self) -> Origin {
        if self.fixture.is_some() {
            Origin::Simulated
        } else if self.root.is_none() && self.nvml.is_none() && self.cuda.is_none() {
            Origin::Live
        } else {
            Origin::Overridden
        }
    }

    /// Makes a recorded host ready. Nothing is opened yet.
    pub fn prepare(&self) -> Result<Prepared, Box<dyn Error>> {
        let prepared = self.fixture.as_deref().map(fixture::prepare).transpose()?;
        let source = prepared.as_ref().map_or_else(|| self.source(), PreparedFixture::source);
        Ok(Prepared { source, _fixture: prepared })
    }

    /// Reads the host and opens its driver. Fails only where a recorded host cannot be made ready.
    pub fn open(&self) -> Result<Opened, Box<dyn Error>> {
        let prepared = self.prepare()?;
        let deadline = Instant::now() + PATIENCE;
        let (machine, snapshot) = Machine::open(prepared.source.clone(), deadline);
        Ok(Opened { machine, snapshot, deadline, _prepared: prepared })
    }

    /// What a plan depends on beside files and options, with the host read afresh.
    pub fn surroundings(&self, state: Option<&Path>) -> Result<Surroundings, Failure> {
        let prepared = self.prepare().map_err(super::blamed)?;
        let sweep = Sweep::of(&prepared.source, Instant::now() + PATIENCE);
        self.around(&sweep.facts, state)
    }

    /// The same from facts that are already there.
    pub fn around(&self, host: &HostFacts, state: Option<&Path>) -> Result<Surroundings, Failure> {
        let models = host.pci.values().filter(|function| function.is_nvidia_gpu());
        // A recording brings its own site file, and never takes this machine's.
        let site = match &self.fixture {
            Some(folder) => folder.join("site.toml"),
            None => PathBuf::from(SITE_PATH),
        };
        Ok(Surroundings {
            models: models.filter_map(|function| function.model.value().copied()).collect(),
            hostname: host.hostname.value().map(|name| printable(name, 64)),
            today: clock::today(),
            site,
            state: key::folder(state).map_err(|error| super::blamed(error.into()))?,
            lacking: self.lacking(),
        })
    }

    /// Privileges that are missing, in one line.
    fn lacking(&self) -> Vec<String> {
        if self.fixture.is_some() || rustix::process::geteuid().is_root() {
            return Vec::new();
        }
        vec!["not root: serial numbers, the kernel log and SRAM error counters may not be readable".to_owned()]
    }

    fn source(&self) -> Source {
        Source {
            origin: self.origin(),
            root: self.root.clone().unwrap_or_else(|| PathBuf::from("/")),
            nvml: self.nvml.clone(),
            cuda: self.cuda.clone(),
            run_folder: None,
        }
    }
}

/// The facts of this machine, for what is about its identity alone.
pub fn this_host() -> HostFacts {
    Sweep::of(&Source::live(), Instant::now() + PATIENCE).facts
}
