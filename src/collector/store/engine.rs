//! A database as the store sees it: statements with parameters in, rows out.
//!
//! One SQL text serves both engines. Parameters are `$1`, `$2` … numbered in the order of their
//! first use, which SQLite and PostgreSQL understand alike. What came from the network is always
//! a parameter and never part of the text.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::ident::{Digest, printable};

/// One connection to a database.
pub trait Engine: Send {
    /// Runs one statement and says how many rows it changed.
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<u64, EngineError>;

    /// Runs one query.
    fn query(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, EngineError>;

    /// Runs several statements without parameters. [`BEGIN`] also takes the one lock of all writers.
    fn batch(&mut self, sql: &str) -> Result<(), EngineError>;
}

/// Begins a transaction that writes: there is one at a time, whatever process it is of.
pub const BEGIN: &str = "BEGIN";
/// Begins a transaction that only reads, and sees one moment of the store.
pub const SNAPSHOT: &str = "BEGIN READ ONLY";
pub const COMMIT: &str = "COMMIT";
pub const ROLLBACK: &str = "ROLLBACK";

/// A value in a column or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Why a statement did not come through.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("SQLite")]
    Sqlite(#[from] rusqlite::Error),
    #[error("{path} cannot be made")]
    File { path: PathBuf, source: std::io::Error },
    #[error("PostgreSQL")]
    Postgres(#[from] postgres::Error),
    #[error("the connection to PostgreSQL is gone")]
    Gone,
    #[error("column {column} holds what was never written there: {found}")]
    Damaged { column: usize, found: String },
}

impl EngineError {
    /// Whether the connection is gone, and not only the statement wrong.
    pub fn is_gone(&self) -> bool {
        match self {
            EngineError::Gone => true,
            EngineError::Postgres(error) => error.is_closed() || error.code().is_some_and(is_ending),
            EngineError::Sqlite(_) | EngineError::File { .. } | EngineError::Damaged { .. } => false,
        }
    }
}

/// SQLSTATE classes 08 (connection) and 57P (the server is told to end).
fn is_ending(state: &postgres::error::SqlState) -> bool {
    state.code().starts_with("08") || state.code().starts_with("57P")
}

/// One row of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(pub Vec<Value>);

impl Row {
    pub fn integer(&self, column: usize) -> Result<i64, EngineError> {
        match self.0.get(column) {
            Some(Value::Integer(number)) => Ok(*number),
            other => Err(damaged(column, &other)),
        }
    }

    /// A number that is never negative.
    pub fn count(&self, column: usize) -> Result<u64, EngineError> {
        let number = self.integer(column)?;
        u64::try_from(number).map_err(|_| damaged(column, &number))
    }

    pub fn truth(&self, column: usize) -> Result<bool, EngineError> {
        Ok(self.integer(column)? != 0)
    }

    pub fn text(&self, column: usize) -> Result<&str, EngineError> {
        self.optional_text(column)?.ok_or_else(|| damaged(column, &"null"))
    }

    pub fn optional_text(&self, column: usize) -> Result<Option<&str>, EngineError> {
        match self.0.get(column) {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            other => Err(damaged(column, &other)),
        }
    }

    pub fn bytes(&self, column: usize) -> Result<&[u8], EngineError> {
        match self.0.get(column) {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            other => Err(damaged(column, &other)),
        }
    }

    /// A text of the type `T`.
    pub fn word<T: std::str::FromStr>(&self, column: usize) -> Result<T, EngineError> {
        let text = self.text(column)?;
        text.parse().map_err(|_| damaged(column, &text))
    }

    pub fn optional_word<T: std::str::FromStr>(&self, column: usize) -> Result<Option<T>, EngineError> {
        let Some(text) = self.optional_text(column)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| damaged(column, &text))
    }

    /// A word as JSON writes it: the enums of the record have no other reading.
    pub fn json_word<T: serde::de::DeserializeOwned>(&self, column: usize) -> Result<T, EngineError> {
        let text = self.text(column)?;
        serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|_| damaged(column, &text))
    }

    pub fn digest(&self, column: usize) -> Result<Digest, EngineError> {
        self.word(column)
    }

    /// Microseconds since 1970.
    pub fn time(&self, column: usize) -> Result<Timestamp, EngineError> {
        let number = self.integer(column)?;
        Timestamp::from_microsecond(number).map_err(|_| damaged(column, &number))
    }

    pub fn optional_time(&self, column: usize) -> Result<Option<Timestamp>, EngineError> {
        match self.0.get(column) {
            Some(Value::Null) => Ok(None),
            _ => self.time(column).map(Some),
        }
    }

    /// What is in this column is none of what is ever written there.
    pub fn damage(&self, column: usize) -> EngineError {
        damaged(column, &self.0.get(column))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<Digest> for Value {
    fn from(digest: Digest) -> Value {
        Value::Text(digest.to_string())
    }
}

impl From<Timestamp> for Value {
    fn from(time: Timestamp) -> Value {
        Value::Integer(time.as_microsecond())
    }
}

impl From<u64> for Value {
    /// Numbers past 2^63 are cut there: none of ours, and none of a record that was let in, is larger.
    fn from(number: u64) -> Value {
        Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Integer(i64::from(truth))
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

fn damaged(column: usize, found: &dyn std::fmt::Debug) -> EngineError {
    EngineError::Damaged { column, found: printable(&format!("{found:?}"), 80) }
}
