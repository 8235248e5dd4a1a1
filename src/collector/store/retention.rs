//! Retention: what a record said is dropped after a time, that it was received is kept for ever.
//!
//! The bytes and the receipt go; row, hash and place in the ledger stay, and so do the rejections
//! that repeat offenders are told by. A host's newest record is never dropped.

use jiff::Timestamp;

use super::engine::{Engine, EngineError, Row, Value};
use super::{Store, StoreError, schema};

/// The latest time before which retention ran, as a word of the store about itself.
pub const PRUNED_BEFORE: &str = "pruned-before";

/// Records of one transaction: those that come in must not wait for long.
const STEP: u64 = 200;

/// What retention dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub records: u64,
    pub bytes: u64,
}

impl Store {
    /// Drops the bytes of records that were received before this time.
    pub fn prune(&self, before: Timestamp) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        let mut after = 0;
        self.change(move |engine, _| note(engine, before))?;
        loop {
            let step = self.change(move |engine, _| Ok(drop_some(engine, before, after)?))?;
            let Some(last) = step.last() else { return Ok(pruned) };
            after = last.0;
            pruned.records += step.len() as u64;
            pruned.bytes += step.iter().map(|(_, bytes)| bytes).sum::<u64>();
        }
    }
}

fn note(engine: &mut dyn Engine, before: Timestamp) -> Result<(), StoreError> {
    let noted: Option<Timestamp> = schema::read_meta(engine, PRUNED_BEFORE)?.and_then(|text| text.parse().ok());
    if noted.is_none_or(|noted| noted < before) {
        schema::write_meta(engine, PRUNED_BEFORE, &before.to_string())?;
    }
    Ok(())
}

/// Positions and sizes of what was dropped.
fn drop_some(engine: &mut dyn Engine, before: Timestamp, after: u64) -> Result<Vec<(u64, u64)>, EngineError> {
    const FIND: &str = "SELECT r.position, LENGTH(b.raw) + LENGTH(b.receipt) FROM records r
        JOIN bodies b ON b.position = r.position WHERE r.position > $1 AND r.received_at < $2 AND r.kept = 1
        AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.position = r.position) ORDER BY r.position LIMIT $3";
    let rows = engine.query(FIND, &[after.into(), before.into(), STEP.into()])?;
    let found = |row: &Row| Ok((row.count(0)?, row.count(1)?));
    let found: Vec<(u64, u64)> = rows.iter().map(found).collect::<Result<_, EngineError>>()?;
    for (position, _) in &found {
        let position = [Value::from(*position)];
        engine.execute("DELETE FROM bodies WHERE position = $1", &position)?;
        engine.execute("UPDATE records SET kept = 0 WHERE position = $1", &position)?;
    }
    Ok(found)
}
