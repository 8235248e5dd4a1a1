//! Plain files of the state folder: opened without waiting, read up to a bound.
//!
//! A pipe that stands where a file should be would hold us for ever, and no signal ends an `open`
//! that the kernel starts again; so files are opened without blocking, and only then looked at.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens for reading. A link is followed.
///
/// # Errors
///
/// `InvalidInput` for what is no plain file; else the system's own.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path, OFlags::empty())
}

/// Opens for reading; a link is an error.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path, OFlags::NOFOLLOW)
}

/// Opens, or makes, a file to hold a lock on; a link is an error.
pub fn open_lock(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true).write(true).create(true).mode(0o600), path, OFlags::NOFOLLOW)
}

/// The whole file, or its first `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a file may be put at this path: nothing is there, or a plain file is. A link, device or
/// pipe would be replaced by the file: `/dev/stdout` on the whole machine, if root asks for it.
pub fn may_replace(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::new(io::ErrorKind::InvalidInput, "there and not a plain file")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_with(options: &mut OpenOptions, path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_folder_is_an_error_and_not_a_wait() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            assert!(read(path, 10).is_err(), "{}", path.display());
            assert!(open_no_link(path).is_err(), "{}", path.display());
            assert!(open_lock(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn a_lock_is_not_made_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("lock"), folder.path().join("elsewhere"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(open_lock(&link).is_err());
        assert!(!target.exists());
        assert!(open_lock(&target).is_ok());
    }

    #[test]
    fn only_a_plain_file_may_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        assert!(may_replace(&file).is_ok());
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(may_replace(&file).is_ok());
        for path in [link.as_path(), folder.path(), Path::new("/dev/null")] {
            assert!(may_replace(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn no_more_is_read_than_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "abcdef").unwrap();
        assert_eq!(read(&folder.path().join("a"), 3).unwrap(), b"abc");
    }
}
