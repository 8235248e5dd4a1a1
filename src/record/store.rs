//! The state folder: the host's key, its chain of records, and what lies beside each record.
//!
//! ```text
//! key.pem  key.pub                this host's key
//! state.json                      the host it belongs to, and the head of its chain
//! records/RUN.json                the record, a DSSE envelope
//! records/RUN.sigstore.json       the same as a Sigstore bundle
//! records/RUN.{host,node}.json    the documents that its subjects are the digests of
//! records/RUN.receipt.json        the collector's signed receipt, once there is one
//! spool/  dead/                    what waits for the collector, and what it refused (`spool`)
//! simulated/records/…             runs on recordings, each with its throw-away RUN.pub
//! foreign-DIGEST/                 what belonged to another machine (a cloned image)
//! ```
//!
//! A commit first notes the run in `state.json`, then writes the record (its rename is the
//! moment from which it counts), then puts it into the spool, then moves the head. A run that
//! is killed between leaves enough to finish or undo it.

use std::io;
use std::path::{Path, PathBuf};

use super::bundle::Bundle;
use super::dsse::Envelope;
use super::durable;
use super::identity::{Documents, HostDocument};
use super::keyfile::KeyFileError;
use super::keys::{EphemeralKey, Signing};
use super::new_key::{NewKey, NewKeyError};
use super::outside::SignError;
use super::public_key::PublicKey;
use super::statement::{StatementError, Unsigned};
use super::verify::{VerifyError, verify};
use crate::ident::Digest;
use crate::predicate::Details;

mod folder;
pub mod rotation;
mod shelf;
pub mod spool;
mod state;

pub use folder::{default_folder, folder_for};
pub use shelf::{Shelved, head, own_key, public_key, records, simulated_records, verified};
use state::State;

/// The private key, or the reference to it.
pub const KEY: &str = "key.pem";
const PUBLIC_KEY: &str = "key.pub";
const STATE: &str = "state.json";
const RECORDS: &str = "records";
const SIMULATED: &str = "simulated";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("no state folder: neither XDG_STATE_HOME nor HOME is set; name one with --state")]
    NoFolder,
    #[error("state folder {path} cannot be used: make it writable for us, or name another with --state")]
    Folder { path: PathBuf, source: io::Error },
    #[error("state folder {path} belongs to user {owner}: run as that user, or name another with --state")]
    Owner { path: PathBuf, owner: u32 },
    #[error(
        "state folder {path} can be written by others (mode {mode:04o}): run `chmod 700` on it, or name another with --state"
    )]
    Open { path: PathBuf, mode: u32 },
    #[error("state folder {path} is in use by another nodegate")]
    Busy { path: PathBuf },
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} cannot be written")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path} has format {found}: this nodegate reads up to {}, use a newer one", state::FORMAT)]
    NewerFormat { path: PathBuf, found: u64 },
    #[error("{path} is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
    #[error(
        "cannot tell whether state folder {path} is this machine's: {} could not be read; run as root, or name another with --state",
        .fields.join(", ")
    )]
    Unread { path: PathBuf, fields: Vec<String> },
    #[error("state folder {path} belongs to another machine than --root shows: name another with --state")]
    Elsewhere { path: PathBuf },
    #[error("state folder {path} has changed hands during the run: its key or host is another one now")]
    Changed { path: PathBuf },
    #[error("run id `{0}` is not a UUID")]
    RunId(String),
    #[error("the details say {details}, the state folder was opened for {opened}")]
    WrongKind { details: &'static str, opened: &'static str },
    #[error("the documents beside the record are of another host than the state folder's")]
    WrongHost,
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error("the record cannot be written down")]
    Statement(#[from] StatementError),
    #[error("no key for this host")]
    NewKey(#[from] NewKeyError),
    #[error("nothing can be signed with this host's key")]
    Sign(#[from] SignError),
    #[error("the record that was just signed does not verify")]
    SelfCheck(#[source] VerifyError),
}

/// An open state folder: it has a key, and takes records.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    signing: Signing,
    /// The host that the key belongs to; none for recordings.
    host: Option<Digest>,
    notices: Vec<String>,
}

/// A record as it was kept.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The details as signed, with their place in the chain.
    pub details: Details,
    /// The DSSE envelope, byte for byte as in `path`.
    pub envelope: Vec<u8>,
    /// The Sigstore bundle.
    pub bundle: Vec<u8>,
    pub path: PathBuf,
    /// SHA-256 of the payload, the record's name.
    pub payload: Digest,
    /// SHA-256 of `host.json`.
    pub host: Digest,
    pub keyid: String,
    pub public_key: PublicKey,
}

/// Writes or replaces a file anywhere, whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    durable::replace(path, bytes).map_err(|source| StoreError::Write { path: path.to_owned(), source })
}

impl Stored {
    /// Writes the envelope to another place too (`--record FILE`), whole or not at all.
    pub fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        write_whole(path, &self.envelope)
    }

    /// Keeps a receipt, as it came, beside the record. The caller has verified it.
    pub fn keep_receipt(&self, receipt: &[u8]) -> Result<PathBuf, StoreError> {
        let path = self.path.with_extension("receipt.json");
        match durable::replace(&path, receipt) {
            Ok(()) => Ok(path),
            Err(source) => Err(StoreError::Write { path, source }),
        }
    }
}

impl Store {
    /// Opens the folder for runs on this machine. A missing key is made; a key and history of
    /// another machine are set aside; what a killed run left is finished or undone.
    pub fn for_host(folder: &Path, host: &HostDocument) -> Result<Store, StoreError> {
        Store::for_host_with(folder, host, NewKey::default())
    }

    /// The same for a run that was told where to read the machine (`--root`): what it was shown may
    /// be another machine, whose run must not set this one's key and history aside.
    pub fn for_override(folder: &Path, host: &HostDocument) -> Result<Store, StoreError> {
        match state::read(folder)? {
            Some(state) if state.host != host.digest() && host.unread.is_empty() => {
                Err(StoreError::Elsewhere { path: folder.to_owned() })
            }
            _ => Store::for_host(folder, host),
        }
    }

    /// The same; a key that has to be made is made so.
    pub fn for_host_with(folder: &Path, host: &HostDocument, new: impl Into<NewKey>) -> Result<Store, StoreError> {
        let records = folder.join(RECORDS);
        folder::prepare(folder)?;
        folder::prepare(&records)?;
        let _lock = folder::lock(folder)?;
        folder::sweep([folder, &records])?;
        let (key, notices) = state::claim(folder, host, &new.into())?;
        if let Err(error) = spool::take_up(folder) {
            // Who delivers from here is told; a run does not depend on it.
            tracing::warn!(%error, "not everything that waits is in the spool");
        }
        Ok(Store { folder: folder.to_owned(), signing: Signing::Host(key), host: Some(host.digest()), notices })
    }

    /// Opens the sub-folder for runs on recordings, with a key that lasts for this run. The
    /// host's own key and chain are not touched.
    pub fn for_recording(folder: &Path) -> Result<Store, StoreError> {
        let simulated = folder.join(SIMULATED);
        let records = simulated.join(RECORDS);
        for prepared in [folder, &simulated, &records] {
            folder::prepare(prepared)?;
        }
        let _lock = folder::lock(&simulated)?;
        folder::sweep([&simulated, &records])?;
        let signing = Signing::Throwaway(EphemeralKey::generate());
        Ok(Store { folder: simulated, signing, host: None, notices: Vec::new() })
    }

    /// Where this store writes: the state folder, or its sub-folder for recordings.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn public_key(&self) -> &PublicKey {
        self.signing.public_key()
    }

    /// What people should know: a new key, a history set aside, a weak identity.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Signs and keeps the record of a run; `seq` and `prev` of the details are filled in here.
    /// After an error nothing of the record is left.
    pub fn commit(&self, mut details: Details, documents: &Documents) -> Result<Stored, StoreError> {
        uuid::Uuid::parse_str(&details.run_id).map_err(|_| StoreError::RunId(details.run_id.clone()))?;
        if self.host.is_some_and(|host| host != documents.host.digest()) {
            return Err(StoreError::WrongHost);
        }
        let _lock = folder::lock(&self.folder)?;
        let mut state = self.current_state()?;
        details.seq = state.seq + 1;
        details.prev = state.prev;
        let run_id = details.run_id.clone();
        let stored = self.seal(details, documents)?;
        match &self.signing {
            Signing::Throwaway(key) => self.publish(&stored, documents, Some(key.public_key())),
            Signing::Host(_) => {
                state.intent = Some(run_id);
                state::write(&self.folder, &state)?;
                let published = self.publish(&stored, documents, None);
                if published.is_ok() {
                    (state.seq, state.prev) = (stored.details.seq, Some(stored.payload));
                    self.spool(&stored);
                }
                state.intent = None;
                // Where this fails, the next opening finds the intent and the record, and goes on.
                published.and_then(|()| state::write(&self.folder, &state))
            }
        }?;
        Ok(stored)
    }

    /// The record is whole and signed: that the spool does not take it now must not undo it. Who
    /// opens or delivers from the folder next takes it up.
    fn spool(&self, stored: &Stored) {
        if let Err(error) = spool::add(&self.folder, &stored.details.run_id) {
            tracing::warn!(%error, run = stored.details.run_id, "not in the spool yet");
        }
    }

    /// The head of the chain as it is now; another run may have moved it. A throw-away key has
    /// a chain of one.
    fn current_state(&self) -> Result<State, StoreError> {
        let Some(host) = self.host else { return Ok(State::new(Digest([0; 32]), self.public_key())) };
        let state = state::read(&self.folder)?;
        state
            .filter(|state| state.host == host && state.keyid == self.public_key().keyid())
            .ok_or_else(|| StoreError::Changed { path: self.folder.clone() })
    }

    /// Signs, and verifies what was signed before anyone sees it.
    fn seal(&self, details: Details, documents: &Documents) -> Result<Stored, StoreError> {
        let path = self.folder.join(RECORDS).join(format!("{}.json", details.run_id));
        let envelope = self.sign(&Unsigned::new(details, documents)?)?;
        let bytes = envelope.to_json();
        let verified = verify(&bytes, std::slice::from_ref(self.public_key())).map_err(StoreError::SelfCheck)?;
        Ok(Stored {
            details: verified.details,
            envelope: bytes,
            bundle: Bundle::of(&envelope).to_json(),
            path,
            payload: verified.payload,
            host: verified.host,
            keyid: verified.keyid,
            public_key: self.public_key().clone(),
        })
    }

    fn sign(&self, unsigned: &Unsigned) -> Result<Envelope, StoreError> {
        match (&self.signing, unsigned) {
            (Signing::Host(key), Unsigned::Live(statement)) => Ok(key.sign(statement)?),
            (Signing::Throwaway(key), Unsigned::Simulated(statement)) => Ok(key.sign(statement)),
            (Signing::Host(_), Unsigned::Simulated(_)) => {
                Err(StoreError::WrongKind { details: "simulated", opened: "this host" })
            }
            (Signing::Throwaway(_), Unsigned::Live(_)) => {
                Err(StoreError::WrongKind { details: "a live host", opened: "a recording" })
            }
        }
    }

    /// Writes what lies beside the record, then the record; on an error takes all of it away.
    fn publish(&self, stored: &Stored, documents: &Documents, key: Option<&PublicKey>) -> Result<(), StoreError> {
        let mut files = vec![
            (stored.path.with_extension("host.json"), documents.host.to_json()),
            (stored.path.with_extension("node.json"), documents.node.to_json()),
            (stored.path.with_extension("sigstore.json"), stored.bundle.clone()),
        ];
        files.extend(key.map(|key| (stored.path.with_extension("pub"), key.to_pem().into_bytes())));
        files.push((stored.path.clone(), stored.envelope.clone()));
        for (index, (path, bytes)) in files.iter().enumerate() {
            if let Err(source) = durable::create(path, bytes) {
                files[..index].iter().for_each(|(path, _)| drop(std::fs::remove_file(path)));
                return Err(StoreError::Write { path: path.clone(), source });
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Signing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Signing::Host(key) => key.fmt(f),
            Signing::Throwaway(key) => key.fmt(f),
        }
    }
}
