//! The keys that the collector knows, and what was decided about them.

use jiff::Timestamp;

use super::engine::{Engine, EngineError, Row, Value};
use super::{Store, StoreError, enrolment, nodes, tokens};
use crate::collector::model::{Key, KeyState, Refusal};
use crate::ident::Digest;

const COLUMNS: &str = "keyid, public_key, tier, state, host, hostname, serial, replaces, replaced_by, enrolled_at, \
     decided_at, decided_by, reason, seq, head";

/// Which keys are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    pub state: Option<KeyState>,
    pub host: Option<Digest>,
    /// Keys after this one, in the order of their ids: the next page.
    pub after: Option<String>,
    /// None: a thousand.
    pub limit: Option<u32>,
}

/// What becomes of a key that enrols.
#[derive(Clone, Debug, PartialEq)]
pub enum Enrolled {
    New(Key),
    /// It was here already, as it was.
    Known(Key),
}

impl Store {
    pub fn key(&self, keyid: &str) -> Result<Option<Key>, StoreError> {
        self.ask(|engine, _| Ok(find(engine, keyid)?))
    }

    /// Keys by state and host, in the order of their ids.
    pub fn keys(&self, filter: &KeyFilter) -> Result<Vec<Key>, StoreError> {
        let mut parameters = vec![Value::from(filter.after.as_deref().unwrap_or_default())];
        let mut conditions = String::new();
        if let Some(state) = filter.state {
            parameters.push(state.as_str().into());
            conditions.push_str(&format!(" AND state = ${}", parameters.len()));
        }
        if let Some(host) = filter.host {
            parameters.push(host.into());
            conditions.push_str(&format!(" AND host = ${}", parameters.len()));
        }
        parameters.push(u64::from(filter.limit.unwrap_or(1000)).into());
        let last = parameters.len();
        let sql = format!("SELECT {COLUMNS} FROM keys WHERE keyid > $1{conditions} ORDER BY keyid LIMIT ${last}");
        self.ask(|engine, _| Ok(engine.query(&sql, &parameters)?.iter().map(key).collect::<Result<_, _>>()?))
    }

    /// The keys of a host, oldest first.
    pub fn keys_of(&self, host: &Digest) -> Result<Vec<Key>, StoreError> {
        let mut keys = self.keys(&KeyFilter { host: Some(*host), ..KeyFilter::default() })?;
        keys.sort_by_key(|key| key.enrolled_at);
        Ok(keys)
    }

    /// Enrols a key, in one transaction with the join token that it shows and the key that it
    /// replaces, which is retired. A key that is known stays as it is, and uses no token up.
    ///
    /// # Errors
    ///
    /// `Conflict` where the key is known for another host, or replaces one that is not this
    /// host's or is not approved; `Forbidden` where the token is unknown, used, expired or not for this serial.
    pub fn enrol(&self, new: Key, join_token: Option<Digest>) -> Result<Enrolled, Refusal> {
        let enrolled = self.change(move |engine, rules| {
            if let Some(known) = find(engine, &new.keyid)? {
                let same = known.host == new.host;
                return Ok(if same {
                    Ok(Enrolled::Known(known))
                } else {
                    Err(Refusal::Conflict("the key is enrolled for another host".to_owned()))
                });
            }
            if let Some(replaced) = &new.replaces {
                let old = find(engine, replaced)?;
                let may = |old: &Key| old.host == new.host && old.state == KeyState::Approved;
                if !old.as_ref().is_some_and(may) {
                    let why = "the key that it replaces is not an approved key of this host";
                    return Ok(Err(Refusal::Conflict(why.to_owned())));
                }
            }
            if let Some(token) = join_token
                && !tokens::use_join_token(engine, &token, new.serial.as_deref(), &new.keyid, new.enrolled_at)?
            {
                let why = "the join token is unknown, used, expired or for another serial number";
                return Ok(Err(Refusal::Forbidden(why.to_owned())));
            }
            insert(engine, &new)?;
            if let Some(replaced) = &new.replaces {
                const SQL: &str = "UPDATE keys SET state = $1, replaced_by = $2 WHERE keyid = $3";
                let retired = [KeyState::Retired.as_str().into(), new.keyid.as_str().into(), replaced.as_str().into()];
                engine.execute(SQL, &retired)?;
                nodes::judge(engine, &rules.policy, &new.host, Timestamp::now())?;
            }
            Ok(Ok(Enrolled::New(new)))
        });
        enrolled.map_err(|error| Refusal::busy(&error))?
    }

    /// Puts a key as it is, whatever was known of it: for tests and for moving stores.
    pub fn put_key(&self, new: Key) -> Result<(), StoreError> {
        self.change(move |engine, rules| {
            engine.execute("DELETE FROM keys WHERE keyid = $1", &[new.keyid.as_str().into()])?;
            insert(engine, &new)?;
            nodes::judge(engine, &rules.policy, &new.host, Timestamp::now())
        })
    }

    /// Approves a pending key. Its records count from now on, those too that are here already.
    /// None: no such key. A key that is not pending stays as it is.
    pub fn approve(&self, keyid: &str, who: &str, reason: &str) -> Result<Option<Key>, StoreError> {
        self.decide(keyid, &[KeyState::Pending], KeyState::Approved, who, reason)
    }

    /// Revokes a key. What it signs is refused from now on, and what it signed does not count.
    pub fn revoke(&self, keyid: &str, who: &str, reason: &str) -> Result<Option<Key>, StoreError> {
        const BEFORE: &[KeyState] = &[KeyState::Pending, KeyState::Approved, KeyState::Retired];
        self.decide(keyid, BEFORE, KeyState::Revoked, who, reason)
    }

    fn decide(
        &self,
        keyid: &str,
        before: &'static [KeyState],
        after: KeyState,
        who: &str,
        reason: &str,
    ) -> Result<Option<Key>, StoreError> {
        const SQL: &str = "UPDATE keys SET state = $1, decided_at = $2, decided_by = $3, reason = $4 WHERE keyid = $5";
        let (keyid, who, reason) = (keyid.to_owned(), who.to_owned(), reason.to_owned());
        self.change(move |engine, rules| {
            let now = Timestamp::now();
            let Some(known) = find(engine, &keyid)? else { return Ok(None) };
            if before.contains(&known.state) {
                let columns = [after.as_str().into(), now.into(), who.into(), reason.into(), keyid.as_str().into()];
                engine.execute(SQL, &columns)?;
                if after == KeyState::Approved {
                    enrolment::retire_others(engine, &known)?;
                }
                nodes::judge(engine, &rules.policy, &known.host, now)?;
            }
            Ok(find(engine, &keyid)?)
        })
    }
}

pub fn find(engine: &mut dyn Engine, keyid: &str) -> Result<Option<Key>, EngineError> {
    let sql = format!("SELECT {COLUMNS} FROM keys WHERE keyid = $1");
    engine.query(&sql, &[keyid.into()])?.first().map(key).transpose()
}

pub fn insert(engine: &mut dyn Engine, key: &Key) -> Result<(), EngineError> {
    let sql = format!(
        "INSERT INTO keys ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
    );
    let columns = [
        key.keyid.as_str().into(),
        key.public_key.as_str().into(),
        key.tier.as_str().into(),
        key.state.as_str().into(),
        key.host.into(),
        key.hostname.as_str().into(),
        key.serial.clone().into(),
        key.replaces.clone().into(),
        key.replaced_by.clone().into(),
        key.enrolled_at.into(),
        key.decided_at.into(),
        key.decided_by.clone().into(),
        key.reason.clone().into(),
        key.seq.into(),
        key.head.into(),
    ];
    engine.execute(&sql, &columns)?;
    Ok(())
}

fn key(row: &Row) -> Result<Key, EngineError> {
    let optional = |column| row.optional_text(column).map(|text| text.map(str::to_owned));
    Ok(Key {
        keyid: row.text(0)?.to_owned(),
        public_key: row.text(1)?.to_owned(),
        tier: row.word(2)?,
        state: row.json_word(3)?,
        host: row.digest(4)?,
        hostname: row.text(5)?.to_owned(),
        serial: optional(6)?,
        replaces: optional(7)?,
        replaced_by: optional(8)?,
        enrolled_at: row.time(9)?,
        decided_at: row.optional_time(10)?,
        decided_by: optional(11)?,
        reason: optional(12)?,
        seq: row.count(13)?,
        head: row.optional_word(14)?,
    })
}
