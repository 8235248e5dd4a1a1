//! What a proven enrolment comes to, by the keys that the host has already.

use jiff::Timestamp;

use super::evidence::Binding;
use super::{Decided, Known, Settings};
use crate::collector::model::{Key, KeyState, Refusal};
use crate::record::enrolment::{Claim, JoinToken, Proof};
use crate::record::standing::Tier;
use crate::record::{Enrolment, PublicKey};

/// A key signs for one host, and a revoked one for none, ever again.
pub(super) fn refuse_other_host(key: &Key, enrolment: &Enrolment) -> Result<(), Refusal> {
    if key.state == KeyState::Revoked {
        return Err(revoked(key));
    }
    if key.host != enrolment.host.digest() || (key.tier == Tier::Simulated) != enrolment.simulated {
        return Err(Refusal::Conflict("the key is enrolled for another host".to_owned()));
    }
    Ok(())
}

/// Whether a proof of this tier can make more of a known key.
pub(super) fn may_rise(key: &Key, tier: Tier) -> bool {
    tier > key.tier && matches!(key.state, KeyState::Pending | KeyState::Approved)
}

/// A key replaces one of its own host that stands now and that signed for it.
pub(super) fn refuse_bad_rotation(claim: &Claim, known: &Known) -> Result<(), Refusal> {
    let Some(replaces) = &claim.enrolment.replaces else { return Ok(()) };
    let of_this_host = |old: &&Key| {
        old.host == claim.enrolment.host.digest() && old.tier != Tier::Simulated && !claim.enrolment.simulated
    };
    let Some(old) = known.replaced.as_ref().filter(of_this_host) else {
        let keyid = crate::ident::printable(replaces, 80);
        return Err(Refusal::Conflict(format!("key {keyid}, which it replaces, is no key of this host")));
    };
    let signed = old_key(old).is_some_and(|key| claim.is_signed_by(&key));
    match old.state {
        KeyState::Revoked => Err(revoked(old)),
        _ if !signed => Err(Refusal::Forbidden(format!("key {}, which it replaces, did not sign it", old.keyid))),
        KeyState::Approved => Ok(()),
        KeyState::Pending => {
            Err(Refusal::Conflict(format!("key {}, which it replaces, waits for approval itself", old.keyid)))
        }
        KeyState::Retired => Err(Refusal::Conflict(format!("key {} was replaced before", old.keyid))),
    }
}

/// Tier and state of the key. What is not approved here waits for an operator, with the reason beside it.
pub(super) fn decide(
    claim: &Claim,
    known: &Known,
    settings: &Settings,
    binding: Binding,
    now: Timestamp,
) -> Result<Decided, Refusal> {
    let shown = claim.proof.tier();
    let rotated = known.replaced.as_ref().filter(|_| claim.enrolment.replaces.is_some());
    let tier = match rotated {
        // That the key cannot leave a TPM is shown by each key itself.
        Some(old) if old.tier == Tier::Tpm && shown != Tier::Tpm => {
            return Err(Refusal::Forbidden(
                "the key that it replaces is in a TPM: the new one must be too (--tpm)".to_owned(),
            ));
        }
        Some(old) => old.tier.max(shown),
        None => shown,
    };
    // A throw-away key and a host's key have nothing to do with each other.
    let simulated = shown == Tier::Simulated;
    let is_other = |key: &&Key| key.keyid != claim.keyid && key.tier != Tier::Simulated;
    let before_it: Vec<&Key> = known.of_host.iter().filter(is_other).collect();
    let (state, reason, replaces) = match rotated {
        _ if simulated => (KeyState::Approved, None, None),
        Some(old) => (KeyState::Approved, Some("signed by the key before it".to_owned()), Some(old.keyid.clone())),
        None => alone(tier, settings, binding, &before_it, claim),
    };
    let decided = state == KeyState::Approved;
    let before = known.key.clone();
    let key = Key {
        keyid: claim.keyid.clone(),
        public_key: claim.key.to_pem(),
        tier,
        state,
        host: claim.enrolment.host.digest(),
        hostname: claim.enrolment.hostname.clone(),
        serial: claim.enrolment.serials().next().map(str::to_owned),
        replaces,
        replaced_by: None,
        enrolled_at: before.as_ref().map_or(now, |key| key.enrolled_at),
        decided_at: decided.then_some(now),
        decided_by: decided.then(|| format!("tier {tier}")),
        reason,
        seq: before.as_ref().map_or(0, |key| key.seq),
        head: before.as_ref().and_then(|key| key.head),
    };
    let token = match &claim.proof {
        Proof::Token { id, secret } => Some(JoinToken { id: id.clone(), secret: secret.clone() }.digest()),
        _ => None,
    };
    Ok(Decided { key, token, raises: before.is_some() })
}

/// Of a key that no other key of the host speaks for.
fn alone(
    tier: Tier,
    settings: &Settings,
    binding: Binding,
    others: &[&Key],
    claim: &Claim,
) -> (KeyState, Option<String>, Option<String>) {
    let approved = others.iter().filter(|key| key.state == KeyState::Approved);
    match approved.max_by_key(|key| (key.tier, key.enrolled_at)) {
        None if tier > Tier::FirstUse => (KeyState::Approved, None, None),
        None if others.is_empty() && settings.approve_first_use => (KeyState::Approved, None, None),
        None if others.is_empty() => (KeyState::Pending, None, None),
        None => (KeyState::Pending, Some("re-enrolment of a known host".to_owned()), None),
        Some(old) if tier > Tier::FirstUse && tier >= old.tier && is_of(old, binding, claim) => {
            let reason = format!("re-enrolment of a known host, in place of {}", old.keyid);
            (KeyState::Approved, Some(reason), Some(old.keyid.clone()))
        }
        Some(old) => {
            let reason = format!("re-enrolment of a known host: {} ({}) is approved", old.keyid, old.tier);
            (KeyState::Pending, Some(reason), None)
        }
    }
}

/// Whether the proof is about the very host that the other key signs for: whoever holds some host's
/// certificate could otherwise say that it is another one.
fn is_of(old: &Key, binding: Binding, claim: &Claim) -> bool {
    match binding {
        Binding::Serial => true,
        Binding::Hostname => old.hostname.eq_ignore_ascii_case(&claim.enrolment.hostname),
        Binding::Nothing => false,
    }
}

fn old_key(key: &Key) -> Option<PublicKey> {
    PublicKey::parse(&key.public_key).ok()
}

fn revoked(key: &Key) -> Refusal {
    let reason = key.reason.clone().unwrap_or_else(|| "no reason given".to_owned());
    Refusal::Revoked { keyid: key.keyid.clone(), reason }
}
