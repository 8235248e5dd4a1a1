//! PostgreSQL: one database for several collectors.
//!
//! Each connection has a thread of its own, since the library waits for the server in a way that
//! no thread of an asynchronous runtime may. All writers share one advisory lock, taken for each
//! transaction: the ledger has one end, whoever writes to it.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::engine::{BEGIN, Engine, EngineError, Row, SNAPSHOT, Value};
use super::server::Server;

/// The lock of the ledger's writers: any number that nothing else in the database locks.
const LOCK: &str = "BEGIN; SELECT pg_advisory_xact_lock(7957140213)";
/// A server, or a collector that stopped in the middle of a transaction, must not hold the others
/// for ever.
const LIMITS: &str = "SET statement_timeout = '60s'; SET lock_timeout = '20s'; \
     SET idle_in_transaction_session_timeout = '30s'; SET default_transaction_isolation = 'read committed'; \
     SET client_min_messages = 'warning'";

/// One connection to a server.
pub struct Postgres(SyncSender<Request>);

type Answer<T> = SyncSender<Result<T, EngineError>>;

enum Request {
    Execute(String, Vec<Value>, Answer<u64>),
    Query(String, Vec<Value>, Answer<Vec<Row>>),
    Batch(String, Answer<()>),
}

impl Postgres {
    pub fn connect(server: &Arc<Server>) -> Result<Postgres, EngineError> {
        let (requests, queue) = sync_channel(1);
        let (connected, answer) = sync_channel(1);
        let server = server.clone();
        let thread = std::thread::Builder::new().name("store-postgres".to_owned()).spawn(move || {
            match Connection::open(&server) {
                // Who asked may have gone meanwhile: then the queue is closed, and nothing is served.
                Ok(connection) => drop(connected.send(Ok(())).map(|()| connection.serve(&queue))),
                Err(error) => drop(connected.send(Err(error))),
            }
        });
        thread.map_err(|_| EngineError::Gone)?;
        answer.recv().map_err(|_| EngineError::Gone)??;
        Ok(Postgres(requests))
    }

    fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, EngineError> {
        let (sender, receiver) = sync_channel(1);
        self.0.send(request(sender)).map_err(|_| EngineError::Gone)?;
        receiver.recv().map_err(|_| EngineError::Gone)?
    }
}

impl Engine for Postgres {
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<u64, EngineError> {
        self.ask(|answer| Request::Execute(sql.to_owned(), parameters.to_vec(), answer))
    }

    fn query(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, EngineError> {
        self.ask(|answer| Request::Query(sql.to_owned(), parameters.to_vec(), answer))
    }

    fn batch(&mut self, sql: &str) -> Result<(), EngineError> {
        let sql = match sql {
            BEGIN => LOCK,
            SNAPSHOT => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            other => other,
        };
        self.ask(|answer| Request::Batch(sql.to_owned(), answer))
    }
}

/// The connection in its thread, with the statements that it has prepared.
struct Connection {
    client: Client,
    prepared: HashMap<String, Statement>,
}

impl Connection {
    fn open(server: &Server) -> Result<Connection, EngineError> {
        let mut client = match &server.tls {
            Some(tls) => server.config.connect(MakeRustlsConnect::new(tls.as_ref().clone()))?,
            None => server.config.connect(NoTls)?,
        };
        client.batch_execute(LIMITS)?;
        Ok(Connection { client, prepared: HashMap::new() })
    }

    /// Until whoever holds the other end is gone, who may also have gone before an answer.
    fn serve(mut self, queue: &Receiver<Request>) {
        while let Ok(request) = queue.recv() {
            match request {
                Request::Execute(sql, parameters, answer) => drop(answer.send(self.execute(&sql, &parameters))),
                Request::Query(sql, parameters, answer) => drop(answer.send(self.query(&sql, &parameters))),
                Request::Batch(sql, answer) => {
                    drop(answer.send(self.client.batch_execute(&sql).map_err(EngineError::from)));
                }
            }
        }
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<u64, EngineError> {
        let statement = self.prepare(sql)?;
        Ok(self.client.execute(&statement, &references(parameters))?)
    }

    fn query(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, EngineError> {
        let statement = self.prepare(sql)?;
        let rows = self.client.query(&statement, &references(parameters))?;
        rows.iter().map(read_row).collect()
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement, EngineError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

fn references(parameters: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn read_row(row: &postgres::Row) -> Result<Row, EngineError> {
    let value = |column: usize| -> Result<Value, EngineError> {
        let kind = row.columns()[column].type_();
        Ok(match *kind {
            Type::INT8 => row.try_get::<_, Option<i64>>(column)?.map_or(Value::Null, Value::Integer),
            Type::INT4 => row.try_get::<_, Option<i32>>(column)?.map_or(Value::Null, |it| Value::Integer(it.into())),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.map_or(Value::Null, Value::Bytes),
            _ => row.try_get::<_, Option<String>>(column)?.map_or(Value::Null, Value::Text),
        })
    };
    Ok(Row((0..row.len()).map(value).collect::<Result<_, _>>()?))
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Integer(number) => number.to_sql(kind, out),
            Value::Text(text) => text.to_sql(kind, out),
            Value::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::VARCHAR, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}
