//! The tables, and the version that they are of.
//!
//! `records` is the ledger: one row for each record, in the order of receipt, chained by `entry`.
//! `bodies` holds what retention may drop. `nodes`, `node_details` and `node_findings` sum up the newest record of
//! each host, so that a page of the fleet reads a page and not a history. `nodes` is narrow, since a
//! search goes through all of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::StoreError;
use super::engine::{Engine, EngineError};
use crate::collector::nonce::Secret;

/// The version of the tables. A store of a newer one is refused by name.
pub const SCHEMA: i64 = 1;

const META: &str = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)";

const TABLES: &str = "
CREATE TABLE keys (
    keyid TEXT PRIMARY KEY,
    public_key TEXT NOT NULL,
    tier TEXT NOT NULL,
    state TEXT NOT NULL,
    host TEXT NOT NULL,
    hostname TEXT NOT NULL,
    serial TEXT,
    replaces TEXT,
    replaced_by TEXT,
    enrolled_at BIGINT NOT NULL,
    decided_at BIGINT,
    decided_by TEXT,
    reason TEXT,
    seq BIGINT NOT NULL,
    head TEXT
);
CREATE INDEX keys_host ON keys (host);
CREATE INDEX keys_state ON keys (state, tier);
CREATE TABLE records (
    position BIGINT PRIMARY KEY,
    previous TEXT NOT NULL,
    payload TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    keyid TEXT NOT NULL,
    entry TEXT NOT NULL,
    run_id TEXT NOT NULL,
    host TEXT NOT NULL,
    node TEXT NOT NULL,
    hostname TEXT NOT NULL,
    class TEXT NOT NULL,
    class_digest TEXT NOT NULL,
    suite_digest TEXT NOT NULL,
    decision TEXT NOT NULL,
    stage TEXT NOT NULL,
    level TEXT NOT NULL,
    waived BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    prev TEXT,
    challenge TEXT,
    finished_at BIGINT NOT NULL,
    flags TEXT NOT NULL,
    tier TEXT NOT NULL,
    kept BIGINT NOT NULL
);
CREATE UNIQUE INDEX records_payload ON records (payload);
CREATE INDEX records_run ON records (run_id, host);
CREATE INDEX records_host ON records (host, position);
CREATE INDEX records_chain ON records (keyid, seq);
CREATE INDEX records_challenge ON records (challenge) WHERE challenge IS NOT NULL;
CREATE TABLE bodies (
    position BIGINT PRIMARY KEY,
    raw BYTEA NOT NULL,
    receipt BYTEA NOT NULL
);
CREATE TABLE rejections (
    position BIGINT PRIMARY KEY,
    host TEXT NOT NULL,
    received_at BIGINT NOT NULL
);
CREATE INDEX rejections_host ON rejections (host, received_at);
CREATE INDEX rejections_time ON rejections (received_at, host);
CREATE TABLE findings (
    position BIGINT NOT NULL,
    host TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    step TEXT NOT NULL,
    code TEXT NOT NULL,
    subject TEXT NOT NULL,
    serial TEXT
);
CREATE INDEX findings_host ON findings (host, received_at);
CREATE INDEX findings_serial ON findings (received_at, serial) WHERE serial IS NOT NULL;
CREATE TABLE nodes (
    host TEXT PRIMARY KEY,
    position BIGINT NOT NULL,
    hostname TEXT NOT NULL,
    serial TEXT,
    search TEXT NOT NULL,
    class TEXT NOT NULL,
    tier TEXT NOT NULL,
    standing BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    runs BIGINT NOT NULL,
    rejections BIGINT NOT NULL
);
CREATE INDEX nodes_worst ON nodes (standing, position DESC, class, tier);
CREATE INDEX nodes_newest ON nodes (position, standing, class, tier);
CREATE INDEX nodes_name ON nodes (hostname, host, standing, class, tier);
CREATE INDEX nodes_serial ON nodes (serial);
CREATE INDEX nodes_expiry ON nodes (standing, expires_at);
CREATE INDEX nodes_counts ON nodes (standing, class, tier);
CREATE TABLE node_details (
    host TEXT PRIMARY KEY,
    gpus TEXT NOT NULL,
    problems TEXT NOT NULL
);
CREATE TABLE node_findings (
    host TEXT NOT NULL,
    code TEXT NOT NULL,
    standing BIGINT NOT NULL,
    class TEXT NOT NULL,
    tier TEXT NOT NULL,
    PRIMARY KEY (host, code)
);
CREATE INDEX node_findings_code ON node_findings (code, standing, class, tier);
CREATE TABLE receipt_keys (
    id BIGINT PRIMARY KEY,
    keyid TEXT NOT NULL UNIQUE,
    public_key TEXT NOT NULL,
    rotation BYTEA,
    added_at BIGINT NOT NULL
);
CREATE TABLE access_tokens (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
CREATE TABLE join_tokens (
    digest TEXT PRIMARY KEY,
    serial TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT,
    used_by TEXT
);
CREATE TABLE ssh_host_keys (
    name TEXT NOT NULL,
    line TEXT NOT NULL,
    added_at BIGINT NOT NULL,
    added_by TEXT NOT NULL,
    PRIMARY KEY (name, line)
);
CREATE TABLE endorsement_keys (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    added_at BIGINT NOT NULL,
    added_by TEXT NOT NULL
);
CREATE TABLE alerts (
    id BIGINT PRIMARY KEY,
    run_id TEXT NOT NULL,
    receiver TEXT NOT NULL,
    status TEXT NOT NULL,
    received_at BIGINT NOT NULL
);
CREATE INDEX alerts_run ON alerts (run_id, id);
";

/// Makes the tables in an empty database, or checks the version of those that are there.
/// Runs inside the caller's transaction.
pub fn prepare(engine: &mut dyn Engine) -> Result<(), StoreError> {
    engine.batch(META)?;
    match read_meta(engine, "schema")?.map(|version| version.parse::<i64>()) {
        Some(Ok(SCHEMA)) => Ok(()),
        Some(Ok(found)) if found > SCHEMA => Err(StoreError::NewerSchema { found }),
        Some(Ok(found)) => Err(StoreError::UnknownSchema { found }),
        Some(Err(_)) => Err(StoreError::Damaged { what: "schema version" }),
        None => {
            engine.batch(TABLES)?;
            write_meta(engine, "secret", &STANDARD.encode(Secret::random()))?;
            Ok(write_meta(engine, "schema", &SCHEMA.to_string())?)
        }
    }
}

/// The secret that nonces are made with.
pub fn secret(engine: &mut dyn Engine) -> Result<Vec<u8>, StoreError> {
    let text = read_meta(engine, "secret")?;
    let secret = text.and_then(|text| STANDARD.decode(text).ok()).filter(|secret| secret.len() >= 32);
    secret.ok_or(StoreError::Damaged { what: "nonce secret" })
}

/// A word that the store keeps about itself.
pub fn read_meta(engine: &mut dyn Engine, name: &str) -> Result<Option<String>, EngineError> {
    let rows = engine.query("SELECT value FROM meta WHERE name = $1", &[name.into()])?;
    rows.first().map(|row| row.text(0).map(str::to_owned)).transpose()
}

pub fn write_meta(engine: &mut dyn Engine, name: &str, value: &str) -> Result<(), EngineError> {
    const SQL: &str = "INSERT INTO meta (name, value) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    engine.execute(SQL, &[name.into(), value.into()])?;
    Ok(())
}
