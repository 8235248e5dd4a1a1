//! Key files: a private key is readable by its owner alone, or it is not used.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::keys::{HostKey, PrivateKeyError};
use super::public_key::{PublicKey, PublicKeyError};
use super::{durable, plain};

/// Bytes; a key file of ours has less than 1500, a certificate chain some thousands.
const MAXIMUM_BYTES: u64 = 64 * 1024;
/// Files that are looked at in a folder of public keys.
const MAXIMUM_FILES: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("{path} cannot be read: run as the user who owns it, or name another key")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path} exists: a key is never overwritten; move it away, or write elsewhere with --out")]
    Exists { path: PathBuf },
    #[error(
        "{path} can be read by others (mode {mode:04o}): run `chmod 600` on it, and make a new key if that may have happened"
    )]
    Open { path: PathBuf, mode: u32 },
    #[error("{path} belongs to user {owner}, not to us ({us}): run as that user, or name another --state")]
    Owner { path: PathBuf, owner: u32, us: u32 },
    #[error("{path} is not a private key that we can use")]
    Private { path: PathBuf, source: PrivateKeyError },
    #[error("{path} is not a public key that we can use")]
    Public { path: PathBuf, source: PublicKeyError },
    #[error("{path} has no public key: expected files that end in .pub or .pem")]
    NoKeys { path: PathBuf },
}

/// Reads a private key. It must be a plain file of ours that nobody else can read.
pub fn read_private(path: &Path) -> Result<HostKey, KeyFileError> {
    let text = read_secret(path)?;
    HostKey::parse(&text).map_err(|source| KeyFileError::Private { path: path.to_owned(), source })
}

/// The text of a file of ours that nobody else can read: a key, a token.
pub fn read_secret(path: &Path) -> Result<String, KeyFileError> {
    let unread = |source| KeyFileError::Read { path: path.to_owned(), source };
    let file = plain::open_no_link(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    let us = rustix::process::geteuid().as_raw();
    if metadata.uid() != us {
        return Err(KeyFileError::Owner { path: path.to_owned(), owner: metadata.uid(), us });
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    read_text(file).map_err(unread)
}

/// Writes a secret of one line, mode 0600, to a path where nothing is yet.
pub fn write_secret(path: &Path, secret: &str) -> Result<(), KeyFileError> {
    write_new(path, &format!("{secret}\n"))
}

/// The text of a file that is no secret: certificates, key lines.
pub fn read_plain(path: &Path) -> Result<String, KeyFileError> {
    plain::open(path).and_then(read_text).map_err(|source| KeyFileError::Read { path: path.to_owned(), source })
}

/// Writes a private key, mode 0600, to a path where nothing is yet.
pub fn write_private(path: &Path, key: &HostKey) -> Result<(), KeyFileError> {
    write_new(path, &key.to_pem())
}

/// Writes a public key (SPKI PEM) to a path where nothing is yet.
pub fn write_public(path: &Path, key: &PublicKey) -> Result<(), KeyFileError> {
    write_new(path, &key.to_pem())
}

/// Reads one public key, SPKI PEM or OpenSSH line.
pub fn read_public(path: &Path) -> Result<PublicKey, KeyFileError> {
    let text = read_plain(path)?;
    PublicKey::parse(&text).map_err(|source| KeyFileError::Public { path: path.to_owned(), source })
}

/// Reads every `*.pub` and `*.pem` of a folder; one that is not a key is an error, not left out.
pub fn read_public_folder(folder: &Path) -> Result<Vec<PublicKey>, KeyFileError> {
    let unread = |source| KeyFileError::Read { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unread)?.take(MAXIMUM_FILES) {
        let path = entry.map_err(unread)?.path();
        if path.extension().is_some_and(|extension| extension == "pub" || extension == "pem") {
            paths.push(path);
        }
    }
    paths.sort();
    let keys = paths.iter().map(|path| read_public(path)).collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err(KeyFileError::NoKeys { path: folder.to_owned() }) } else { Ok(keys) }
}

fn write_new(path: &Path, text: &str) -> Result<(), KeyFileError> {
    durable::create(path, text.as_bytes()).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
        _ => KeyFileError::Write { path: path.to_owned(), source },
    })
}

/// At most [`MAXIMUM_BYTES`]; what is longer is cut and then no key any more.
fn read_text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAXIMUM_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Algorithm;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_key_is_written_for_its_owner_alone_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let key = HostKey::generate(Algorithm::Ed25519);
        write_private(&path, &key).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_private(&path).unwrap().public_key(), key.public_key());
        assert!(matches!(write_private(&path, &key), Err(KeyFileError::Exists { .. })));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        write_private(&path, &HostKey::generate(Algorithm::Ed25519)).unwrap();
        for mode in [0o640, 0o604, 0o644, 0o660] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read_private(&path).unwrap_err().to_string();
            assert!(error.contains("key.pem") && error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_link_a_folder_and_a_missing_key_are_errors_that_name_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key.pem");
        write_private(&key, &HostKey::generate(Algorithm::P256)).unwrap();
        let link = folder.path().join("link.pem");
        symlink(&key, &link).unwrap();
        for path in [link, folder.path().to_owned(), folder.path().join("absent.pem")] {
            let error = read_private(&path).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_folder_of_public_keys_gives_each_and_a_wrong_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read_public_folder(folder.path()), Err(KeyFileError::NoKeys { .. })));
        let keys = [HostKey::generate(Algorithm::Ed25519), HostKey::generate(Algorithm::P256)];
        fs::write(folder.path().join("a.pem"), keys[0].public_key().to_pem()).unwrap();
        fs::write(folder.path().join("b.pub"), keys[1].public_key().to_openssh("b")).unwrap();
        fs::write(folder.path().join("README"), "not a key").unwrap();
        let read = read_public_folder(folder.path()).unwrap();
        assert_eq!(read, [keys[0].public_key().clone(), keys[1].public_key().clone()]);
        fs::write(folder.path().join("c.pub"), "not a key").unwrap();
        assert!(read_public_folder(folder.path()).unwrap_err().to_string().contains("c.pub"));
    }
}
