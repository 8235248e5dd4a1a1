//! Nodes: each host by its newest record, summed up as records come in.
//!
//! Which record is a host's newest, is [`supersedes`]'s to say; what is thought of it, is
//! `policy::standing`'s. Both are judged again when a key is decided about, and of all nodes when
//! the policy is another one than the store was last served with.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::engine::{Engine, EngineError, Value};
use super::records::{COLUMNS, record};
use super::{Rules, StoreError, schema};
use crate::collector::intake::{self, Taken};
use crate::collector::model::{KeyState, Record, Standing};
use crate::collector::policy::{Policy, standing};
use crate::decision::Decision;
use crate::ident::Digest;
use crate::record::PublicKey;
use crate::record::standing::Flag;

/// The policy that holds: the given one, else the one of the last time. Another one than that
/// judges every node anew.
pub fn settle_policy(engine: &mut dyn Engine, given: Option<&Policy>) -> Result<Policy, StoreError> {
    let damaged = |_| StoreError::Damaged { what: "policy" };
    let stored: Option<Policy> =
        schema::read_meta(engine, "policy")?.map(|text| serde_json::from_str(&text)).transpose().map_err(damaged)?;
    let policy = given.cloned().or_else(|| stored.clone()).unwrap_or_default();
    if stored.as_ref() != Some(&policy) {
        let text = serde_json::to_string(&policy).map_err(damaged)?;
        schema::write_meta(engine, "policy", &text)?;
        judge_all(engine, &policy, Timestamp::now())?;
    }
    Ok(policy)
}

/// Whether a record takes the place of a host's newest one.
///
/// A record by a key that nobody approved, or of a recorded host, never takes the place of one
/// that can count. A run that left steps out or was told where to read takes it only by a
/// rejection. Of one key's records the later in its chain is the newer, in whatever order they
/// came; of two keys' records the one that came later.
pub fn supersedes(new: &Record, old: &Record) -> bool {
    let foreign = |record: &Record| record.flags.contains(&Flag::PendingKey) || record.flags.contains(&Flag::Simulated);
    let short = |record: &Record| {
        let left_out = record.flags.contains(&Flag::Partial) || record.flags.contains(&Flag::Overridden);
        left_out && record.decision != Decision::Rejected
    };
    match (foreign(new), foreign(old)) {
        (true, false) => return false,
        (false, true) => return true,
        _ => {}
    }
    match (short(new), short(old)) {
        (true, false) => return false,
        (false, true) => return true,
        _ => {}
    }
    if new.keyid == old.keyid && new.seq != old.seq { new.seq > old.seq } else { new.ledger.index > old.ledger.index }
}

/// Counts a record that was just stored, and makes it its host's newest if it is.
pub fn add(engine: &mut dyn Engine, rules: &Rules, taken: &Taken, new: &Record) -> Result<(), EngineError> {
    const COUNT: &str = "UPDATE nodes SET runs = runs + 1, rejections = rejections + $1 WHERE host = $2";
    let rejected = new.decision == Decision::Rejected && new.key_state != KeyState::Pending;
    match newest(engine, &rules.policy, &new.host)? {
        Some(old) if !supersedes(new, &old) => {
            engine.execute(COUNT, &[rejected.into(), new.host.into()])?;
            Ok(())
        }
        _ => put(engine, &rules.policy, taken, new, new.received_at, Count { runs: 1, rejections: rejected.into() }),
    }
}

/// What is added to a node's counts.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    runs: u64,
    rejections: u64,
}

/// Makes this record its host's newest.
fn put(
    engine: &mut dyn Engine,
    policy: &Policy,
    taken: &Taken,
    new: &Record,
    now: Timestamp,
    count: Count,
) -> Result<(), EngineError> {
    const SQL: &str = "INSERT INTO nodes (host, position, hostname, serial, search, class, tier, standing, expires_at,
        runs, rejections) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (host) DO UPDATE SET position = excluded.position, hostname = excluded.hostname,
        serial = excluded.serial, search = excluded.search, class = excluded.class, tier = excluded.tier,
        standing = excluded.standing, expires_at = excluded.expires_at, runs = nodes.runs + excluded.runs,
        rejections = nodes.rejections + excluded.rejections";
    let (rank, expires_at) = judged(new, policy, now);
    let columns = [
        new.host.into(),
        new.ledger.index.into(),
        new.hostname.as_str().into(),
        taken.serial.clone().into(),
        search_text(taken).into(),
        new.class.as_str().into(),
        new.tier.as_str().into(),
        rank.clone(),
        expires_at,
        count.runs.into(),
        count.rejections.into(),
    ];
    engine.execute(SQL, &columns)?;
    put_details(engine, taken, new, &rank)
}

fn put_details(engine: &mut dyn Engine, taken: &Taken, new: &Record, rank: &Value) -> Result<(), EngineError> {
    const DETAILS: &str = "INSERT INTO node_details (host, gpus, problems) VALUES ($1, $2, $3)
        ON CONFLICT (host) DO UPDATE SET gpus = excluded.gpus, problems = excluded.problems
        WHERE node_details.gpus <> excluded.gpus OR node_details.problems <> excluded.problems";
    const STAND: &str = "UPDATE node_findings SET standing = $1, class = $2, tier = $3 WHERE host = $4";
    const FINDING: &str = "INSERT INTO node_findings (host, code, standing, class, tier) VALUES ($1, $2, $3, $4, $5)";
    let problems = serde_json::to_string(&taken.problems).expect("problems of strings and numbers are JSON");
    let details = [new.host.into(), taken.gpus.as_str().into(), problems.into()];
    let changed = engine.execute(DETAILS, &details)? > 0;
    let codes: BTreeSet<&str> = taken.problems.iter().map(|problem| problem.code.as_str()).collect();
    let (class, tier): (Value, Value) = (new.class.as_str().into(), new.tier.as_str().into());
    // Most records find what the one before them found.
    if !changed && !codes.is_empty() {
        engine.execute(STAND, &[rank.clone(), class, tier, new.host.into()])?;
    } else if changed {
        engine.execute("DELETE FROM node_findings WHERE host = $1", &[new.host.into()])?;
        for code in codes {
            let finding = [new.host.into(), code.into(), rank.clone(), class.clone(), tier.clone()];
            engine.execute(FINDING, &finding)?;
        }
    }
    Ok(())
}

/// Judges a host's node anew after a key of it was decided about: another record may be its newest now.
pub fn judge(engine: &mut dyn Engine, policy: &Policy, host: &Digest, now: Timestamp) -> Result<(), StoreError> {
    let Some(shown) = newest(engine, policy, host)? else { return Ok(()) };
    let new = fold(engine, policy, host)?.unwrap_or_else(|| shown.clone());
    if new.ledger.index == shown.ledger.index {
        return Ok(rank(engine, &new, policy, now)?);
    }
    match body(engine, &new)? {
        Some(taken) => Ok(put(engine, policy, &taken, &new, now, Count::default())?),
        // Retention dropped it while it was not the newest: what it found is not known any more.
        None => Ok(rank(engine, &shown, policy, now)?),
    }
}

/// The record that a host's node shows.
fn newest(engine: &mut dyn Engine, policy: &Policy, host: &Digest) -> Result<Option<Record>, EngineError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM nodes n JOIN records r ON r.position = n.position JOIN keys k ON k.keyid = r.keyid
         WHERE n.host = $1"
    );
    engine.query(&sql, &[(*host).into()])?.first().map(|row| record(row, policy)).transpose()
}

/// The newest of all records of a host, in the order in which they came.
fn fold(engine: &mut dyn Engine, policy: &Policy, host: &Digest) -> Result<Option<Record>, EngineError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM records r JOIN keys k ON k.keyid = r.keyid
         WHERE r.host = $1 AND r.position > $2 ORDER BY r.position LIMIT 500"
    );
    let (mut newest, mut after): (Option<Record>, u64) = (None, 0);
    loop {
        let rows = engine.query(&sql, &[(*host).into(), after.into()])?;
        if rows.is_empty() {
            return Ok(newest);
        }
        for row in rows {
            let record = record(&row, policy)?;
            after = record.ledger.index;
            if newest.as_ref().is_none_or(|old| supersedes(&record, old)) {
                newest = Some(record);
            }
        }
    }
}

/// What is in a record's bytes, while they are kept.
fn body(engine: &mut dyn Engine, record: &Record) -> Result<Option<Taken>, StoreError> {
    const SQL: &str = "SELECT b.raw, k.public_key FROM bodies b JOIN keys k ON k.keyid = $1 WHERE b.position = $2";
    let rows = engine.query(SQL, &[record.keyid.as_str().into(), record.ledger.index.into()])?;
    let Some(row) = rows.first() else { return Ok(None) };
    let key = PublicKey::parse(row.text(1)?).map_err(|_| StoreError::Damaged { what: "public key" })?;
    let taken = intake::read_again(row.bytes(0)?.to_vec(), &key);
    taken.map(Some).map_err(|_| StoreError::Damaged { what: "record" })
}

/// Accepted nodes whose time is over stand as expired from now on.
pub fn expire(engine: &mut dyn Engine, now: Timestamp) -> Result<(), EngineError> {
    const FINDINGS: &str = "UPDATE node_findings SET standing = $1
        WHERE host IN (SELECT host FROM nodes WHERE standing = $2 AND expires_at <= $3)";
    const NODES: &str = "UPDATE nodes SET standing = $1 WHERE standing = $2 AND expires_at <= $3";
    for sql in [FINDINGS, NODES] {
        engine.execute(sql, &[place(Standing::Expired), place(Standing::Accepted), now.into()])?;
    }
    Ok(())
}

/// A standing as a column holds it: its place among the worst.
pub fn place(standing: Standing) -> Value {
    let place = Standing::ALL.iter().position(|other| *other == standing).unwrap_or_default();
    Value::from(place as u64)
}

/// Hexadecimal digits of a host's digest that a search finds a part of.
pub const SHORT_DIGEST: usize = 20;

/// What a search looks through, in lower case, one name a line: host name, serial numbers of host
/// and GPUs, and the beginning of the host's digest.
fn search_text(taken: &Taken) -> String {
    let digest = taken.host.hex();
    let short = digest.get(..SHORT_DIGEST).unwrap_or(&digest);
    let mut text = format!("{}\n{}\n{short}", taken.hostname, taken.serial.as_deref().unwrap_or_default());
    for serial in &taken.gpu_serials {
        text.push('\n');
        text.push_str(serial);
    }
    text.to_lowercase()
}

fn judge_all(engine: &mut dyn Engine, policy: &Policy, now: Timestamp) -> Result<(), EngineError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM nodes n JOIN records r ON r.position = n.position JOIN keys k ON k.keyid = r.keyid
         WHERE n.position > $1 ORDER BY n.position LIMIT 1000"
    );
    let mut after = 0;
    loop {
        let rows = engine.query(&sql, &[Value::from(after)])?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in rows {
            let record = record(&row, policy)?;
            after = record.ledger.index;
            rank(engine, &record, policy, now)?;
        }
    }
}

fn rank(engine: &mut dyn Engine, record: &Record, policy: &Policy, now: Timestamp) -> Result<(), EngineError> {
    const SQL: &str = "UPDATE nodes SET standing = $1, expires_at = $2, tier = $3 WHERE host = $4";
    const FINDINGS: &str = "UPDATE node_findings SET standing = $1, tier = $2 WHERE host = $3";
    let (rank, expires_at) = judged(record, policy, now);
    engine.execute(SQL, &[rank.clone(), expires_at, record.tier.as_str().into(), record.host.into()])?;
    engine.execute(FINDINGS, &[rank, record.tier.as_str().into(), record.host.into()])?;
    Ok(())
}

fn judged(record: &Record, policy: &Policy, now: Timestamp) -> (Value, Value) {
    let expires_at = policy.expires_at(record).unwrap_or(Timestamp::MAX);
    (place(standing(record, policy, now)), expires_at.into())
}
