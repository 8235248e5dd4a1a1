//! Where the state folder is, and that it is ours alone.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::StoreError;
use crate::record::{durable, plain};

const LOCK: &str = "lock";
/// A commit takes milliseconds; whoever holds the folder longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// `/var/lib/nodegate` for root, the XDG state folder otherwise.
pub fn default_folder() -> Result<PathBuf, StoreError> {
    folder_for(rustix::process::geteuid().is_root(), std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
}

/// The rule of [`default_folder`]. XDG says that a relative path is invalid and to be ignored.
pub fn folder_for(root: bool, xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, StoreError> {
    if root {
        return Ok(PathBuf::from("/var/lib/nodegate"));
    }
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg)
        .or_else(|| absolute(home).map(|home| home.join(".local/state")))
        .map(|state| state.join("nodegate"))
        .ok_or(StoreError::NoFolder)
}

/// Makes the folder if it is missing; one that others own or can write to is refused.
pub fn prepare(path: &Path) -> Result<(), StoreError> {
    durable::make_folder(path).map_err(|source| StoreError::Folder { path: path.to_owned(), source })?;
    check(path)
}

/// A folder that is there is ours alone and takes a file.
pub fn check(path: &Path) -> Result<(), StoreError> {
    let unusable = |source| StoreError::Folder { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(unusable)?;
    let us = rustix::process::geteuid().as_raw();
    if metadata.uid() != us {
        return Err(StoreError::Owner { path: path.to_owned(), owner: metadata.uid() });
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(StoreError::Open { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    // Only a try tells whether the file system takes a file: root may write where it is read-only.
    tempfile::tempfile_in(path).map_err(unusable)?;
    Ok(())
}

/// Removes what killed runs left half-written. The caller holds the lock, so nobody is writing.
pub fn sweep<const N: usize>(folders: [&Path; N]) -> Result<(), StoreError> {
    folders.into_iter().try_for_each(|path| {
        durable::sweep(path).map_err(|source| StoreError::Folder { path: path.to_owned(), source })
    })
}

/// Holds the folder until the file is dropped; the kernel frees it when we die.
pub fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(LOCK);
    let unusable = |source| StoreError::Folder { path: folder.to_owned(), source };
    let file = plain::open_lock(&path).map_err(unusable)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                return Err(StoreError::Busy { path: folder.to_owned() });
            }
            Err(errno) => return Err(unusable(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_folder_follows_the_user() {
        let home = || Some(OsString::from("/home/ada"));
        let folder = |root, xdg: Option<&str>, home| folder_for(root, xdg.map(OsString::from), home).ok();
        assert_eq!(folder(true, Some("/x"), home()), Some(PathBuf::from("/var/lib/nodegate")));
        assert_eq!(folder(false, Some("/x"), home()), Some(PathBuf::from("/x/nodegate")));
        assert_eq!(folder(false, Some("x"), home()), Some(PathBuf::from("/home/ada/.local/state/nodegate")));
        assert_eq!(folder(false, Some(""), home()), Some(PathBuf::from("/home/ada/.local/state/nodegate")));
        assert_eq!(folder(false, None, None), None);
    }

    #[test]
    fn a_folder_is_made_for_us_alone_and_refused_where_others_can_write() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        prepare(&folder).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(prepare(&folder).unwrap_err().to_string().contains("chmod 700"));
    }
}
