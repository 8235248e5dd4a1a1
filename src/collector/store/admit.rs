//! A batch of records into the ledger, within the writer's transaction.
//!
//! Everything that decides is read again here: the key's state, the head of its chain, the ledger's
//! end. What was known when the record was verified may have changed, by another collector too.

use std::collections::HashMap;

use jiff::Timestamp;

use super::engine::{Engine, EngineError, Row, Value};
use super::records::{self, flags_text};
use super::{Rules, StoreError, keys, nodes};
use crate::collector::chain::{self, Link};
use crate::collector::intake::{Taken, is_blocking};
use crate::collector::model::{Admission, Key, KeyState, Record, Refusal};
use crate::decision::Decision;
use crate::record::ledger::{BEGINNING, Entry};
use crate::record::receipt::{self, LedgerPlace, Receipt};
use crate::record::standing::Flag;

/// Stores the records of a batch in their order; one answer for each.
pub fn batch(
    engine: &mut dyn Engine,
    rules: &Rules,
    records: &[Taken],
    now: Timestamp,
) -> Result<Vec<Result<Admission, Refusal>>, StoreError> {
    let beginning = (LedgerPlace { index: 0, entry: BEGINNING }, Timestamp::MIN);
    let (place, latest) = records::last(engine)?.unwrap_or(beginning);
    // A clock that was set back must not put a record before one that is there.
    let now = to_microseconds(now).max(latest);
    let mut batch = Batch { engine, rules, now, place, keys: HashMap::new() };
    records.iter().map(|record| batch.admit(record)).collect()
}

struct Batch<'a> {
    engine: &'a mut dyn Engine,
    rules: &'a Rules,
    now: Timestamp,
    place: LedgerPlace,
    /// Keys as they are in this transaction.
    keys: HashMap<String, Key>,
}

impl Batch<'_> {
    fn admit(&mut self, taken: &Taken) -> Result<Result<Admission, Refusal>, StoreError> {
        if let Some(receipt) = self.known(taken)? {
            return Ok(receipt);
        }
        let key = match self.key(&taken.keyid)? {
            Ok(key) => key,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if key.host != taken.host {
            return Ok(Err(Refusal::Unprocessable("the key belongs to another host now".to_owned())));
        }
        if self.run_is_taken(taken)? {
            return Ok(Err(Refusal::Conflict(format!("run {} has another record here", taken.run_id))));
        }
        let Some(signing) = &self.rules.key else { return Ok(Err(Refusal::Busy(super::writer::PAUSE))) };
        let entry = Entry {
            index: self.place.index + 1,
            previous: self.place.entry,
            payload: taken.payload,
            received_at: self.now,
            keyid: taken.keyid.clone(),
        };
        let mut record = record_of(taken, &key, &entry);
        record.flags = self.judge(taken)?;
        record.policy = self.rules.policy.misses(&record).filter(|_| record.decision == Decision::Accepted);
        let flags = self.rules.policy.flags(&record);
        let receipt = Receipt {
            payload: taken.payload,
            received_at: self.now,
            run_id: taken.run_id.clone(),
            tier: Some(key.tier),
            flags: flags.clone(),
            ledger: Some(record.ledger),
        };
        let receipt = receipt::sign(&receipt, signing).to_json();
        self.insert(taken, &record, &entry, &flags, &receipt)?;
        record.flags = flags.clone();
        nodes::add(self.engine, self.rules, taken, &record)?;
        self.advance(taken)?;
        self.place = record.ledger;
        Ok(Ok(Admission { created: true, receipt, flags }))
    }

    /// The receipt of a payload that is here already. One that retention dropped is said again: it
    /// has nothing in it that the ledger does not keep.
    fn known(&mut self, taken: &Taken) -> Result<Option<Result<Admission, Refusal>>, EngineError> {
        const SQL: &str = "SELECT r.flags, b.receipt, r.run_id, r.received_at, r.tier, r.position, r.entry
            FROM records r LEFT JOIN bodies b ON b.position = r.position WHERE r.payload = $1";
        let rows = self.engine.query(SQL, &[taken.payload.into()])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let flags = records::flags_of(row, 0)?;
        let receipt = match (row.0.get(1), &self.rules.key) {
            (Some(Value::Bytes(receipt)), _) => receipt.clone(),
            (_, None) => return Ok(Some(Err(Refusal::Busy(super::writer::PAUSE)))),
            (_, Some(key)) => {
                let receipt = Receipt {
                    payload: taken.payload,
                    received_at: row.time(3)?,
                    run_id: row.text(2)?.to_owned(),
                    tier: Some(row.word(4)?),
                    flags: flags.clone(),
                    ledger: Some(LedgerPlace { index: row.count(5)?, entry: row.digest(6)? }),
                };
                receipt::sign(&receipt, key).to_json()
            }
        };
        Ok(Some(Ok(Admission { created: false, receipt, flags })))
    }

    fn key(&mut self, keyid: &str) -> Result<Result<Key, Refusal>, EngineError> {
        if !self.keys.contains_key(keyid)
            && let Some(key) = keys::find(self.engine, keyid)?
        {
            self.keys.insert(keyid.to_owned(), key);
        }
        Ok(match self.keys.get(keyid) {
            None => Err(Refusal::UnknownKey(keyid.to_owned())),
            Some(Key { state: KeyState::Revoked, reason, .. }) => {
                Err(Refusal::Revoked { keyid: keyid.to_owned(), reason: reason.clone().unwrap_or_default() })
            }
            Some(key) => Ok(key.clone()),
        })
    }

    fn run_is_taken(&mut self, taken: &Taken) -> Result<bool, EngineError> {
        const SQL: &str = "SELECT 1 FROM records WHERE host = $1 AND run_id = $2";
        Ok(!self.engine.query(SQL, &[taken.host.into(), taken.run_id.as_str().into()])?.is_empty())
    }

    /// What speaks against the record by itself, its place in the chain, and its nonce.
    fn judge(&mut self, taken: &Taken) -> Result<Vec<Flag>, EngineError> {
        let said =
            [(taken.simulated, Flag::Simulated), (taken.overridden, Flag::Overridden), (taken.partial, Flag::Partial)];
        let mut flags: Vec<Flag> = said.into_iter().filter_map(|(is, flag)| is.then_some(flag)).collect();
        let link = Link { seq: taken.seq, payload: taken.payload, prev: taken.prev };
        if !self.goes_on(&link, &taken.keyid) {
            flags.extend(chain::judge(&link, &self.around(taken)?));
        }
        flags.extend(self.judge_nonce(taken)?);
        Ok(flags)
    }

    /// Whether the link joins the chain's head, as nearly all do: nothing is at its number or after.
    fn goes_on(&self, link: &Link, keyid: &str) -> bool {
        self.keys.get(keyid).is_some_and(|key| match key.head {
            None => link.seq == 1 && key.seq == 0 && link.prev.is_none(),
            Some(head) => link.seq > 1 && link.seq - 1 == key.seq && link.prev == Some(head),
        })
    }

    /// The records of the key at this number and beside it.
    fn around(&mut self, taken: &Taken) -> Result<Vec<Link>, EngineError> {
        const SQL: &str =
            "SELECT seq, payload, prev FROM records WHERE keyid = $1 AND seq >= $2 AND seq <= $3 LIMIT 64";
        let (from, to) = (taken.seq.saturating_sub(1), taken.seq.saturating_add(1));
        let rows = self.engine.query(SQL, &[taken.keyid.as_str().into(), from.into(), to.into()])?;
        let link = |row: &Row| Ok(Link { seq: row.count(0)?, payload: row.digest(1)?, prev: row.optional_word(2)? });
        rows.iter().map(link).collect()
    }

    fn judge_nonce(&mut self, taken: &Taken) -> Result<Option<Flag>, EngineError> {
        const SQL: &str = "SELECT 1 FROM records WHERE challenge = $1 LIMIT 1";
        let Some(challenge) = &taken.challenge else { return Ok(None) };
        let (secret, oldest) = (&self.rules.secret, self.rules.policy.challenge_age);
        let flag = secret.judge(&taken.keyid, challenge, self.now, oldest);
        let used = !self.engine.query(SQL, &[challenge.as_str().into()])?.is_empty();
        Ok(if used && flag != Some(Flag::UnknownNonce) { Some(Flag::ReusedNonce) } else { flag })
    }

    fn insert(
        &mut self,
        taken: &Taken,
        record: &Record,
        entry: &Entry,
        flags: &[Flag],
        receipt: &[u8],
    ) -> Result<(), EngineError> {
        const RECORD: &str = "INSERT INTO records (position, previous, payload, received_at, keyid, entry, run_id,
            host, node, hostname, class, class_digest, suite_digest, decision, stage, level, waived, seq, prev,
            challenge, finished_at, flags, tier, kept)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
            $22, $23, 1)";
        let columns = [
            entry.index.into(),
            entry.previous.into(),
            entry.payload.into(),
            entry.received_at.into(),
            entry.keyid.as_str().into(),
            record.ledger.entry.into(),
            taken.run_id.as_str().into(),
            taken.host.into(),
            taken.node.into(),
            taken.hostname.as_str().into(),
            taken.class.as_str().into(),
            taken.class_digest.into(),
            taken.suite_digest.into(),
            taken.decision.as_str().into(),
            taken.stage.as_str().into(),
            taken.level.as_str().into(),
            taken.waived.into(),
            taken.seq.into(),
            taken.prev.into(),
            taken.challenge.clone().into(),
            taken.finished_at.into(),
            flags_text(flags).into(),
            record.tier.as_str().into(),
        ];
        self.engine.execute(RECORD, &columns)?;
        const BODY: &str = "INSERT INTO bodies (position, raw, receipt) VALUES ($1, $2, $3)";
        let body = [entry.index.into(), Value::Bytes(taken.raw.clone()), Value::Bytes(receipt.to_vec())];
        self.engine.execute(BODY, &body)?;
        // A key that nobody approved must not make a host a repeat offender.
        if taken.decision == Decision::Rejected && record.key_state != KeyState::Pending {
            self.insert_rejection(taken, entry)?;
        }
        Ok(())
    }

    fn insert_rejection(&mut self, taken: &Taken, entry: &Entry) -> Result<(), EngineError> {
        const REJECTION: &str = "INSERT INTO rejections (position, host, received_at) VALUES ($1, $2, $3)";
        const FINDING: &str = "INSERT INTO findings (position, host, received_at, step, code, subject, serial)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let place = [Value::from(entry.index), taken.host.into(), entry.received_at.into()];
        self.engine.execute(REJECTION, &place)?;
        for problem in taken.problems.iter().filter(|problem| is_blocking(problem.grade)) {
            let [index, host, time] = place.clone();
            let (step, code) = (problem.step.as_str().into(), problem.code.as_str().into());
            let finding =
                [index, host, time, step, code, problem.subject.as_str().into(), problem.serial.clone().into()];
            self.engine.execute(FINDING, &finding)?;
        }
        Ok(())
    }

    /// The head of the key's chain; it only moves forward.
    fn advance(&mut self, taken: &Taken) -> Result<(), EngineError> {
        const SQL: &str = "UPDATE keys SET seq = $1, head = $2 WHERE keyid = $3";
        let Some(key) = self.keys.get_mut(&taken.keyid) else { return Ok(()) };
        if taken.seq > key.seq {
            (key.seq, key.head) = (taken.seq, Some(taken.payload));
            self.engine.execute(SQL, &[taken.seq.into(), taken.payload.into(), taken.keyid.as_str().into()])?;
        }
        Ok(())
    }
}

/// The record as a question would read it.
fn record_of(taken: &Taken, key: &Key, entry: &Entry) -> Record {
    Record {
        payload: taken.payload,
        run_id: taken.run_id.clone(),
        keyid: taken.keyid.clone(),
        tier: key.tier,
        key_state: key.state,
        host: taken.host,
        node: taken.node,
        hostname: taken.hostname.clone(),
        class: taken.class.clone(),
        class_digest: taken.class_digest,
        suite_digest: taken.suite_digest,
        decision: taken.decision,
        stage: taken.stage,
        level: taken.level,
        waived: taken.waived,
        seq: taken.seq,
        prev: taken.prev,
        challenged: taken.challenge.is_some(),
        finished_at: taken.finished_at,
        received_at: entry.received_at,
        ledger: LedgerPlace { index: entry.index, entry: entry.hash() },
        flags: Vec::new(),
        policy: None,
        kept: true,
    }
}

/// What a column holds: a receipt must not say a time that cannot be read back from the ledger.
fn to_microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}
