//! What the collector keeps: records in a chained ledger, keys, tokens, and what sums them up.
//!
//! Questions are answered by readers' connections; everything that changes goes through one writer
//! thread, which commits what waits together ([`writer`]). A receipt leaves only after the commit
//! that its record is in.

mod admit;
mod alerts;
mod audit;
mod backup;
mod engine;
mod enrolment;
mod fleet;
mod keys;
mod nodes;
mod postgres;
mod readers;
mod records;
mod retention;
mod schema;
mod server;
mod sqlite;
mod tokens;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

pub use alerts::Alert;
pub use audit::{Broken, Whole};
pub use backup::BackupError;
pub use engine::EngineError;
pub use fleet::{Counts, Offender, Offenders};
pub use keys::{Enrolled, KeyFilter};
pub use records::ReceiptKey;
pub use retention::Pruned;
pub use server::ServerError;
pub use tokens::{AccessToken, EndorsementKey, JoinToken, SshHostKey};

use super::intake::{self, Signer, Taken};
use super::model::{Admission, KeyState, Refusal};
use super::nonce::Secret;
use super::policy::Policy;
use crate::record::{CollectorKey, PublicKey};
use engine::Engine;
use readers::Readers;
use server::Server;
use writer::Writer;

/// How a store is opened.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// None: the policy that the store was last served with.
    pub policy: Option<Policy>,
    pub accept_simulated: bool,
    /// The collector itself: of these a file has one at a time.
    pub serves: bool,
}

/// Why a store cannot be opened, or a question not be answered.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("store `{0}`: write sqlite:PATH or postgres://USER@HOST/DATABASE")]
    Url(String),
    #[error("the store's server cannot be reached so")]
    Server(#[from] ServerError),
    #[error("there is no store {path}")]
    Missing { path: PathBuf },
    #[error("store {path} cannot be locked")]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("store {path} is served by another collector; SQLite has one, PostgreSQL takes several")]
    Served { path: PathBuf },
    #[error(
        "the store is of schema {found}, newer than {}, the newest that this nodegate knows; use a newer one",
        schema::SCHEMA
    )]
    NewerSchema { found: i64 },
    #[error("the store is of schema {found}, which no nodegate ever wrote")]
    UnknownSchema { found: i64 },
    #[error(
        "the store signs receipts with key {stored}, and {given} was given; rotate with `nodegate collector receipt-key`"
    )]
    OtherReceiptKey { stored: String, given: String },
    #[error("the store keeps a damaged {what}")]
    Damaged { what: &'static str },
    #[error("the store cannot be asked or written")]
    Engine(#[from] EngineError),
    #[error("the store's writer has ended")]
    Ended,
}

/// An open store. Clones share it.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// Keys that are kept parsed.
const SIGNERS: usize = 32_768;

struct Inner {
    signers: Mutex<HashMap<String, Signer>>,
    place: Place,
    readers: Readers,
    writer: Writer,
    rules: Arc<Rules>,
    /// Held as long as this store serves.
    _lock: Option<std::fs::File>,
}

impl Inner {
    fn lock_signers(&self) -> MutexGuard<'_, HashMap<String, Signer>> {
        // A thread that panicked while it held them left them whole.
        self.signers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the writer and the questions judge by.
pub(super) struct Rules {
    policy: Policy,
    accept_simulated: bool,
    secret: Secret,
    key: Option<CollectorKey>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reader,
    Writer,
}

/// Where a store is.
#[derive(Clone, Debug)]
enum Place {
    File(PathBuf),
    Server(Arc<Server>),
}

impl Store {
    /// Opens a store whose receipts this key signs; a new one is made where there is none.
    pub fn open(url: &str, key: CollectorKey, settings: Settings) -> Result<Store, StoreError> {
        Store::open_at(Place::parse(url)?, Some(key), settings)
    }

    /// Opens a store for everything but taking records: no receipt could be signed.
    pub fn attend(url: &str, settings: Settings) -> Result<Store, StoreError> {
        Store::open_at(Place::parse(url)?, None, settings)
    }

    /// The same for a store that must be there: none is made by looking for it.
    pub fn attend_existing(url: &str) -> Result<Store, StoreError> {
        match Place::parse(url)? {
            Place::File(path) if !path.exists() => Err(StoreError::Missing { path }),
            place => Store::open_at(place, None, Settings::default()),
        }
    }

    fn open_at(place: Place, key: Option<CollectorKey>, settings: Settings) -> Result<Store, StoreError> {
        let lock = if settings.serves { place.lock()? } else { None };
        let mut engine = place.connect(Use::Writer)?;
        let rules = Arc::new(prepare(engine.as_mut(), key, &settings)?);
        let writer = Writer::start(place.clone(), engine, rules.clone());
        let readers = Readers::new(place.clone());
        Ok(Store(Arc::new(Inner { signers: Mutex::default(), place, readers, writer, rules, _lock: lock })))
    }

    /// Verifies a record with what is known of its key. Costs a reader's look at most once a key.
    pub fn verify(&self, raw: Vec<u8>) -> Result<Taken, Refusal> {
        intake::read(raw, self.0.rules.accept_simulated, |keyid| self.signer(keyid))
    }

    /// Stores a record, once it is committed with those that wait with it.
    pub async fn take(&self, record: Taken) -> Result<Admission, Refusal> {
        self.0.writer.take(record)?.await.map_err(|_| Refusal::Busy(writer::PAUSE))?
    }

    /// The same for a thread that may wait.
    pub fn take_and_wait(&self, record: Taken) -> Result<Admission, Refusal> {
        self.0.writer.take(record)?.blocking_recv().map_err(|_| Refusal::Busy(writer::PAUSE))?
    }

    /// A nonce for this key, and when it grows too old.
    pub fn challenge(&self, keyid: &str, now: Timestamp) -> (String, Timestamp) {
        let age =
            jiff::SignedDuration::try_from(self.0.rules.policy.challenge_age).unwrap_or(jiff::SignedDuration::MAX);
        let expires = now.checked_add(age).unwrap_or(Timestamp::MAX);
        (self.0.rules.secret.make(keyid, now), expires)
    }

    pub fn policy(&self) -> &Policy {
        &self.0.rules.policy
    }

    pub fn accepts_simulated(&self) -> bool {
        self.0.rules.accept_simulated
    }

    /// Records that wait to be committed.
    pub fn waiting(&self) -> usize {
        self.0.writer.waiting()
    }

    /// An approved key is looked up once: what may change of it, its state, is looked at again as
    /// the record is stored.
    fn signer(&self, keyid: &str) -> Result<Option<Signer>, Refusal> {
        if let Some(signer) = self.0.lock_signers().get(keyid) {
            return Ok(Some(signer.clone()));
        }
        let Some(key) = self.key(keyid).map_err(|error| Refusal::busy(&error))? else { return Ok(None) };
        let Ok(public) = PublicKey::parse(&key.public_key) else { return Ok(None) };
        let signer = Signer { key: public, tier: key.tier, state: key.state, reason: key.reason, host: key.host };
        if signer.state == KeyState::Approved {
            let mut signers = self.0.lock_signers();
            // Rarely, and then all at once: which ones are asked for again shows soon.
            if signers.len() >= SIGNERS {
                signers.clear();
            }
            signers.insert(keyid.to_owned(), signer.clone());
        }
        Ok(Some(signer))
    }
}

impl StoreError {
    /// Whether the database cannot be reached, and not only what was asked of it wrong.
    fn is_gone(&self) -> bool {
        matches!(self, StoreError::Engine(error) if error.is_gone())
    }
}

impl Refusal {
    /// The store cannot do it now. Why, is for the log and not for the sender.
    pub(super) fn busy(error: &StoreError) -> Refusal {
        tracing::error!(error = error as &dyn std::error::Error, "the store failed");
        Refusal::Busy(writer::PAUSE)
    }
}

impl Place {
    fn parse(url: &str) -> Result<Place, StoreError> {
        match url.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Place::File(PathBuf::from(path))),
            Some(("postgres" | "postgresql", _)) => Ok(Place::Server(Arc::new(Server::parse(url)?))),
            _ => Err(StoreError::Url(crate::ident::printable(url, 60))),
        }
    }

    fn connect(&self, purpose: Use) -> Result<Box<dyn Engine>, EngineError> {
        match self {
            Place::File(path) => Ok(Box::new(sqlite::Sqlite::open(path, purpose)?)),
            Place::Server(server) => Ok(Box::new(postgres::Postgres::connect(server)?)),
        }
    }

    /// Keeps a second collector off a file. Whoever holds the lock may die: it goes with the process.
    fn lock(&self) -> Result<Option<std::fs::File>, StoreError> {
        match self {
            Place::File(path) => lock_file(path).map(Some),
            Place::Server(_) => Ok(None),
        }
    }
}

fn lock_file(path: &Path) -> Result<std::fs::File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let unlocked = |source| StoreError::Lock { path: name.clone(), source };
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&name).map_err(unlocked)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Served { path: path.to_owned() }),
        Err(error) => Err(unlocked(error.into())),
    }
}

/// Tables, secret, receipt key and policy: what must be right before anything is asked.
fn prepare(engine: &mut dyn Engine, key: Option<CollectorKey>, settings: &Settings) -> Result<Rules, StoreError> {
    writer::in_transaction(engine, |engine| {
        schema::prepare(engine)?;
        let secret = schema::secret(engine)?;
        let policy = nodes::settle_policy(engine, settings.policy.as_ref())?;
        if let Some(key) = &key {
            records::settle_receipt_key(engine, key, Timestamp::now())?;
        }
        Ok(Rules { policy, accept_simulated: settings.accept_simulated, secret: Secret::new(&secret), key })
    })
}
