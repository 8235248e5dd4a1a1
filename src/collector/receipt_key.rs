//! The key that signs receipts: made at the first start, and replaced by one that it vouches for.
//!
//! A rotation touches the store and the folder. The new key lies beside the old one before the store
//! hears of it, and takes its place after: killed in between, the next start ends what was begun.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::secret::{self, SecretError};
use super::store::{ReceiptKey, Store, StoreError};
use crate::record::keys::PrivateKeyError;
use crate::record::{CollectorKey, durable, receipt_keys};

const KEY: &str = "receipt.pem";
const PUBLIC: &str = "receipt.pub";
/// The key of a rotation that has begun.
const NEXT: &str = "receipt.next.pem";

/// Why there is no key to sign with.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptKeyError {
    #[error("receipt key")]
    Secret(#[from] SecretError),
    #[error("receipt key {path} is none")]
    Form { path: PathBuf, source: PrivateKeyError },
    #[error("no receipt key in {folder}: `nodegate collector serve` makes one")]
    None { folder: PathBuf },
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: io::Error },
    #[error("the store signs with key {stored}, and {folder} has {found}: use the folder of that key")]
    Other { stored: String, folder: PathBuf, found: String },
    #[error("the store")]
    Store(#[from] StoreError),
}

/// Where the public half lies.
pub fn public_path(folder: &Path) -> PathBuf {
    folder.join(PUBLIC)
}

/// The key in this folder.
pub fn read(folder: &Path) -> Result<CollectorKey, ReceiptKeyError> {
    match folder.join(KEY).try_exists() {
        Ok(false) => Err(ReceiptKeyError::None { folder: folder.to_owned() }),
        Ok(true) | Err(_) => read_file(&folder.join(KEY)),
    }
}

/// The key in this folder; a new one, and the folder, where there is none.
pub fn read_or_make(folder: &Path) -> Result<CollectorKey, ReceiptKeyError> {
    match read(folder) {
        Err(ReceiptKeyError::None { .. }) => {}
        other => return other,
    }
    durable::make_folder(folder).map_err(unwritten(folder))?;
    make(&folder.join(KEY))?;
    let key = read(folder)?;
    write_public(folder, &key)?;
    Ok(key)
}

/// Ends a rotation that was begun and cut off, if the store has heard of its key.
pub fn finish_rotation(folder: &Path, stored: &str) -> Result<Option<CollectorKey>, ReceiptKeyError> {
    let next = folder.join(NEXT);
    if !next.exists() {
        return Ok(None);
    }
    let key = read_file(&next)?;
    if key.public_key().keyid() != stored {
        return Ok(None);
    }
    promote(folder, &key)?;
    Ok(Some(key))
}

/// Makes a key that the old one vouches for, and hands over to it.
pub fn rotate(folder: &Path, store: &Store, now: Timestamp) -> Result<CollectorKey, ReceiptKeyError> {
    let old = read(folder)?;
    let found = old.public_key().keyid();
    match store.receipt_keys()?.pop().map(|newest| newest.keyid) {
        Some(stored) if stored != found => match finish_rotation(folder, &stored)? {
            Some(finished) => return Ok(finished),
            None => return Err(ReceiptKeyError::Other { stored, folder: folder.to_owned(), found }),
        },
        Some(_) | None => {}
    }
    let next = folder.join(NEXT);
    if !next.exists() {
        make(&next)?;
    }
    let new = read_file(&next)?;
    let rotation = receipt_keys::rotate(&old, &new, now).to_json();
    let (keyid, public_key) = (new.public_key().keyid(), new.public_key().to_pem());
    store.put_receipt_key(ReceiptKey { keyid, public_key, rotation: Some(rotation), added_at: now })?;
    promote(folder, &new)?;
    Ok(new)
}

fn promote(folder: &Path, key: &CollectorKey) -> Result<(), ReceiptKeyError> {
    let path = folder.join(KEY);
    std::fs::rename(folder.join(NEXT), &path).map_err(unwritten(&path))?;
    durable::sync_folder(folder).map_err(unwritten(folder))?;
    write_public(folder, key)
}

fn make(path: &Path) -> Result<(), ReceiptKeyError> {
    durable::create(path, CollectorKey::generate().to_pem().as_bytes()).map_err(unwritten(path))
}

fn read_file(path: &Path) -> Result<CollectorKey, ReceiptKeyError> {
    let text = secret::read(path)?;
    CollectorKey::parse(&text).map_err(|source| ReceiptKeyError::Form { path: path.to_owned(), source })
}

fn write_public(folder: &Path, key: &CollectorKey) -> Result<(), ReceiptKeyError> {
    let path = folder.join(PUBLIC);
    durable::replace(&path, key.public_key().to_pem().as_bytes()).map_err(unwritten(&path))
}

fn unwritten(path: &Path) -> impl FnOnce(io::Error) -> ReceiptKeyError {
    let path = path.to_owned();
    move |source| ReceiptKeyError::Write { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::store::Settings;
    use std::os::unix::fs::PermissionsExt as _;

    fn keyid(key: &CollectorKey) -> String {
        key.public_key().keyid()
    }

    fn store(folder: &Path, key: CollectorKey) -> Store {
        Store::open(&format!("sqlite:{}", folder.join("db").display()), key, Settings::default()).unwrap()
    }

    #[test]
    fn the_first_start_makes_a_key_and_later_ones_find_it() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        assert!(matches!(read(&state), Err(ReceiptKeyError::None { .. })));
        let key = read_or_make(&state).unwrap();
        assert_eq!(keyid(&read_or_make(&state).unwrap()), keyid(&key));
        assert_eq!(std::fs::read_to_string(public_path(&state)).unwrap(), key.public_key().to_pem());
        let mode = |name: &str| std::fs::metadata(state.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(KEY), 0o600);
        std::fs::set_permissions(state.join(KEY), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_or_make(&state), Err(ReceiptKeyError::Secret(_))), "a key that others can read is used");
    }

    #[test]
    fn a_rotated_key_is_vouched_for_by_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let old = read_or_make(folder.path()).unwrap();
        let store = store(folder.path(), read(folder.path()).unwrap());
        let new = rotate(folder.path(), &store, Timestamp::now()).unwrap();
        assert_eq!(keyid(&read(folder.path()).unwrap()), keyid(&new));
        assert!(!folder.path().join(NEXT).exists());
        let keys = crate::collector::api::listed(store.receipt_keys().unwrap());
        let shown = serde_json::to_vec(&keys).unwrap();
        let trusted = receipt_keys::trusted(old.public_key(), &shown);
        assert_eq!(trusted, [old.public_key().clone(), new.public_key().clone()]);
    }

    #[test]
    fn a_rotation_that_was_cut_off_is_ended_by_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let old = read_or_make(folder.path()).unwrap();
        let store = store(folder.path(), read(folder.path()).unwrap());
        // As a rotation that was killed before the store heard of it leaves the folder.
        make(&folder.path().join(NEXT)).unwrap();
        let begun = keyid(&read_file(&folder.path().join(NEXT)).unwrap());
        assert!(finish_rotation(folder.path(), &keyid(&old)).unwrap().is_none());
        // And one that was killed after it.
        let (pem, next) =
            (std::fs::read(folder.path().join(KEY)).unwrap(), std::fs::read(folder.path().join(NEXT)).unwrap());
        assert_eq!(keyid(&rotate(folder.path(), &store, Timestamp::now()).unwrap()), begun);
        durable::replace(&folder.path().join(KEY), &pem).unwrap();
        durable::replace(&folder.path().join(NEXT), &next).unwrap();
        assert_eq!(keyid(&finish_rotation(folder.path(), &begun).unwrap().unwrap()), begun);
        assert_eq!(keyid(&read(folder.path()).unwrap()), begun);
    }
}
