//! A recorded host made ready: a private copy in which the simulated driver lives.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Origin, Source};
use crate::ident::printable;
use crate::isolate::{self, Broken};
use crate::nvml;

/// The simulated driver's file, as cargo builds it and a release ships it.
const SIMULATED_DRIVER: &str = "libnodegate_driver.so";
/// Copying a recorded host takes milliseconds; a folder on a dead mount takes for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a recorded host could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    #[error("recorded host {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("recorded host {path}: not a folder")]
    NotAFolder { path: PathBuf },
    #[error("folder for the private copy of a recorded host in {path}")]
    Copy { path: PathBuf, source: io::Error },
    #[error("no simulated driver ({SIMULATED_DRIVER}) in {}", .searched.join(", "))]
    NoDriver { searched: Vec<String> },
    #[error("recorded host {path}: {message}")]
    Prepare { path: PathBuf, message: String },
    #[error("recorded host {path}: preparation")]
    Broken { path: PathBuf, source: Broken },
}

/// The private copy; it goes when this is dropped.
#[derive(Debug)]
pub struct PreparedFixture {
    run: tempfile::TempDir,
}

impl PreparedFixture {
    /// The folder with `machine.toml`, `driver.json`, `marks` and `root/`.
    pub fn run_folder(&self) -> &Path {
        self.run.path()
    }

    /// The root folder of the recorded host.
    pub fn root(&self) -> PathBuf {
        self.run.path().join("root")
    }

    /// Where a run reads this host.
    pub fn source(&self) -> Source {
        Source {
            origin: Origin::Simulated,
            root: self.root(),
            nvml: None,
            cuda: None,
            run_folder: Some(self.run.path().to_owned()),
        }
    }
}

/// Makes a private copy of the recorded host in this folder, as it is when a run begins.
pub fn prepare(fixture: &Path) -> Result<PreparedFixture, FixtureError> {
    let path = fixture.to_owned();
    let folder =
        std::fs::canonicalize(fixture).map_err(|source| FixtureError::Folder { path: path.clone(), source })?;
    if !folder.is_dir() {
        return Err(FixtureError::NotAFolder { path });
    }
    let library = simulated_driver()?;
    let temporary = std::env::temp_dir();
    let run = tempfile::Builder::new()
        .prefix("nodegate-")
        .tempdir_in(&temporary)
        .map_err(|source| FixtureError::Copy { path: temporary, source })?;
    let job = PrepareJob { library, fixture: folder, run: run.path().to_owned() };
    match isolate::call::<_, Result<(), String>>("prepare", &job, PATIENCE) {
        Ok(Ok(())) => Ok(PreparedFixture { run }),
        Ok(Err(message)) => Err(FixtureError::Prepare { path, message }),
        Err(source) => Err(FixtureError::Broken { path, source }),
    }
}

/// What the job `prepare` is asked. Paths are absolute.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareJob {
    library: PathBuf,
    fixture: PathBuf,
    run: PathBuf,
}

/// The job `prepare`. The error is for people.
pub fn serve_prepare_job(job: PrepareJob) -> Result<(), String> {
    nvml::prepare(&job.library, &job.fixture, &job.run).map_err(|error| {
        let cause = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
        printable(&format!("{error}{cause}"), 2000)
    })
}

/// Beside the executable, where a release has it, or one directory up.
fn simulated_driver() -> Result<PathBuf, FixtureError> {
    let executable = isolate::executable();
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let up = beside.parent().unwrap_or(beside);
    let folders = [beside.to_owned(), up.join("lib/nodegate"), up.to_owned()];
    let found = folders.iter().map(|folder| folder.join(SIMULATED_DRIVER)).find(|path| path.is_file());
    let shown = |folder: &PathBuf| folder.display().to_string();
    found.ok_or_else(|| FixtureError::NoDriver { searched: folders.iter().map(shown).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_folder_is_named() {
        let missing = prepare(Path::new("/no/such/host")).unwrap_err();
        assert_eq!(missing.to_string(), "recorded host /no/such/host");
        let file = prepare(Path::new("/proc/self/status")).unwrap_err();
        assert!(file.to_string().ends_with("not a folder"));
    }

    #[test]
    fn a_library_that_is_not_the_simulated_driver_is_named() {
        let job = PrepareJob { library: "/no/lib.so".into(), fixture: "/".into(), run: "/tmp".into() };
        let message = serve_prepare_job(job).unwrap_err();
        assert!(message.starts_with("cannot load /no/lib.so: "), "{message}");
    }
}
