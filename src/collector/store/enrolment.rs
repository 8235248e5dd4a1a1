//! Enrolments as the store looks them up and keeps them.

use aws_lc_rs::hmac;
use jiff::Timestamp;

use super::engine::Engine;
use super::{Rules, Store, StoreError, keys, nodes, schema, tokens};
use crate::collector::enrol::{Asked, Decided, Known, Registry, Token};
use crate::collector::model::{Key, KeyState, Refusal};
use crate::ident::Digest;
use crate::record::PublicKey;
use crate::record::standing::Tier;

impl Registry for Store {
    fn known(&self, asked: &Asked) -> Result<Known, Refusal> {
        self.look_up(asked).map_err(|error| Refusal::busy(&error))
    }

    fn settle(&self, decided: Decided) -> Result<Key, Refusal> {
        let settled = self.change(move |engine, rules| settle(engine, rules, decided));
        settled.map_err(|error| Refusal::busy(&error))?
    }
}

impl Store {
    fn look_up(&self, asked: &Asked) -> Result<Known, StoreError> {
        let token = asked.token.map(|digest| self.join_token(&digest)).transpose()?.flatten();
        let endorsement = asked.endorsement_key.map(|digest| self.endorsement_key(&digest)).transpose()?.flatten();
        let mut ssh_keys = Vec::new();
        for name in &asked.names {
            let lines = self.ssh_host_keys_of(name)?;
            ssh_keys.extend(lines.iter().filter_map(|key| PublicKey::parse(&key.line).ok()));
        }
        let secret = self.ask(|engine, _| schema::secret(engine))?;
        let tag =
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), &[b"nodegate tpm 1\n", &asked.mark.0[..]].concat());
        let mut mark = [0; 32];
        mark.copy_from_slice(tag.as_ref());
        Ok(Known {
            key: self.key(&asked.keyid)?,
            replaced: asked.replaces.as_deref().map(|keyid| self.key(keyid)).transpose()?.flatten(),
            of_host: self.keys_of(&asked.host)?,
            token: token.map(|token| Token {
                serial: token.serial,
                expires_at: token.expires_at,
                used_by: token.used_by,
            }),
            ssh_keys,
            endorsement: endorsement.map(|key| key.name),
            issued: self.0.rules.secret.issued(&asked.keyid, &asked.challenge),
            secret: mark,
        })
    }
}

/// All of it or nothing: a refusal comes before the first change, and an error undoes the transaction.
fn settle(engine: &mut dyn Engine, rules: &Rules, decided: Decided) -> Result<Result<Key, Refusal>, StoreError> {
    let Decided { key, token, raises } = decided;
    let changed = || Ok(Err(Refusal::Conflict("what is known of this host has just changed: enrol again".to_owned())));
    match keys::find(engine, &key.keyid)? {
        // Two of the same at once: the first made it.
        Some(known) if !raises && known.host == key.host => return Ok(Ok(known)),
        Some(known) if raises && known.host == key.host && stands(&known) => {}
        None if !raises => {}
        _ => return changed(),
    }
    if let Some(replaced) = &key.replaces {
        let old = keys::find(engine, replaced)?;
        if !old.is_some_and(|old| old.host == key.host && old.state == KeyState::Approved) {
            return changed();
        }
    } else if key.state == KeyState::Approved && key.tier != Tier::Simulated && approved_others(engine, &key)? > 0 {
        return changed();
    }
    if let Some(digest) = token
        && !use_up(engine, &digest, &key)?
    {
        return Ok(Err(Refusal::Forbidden("the join token has just been used".to_owned())));
    }
    if raises {
        raise(engine, &key)?
    } else {
        keys::insert(engine, &key)?
    }
    if key.state == KeyState::Approved {
        retire_others(engine, &key)?;
    }
    nodes::judge(engine, &rules.policy, &key.host, Timestamp::now())?;
    // As it is kept, which is how it is answered when the same comes again.
    let kept = keys::find(engine, &key.keyid)?;
    Ok(Ok(kept.unwrap_or(key)))
}

/// A host has one key that stands: those that were approved before it are retired by the one that is.
pub fn retire_others(engine: &mut dyn Engine, key: &Key) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE keys SET state = $1, replaced_by = $2
        WHERE host = $3 AND state = $4 AND keyid <> $5 AND tier <> $6";
    if key.tier == Tier::Simulated {
        return Ok(());
    }
    let (retired, approved) = (KeyState::Retired.as_str(), KeyState::Approved.as_str());
    let keyid = key.keyid.as_str();
    let columns =
        [retired.into(), keyid.into(), key.host.into(), approved.into(), keyid.into(), Tier::Simulated.as_str().into()];
    engine.execute(SQL, &columns)?;
    Ok(())
}

fn stands(key: &Key) -> bool {
    matches!(key.state, KeyState::Pending | KeyState::Approved)
}

fn approved_others(engine: &mut dyn Engine, key: &Key) -> Result<usize, StoreError> {
    const SQL: &str = "SELECT keyid FROM keys WHERE host = $1 AND state = $2 AND keyid <> $3 AND tier <> $4";
    let columns = [
        key.host.into(),
        KeyState::Approved.as_str().into(),
        key.keyid.as_str().into(),
        Tier::Simulated.as_str().into(),
    ];
    Ok(engine.query(SQL, &columns)?.len())
}

/// The token was judged for the host's serial numbers; what counts here is that it is used once.
fn use_up(engine: &mut dyn Engine, digest: &Digest, key: &Key) -> Result<bool, StoreError> {
    const SQL: &str = "SELECT serial FROM join_tokens WHERE digest = $1";
    let rows = engine.query(SQL, &[(*digest).into()])?;
    let serial = rows.first().map(|row| row.text(0).map(str::to_owned)).transpose()?;
    Ok(tokens::use_join_token(engine, digest, serial.as_deref(), &key.keyid, Timestamp::now())?)
}

fn raise(engine: &mut dyn Engine, key: &Key) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE keys SET tier = $1, state = $2, decided_at = $3, decided_by = $4, reason = $5,
        replaces = COALESCE($6, replaces) WHERE keyid = $7";
    let columns = [
        key.tier.as_str().into(),
        key.state.as_str().into(),
        key.decided_at.into(),
        key.decided_by.clone().into(),
        key.reason.clone().into(),
        key.replaces.clone().into(),
        key.keyid.as_str().into(),
    ];
    engine.execute(SQL, &columns)?;
    Ok(())
}
