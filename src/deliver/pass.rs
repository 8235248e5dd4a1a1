//! One pass over the spool: what waits is sent in the order of its chain, oldest first, until the
//! collector shows that it takes nothing now.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::first_use;
use super::pace::Note;
use super::send::{self, PATIENCE, Undelivered};
use super::target::Target;
use super::trust::Trust;
use crate::host::clock;
use crate::ident::printable;
use crate::isolate::interrupted;
use crate::record::store::spool::Why;
use crate::record::{Parcel, Receipt, Spool, StoreError};

/// With less left than this nothing new is begun.
const SHORTEST_EXCHANGE: Duration = Duration::from_secs(1);
/// How long to wait for another delivery from this folder, where nothing else bounds it.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// What bounds a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    pub until: Option<Instant>,
    /// Only this run's record.
    pub only: Option<&'a str>,
}

/// What a pass did, and what is left.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub sent: Vec<Sent>,
    pub waiting: Vec<Waiting>,
    /// What it set aside for good.
    pub buried: Vec<Buried>,
    pub note: Option<Note>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub run_id: String,
    pub seq: u64,
    pub receipt: Receipt,
    pub kept: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub run_id: String,
    pub seq: u64,
    pub cause: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buried {
    pub run_id: String,
    pub seq: u64,
    pub cause: String,
}

/// Sends what waits in this state folder. Whatever the collector does is in the report.
///
/// # Errors
///
/// What the state folder refused; nothing is lost by it.
pub fn pass(folder: &Path, target: &Target, limits: Limits<'_>) -> Result<Report, StoreError> {
    let spool = Spool::of(folder);
    let until = limits.until.unwrap_or_else(|| Instant::now() + LOCK_PATIENCE);
    let lock = spool.lock(until, interrupted)?;
    let order = spool.take_up()?.into_iter().filter(|(_, run_id)| limits.only.is_none_or(|only| only == run_id));
    let note = Note::read(&spool, &target.address, clock::now());
    let mut report = Report::default();
    if lock.is_none() {
        let cause = if interrupted() { INTERRUPTED } else { "another nodegate delivers from here" };
        report.waiting.extend(order.map(|(seq, run_id)| Waiting { run_id, seq, cause: cause.to_owned() }));
        return Ok(Report { note: Some(note), ..report });
    }
    let trust = Trust::of(target, Some(&spool));
    let mut round = Round { spool: &spool, folder, target, trust, limits, note, report, introduced: false };
    round.send_all(order)?;
    Ok(Report { note: Some(round.note), ..round.report })
}

const INTERRUPTED: &str = "interrupted";

struct Round<'a> {
    spool: &'a Spool,
    folder: &'a Path,
    target: &'a Target,
    trust: Trust<'a>,
    limits: Limits<'a>,
    note: Note,
    report: Report,
    /// Whether our key was introduced in this pass.
    introduced: bool,
}

impl Round<'_> {
    fn send_all(&mut self, order: impl Iterator<Item = (u64, String)>) -> Result<(), StoreError> {
        let mut stopped = self.asked_to_wait();
        let (mut tried, mut failure) = (false, None);
        for (seq, run_id) in order {
            if stopped.is_none() {
                stopped = self.nothing_new().map(str::to_owned);
            }
            if let Some(cause) = &stopped {
                self.report.waiting.push(Waiting { run_id, seq, cause: cause.clone() });
                continue;
            }
            let parcel = match self.spool.parcel(&run_id) {
                Ok(Ok(parcel)) => parcel,
                // Damaged since it was looked at: the next pass sets it aside.
                Ok(Err(_)) => continue,
                Err(_) if self.spool.is_gone(&run_id) => continue,
                // A bad place on the disk holds this one record and no other.
                Err(error) => {
                    self.report.waiting.push(Waiting { run_id, seq, cause: unread(&error) });
                    continue;
                }
            };
            tried = true;
            if let Err(undelivered) = self.one(&parcel)? {
                stopped = undelivered.stops_the_pass().then(|| undelivered.cause.clone());
                failure = Some((undelivered.cause.clone(), undelivered.retry_after));
                self.report.waiting.push(Waiting { run_id, seq, cause: undelivered.cause });
            }
        }
        if tried {
            let failure = failure.as_ref().map(|(cause, wait)| (cause.as_str(), *wait));
            self.note.tried(clock::now(), failure, !self.report.sent.is_empty());
            self.note.keep(self.spool);
        }
        Ok(())
    }

    /// Sends one record and does what the answer asks for. An error: it goes on waiting.
    fn one(&mut self, parcel: &Parcel) -> Result<Result<(), Undelivered>, StoreError> {
        if let Some(receipt) = self.receipt_of_before(parcel) {
            self.spool.forget(&parcel.run_id)?;
            self.sent(parcel, receipt);
            return Ok(Ok(()));
        }
        let mut answer = self.send(parcel);
        if let Err(unknown) = &mut answer
            && unknown.unknown_key
            && self.target.first_use
            && !std::mem::replace(&mut self.introduced, true)
        {
            match first_use::introduce(self.folder, self.target) {
                Ok(()) => answer = self.send(parcel),
                Err(why) => unknown.cause = format!("{}; {}", unknown.cause, self.target.redact(&why)),
            }
        }
        match answer {
            Ok((receipt, bytes)) => match self.spool.settle(&parcel.run_id, &bytes) {
                Ok(()) => self.sent(parcel, receipt),
                // A full disk: it is sent again, and the collector gives the same receipt.
                Err(error) => return Ok(Err(Undelivered::again(send::unkept(self.target, &error)))),
            },
            Err(undelivered) if undelivered.again => return Ok(Err(undelivered)),
            Err(Undelivered { cause, status, .. }) => {
                let why = Why::refused(&self.target.address.to_string(), status.unwrap_or_default(), &cause);
                if let Err(error) = self.spool.bury(&parcel.run_id, &why) {
                    return Ok(Err(Undelivered::again(format!("{cause}, and it cannot be set aside: {error}"))));
                }
                let (run_id, seq) = (parcel.run_id.clone(), parcel.seq);
                self.report.buried.push(Buried { run_id, seq, cause });
            }
        }
        Ok(Ok(()))
    }

    fn send(&mut self, parcel: &Parcel) -> Result<(Receipt, Vec<u8>), Undelivered> {
        let patience = self.patience();
        send::send(parcel, self.target, &mut self.trust, patience)
    }

    /// A receipt that was kept just before a kill.
    fn receipt_of_before(&self, parcel: &Parcel) -> Option<Receipt> {
        let bytes = self.spool.receipt(&parcel.run_id)?;
        self.trust.verify_kept(&bytes, parcel).ok()
    }

    fn sent(&mut self, parcel: &Parcel, receipt: Receipt) {
        let (run_id, seq) = (parcel.run_id.clone(), parcel.seq);
        let kept = self.spool.receipt_path(&run_id);
        self.report.sent.push(Sent { run_id, seq, receipt, kept });
    }

    fn asked_to_wait(&self) -> Option<String> {
        let until: Timestamp = self.note.not_before?;
        let cause = self.note.cause.as_deref().unwrap_or("it is busy");
        Some(format!("{cause}; not tried again before {until:.0}, as it asked"))
    }

    /// Why no further record is begun.
    fn nothing_new(&self) -> Option<&'static str> {
        if interrupted() {
            Some(INTERRUPTED)
        } else if self.patience() < SHORTEST_EXCHANGE {
            Some("no time was left for it")
        } else {
            None
        }
    }

    fn patience(&self) -> Duration {
        let left = self.limits.until.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(PATIENCE, |left| left.min(PATIENCE))
    }
}

/// In one line, without the path, which the run id says.
fn unread(error: &StoreError) -> String {
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    format!("its entry in the spool cannot be read: {}", printable(&why, 200))
}
