//! `state.json`: whose key this is and where its chain stands; and what to do when that does
//! not fit the machine we are on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::spool::{DEAD, SPOOL};
use super::{KEY, PUBLIC_KEY, RECORDS, STATE, StoreError, rotation, shelf};
use crate::ident::{Digest, printable};
use crate::record::identity::{HostDocument, Strength};
use crate::record::{HostKey, NewKey, PublicKey, durable, keyfile, plain, verify};

/// The version of `state.json`. An older nodegate refuses a newer one by name.
pub const FORMAT: u32 = 1;
/// Bytes; the file has less than 400. What is longer is cut and then no JSON any more.
const MAXIMUM_BYTES: u64 = 64 << 10;
/// No chain gets this far: a record a microsecond for three hundred years. It is also the largest
/// whole number that every reader of JSON holds exactly.
const HIGHEST: u64 = 1 << 53;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub format: u32,
    /// Digest of this machine's `host.json`.
    pub host: Digest,
    pub keyid: String,
    /// The last record of the chain; 0 before the first.
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<Digest>,
    /// The run whose record is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
}

impl State {
    /// A chain without a record.
    pub fn new(host: Digest, key: &PublicKey) -> State {
        State { format: FORMAT, host, keyid: key.keyid(), seq: 0, prev: None, intent: None }
    }

    /// What we never write, and so did not.
    fn nonsense(&self) -> Option<&'static str> {
        if self.seq > HIGHEST {
            Some("seq is beyond what a chain can reach")
        } else if self.intent.as_ref().is_some_and(|run_id| uuid::Uuid::parse_str(run_id).is_err()) {
            Some("intent is no run id")
        } else {
            None
        }
    }
}

/// Reads `state.json`; none if there is none.
pub fn read(folder: &Path) -> Result<Option<State>, StoreError> {
    let path = folder.join(STATE);
    let bytes = match plain::read(&path, MAXIMUM_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Read { path, source }),
    };
    let damaged =
        |error: serde_json::Error| StoreError::Damaged { path: path.clone(), why: printable(&error.to_string(), 200) };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(found) if found > u64::from(FORMAT) => Err(StoreError::NewerFormat { path, found }),
        _ => {
            let state: State = serde_json::from_value(value).map_err(damaged)?;
            match state.nonsense() {
                Some(why) => Err(StoreError::Damaged { path, why: why.to_owned() }),
                None => Ok(Some(state)),
            }
        }
    }
}

pub fn write(folder: &Path, state: &State) -> Result<(), StoreError> {
    let path = folder.join(STATE);
    let mut json = serde_json::to_vec(state).expect("a state of strings and numbers is JSON");
    json.push(b'\n');
    durable::replace(&path, &json).map_err(|source| StoreError::Write { path, source })
}

/// The key of this host in this folder, made if need be, with what people should know.
/// The caller holds the folder's lock.
pub fn claim(folder: &Path, host: &HostDocument, new: &NewKey) -> Result<(HostKey, Vec<String>), StoreError> {
    rotation::finish(folder)?;
    let mut notices: Vec<String> = weakness(host).into_iter().collect();
    let state = match read(folder) {
        Err(StoreError::Damaged { path, .. }) => {
            notices.push(format!("{} was damaged and is rebuilt from the records", path.display()));
            None
        }
        other => other?,
    };
    let path = folder.join(KEY);
    let key = if path.symlink_metadata().is_ok() { Some(keyfile::read_private(&path)?) } else { None };
    let key = match whose(folder, state, key, host)? {
        Whose::Ours(key, state) => {
            settle(folder, state, &key)?;
            publish(folder, key.public_key())?;
            return Ok((key, notices));
        }
        Whose::Nobodys => fresh(folder, host, new)?,
        Whose::Others { digest, why } => {
            let aside = set_aside(folder, digest)?;
            let waiting = shelf::run_ids_in(&aside.join(SPOOL))?.len();
            let send = match waiting {
                0 => String::new(),
                _ => format!(
                    "; {waiting} of its records wait for the collector: nodegate deliver --state {}",
                    aside.display()
                ),
            };
            notices.push(format!("the history in {} {why}: set aside in {}{send}", folder.display(), aside.display()));
            fresh(folder, host, new)?
        }
    };
    notices.push(format!("made a new key for this host: {}", key.public_key().keyid()));
    Ok((key, notices))
}

/// Whom the key and history of a folder belong to.
enum Whose {
    Ours(HostKey, State),
    /// There is nothing in it yet.
    Nobodys,
    Others {
        digest: Digest,
        why: &'static str,
    },
}

fn whose(folder: &Path, state: Option<State>, key: Option<HostKey>, host: &HostDocument) -> Result<Whose, StoreError> {
    let others = |digest, why| Ok(Whose::Others { digest, why });
    let unread = || Err(StoreError::Unread { path: folder.to_owned(), fields: host.unread.clone() });
    match (state, key) {
        (Some(state), _) if state.host != host.digest() && !host.unread.is_empty() => unread(),
        (Some(state), _) if state.host != host.digest() => others(state.host, "belongs to another machine"),
        (Some(state), Some(key)) if state.keyid == key.public_key().keyid() => Ok(Whose::Ours(key, state)),
        (Some(state), Some(_)) => others(state.host, "was made with another key than key.pem"),
        (Some(state), None) if state.seq > 0 || state.intent.is_some() => others(state.host, "has lost its key"),
        (Some(_), None) => Ok(Whose::Nobodys),
        (None, Some(key)) => match rebuild(folder, host, &key)? {
            Some(state) => Ok(Whose::Ours(key, state)),
            None if !host.unread.is_empty() => unread(),
            None => others(Digest::of(key.public_key().keyid().as_bytes()), "is bound to no machine"),
        },
        (None, None) if shelf::run_ids(folder)?.is_empty() => Ok(Whose::Nobodys),
        (None, None) => others(Digest::of(b""), "has neither key nor state"),
    }
}

/// What a weak identity means, for people.
fn weakness(host: &HostDocument) -> Option<String> {
    let unread = if host.unread.is_empty() {
        String::new()
    } else {
        format!(" ({} could not be read; root can)", host.unread.join(", "))
    };
    match host.identity {
        Strength::Strong => None,
        Strength::Weak => Some(format!(
            "this host has no serial number of its own{unread}: its key is bound to what a cloned image may share"
        )),
        Strength::None => Some(format!("this host has no identity at all{unread}: its key is bound to nothing")),
    }
}

/// A new key and an empty chain. The state is written first: a state at 0 without a key is
/// simply begun again, while a key without a state belongs to nobody.
fn fresh(folder: &Path, host: &HostDocument, new: &NewKey) -> Result<HostKey, StoreError> {
    let key = new.make()?;
    write(folder, &State::new(host.digest(), key.public_key()))?;
    keyfile::write_private(&folder.join(KEY), &key)?;
    publish(folder, key.public_key())?;
    let records = folder.join(RECORDS);
    durable::make_folder(&records).map_err(|source| StoreError::Folder { path: records, source })?;
    Ok(key)
}

/// Keeps `key.pub` the public half of `key.pem`, also after a kill between the two.
fn publish(folder: &Path, key: &PublicKey) -> Result<(), StoreError> {
    let path = folder.join(PUBLIC_KEY);
    let pem = key.to_pem();
    if plain::read(&path, MAXIMUM_BYTES).is_ok_and(|found| found == pem.as_bytes()) {
        return Ok(());
    }
    durable::replace(&path, pem.as_bytes()).map_err(|source| StoreError::Write { path, source })
}

/// Finishes or undoes the commit that a killed run had begun, and writes the state down.
fn settle(folder: &Path, mut state: State, key: &HostKey) -> Result<(), StoreError> {
    let Some(run_id) = state.intent.take() else {
        // A state that was rebuilt is not on disk yet, or is there as a damaged file.
        return if matches!(read(folder), Ok(Some(found)) if found == state) { Ok(()) } else { write(folder, &state) };
    };
    let path = folder.join(RECORDS).join(format!("{run_id}.json"));
    let record = shelf::read(&path).ok().and_then(|bytes| verify(&bytes, &[key.public_key().clone()]).ok());
    match record {
        Some(record) if record.details.seq == state.seq + 1 && record.details.prev == state.prev => {
            (state.seq, state.prev) = (record.details.seq, Some(record.payload));
        }
        Some(_) => {}
        None => {
            for extension in ["host.json", "node.json", "sigstore.json"] {
                match fs::remove_file(path.with_extension(extension)) {
                    Err(source) if source.kind() != io::ErrorKind::NotFound => {
                        return Err(StoreError::Write { path, source });
                    }
                    _ => {}
                }
            }
        }
    }
    write(folder, &state)
}

/// The head of the chain from the records alone: those of this host that this key verifies.
fn rebuild(folder: &Path, host: &HostDocument, key: &HostKey) -> Result<Option<State>, StoreError> {
    let records = shelf::verified(folder, &[key.public_key().clone()])?;
    let last = records
        .into_iter()
        .filter_map(|shelved| shelved.record.ok())
        .filter(|record| record.host == host.digest())
        .max_by_key(|record| record.details.seq);
    Ok(last.map(|record| State {
        seq: record.details.seq,
        prev: Some(record.payload),
        ..State::new(host.digest(), key.public_key())
    }))
}

/// Moves key, state and records out of the way. `state.json` goes last, so that a run killed
/// in between is continued by the next one, into the same folder.
fn set_aside(folder: &Path, digest: Digest) -> Result<PathBuf, StoreError> {
    // An empty folder has nothing to keep; one that is not empty stays by itself.
    [RECORDS, SPOOL, DEAD].into_iter().for_each(|name| drop(fs::remove_dir(folder.join(name))));
    let entries: Vec<&str> = [rotation::NEXT, rotation::RETIRED, SPOOL, DEAD, RECORDS, PUBLIC_KEY, KEY, STATE]
        .into_iter()
        .filter(|name| folder.join(name).exists())
        .collect();
    let name = format!("foreign-{}", &digest.hex()[..8]);
    let aside = (1..)
        .map(|n| folder.join(if n == 1 { name.clone() } else { format!("{name}-{n}") }))
        .find(|aside| entries.iter().all(|entry| !aside.join(entry).exists()))
        .expect("an endless sequence of names has one that is free");
    durable::make_folder(&aside).map_err(|source| StoreError::Folder { path: aside.clone(), source })?;
    for entry in entries {
        let path = folder.join(entry);
        fs::rename(&path, aside.join(entry)).map_err(|source| StoreError::Write { path, source })?;
    }
    for synced in [aside.as_path(), folder] {
        durable::sync_folder(synced).map_err(|source| StoreError::Folder { path: synced.to_owned(), source })?;
    }
    Ok(aside)
}
