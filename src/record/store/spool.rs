//! What waits for the collector: each record of this host's key, until its receipt is kept.
//!
//! ```text
//! spool/RUN.json          waits; a second name of records/RUN.json
//! dead/RUN.json           the collector refused it for good
//! dead/RUN.why.json       when, and what it said
//! delivery.json           how the collector was last found (`deliver::pace`)
//! receipt-keys.json       keys that its receipts may be signed with (`record::receipt_keys`)
//! ```
//!
//! A second name takes no room, so that a full disk does not refuse it. Whatever is in `records`
//! and has neither receipt nor place in `spool` or `dead` is taken up by the next one who looks:
//! a kill between two writes, a restored backup or an older nodegate loses nothing.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{RECORDS, StoreError, folder, shelf};
use crate::ident::{Digest, printable};
use crate::record::verify::{VerifyError, read_unverified};
use crate::record::{durable, plain};

pub(super) const SPOOL: &str = "spool";
pub(super) const DEAD: &str = "dead";
const LOCK: &str = "deliver.lock";
/// How often a held lock is looked at.
const LOOK: Duration = Duration::from_millis(20);
const DELIVERY: &str = "delivery.json";
const RECEIPT_KEYS: &str = "receipt-keys.json";
/// Bytes of the small files beside the spool; ours have less than 100 KiB.
const MAXIMUM_BYTES: u64 = 256 << 10;
/// The version of `RUN.why.json`.
const FORMAT: u32 = 1;

/// The spool of a state folder.
#[derive(Clone, Debug)]
pub struct Spool {
    folder: PathBuf,
}

/// A record on its way. Its signature is the collector's to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    pub run_id: String,
    /// Its place in the key's chain.
    pub seq: u64,
    /// The envelope, byte for byte.
    pub envelope: Vec<u8>,
    /// SHA-256 of the payload.
    pub payload: Digest,
    /// SHA-256 of `host.json`.
    pub host: Digest,
    pub finished_at: String,
}

/// Why a record is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    pub format: u32,
    pub at: Timestamp,
    /// The collector, as an address; none where it never got that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub cause: String,
}

/// A dead record. That its reason cannot be read makes it no less dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    pub run_id: String,
    pub why: Option<Why>,
}

impl Spool {
    /// The spool of this state folder, be there one or not.
    pub fn of(folder: &Path) -> Spool {
        Spool { folder: folder.to_owned() }
    }

    /// Takes the right to deliver from here, which one process has at a time; none if somebody else
    /// keeps it for so long, or the run is to end. A run may put records in meanwhile.
    pub fn lock(&self, until: Instant, ends: impl Fn() -> bool) -> Result<Option<File>, StoreError> {
        folder::check(&self.folder)?;
        let path = self.folder.join(LOCK);
        let file = plain::open_lock(&path).map_err(|source| StoreError::Folder { path: path.clone(), source })?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until && !ends() => {
                    std::thread::sleep(LOOK);
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
                Err(errno) => return Err(StoreError::Folder { path, source: errno.into() }),
            }
        }
    }

    /// Run ids of what waits, oldest first; nothing is made or mended.
    pub fn waiting(&self) -> Result<Vec<String>, StoreError> {
        shelf::run_ids_in(&self.folder.join(SPOOL))
    }

    pub fn dead(&self) -> Result<Vec<Dead>, StoreError> {
        let run_ids = shelf::run_ids_in(&self.folder.join(DEAD))?;
        Ok(run_ids.into_iter().map(|run_id| Dead { why: self.why(&run_id), run_id }).collect())
    }

    /// Whether records have ever been offered to a collector from here.
    pub fn was_ever_used(&self) -> bool {
        self.folder.join(DELIVERY).exists() || self.folder.join(DEAD).exists()
    }

    /// Puts everything into the spool that belongs there, and gives what waits in the order of its
    /// chain. A damaged entry cannot be sent; it is set aside as dead. One that cannot be read now may
    /// be read later; it is given as number 0.
    pub fn take_up(&self) -> Result<Vec<(u64, String)>, StoreError> {
        let _lock = folder::lock(&self.folder)?;
        take_up(&self.folder)?;
        let mut order = Vec::new();
        for run_id in self.waiting()? {
            match self.parcel(&run_id) {
                Ok(Ok(parcel)) => order.push((parcel.seq, run_id)),
                Err(_) if self.is_gone(&run_id) => {}
                Err(_) => order.push((0, run_id)),
                Ok(Err(error)) => self.bury(&run_id, &Why::ours(format!("not sent, it is damaged: {error}")))?,
            }
        }
        order.sort();
        Ok(order)
    }

    /// A record that waits.
    pub fn parcel(&self, run_id: &str) -> Result<Result<Parcel, VerifyError>, StoreError> {
        let bytes = shelf::read(&entry(&self.folder, SPOOL, run_id))?;
        Ok(Parcel::read(bytes).and_then(|parcel| {
            let named = parcel.run_id == run_id;
            named.then_some(parcel).ok_or_else(|| VerifyError::NotARecord("its name is another run's".to_owned()))
        }))
    }

    /// Whether nothing of this run waits any more: somebody has its receipt, or has set it aside.
    pub fn is_gone(&self, run_id: &str) -> bool {
        let found = fs::symlink_metadata(entry(&self.folder, SPOOL, run_id));
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Where a record's receipt is kept.
    pub fn receipt_path(&self, run_id: &str) -> PathBuf {
        self.folder.join(RECORDS).join(format!("{run_id}.receipt.json"))
    }

    /// The receipt of a run as it is kept; none where there is none.
    pub fn receipt(&self, run_id: &str) -> Option<Vec<u8>> {
        plain::read(&self.receipt_path(run_id), MAXIMUM_BYTES).ok()
    }

    /// Keeps a verified receipt, as it came; only when it is on the disk is the record done with.
    pub fn settle(&self, run_id: &str, receipt: &[u8]) -> Result<(), StoreError> {
        let path = self.receipt_path(run_id);
        durable::replace(&path, receipt).map_err(|source| StoreError::Write { path, source })?;
        self.forget(run_id)
    }

    /// Takes a record out of the spool whose verified receipt is kept.
    pub fn forget(&self, run_id: &str) -> Result<(), StoreError> {
        remove(&entry(&self.folder, SPOOL, run_id))?;
        sync(&self.folder.join(SPOOL))
    }

    /// Sets a record aside that the collector refused for good. First its reason, then the record,
    /// so that a kill in between leaves it waiting.
    pub fn bury(&self, run_id: &str, why: &Why) -> Result<(), StoreError> {
        let dead = self.folder.join(DEAD);
        make(&dead)?;
        let path = dead.join(format!("{run_id}.why.json"));
        let mut json = serde_json::to_vec(why).expect("a reason of strings and numbers is JSON");
        json.push(b'\n');
        durable::replace(&path, &json).map_err(|source| StoreError::Write { path, source })?;
        rename(&entry(&self.folder, SPOOL, run_id), &entry(&self.folder, DEAD, run_id))?;
        [SPOOL, DEAD].into_iter().try_for_each(|name| sync(&self.folder.join(name)))
    }

    /// Lets the dead wait again; how many there were.
    pub fn revive(&self) -> Result<usize, StoreError> {
        let dead = self.dead()?;
        if dead.is_empty() {
            return Ok(0);
        }
        make(&self.folder.join(SPOOL))?;
        for Dead { run_id, .. } in &dead {
            rename(&entry(&self.folder, DEAD, run_id), &entry(&self.folder, SPOOL, run_id))?;
            remove(&self.folder.join(DEAD).join(format!("{run_id}.why.json")))?;
        }
        [SPOOL, DEAD].into_iter().try_for_each(|name| sync(&self.folder.join(name)))?;
        Ok(dead.len())
    }

    /// What was last noted of the collector.
    pub fn note(&self) -> Option<Vec<u8>> {
        plain::read(&self.folder.join(DELIVERY), MAXIMUM_BYTES).ok()
    }

    pub fn keep_note(&self, bytes: &[u8]) -> Result<(), StoreError> {
        self.keep(DELIVERY, bytes)
    }

    /// The keys that the collector last showed, as they came.
    pub fn receipt_keys(&self) -> Option<Vec<u8>> {
        plain::read(&self.folder.join(RECEIPT_KEYS), MAXIMUM_BYTES).ok()
    }

    pub fn keep_receipt_keys(&self, bytes: &[u8]) -> Result<(), StoreError> {
        self.keep(RECEIPT_KEYS, bytes)
    }

    fn keep(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.folder.join(name);
        durable::replace(&path, bytes).map_err(|source| StoreError::Write { path, source })
    }

    fn why(&self, run_id: &str) -> Option<Why> {
        let path = self.folder.join(DEAD).join(format!("{run_id}.why.json"));
        let mut why: Why = serde_json::from_slice(&plain::read(&path, MAXIMUM_BYTES).ok()?).ok()?;
        why.cause = printable(&why.cause, 500);
        why.collector = why.collector.map(|collector| printable(&collector, 200));
        Some(why)
    }
}

impl Parcel {
    /// What an envelope says of itself. Nothing is verified.
    pub fn read(envelope: Vec<u8>) -> Result<Parcel, VerifyError> {
        let unverified = read_unverified(&envelope)?;
        let details = unverified.details;
        // These go into headers and file names.
        if uuid::Uuid::parse_str(&details.run_id).is_err() || details.finished_at.parse::<Timestamp>().is_err() {
            return Err(VerifyError::NotARecord("no run id, or no time at which it ended".to_owned()));
        }
        Ok(Parcel {
            run_id: details.run_id,
            seq: details.seq,
            payload: unverified.payload,
            host: unverified.host,
            finished_at: details.finished_at,
            envelope,
        })
    }
}

impl Why {
    /// A reason of our own, without a collector.
    pub fn ours(cause: String) -> Why {
        Why { format: FORMAT, at: Timestamp::now(), collector: None, status: None, cause }
    }

    /// A collector's final refusal.
    pub fn refused(collector: &str, status: u16, cause: &str) -> Why {
        Why { collector: Some(collector.to_owned()), status: Some(status), ..Why::ours(cause.to_owned()) }
    }
}

/// Gives the record of a run its second name in the spool. The caller holds the folder's lock.
pub(super) fn add(folder: &Path, run_id: &str) -> Result<(), StoreError> {
    let (record, path) = (entry(folder, RECORDS, run_id), entry(folder, SPOOL, run_id));
    make(&folder.join(SPOOL))?;
    match fs::hard_link(&record, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Ok(()) => {}
        // A file system without links (or a limit on them) takes a copy instead.
        Err(_) => {
            durable::create(&path, &shelf::read(&record)?).map_err(|source| StoreError::Write { path, source })?
        }
    }
    sync(&folder.join(SPOOL))
}

/// Everything in `records` without a receipt belongs in the spool, unless it is dead. The caller
/// holds the folder's lock.
pub(super) fn take_up(folder: &Path) -> Result<(), StoreError> {
    for name in [SPOOL, DEAD] {
        let path = folder.join(name);
        if path.exists() {
            durable::sweep(&path).map_err(|source| StoreError::Folder { path, source })?;
        }
    }
    let known = |name| Ok::<BTreeSet<String>, StoreError>(shelf::run_ids_in(&folder.join(name))?.into_iter().collect());
    let (waiting, dead) = (known(SPOOL)?, known(DEAD)?);
    for run_id in shelf::run_ids(folder)? {
        let done = folder.join(RECORDS).join(format!("{run_id}.receipt.json")).exists();
        if !done && !waiting.contains(&run_id) && !dead.contains(&run_id) {
            add(folder, &run_id)?;
        }
    }
    Ok(())
}

fn entry(folder: &Path, name: &str, run_id: &str) -> PathBuf {
    folder.join(name).join(format!("{run_id}.json"))
}

fn make(path: &Path) -> Result<(), StoreError> {
    durable::make_folder(path).map_err(|source| StoreError::Folder { path: path.to_owned(), source })
}

fn sync(path: &Path) -> Result<(), StoreError> {
    durable::sync_folder(path).map_err(|source| StoreError::Folder { path: path.to_owned(), source })
}

/// Somebody may have been quicker.
fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// The same. Where both names are one file already, the kernel leaves the old one: it goes too.
fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    match fs::rename(from, to) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::Write { path: to.to_owned(), source })
        }
        _ if to.exists() => remove(from),
        _ => Ok(()),
    }
}
