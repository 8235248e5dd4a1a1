//! Files that are whole or not there: temporary file, fsync, rename, fsync of the folder.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

use super::plain;

const PREFIX: &str = ".nodegate-";
const SUFFIX: &str = ".tmp";

/// Writes or replaces a file (mode 0600). After an error the old one, if any, is as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    plain::may_replace(path)?;
    temporary(path, bytes)?.persist(path).map_err(|error| error.error)?;
    sync_folder(folder_of(path))
}

/// Writes a file (mode 0600) that must not exist yet.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    temporary(path, bytes)?.persist_noclobber(path).map_err(|error| error.error)?;
    sync_folder(folder_of(path))
}

/// Makes the folder and those above it (mode 0700) where they are missing.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes what a run that was killed while it wrote has left behind.
pub fn sweep(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes the names in a folder as durable as the files.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn temporary(path: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(folder_of(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_whole_and_readable_by_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_exists_is_never_overwritten_by_create() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        create(&path, b"one").unwrap();
        assert_eq!(create(&path, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn sweeping_removes_our_leftovers_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".nodegate-x1y2.tmp", "a.json", ".nodegate-notes"] {
            std::fs::write(folder.path().join(name), "half").unwrap();
        }
        sweep(folder.path()).unwrap();
        assert!(!folder.path().join(".nodegate-x1y2.tmp").exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
