//! A recorded host made ready: a private copy in which the simulated driver lives.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation, OFlags, StatVfsMountFlags, access, flock, statvfs};
use serde::{Deserialize, Serialize};

use super::{Origin, Source};
use crate::ident::printable;
use crate::isolate::{self, Broken};
use crate::nvml;

/// The simulated driver's file, as cargo builds it and a release ships it.
const SIMULATED_DRIVER: &str = "libnodegate_driver.so";
/// How the names of private copies begin.
const PREFIX: &str = "nodegate-";
/// The file in a private copy that is locked while the copy is in use.
const HELD: &str = "held";
const NO_LINK_NO_WAIT: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
/// A folder in memory, on every Linux with a C library.
const MEMORY: &str = "/dev/shm";
/// More than a recorded host takes, bytes; a folder in memory with less is left alone.
const ROOM: u64 = 64 << 20;
/// Copying a recorded host takes milliseconds; a folder on a dead mount takes for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a recorded host could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    #[error("recorded host {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("folder for the private copy of a recorded host in {path}")]
    Copy { path: PathBuf, source: io::Error },
    #[error("no simulated driver ({SIMULATED_DRIVER}) in {}", .searched.join(", "))]
    NoDriver { searched: Vec<String> },
    #[error("recorded host {path}: {message}")]
    Prepare { path: PathBuf, message: String },
    #[error("recorded host {path}: preparation")]
    Broken { path: PathBuf, source: Box<Broken> },
}

impl FixtureError {
    /// Whether the recording is not to blame: we had no room, no driver, or our child broke.
    pub fn is_ours(&self) -> bool {
        match self {
            FixtureError::Copy { .. } | FixtureError::NoDriver { .. } | FixtureError::Broken { .. } => true,
            FixtureError::Folder { .. } | FixtureError::Prepare { .. } => false,
        }
    }
}

/// The private copy; it goes when this is dropped.
#[derive(Debug)]
pub struct PreparedFixture {
    run: tempfile::TempDir,
    /// Locked for as long as the copy is in use.
    _held: File,
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
    let folder = std::path::absolute(fixture).map_err(|source| FixtureError::Folder { path: path.clone(), source })?;
    let library = simulated_driver()?;
    let temporary = copies_folder();
    sweep(&temporary);
    let no_copy = |source| FixtureError::Copy { path: temporary.clone(), source };
    let run = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&temporary).map_err(no_copy)?;
    let held = hold(run.path()).map_err(no_copy)?;
    let job = PrepareJob { library, fixture: folder, run: run.path().to_owned() };
    match isolate::call::<_, Result<(), String>>("prepare", &job, PATIENCE) {
        Ok(Ok(())) => Ok(PreparedFixture { run, _held: held }),
        Ok(Err(message)) => Err(FixtureError::Prepare { path, message }),
        Err(broken) => Err(FixtureError::Broken { path, source: Box::new(broken) }),
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
    let fixture = std::fs::canonicalize(&job.fixture).map_err(|error| error.to_string())?;
    if !fixture.is_dir() {
        return Err("not a folder".to_owned());
    }
    nvml::prepare(&job.library, &fixture, &job.run).map_err(|error| {
        let cause = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
        printable(&format!("{error}{cause}"), 2000)
    })
}

/// Locks the copy; the kernel frees it when we die, however that happens. The file gets its name
/// when it is locked: who sweeps in between must not find it free.
fn hold(run: &Path) -> io::Result<File> {
    let unnamed = run.join("unheld");
    let file = File::create_new(&unnamed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    std::fs::rename(&unnamed, run.join(HELD))?;
    Ok(file)
}

/// Removes the copies of runs that were killed: a copy in memory would stay until the next boot.
/// What cannot be removed belongs to somebody else and hinders nobody.
fn sweep(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = entry.path();
        let held = OpenOptions::new().read(true).custom_flags(NO_LINK_NO_WAIT).open(path.join(HELD));
        let abandoned = held.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if abandoned && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(path).ok();
        }
    }
}

/// Where the private copy goes: `TMPDIR` if it is set, else memory where a library may be
/// loaded from there (a thousand small files cost some disks a second), else the temporary folder.
fn copies_folder() -> PathBuf {
    let memory = Path::new(MEMORY);
    let may_execute = || statvfs(memory).is_ok_and(|mount| !mount.f_flag.contains(StatVfsMountFlags::NOEXEC));
    let has_room = || statvfs(memory).is_ok_and(|mount| mount.f_bavail.saturating_mul(mount.f_frsize) >= ROOM);
    let may_write = || access(memory, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if std::env::var_os("TMPDIR").is_none() && may_execute() && may_write() && has_room() {
        return memory.to_owned();
    }
    std::env::temp_dir()
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
        let job =
            |fixture: &str| PrepareJob { library: "/no/lib.so".into(), fixture: fixture.into(), run: "/tmp".into() };
        assert!(serve_prepare_job(job("/no/such/host")).unwrap_err().contains("No such file"));
        assert_eq!(serve_prepare_job(job("/proc/self/status")).unwrap_err(), "not a folder");
    }

    #[test]
    fn the_copy_of_a_run_that_was_killed_is_removed_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let copy = |name: &str| folder.path().join(name);
        for name in ["nodegate-dead", "nodegate-used", "nodegate-new", "other"] {
            std::fs::create_dir(copy(name)).unwrap();
        }
        drop(hold(&copy("nodegate-dead")).unwrap());
        drop(hold(&copy("other")).unwrap());
        let _held = hold(&copy("nodegate-used")).unwrap();
        sweep(folder.path());
        let left = ["nodegate-dead", "nodegate-used", "nodegate-new", "other"].map(|name| copy(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn a_library_that_is_not_the_simulated_driver_is_named() {
        let job = PrepareJob { library: "/no/lib.so".into(), fixture: "/".into(), run: "/tmp".into() };
        let message = serve_prepare_job(job).unwrap_err();
        assert!(message.starts_with("cannot load /no/lib.so: "), "{message}");
    }
}
