//! One run at a time per host, and the holder named.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::Failure;
use crate::record::plain;

/// Held for as long as it lives. The file stays; the lock goes with the process, however it ends:
/// children do not inherit the descriptor.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

/// Takes the lock in this folder, or says who holds it.
pub fn take(folder: &Path) -> Result<RunLock, Failure> {
    let path = folder.join("run.lock");
    let wrong = |error: std::io::Error| Failure::broken(format!("run lock {}: {error}", path.display()));
    let mut file = plain::open_lock(&path).map_err(wrong)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // The holder's own note; that it cannot be read changes nothing about the lock.
            let _unreadable = file.take(64).read_to_string(&mut holder);
            return Err(Failure::Held(describe(&path, holder.trim()).into()));
        }
        Err(error) => return Err(wrong(error.into())),
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(wrong)?;
    writeln!(file, "{}", std::process::id()).map_err(wrong)?;
    Ok(RunLock { _file: file })
}

fn describe(path: &Path, holder: &str) -> String {
    let name = holder.parse().ok().and_then(process_name);
    let who = match name {
        Some(name) => format!("process {holder} ({name})"),
        None => "another process".to_owned(),
    };
    format!("{who} is running the gate on this host: wait for it, or stop it ({})", path.display())
}

fn process_name(pid: usize) -> Option<String> {
    let pid = Pid::from(pid);
    let mut system = System::new().ok()?;
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, ProcessRefreshKind::nothing());
    system.process(pid).map(|process| crate::ident::printable(&process.name().to_string_lossy(), 40))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let held = take(folder.path()).unwrap();
        let Err(Failure::Held(error)) = take(folder.path()) else { panic!("taken twice") };
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(held);
        take(folder.path()).unwrap();
    }
}
