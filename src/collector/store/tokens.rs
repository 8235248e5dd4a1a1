//! What opens a door: access tokens, join tokens, SSH host keys and endorsement keys known beforehand.
//!
//! Tokens are kept as their SHA-256: who reads the store learns none.

use jiff::Timestamp;

use super::engine::{Engine, EngineError, Row, Value};
use super::{Store, StoreError};
use crate::ident::Digest;

/// A token of a reader or writer of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// SHA-256 of the token.
    pub digest: Digest,
    /// Whose it is, for people.
    pub name: String,
    /// What it opens: a word of the API's.
    pub role: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// A token with which one host may enrol once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// SHA-256 of the token.
    pub digest: Digest,
    /// The serial number that it was made for.
    pub serial: String,
    pub created_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub used_at: Option<Timestamp>,
    /// The key that it let in.
    pub used_by: Option<String>,
}

/// A host's SSH key, known before the host enrols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHostKey {
    /// Host name or serial number that it belongs to.
    pub name: String,
    /// `ssh-ed25519 AAAA…`.
    pub line: String,
    pub added_at: Timestamp,
    pub added_by: String,
}

/// A TPM's endorsement key that may vouch for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndorsementKey {
    /// SHA-256 of its public part.
    pub digest: Digest,
    /// Host name or serial number that it belongs to.
    pub name: String,
    pub added_at: Timestamp,
    pub added_by: String,
}

impl Store {
    pub fn put_access_token(&self, token: AccessToken) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO access_tokens (digest, name, role, created_at, expires_at)
            VALUES ($1, $2, $3, $4, $5)";
        let AccessToken { digest, name, role, created_at, expires_at } = token;
        self.run(SQL, vec![digest.into(), name.into(), role.into(), created_at.into(), expires_at.into()]).map(|_| ())
    }

    /// The token of this SHA-256, expired ones included.
    pub fn access_token(&self, digest: &Digest) -> Result<Option<AccessToken>, StoreError> {
        let sql = format!("{ACCESS} WHERE digest = $1");
        Ok(self.list(&sql, &[(*digest).into()], access_token)?.into_iter().next())
    }

    pub fn access_tokens(&self) -> Result<Vec<AccessToken>, StoreError> {
        self.list(&format!("{ACCESS} ORDER BY created_at, digest"), &[], access_token)
    }

    /// Whether there was one.
    pub fn remove_access_token(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.run("DELETE FROM access_tokens WHERE digest = $1", vec![(*digest).into()]).map(|rows| rows > 0)
    }

    pub fn put_join_token(&self, token: JoinToken) -> Result<(), StoreError> {
        const SQL: &str =
            "INSERT INTO join_tokens (digest, serial, created_by, created_at, expires_at, used_at, used_by)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let columns = vec![
            token.digest.into(),
            token.serial.into(),
            token.created_by.into(),
            token.created_at.into(),
            token.expires_at.into(),
            token.used_at.into(),
            token.used_by.into(),
        ];
        self.run(SQL, columns).map(|_| ())
    }

    pub fn join_token(&self, digest: &Digest) -> Result<Option<JoinToken>, StoreError> {
        let sql = format!("{JOIN} WHERE digest = $1");
        Ok(self.list(&sql, &[(*digest).into()], join_token)?.into_iter().next())
    }

    pub fn join_tokens(&self) -> Result<Vec<JoinToken>, StoreError> {
        self.list(&format!("{JOIN} ORDER BY created_at, digest"), &[], join_token)
    }

    pub fn remove_join_token(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.run("DELETE FROM join_tokens WHERE digest = $1", vec![(*digest).into()]).map(|rows| rows > 0)
    }

    /// Uses a token up for a key. False: unknown, used, expired, or made for another serial number.
    pub fn use_join_token(
        &self,
        digest: &Digest,
        serial: &str,
        keyid: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (digest, serial, keyid) = (*digest, serial.to_owned(), keyid.to_owned());
        self.change(move |engine, _| Ok(use_join_token(engine, &digest, Some(&serial), &keyid, now)?))
    }

    pub fn put_ssh_host_key(&self, key: SshHostKey) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO ssh_host_keys (name, line, added_at, added_by) VALUES ($1, $2, $3, $4)
            ON CONFLICT (name, line) DO NOTHING";
        self.run(SQL, vec![key.name.into(), key.line.into(), key.added_at.into(), key.added_by.into()]).map(|_| ())
    }

    /// The SSH keys of this host name or serial number.
    pub fn ssh_host_keys_of(&self, name: &str) -> Result<Vec<SshHostKey>, StoreError> {
        self.list(&format!("{SSH} WHERE name = $1 ORDER BY line"), &[name.into()], ssh_host_key)
    }

    pub fn ssh_host_keys(&self) -> Result<Vec<SshHostKey>, StoreError> {
        self.list(&format!("{SSH} ORDER BY name, line"), &[], ssh_host_key)
    }

    pub fn remove_ssh_host_keys(&self, name: &str) -> Result<u64, StoreError> {
        self.run("DELETE FROM ssh_host_keys WHERE name = $1", vec![name.into()])
    }

    pub fn put_endorsement_key(&self, key: EndorsementKey) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO endorsement_keys (digest, name, added_at, added_by) VALUES ($1, $2, $3, $4)
            ON CONFLICT (digest) DO NOTHING";
        self.run(SQL, vec![key.digest.into(), key.name.into(), key.added_at.into(), key.added_by.into()]).map(|_| ())
    }

    pub fn endorsement_key(&self, digest: &Digest) -> Result<Option<EndorsementKey>, StoreError> {
        let sql = format!("{ENDORSEMENT} WHERE digest = $1");
        Ok(self.list(&sql, &[(*digest).into()], endorsement_key)?.into_iter().next())
    }

    pub fn endorsement_keys(&self) -> Result<Vec<EndorsementKey>, StoreError> {
        self.list(&format!("{ENDORSEMENT} ORDER BY name, digest"), &[], endorsement_key)
    }

    pub fn remove_endorsement_key(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.run("DELETE FROM endorsement_keys WHERE digest = $1", vec![(*digest).into()]).map(|rows| rows > 0)
    }

    /// One statement in a transaction of its own; how many rows it changed.
    pub(super) fn run(&self, sql: &'static str, parameters: Vec<Value>) -> Result<u64, StoreError> {
        self.change(move |engine, _| Ok(engine.execute(sql, &parameters)?))
    }

    pub(super) fn list<T>(
        &self,
        sql: &str,
        parameters: &[Value],
        read: fn(&Row) -> Result<T, EngineError>,
    ) -> Result<Vec<T>, StoreError> {
        self.ask(|engine, _| Ok(engine.query(sql, parameters)?.iter().map(read).collect::<Result<_, _>>()?))
    }
}

const ACCESS: &str = "SELECT digest, name, role, created_at, expires_at FROM access_tokens";
const JOIN: &str = "SELECT digest, serial, created_by, created_at, expires_at, used_at, used_by FROM join_tokens";
const SSH: &str = "SELECT name, line, added_at, added_by FROM ssh_host_keys";
const ENDORSEMENT: &str = "SELECT digest, name, added_at, added_by FROM endorsement_keys";

/// Within the caller's transaction: two keys never use one token.
pub fn use_join_token(
    engine: &mut dyn Engine,
    digest: &Digest,
    serial: Option<&str>,
    keyid: &str,
    now: Timestamp,
) -> Result<bool, EngineError> {
    const SQL: &str = "UPDATE join_tokens SET used_at = $1, used_by = $2
        WHERE digest = $3 AND serial = $4 AND used_at IS NULL AND expires_at > $5";
    let columns = [now.into(), keyid.into(), (*digest).into(), serial.unwrap_or_default().into(), now.into()];
    Ok(engine.execute(SQL, &columns)? == 1)
}

fn access_token(row: &Row) -> Result<AccessToken, EngineError> {
    Ok(AccessToken {
        digest: row.digest(0)?,
        name: row.text(1)?.to_owned(),
        role: row.text(2)?.to_owned(),
        created_at: row.time(3)?,
        expires_at: row.optional_time(4)?,
    })
}

fn join_token(row: &Row) -> Result<JoinToken, EngineError> {
    Ok(JoinToken {
        digest: row.digest(0)?,
        serial: row.text(1)?.to_owned(),
        created_by: row.text(2)?.to_owned(),
        created_at: row.time(3)?,
        expires_at: row.time(4)?,
        used_at: row.optional_time(5)?,
        used_by: row.optional_text(6)?.map(str::to_owned),
    })
}

fn ssh_host_key(row: &Row) -> Result<SshHostKey, EngineError> {
    let (name, line) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
    Ok(SshHostKey { name, line, added_at: row.time(2)?, added_by: row.text(3)?.to_owned() })
}

fn endorsement_key(row: &Row) -> Result<EndorsementKey, EngineError> {
    let (digest, name) = (row.digest(0)?, row.text(1)?.to_owned());
    Ok(EndorsementKey { digest, name, added_at: row.time(2)?, added_by: row.text(3)?.to_owned() })
}
