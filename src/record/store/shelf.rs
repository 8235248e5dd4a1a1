//! The records that lie in a state folder, for reading: nothing here makes or mends anything.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{KEY, PUBLIC_KEY, RECORDS, SIMULATED, StoreError, state};
use crate::record::dsse::MAXIMUM_BYTES;
use crate::record::{PublicKey, Verified, VerifyError, keyfile, plain, verify};

/// A record file with what verifying it gave.
#[derive(Debug)]
pub struct Shelved {
    pub run_id: String,
    pub path: PathBuf,
    pub record: Result<Verified, VerifyError>,
}

/// The host's own records, newest in the chain first; those that do not verify come last.
pub fn records(folder: &Path) -> Result<Vec<Shelved>, StoreError> {
    verified(folder, &[public_key(folder)?])
}

/// Records of runs on recordings, newest first, each verified with the throw-away key beside it.
pub fn simulated_records(folder: &Path) -> Result<Vec<Shelved>, StoreError> {
    let folder = folder.join(SIMULATED);
    let mut shelf = Vec::new();
    for run_id in run_ids(&folder)?.into_iter().rev() {
        let path = folder.join(RECORDS).join(format!("{run_id}.json"));
        let key = keyfile::read_public(&path.with_extension("pub"))?;
        shelf.push(Shelved { record: verify(&read(&path)?, &[key]), run_id, path });
    }
    Ok(shelf)
}

/// The public half of the key that signs here now, read from the private key itself.
pub fn own_key(folder: &Path) -> Result<PublicKey, StoreError> {
    Ok(keyfile::read_private(&folder.join(KEY))?.public_key().clone())
}

/// The same from `key.pub`, for looking without the private key.
pub fn public_key(folder: &Path) -> Result<PublicKey, StoreError> {
    Ok(keyfile::read_public(&folder.join(PUBLIC_KEY))?)
}

/// The number of the last record of the chain; 0 before the first, none without a state.
/// A commit that was killed after its record appeared counts.
pub fn head(folder: &Path) -> Result<Option<u64>, StoreError> {
    Ok(state::read(folder)?.map(|state| {
        let begun = state.intent.is_some_and(|run_id| folder.join(RECORDS).join(format!("{run_id}.json")).exists());
        state.seq + u64::from(begun)
    }))
}

/// Every record of the folder, verified with these keys.
pub fn verified(folder: &Path, keys: &[PublicKey]) -> Result<Vec<Shelved>, StoreError> {
    let mut shelf = Vec::new();
    for run_id in run_ids(folder)? {
        let path = folder.join(RECORDS).join(format!("{run_id}.json"));
        shelf.push(Shelved { record: verify(&read(&path)?, keys), run_id, path });
    }
    let seq = |shelved: &Shelved| shelved.record.as_ref().map_or(0, |record| record.details.seq);
    shelf.sort_by_key(|shelved| std::cmp::Reverse(seq(shelved)));
    Ok(shelf)
}

/// Names of the records, oldest first (a UUIDv7 begins with its time).
pub fn run_ids(folder: &Path) -> Result<Vec<String>, StoreError> {
    run_ids_in(&folder.join(RECORDS))
}

/// The same of any folder of `RUN.json`; none where there is no such folder.
pub(super) fn run_ids_in(path: &Path) -> Result<Vec<String>, StoreError> {
    let unread = |source| StoreError::Read { path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(unread(source)),
    };
    let mut run_ids = Vec::new();
    for entry in entries {
        let name = entry.map_err(unread)?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".json"));
        run_ids.extend(stem.filter(|stem| uuid::Uuid::parse_str(stem).is_ok()).map(str::to_owned));
    }
    run_ids.sort();
    Ok(run_ids)
}

/// One byte more than a record may have, so that a larger file is refused and not read whole.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    plain::read(path, MAXIMUM_BYTES as u64 + 1).map_err(|source| StoreError::Read { path: path.to_owned(), source })
}
