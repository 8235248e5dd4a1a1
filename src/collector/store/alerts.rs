//! Alerts that came back to the collector: the proof that an operator's receiver was reached.

use jiff::Timestamp;

use super::engine::{EngineError, Row, Value};
use super::{Store, StoreError};

/// Alerts that are kept in all; the oldest go first.
const KEPT: u64 = 100_000;

/// An alert that named a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    pub run_id: String,
    /// Alertmanager's receiver that it came through.
    pub receiver: String,
    /// `firing` or `resolved`.
    pub status: String,
    pub received_at: Timestamp,
}

impl Store {
    /// Keeps alerts, all of them or none.
    pub fn put_alerts(&self, alerts: Vec<Alert>) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO alerts (id, run_id, receiver, status, received_at) VALUES ($1, $2, $3, $4, $5)";
        self.change(move |engine, _| {
            let rows = engine.query("SELECT COALESCE(MAX(id), 0) FROM alerts", &[])?;
            let mut id = rows.first().map_or(Ok(0), |row| row.count(0))?;
            for alert in alerts {
                id += 1;
                let Alert { run_id, receiver, status, received_at } = alert;
                let columns = [id.into(), run_id.into(), receiver.into(), status.into(), received_at.into()];
                engine.execute(SQL, &columns)?;
            }
            engine.execute("DELETE FROM alerts WHERE id <= $1", &[id.saturating_sub(KEPT).into()])?;
            Ok(())
        })
    }

    /// The alerts that named this run, oldest first, at most a hundred.
    pub fn alerts_of(&self, run_id: &str) -> Result<Vec<Alert>, StoreError> {
        const SQL: &str = "SELECT run_id, receiver, status, received_at FROM alerts WHERE run_id = $1
            ORDER BY id LIMIT 100";
        self.list(SQL, &[Value::from(run_id)], alert)
    }
}

fn alert(row: &Row) -> Result<Alert, EngineError> {
    let (run_id, receiver) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
    Ok(Alert { run_id, receiver, status: row.text(2)?.to_owned(), received_at: row.time(3)? })
}
