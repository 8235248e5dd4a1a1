//! The one writer of a store: it commits what waits together, and answers after the commit.
//!
//! A commit costs a write to the disk that takes far longer than a record. While one is under way
//! the queue grows, and the next commit takes all of it, so that the disk sets the pace of commits
//! and not of records. A transaction that fails refuses all of its records as busy; they are still
//! with their senders, who try again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::admit;
use super::engine::{BEGIN, COMMIT, Engine, ROLLBACK};
use super::nodes;
use super::{Place, Rules, StoreError, Use};
use crate::collector::intake::Taken;
use crate::collector::model::{Admission, Refusal};

/// Seconds after which a sender who was refused as busy may try again.
pub const PAUSE: u64 = 5;
/// Records that wait at most: with the largest of them, memory stays bounded.
const QUEUE: usize = 1024;
/// Records of one transaction at most: what waits longest must not wait for a whole queue.
const BATCH: usize = 512;
/// How often the writer looks for nodes whose acceptance has expired.
const EXPIRY_LOOK: Duration = Duration::from_secs(1);

/// What became of a record.
pub type Answer = Result<Admission, Refusal>;

/// A change that is no record: keys, tokens, retention. It runs in a transaction of its own.
type Change = Box<dyn FnOnce(&mut dyn Engine, &Rules) -> Changed + Send>;
type Changed = Result<Box<dyn Any + Send>, StoreError>;

enum Job {
    Record(Box<Taken>, oneshot::Sender<Answer>),
    Change(Change, SyncSender<Changed>),
}

/// The queue to the writer's thread, which ends with the last of its senders.
pub struct Writer {
    queue: SyncSender<Job>,
    waiting: Arc<AtomicUsize>,
}

impl Writer {
    pub fn start(place: Place, engine: Box<dyn Engine>, rules: Arc<Rules>) -> Writer {
        let (queue, jobs) = sync_channel(QUEUE);
        let waiting = Arc::new(AtomicUsize::new(0));
        let thread = Thread { place, engine: Some(engine), rules, waiting: waiting.clone(), looked: None };
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run(&jobs))
            .expect("a thread can be started as the collector starts");
        Writer { queue, waiting }
    }

    /// Queues a record; a full queue refuses it at once.
    pub fn take(&self, record: Taken) -> Result<oneshot::Receiver<Answer>, Refusal> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        match self.queue.try_send(Job::Record(Box::new(record), sender)) {
            Ok(()) => Ok(receiver),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                Err(Refusal::Busy(PAUSE))
            }
        }
    }

    /// Makes a change in a transaction of its own and waits for its commit.
    pub fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut dyn Engine, &Rules) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = sync_channel(1);
        let boxed: Change = Box::new(move |engine, rules| Ok(Box::new(change(engine, rules)?) as Box<dyn Any + Send>));
        self.queue.send(Job::Change(boxed, sender)).map_err(|_| StoreError::Ended)?;
        let changed = receiver.recv().map_err(|_| StoreError::Ended)??;
        changed.downcast().map(|value| *value).map_err(|_| StoreError::Ended)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Runs this between BEGIN and COMMIT. What fails is rolled back.
pub fn in_transaction<T>(
    engine: &mut dyn Engine,
    work: impl FnOnce(&mut dyn Engine) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    engine.batch(BEGIN)?;
    let done = work(engine).and_then(|value| {
        engine.batch(COMMIT)?;
        Ok(value)
    });
    if done.is_err() {
        // It fails only where the connection is gone, and then the transaction went with it.
        let _gone = engine.batch(ROLLBACK);
    }
    done
}

struct Thread {
    place: Place,
    /// None after it broke, until it could be opened again.
    engine: Option<Box<dyn Engine>>,
    rules: Arc<Rules>,
    waiting: Arc<AtomicUsize>,
    looked: Option<Instant>,
}

impl Thread {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            match jobs.recv_timeout(EXPIRY_LOOK) {
                Ok(job) => self.serve(job, jobs),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.expire();
        }
    }

    /// The first job and the records that wait behind it, up to the next change.
    fn serve(&mut self, first: Job, jobs: &Receiver<Job>) {
        let mut next = Some(first);
        let mut batch = Vec::new();
        while let Some(job) = next.take() {
            match job {
                Job::Record(record, sender) => {
                    batch.push((*record, sender));
                    if batch.len() < BATCH {
                        next = jobs.try_recv().ok();
                    }
                }
                Job::Change(change, sender) => {
                    self.admit(std::mem::take(&mut batch));
                    let rules = self.rules.clone();
                    let changed = self.transaction(|engine| change(engine, &rules));
                    // Who asked may have gone; what was changed stays so.
                    let _gone = sender.send(changed);
                }
            }
        }
        self.admit(batch);
    }

    fn admit(&mut self, batch: Vec<(Taken, oneshot::Sender<Answer>)>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len();
        let (records, senders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let answers = match self.commit(&records) {
            // One record that the database cannot take must not keep the others out.
            Err(error) if count > 1 && !error.is_gone() => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a batch failed, its records are taken singly"
                );
                let singly = |record| self.commit(record).unwrap_or_else(|error| vec![Err(Refusal::busy(&error))]);
                records.chunks(1).flat_map(singly).collect()
            }
            Err(error) => vec![Err(Refusal::busy(&error)); count],
            Ok(answers) => answers,
        };
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        // Who sent a record may have gone; it is stored all the same.
        senders.into_iter().zip(answers).for_each(|(sender, answer)| drop(sender.send(answer)));
    }

    fn commit(&mut self, records: &[Taken]) -> Result<Vec<Answer>, StoreError> {
        let rules = self.rules.clone();
        self.transaction(|engine| admit::batch(engine, &rules, records, Timestamp::now()))
    }

    fn expire(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < EXPIRY_LOOK) || self.rules.policy.expiry.is_none() {
            return;
        }
        self.looked = Some(Instant::now());
        if let Err(error) = self.transaction(|engine| Ok(nodes::expire(engine, Timestamp::now())?)) {
            tracing::warn!(error = &error as &dyn std::error::Error, "expired nodes could not be looked for");
        }
    }

    /// A transaction on the writer's connection, opened again if it broke. A fault of ours in it
    /// must not end the thread that every record needs.
    fn transaction<T>(&mut self, work: impl FnOnce(&mut dyn Engine) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.place.connect(Use::Writer)?,
        };
        let done = catch_unwind(AssertUnwindSafe(|| in_transaction(engine.as_mut(), work)));
        let done = done.unwrap_or(Err(StoreError::Ended));
        if done.is_ok() {
            self.engine = Some(engine);
        }
        done
    }
}
