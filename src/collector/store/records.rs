//! Records as rows, their bytes, the ledger's head, and the keys that sign receipts.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::engine::{Engine, EngineError, Row, Value};
use super::{Rules, Store, StoreError};
use crate::collector::model::{Kept, Record};
use crate::collector::policy::Policy;
use crate::decision::Decision;
use crate::ident::Digest;
use crate::record::CollectorKey;
use crate::record::ledger::{BEGINNING, Head};
use crate::record::receipt::LedgerPlace;
use crate::record::standing::Flag;

/// What [`record`] reads, from `records r JOIN keys k`.
pub const COLUMNS: &str = "r.position, r.payload, r.run_id, r.keyid, k.tier, k.state, r.host, r.node, r.hostname, \
     r.class, r.class_digest, r.suite_digest, r.decision, r.stage, r.level, r.waived, r.seq, r.prev, r.challenge, \
     r.finished_at, r.received_at, r.entry, r.flags, r.kept";
/// How many columns those are.
pub const WIDTH: usize = 24;

/// Bytes of one answer of an export at most, so that a page of large records fits into memory.
const EXPORT_BYTES: usize = 16 << 20;

/// A key that signs, or signed, the store's receipts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptKey {
    pub keyid: String,
    /// SPKI PEM.
    pub public_key: String,
    /// The envelope in which the key before it hands over; none of the first.
    pub rotation: Option<Vec<u8>>,
    pub added_at: Timestamp,
}

impl Store {
    /// A host's records, newest first: those before this position of the ledger, or the newest.
    pub fn records_of(&self, host: &Digest, before: Option<u64>, limit: u32) -> Result<Vec<Record>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM records r JOIN keys k ON k.keyid = r.keyid \
             WHERE r.host = $1 AND r.position < $2 ORDER BY r.position DESC LIMIT $3"
        );
        let parameters = [Value::from(*host), before.unwrap_or(u64::MAX).into(), u64::from(limit).into()];
        self.ask(|engine, policy| {
            let rows = engine.query(&sql, &parameters)?;
            Ok(rows.iter().map(|row| record(row, policy)).collect::<Result<_, _>>()?)
        })
    }

    /// A record with its bytes, by the digest of its payload.
    pub fn record(&self, payload: &Digest) -> Result<Option<Kept>, StoreError> {
        let found = self.kept("WHERE r.payload = $1", &[Value::from(*payload)])?;
        Ok(found.into_iter().next())
    }

    /// The record of this run of a host.
    pub fn record_of_run(&self, host: &Digest, run_id: &str) -> Result<Option<Kept>, StoreError> {
        let found = self.kept("WHERE r.host = $1 AND r.run_id = $2", &[Value::from(*host), run_id.into()])?;
        Ok(found.into_iter().next())
    }

    /// Records after this position, oldest first; fewer than `limit` where they are large. None
    /// left: an empty list.
    pub fn export(&self, since: u64, limit: u32) -> Result<Vec<Kept>, StoreError> {
        let mut found = Vec::new();
        let mut bytes = 0;
        let mut after = since;
        while found.len() < limit as usize && bytes < EXPORT_BYTES {
            let left = u64::from(limit) - found.len() as u64;
            let parameters = [Value::from(after), left.min(32).into()];
            let page = self.kept("WHERE r.position > $1 ORDER BY r.position LIMIT $2", &parameters)?;
            let Some(last) = page.last() else { break };
            after = last.record.ledger.index;
            bytes += page.iter().filter_map(|kept| kept.raw.as_ref()).map(Vec::len).sum::<usize>();
            found.extend(page);
        }
        Ok(found)
    }

    /// The hash of the entry at this position.
    pub fn entry(&self, position: u64) -> Result<Option<Digest>, StoreError> {
        const SQL: &str = "SELECT entry FROM records WHERE position = $1";
        let found = self.list(SQL, &[position.into()], |row| row.digest(0))?;
        Ok(found.into_iter().next())
    }

    /// Where the ledger stands, as of now.
    pub fn head(&self, now: Timestamp) -> Result<Head, StoreError> {
        self.ask(|engine, _| {
            let place = last(engine)?;
            Ok(match place {
                Some((place, _)) => Head { index: place.index, entry: place.entry, at: now },
                None => Head { index: 0, entry: BEGINNING, at: now },
            })
        })
    }

    /// Signs what the collector says of the ledger's head; none where the store has no key to sign with.
    pub fn signed_head(&self, now: Timestamp) -> Result<Option<Vec<u8>>, StoreError> {
        let head = self.head(now)?;
        Ok(self.0.rules.key.as_ref().map(|key| crate::record::ledger::sign(&head, key).to_json()))
    }

    /// The keys of the store's receipts, oldest first; the last one signs.
    pub fn receipt_keys(&self) -> Result<Vec<ReceiptKey>, StoreError> {
        self.ask(|engine, _| Ok(receipt_keys(engine)?))
    }

    /// Hands over to a new receipt key, with the envelope in which the old one says so.
    pub fn put_receipt_key(&self, key: ReceiptKey) -> Result<(), StoreError> {
        self.change(move |engine, _| Ok(insert_receipt_key(engine, &key)?))
    }

    fn kept(&self, condition: &str, parameters: &[Value]) -> Result<Vec<Kept>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, b.raw, b.receipt FROM records r JOIN keys k ON k.keyid = r.keyid \
             LEFT JOIN bodies b ON b.position = r.position {condition}"
        );
        self.ask(|engine, policy| {
            let rows = engine.query(&sql, parameters)?;
            let kept = |row: &Row| -> Result<Kept, EngineError> {
                let bytes = |column| match row.0.get(column) {
                    Some(Value::Null) => Ok(None),
                    _ => row.bytes(column).map(|bytes| Some(bytes.to_vec())),
                };
                Ok(Kept { record: record(row, policy)?, raw: bytes(WIDTH)?, receipt: bytes(WIDTH + 1)? })
            };
            Ok(rows.iter().map(kept).collect::<Result<_, _>>()?)
        })
    }

    pub(super) fn ask<T>(
        &self,
        question: impl Fn(&mut dyn Engine, &Policy) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.readers.ask(|engine| question(engine, &self.0.rules.policy))
    }

    pub(super) fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut dyn Engine, &Rules) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.0.writer.change(change)
    }
}

/// The record in a row that begins with [`COLUMNS`], judged by this policy.
pub fn record(row: &Row, policy: &Policy) -> Result<Record, EngineError> {
    let mut record = Record {
        payload: row.digest(1)?,
        run_id: row.text(2)?.to_owned(),
        keyid: row.text(3)?.to_owned(),
        tier: row.word(4)?,
        key_state: row.json_word(5)?,
        host: row.digest(6)?,
        node: row.digest(7)?,
        hostname: row.text(8)?.to_owned(),
        class: row.text(9)?.to_owned(),
        class_digest: row.digest(10)?,
        suite_digest: row.digest(11)?,
        decision: row.json_word(12)?,
        stage: row.json_word(13)?,
        level: row.json_word(14)?,
        waived: row.truth(15)?,
        seq: row.count(16)?,
        prev: row.optional_word(17)?,
        challenged: row.optional_text(18)?.is_some(),
        finished_at: row.time(19)?,
        received_at: row.time(20)?,
        ledger: LedgerPlace { index: row.count(0)?, entry: row.digest(21)? },
        flags: flags_of(row, 22)?,
        policy: None,
        kept: row.truth(23)?,
    };
    if record.decision == Decision::Accepted {
        record.policy = policy.misses(&record);
    }
    record.flags = policy.flags(&record);
    Ok(record)
}

/// Flags as a column holds them.
pub fn flags_text(flags: &[Flag]) -> String {
    let mut text = String::new();
    for flag in flags {
        let space = if text.is_empty() { "" } else { " " };
        let _infallible = write!(text, "{space}{flag}");
    }
    text
}

/// The last entry and when it was received.
pub fn last(engine: &mut dyn Engine) -> Result<Option<(LedgerPlace, Timestamp)>, EngineError> {
    const SQL: &str = "SELECT position, entry, received_at FROM records ORDER BY position DESC LIMIT 1";
    let rows = engine.query(SQL, &[])?;
    let place = |row: &Row| Ok((LedgerPlace { index: row.count(0)?, entry: row.digest(1)? }, row.time(2)?));
    rows.first().map(place).transpose()
}

/// The first key of a store signs its receipts until it hands over to another.
pub fn settle_receipt_key(engine: &mut dyn Engine, key: &CollectorKey, now: Timestamp) -> Result<(), StoreError> {
    let given = key.public_key().keyid();
    match receipt_keys(engine)?.pop() {
        Some(newest) if newest.keyid == given => Ok(()),
        Some(newest) => Err(StoreError::OtherReceiptKey { stored: newest.keyid, given }),
        None => {
            let public_key = key.public_key().to_pem();
            Ok(insert_receipt_key(engine, &ReceiptKey { keyid: given, public_key, rotation: None, added_at: now })?)
        }
    }
}

pub fn receipt_keys(engine: &mut dyn Engine) -> Result<Vec<ReceiptKey>, EngineError> {
    let rows = engine.query("SELECT keyid, public_key, rotation, added_at FROM receipt_keys ORDER BY id", &[])?;
    let key = |row: &Row| {
        let rotation = match row.0.get(2) {
            Some(Value::Null) => None,
            _ => Some(row.bytes(2)?.to_vec()),
        };
        let (keyid, public_key) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
        Ok(ReceiptKey { keyid, public_key, rotation, added_at: row.time(3)? })
    };
    rows.iter().map(key).collect()
}

fn insert_receipt_key(engine: &mut dyn Engine, key: &ReceiptKey) -> Result<(), EngineError> {
    const SQL: &str =
        "INSERT INTO receipt_keys (id, keyid, public_key, rotation, added_at) VALUES ($1, $2, $3, $4, $5)";
    let id = receipt_keys(engine)?.len() as u64 + 1;
    let rotation = key.rotation.clone().map_or(Value::Null, Value::Bytes);
    let (keyid, public_key) = (key.keyid.as_str(), key.public_key.as_str());
    engine.execute(SQL, &[id.into(), keyid.into(), public_key.into(), rotation, key.added_at.into()])?;
    Ok(())
}

/// The flags in a column.
pub fn flags_of(row: &Row, column: usize) -> Result<Vec<Flag>, EngineError> {
    let words = row.text(column)?.split_ascii_whitespace();
    words.map(|word| word.parse().map_err(|_| row.damage(column))).collect()
}
