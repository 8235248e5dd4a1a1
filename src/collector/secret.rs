//! Files that only their owner may read: keys, and addresses with a password in them.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::record::plain;

/// Bytes; a chain of certificates with its key has less.
const MAXIMUM_BYTES: u64 = 256 * 1024;

/// Why a file is not used. What is in it is never shown.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} can be read by others (mode {mode:04o}): run `chmod 600` on it")]
    Open { path: PathBuf, mode: u32 },
    #[error("{path} is longer than {MAXIMUM_BYTES} bytes, or not text")]
    Form { path: PathBuf },
}

/// Reads a text that nobody else can read.
pub fn read(path: &Path) -> Result<String, SecretError> {
    let unread = |source| SecretError::Read { path: path.to_owned(), source };
    let file = plain::open(path).map_err(unread)?;
    let mode = file.metadata().map_err(unread)?.mode();
    if mode & 0o077 != 0 {
        return Err(SecretError::Open { path: path.to_owned(), mode: mode & 0o7777 });
    }
    let mut bytes = Vec::new();
    file.take(MAXIMUM_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
    let whole = bytes.len() as u64 <= MAXIMUM_BYTES;
    let text = String::from_utf8(bytes).ok().filter(|_| whole);
    text.ok_or_else(|| SecretError::Form { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_others_can_read_is_not_used_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "hunter2\n").unwrap();
        for (mode, usable) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let text = read(&path);
            assert_eq!(text.is_ok(), usable, "{mode:o}");
            assert!(text.map_or_else(|error| !error.to_string().contains("hunter2"), |text| text == "hunter2\n"));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, [0xff]).unwrap();
        assert!(matches!(read(&path), Err(SecretError::Form { .. })));
        assert!(matches!(read(folder.path()), Err(SecretError::Read { .. })));
    }
}
