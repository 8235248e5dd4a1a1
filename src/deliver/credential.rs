//! Files that a delivery needs: the token and the client's private key, readable by their owner
//! alone, and certificates, which are no secret.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::wire::Secret;

/// Bytes; a token that is longer fits no server's headers.
const MAXIMUM_BYTES: u64 = 8 * 1024;
/// Bytes of a private key, or of an authority's certificates with those around them.
const MAXIMUM_PEM: u64 = 1024 * 1024;

/// Why a file gives nothing. What is in it is never shown.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("{what} {path} cannot be read")]
    Read { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{what} {path} is not a plain file")]
    Kind { what: &'static str, path: PathBuf },
    #[error("{what} {path} can be read by others (mode {mode:04o}); chmod 600 it")]
    Open { what: &'static str, path: PathBuf, mode: u32 },
    #[error("credential {path} is not one token: one line of visible ASCII, at most {MAXIMUM_BYTES} bytes")]
    Form { path: PathBuf },
    #[error("{what} {path} is too large, or no text")]
    Text { what: &'static str, path: PathBuf },
}

/// Reads the token. White space around it is not part of it.
pub fn read_credential(path: &Path) -> Result<Secret, CredentialError> {
    let text = read("credential", path, true, MAXIMUM_BYTES)?;
    text.as_deref()
        .and_then(|text| Secret::new(text.trim()))
        .ok_or_else(|| CredentialError::Form { path: path.to_owned() })
}

/// Reads a client's private key, PEM.
pub fn read_private_key(path: &Path) -> Result<Secret, CredentialError> {
    let what = "client key";
    let text = read(what, path, true, MAXIMUM_PEM)?;
    text.map(|text| Secret::of_key(&text)).ok_or_else(|| CredentialError::Text { what, path: path.to_owned() })
}

/// Reads certificates, PEM. `what` they are is for the error.
pub fn read_certificates(what: &'static str, path: &Path) -> Result<String, CredentialError> {
    let text = read(what, path, false, MAXIMUM_PEM)?;
    text.ok_or_else(|| CredentialError::Text { what, path: path.to_owned() })
}

/// None where there is more than the file may have, or no text.
fn read(what: &'static str, path: &Path, secret: bool, limit: u64) -> Result<Option<String>, CredentialError> {
    let unread = |source| CredentialError::Read { what, path: path.to_owned(), source };
    // A pipe in the place of the file must not hold us.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("an open flag is a positive C int");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    if !metadata.is_file() {
        return Err(CredentialError::Kind { what, path: path.to_owned() });
    }
    if secret && metadata.mode() & 0o077 != 0 {
        return Err(CredentialError::Open { what, path: path.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    read_text(file, limit).map_err(unread)
}

fn read_text(file: File, limit: u64) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    let whole = bytes.len() as u64 <= limit;
    Ok(String::from_utf8(bytes).ok().filter(|_| whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    fn with(text: &str, mode: u32) -> Result<Secret, CredentialError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        read_credential(&path)
    }

    #[test]
    fn a_token_is_read_without_the_line_feed_around_it() {
        assert_eq!(with("hunter2\n", 0o600).unwrap(), Secret::new("hunter2").unwrap());
    }

    #[test]
    fn what_is_no_token_or_not_ours_alone_is_refused_and_never_shown() {
        assert!(matches!(with("hunter2", 0o640), Err(CredentialError::Open { .. })));
        for text in ["", "\n", "hunter2\nhunter2", "hunter2 x", &"x".repeat(9000)] {
            let error = with(text, 0o600).unwrap_err();
            assert!(matches!(error, CredentialError::Form { .. }) && !error.to_string().contains("hunter2"));
        }
        assert!(matches!(read_credential(Path::new("/")), Err(CredentialError::Kind { .. })));
        assert!(matches!(read_credential(Path::new("/nonexistent")), Err(CredentialError::Read { .. })));
    }
}
