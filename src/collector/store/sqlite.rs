//! SQLite, built in: one file, write-ahead log, every commit on the disk before it is answered.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::Use;
use super::engine::{BEGIN, Engine, EngineError, Row, SNAPSHOT, Value};

/// How long a statement waits for another process that writes.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Statements that a connection keeps prepared; the store has fewer.
const PREPARED: usize = 128;

/// Pages of the log, 4 KiB each.
const CHECKPOINT: i64 = 8192;
/// KiB of pages that the writer keeps, so that it finds the indices of a large fleet in memory.
const WRITERS_CACHE: i64 = 32 * 1024;
/// KiB of pages that each of the readers keeps; the system keeps the file too.
const READERS_CACHE: i64 = 2 * 1024;

/// One connection to the file.
pub struct Sqlite(Connection);

impl Sqlite {
    /// Opens the file, and makes it where it is missing.
    pub fn open(path: &Path, purpose: Use) -> Result<Sqlite, EngineError> {
        // It holds the secret of the nonces. SQLite gives its other files the same mode.
        let private = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        if let Err(error) = private
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(EngineError::File { path: path.to_owned(), source: error });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        // All that is searched is in lower case already; PostgreSQL tells cases apart too.
        connection.pragma_update(None, "case_sensitive_like", "on")?;
        // Frames of the log before it is written back: the more, the more often a page was written in between.
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT)?;
        let cache = match purpose {
            Use::Writer => WRITERS_CACHE,
            Use::Reader => READERS_CACHE,
        };
        // A negative number is one of KiB.
        connection.pragma_update(None, "cache_size", -cache)?;
        Ok(Sqlite(connection))
    }
}

impl Engine for Sqlite {
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<u64, EngineError> {
        let changed = self.0.prepare_cached(sql)?.execute(params_from_iter(parameters))?;
        Ok(changed as u64)
    }

    fn query(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, EngineError> {
        let mut statement = self.0.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(parameters))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| Ok(Value::of(row.get_ref(column)?)));
            found.push(Row(values.collect::<Result<_, rusqlite::Error>>()?));
        }
        Ok(found)
    }

    fn batch(&mut self, sql: &str) -> Result<(), EngineError> {
        // A transaction that begins by reading could not write once another one has.
        let sql = match sql {
            BEGIN => "BEGIN IMMEDIATE",
            SNAPSHOT => "BEGIN DEFERRED",
            other => other,
        };
        // `INTEGER PRIMARY KEY` is SQLite's row number itself; any other type costs a second index.
        Ok(self.0.execute_batch(&sql.replace("BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY"))?)
    }
}

impl Value {
    fn of(value: ValueRef<'_>) -> Value {
        match value {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Integer(number),
            // Nothing of ours is a fraction: it reads as damage where a number is asked for.
            ValueRef::Real(number) => Value::Text(number.to_string()),
            ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        }
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
