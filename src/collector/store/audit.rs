//! The walk through the ledger that finds what was changed behind the collector's back.
//!
//! Every entry's hash is computed again and must name the one before it. What is still kept of a
//! record must be what its entry names, be signed by its key and say what its row says; its
//! receipt must be signed by a key of the store and say what the row says. Chain heads and nodes
//! must follow from the records. What an operator decided about a key is a row and is not proven.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::engine::{Engine, EngineError, ROLLBACK, Row, SNAPSHOT, Value};
use super::nodes::{place, supersedes};
use super::records::{self, COLUMNS, WIDTH, flags_of, record};
use super::{Store, StoreError, schema};
use crate::collector::intake::{self, Taken};
use crate::collector::model::{Record, Standing};
use crate::collector::policy::{Policy, standing};
use crate::ident::Digest;
use crate::record::ledger::{BEGINNING, Entry, Head};
use crate::record::receipt;
use crate::record::standing::{Flag, Tier};
use crate::record::{PublicKey, Receipt};

/// Entries of one look. Their bytes are in memory together.
const PAGE: u64 = 64;

/// A ledger that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    pub head: Head,
    /// Records whose bytes are kept, and were verified.
    pub kept: u64,
}

/// The first thing that is wrong with a ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {index}: {why}")]
pub struct Broken {
    /// Position of the entry; the last one where it is not about an entry.
    pub index: u64,
    pub why: String,
}

impl Store {
    /// Walks the ledger from its beginning, as of one moment: it may be written meanwhile.
    pub fn audit(&self, now: Timestamp) -> Result<Result<Whole, Broken>, StoreError> {
        self.ask(|engine, policy| {
            engine.batch(SNAPSHOT)?;
            let walked = walk(engine, policy, now);
            engine.batch(ROLLBACK)?;
            walked
        })
    }
}

fn walk(engine: &mut dyn Engine, policy: &Policy, now: Timestamp) -> Result<Result<Whole, Broken>, StoreError> {
    let end = records::last(engine)?.map_or(0, |(place, _)| place.index);
    let mut walk = Walk::begin(engine, policy, now)?;
    while walk.last.index < end {
        if let Err(broken) = walk.page(engine, end)? {
            return Ok(Err(broken));
        }
    }
    Ok(walk.end(engine)?)
}

/// What a walk knows of the entries before.
struct Walk<'p> {
    policy: &'p Policy,
    now: Timestamp,
    receipt_keys: Vec<PublicKey>,
    /// Before this, retention may have dropped bytes.
    pruned_before: Timestamp,
    last: Head,
    kept: u64,
    chains: BTreeMap<String, (u64, Digest)>,
    nodes: BTreeMap<Digest, Seen>,
}

/// A host's records so far.
struct Seen {
    newest: Record,
    runs: u64,
}

impl<'p> Walk<'p> {
    fn begin(engine: &mut dyn Engine, policy: &'p Policy, now: Timestamp) -> Result<Walk<'p>, StoreError> {
        let receipt_keys = records::receipt_keys(engine)?;
        let receipt_keys = receipt_keys.iter().filter_map(|key| PublicKey::parse(&key.public_key).ok()).collect();
        let pruned_before = schema::read_meta(engine, super::retention::PRUNED_BEFORE)?;
        let pruned_before = pruned_before.and_then(|text| text.parse().ok()).unwrap_or(Timestamp::MIN);
        let last = Head { index: 0, entry: BEGINNING, at: Timestamp::MIN };
        Ok(Walk {
            policy,
            now,
            receipt_keys,
            pruned_before,
            last,
            kept: 0,
            chains: BTreeMap::new(),
            nodes: BTreeMap::new(),
        })
    }

    fn page(&mut self, engine: &mut dyn Engine, end: u64) -> Result<Result<(), Broken>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, b.raw, b.receipt, r.previous, r.tier, r.challenge, k.public_key FROM records r \
             LEFT JOIN keys k ON k.keyid = r.keyid LEFT JOIN bodies b ON b.position = r.position \
             WHERE r.position > $1 AND r.position <= $2 ORDER BY r.position LIMIT $3"
        );
        let rows = engine.query(&sql, &[self.last.index.into(), end.into(), PAGE.into()])?;
        if rows.is_empty() {
            return Ok(Err(Broken { index: end, why: "the entry is gone".to_owned() }));
        }
        for row in rows {
            let index = self.last.index + 1;
            if let Err(why) = self.entry(&row) {
                return Ok(Err(Broken { index, why }));
            }
        }
        Ok(Ok(()))
    }

    fn entry(&mut self, row: &Row) -> Result<(), String> {
        let index = self.last.index + 1;
        let damaged = |error: EngineError| error.to_string();
        let found = row.count(0).map_err(damaged)?;
        demand(found == index, || format!("the entry is gone: the next one is {found}"))?;
        let key = row.optional_text(WIDTH + 5).map_err(damaged)?;
        let key = key.ok_or("its key is gone from the keys")?;
        let record = record(row, self.policy).map_err(damaged)?;
        let previous = row.digest(WIDTH + 2).map_err(damaged)?;
        demand(previous == self.last.entry, || "it does not follow the entry before it".to_owned())?;
        let entry = Entry {
            index,
            previous,
            payload: record.payload,
            received_at: record.received_at,
            keyid: record.keyid.clone(),
        };
        demand(entry.hash() == record.ledger.entry, || "its hash is not that of what it holds".to_owned())?;
        demand(record.received_at >= self.last.at, || "it was received before the entry before it".to_owned())?;
        self.body(row, &record, key)?;
        self.remember(record);
        Ok(())
    }

    /// What is kept of the record: bytes and receipt, both or none.
    fn body(&mut self, row: &Row, record: &Record, key: &str) -> Result<(), String> {
        let (raw, receipt) = match (row.0.get(WIDTH), row.0.get(WIDTH + 1)) {
            (Some(Value::Bytes(raw)), Some(Value::Bytes(receipt))) if record.kept => (raw, receipt),
            (Some(Value::Null), Some(Value::Null)) if !record.kept => {
                return demand(record.received_at < self.pruned_before, || {
                    "its bytes are gone, and retention did not drop them".to_owned()
                });
            }
            _ => return Err("its bytes are not as its row says".to_owned()),
        };
        let key = PublicKey::parse(key).map_err(|_| "its key cannot be read")?;
        demand(key.keyid() == record.keyid, || "its key is not the one of its id".to_owned())?;
        let taken = intake::read_again(raw.clone(), &key).map_err(|refusal| refusal.to_string())?;
        let damaged = |error: EngineError| error.to_string();
        let stored = flags_of(row, FLAGS).map_err(damaged)?;
        let challenge = row.optional_text(WIDTH + 4).map_err(damaged)?;
        compare(&taken, record, challenge, &stored)?;
        let tier = row.word(WIDTH + 3).map_err(damaged)?;
        self.receipt(receipt, record, &stored, tier)?;
        self.kept += 1;
        Ok(())
    }

    fn receipt(&self, bytes: &[u8], record: &Record, flags: &[Flag], tier: Tier) -> Result<(), String> {
        let verified = |key| receipt::verify(bytes, key, record.payload, &record.run_id).ok();
        let receipt = self.receipt_keys.iter().find_map(verified).ok_or("its receipt does not verify")?;
        let Receipt { received_at, tier: said, flags: noted, ledger, .. } = receipt;
        let same = received_at == record.received_at && said == Some(tier) && ledger == Some(record.ledger);
        demand(same && noted == flags, || "its receipt says something else than its row".to_owned())
    }

    fn remember(&mut self, record: Record) {
        self.last = Head { index: record.ledger.index, entry: record.ledger.entry, at: record.received_at };
        let chain = self.chains.entry(record.keyid.clone()).or_insert((0, BEGINNING));
        if record.seq > chain.0 {
            *chain = (record.seq, record.payload);
        }
        match self.nodes.get_mut(&record.host) {
            Some(seen) => {
                seen.runs += 1;
                if supersedes(&record, &seen.newest) {
                    seen.newest = record;
                }
            }
            None => drop(self.nodes.insert(record.host, Seen { newest: record, runs: 1 })),
        }
    }

    fn end(self, engine: &mut dyn Engine) -> Result<Result<Whole, Broken>, EngineError> {
        let index = self.last.index;
        let broken = self.wrong_head(engine)?.or(self.wrong_node(engine)?).or(self.wrong_bodies(engine)?);
        let head = Head { at: self.now, ..self.last };
        Ok(broken.map_or(Ok(Whole { head, kept: self.kept }), |why| Err(Broken { index, why })))
    }

    fn wrong_head(&self, engine: &mut dyn Engine) -> Result<Option<String>, EngineError> {
        let rows = engine.query("SELECT keyid, seq, head FROM keys WHERE seq > 0", &[])?;
        let mut heads = 0;
        for row in &rows {
            let (keyid, seq) = (row.text(0)?, row.count(1)?);
            let head = row.optional_word(2)?;
            heads += 1;
            if head.is_none() || self.chains.get(keyid).copied() != head.map(|head| (seq, head)) {
                return Ok(Some(format!("the head of key {keyid} is not the last record of its chain")));
            }
        }
        let numbered = self.chains.values().filter(|(seq, _)| *seq > 0).count();
        Ok((heads != numbered).then(|| "the head of a key's chain is gone".to_owned()))
    }

    fn wrong_node(&self, engine: &mut dyn Engine) -> Result<Option<String>, EngineError> {
        let rows = engine.query("SELECT host, position, runs, standing, tier FROM nodes", &[])?;
        if rows.len() != self.nodes.len() {
            return Ok(Some(format!("{} nodes, and records of {}", rows.len(), self.nodes.len())));
        }
        for row in &rows {
            let host = row.digest(0)?;
            let Some(Seen { newest, runs }) = self.nodes.get(&host) else {
                return Ok(Some(format!("node {host} has no record")));
            };
            let judged = standing(newest, self.policy, self.now);
            // A node stands as accepted until the collector looks at the clock again.
            let stands = row.0.get(3) == Some(&place(judged))
                || (judged == Standing::Expired && row.0.get(3) == Some(&place(Standing::Accepted)));
            let same = row.count(1)? == newest.ledger.index && stands && row.text(4)? == newest.tier.as_str();
            if row.count(2)? != *runs || (newest.kept && !same) {
                return Ok(Some(format!("node {host} does not stand by its newest record")));
            }
        }
        Ok(None)
    }

    fn wrong_bodies(&self, engine: &mut dyn Engine) -> Result<Option<String>, EngineError> {
        let rows = engine.query("SELECT COUNT(*) FROM bodies", &[])?;
        let bodies = rows.first().map_or(Ok(0), |row| row.count(0))?;
        Ok((bodies != self.kept).then(|| format!("bytes of {bodies} records, and {} records have them", self.kept)))
    }
}

/// The column of the flags among the record's own.
const FLAGS: usize = 22;

/// Whether the row says what the signed bytes say.
fn compare(taken: &Taken, record: &Record, challenge: Option<&str>, flags: &[Flag]) -> Result<(), String> {
    let own =
        [(taken.simulated, Flag::Simulated), (taken.overridden, Flag::Overridden), (taken.partial, Flag::Partial)];
    let columns = [
        ("payload", taken.payload == record.payload),
        ("run", taken.run_id == record.run_id),
        ("key", taken.keyid == record.keyid),
        ("host", taken.host == record.host && taken.node == record.node && taken.hostname == record.hostname),
        ("class", taken.class == record.class && taken.class_digest == record.class_digest),
        ("suite", taken.suite_digest == record.suite_digest),
        ("decision", taken.decision == record.decision && taken.waived == record.waived),
        ("stage or level", taken.stage == record.stage && taken.level == record.level),
        ("place in the chain", taken.seq == record.seq && taken.prev == record.prev),
        ("nonce", taken.challenge.as_deref() == challenge),
        ("time", taken.finished_at.as_microsecond() == record.finished_at.as_microsecond()),
        ("flags", own.iter().all(|(is, flag)| flags.contains(flag) == *is)),
    ];
    match columns.iter().find(|(_, same)| !same) {
        Some((name, _)) => Err(format!("its row has another {name} than the record")),
        None => Ok(()),
    }
}

fn demand(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
