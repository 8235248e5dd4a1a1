//! A collector's receipt keys and how one takes the place of another: the old key signs the new
//! one, and the new one signs as well, so that nobody can be given a key that is not theirs.
//!
//! Whoever pins a key follows the rotations from it, however many there were. A key that no chain
//! of rotations joins to the pinned one is nobody's, whoever shows it. There is no way back: a
//! newer pinned key does not vouch for those that it replaced.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::dsse::Envelope;
use super::keys::CollectorKey;
use super::public_key::PublicKey;
use super::strict;
use super::verify::verify_payload;

/// The payload type of a rotation.
pub const PAYLOAD_TYPE: &str = "application/vnd.nodegate.receipt-key+json";
/// The version of the list and of a rotation.
pub const FORMAT: u32 = 1;
/// Keys that are looked at; a key that is changed every month fills this in five years.
pub const MAXIMUM_KEYS: usize = 64;

/// What `GET /v1/receipt-keys` answers, oldest key first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptKeys {
    pub format: u32,
    pub keys: Vec<ReceiptKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptKey {
    pub keyid: String,
    /// SPKI PEM.
    pub public_key: String,
    /// How it took the place of the one before; none for the first.
    #[serde(default)]
    pub rotation: Option<Envelope>,
}

/// What a rotation says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    pub format: u32,
    pub keyid: String,
    pub public_key: String,
    /// The key id of the key before.
    pub replaces: String,
    pub at: Timestamp,
}

/// The rotation from the old key to the new one, signed by both.
pub fn rotate(old: &CollectorKey, new: &CollectorKey, at: Timestamp) -> Envelope {
    let rotation = Rotation {
        format: FORMAT,
        keyid: new.public_key().keyid(),
        public_key: new.public_key().to_pem(),
        replaces: old.public_key().keyid(),
        at,
    };
    let payload = serde_json::to_vec(&rotation).expect("a rotation of strings and numbers is JSON");
    let mut envelope = old.say(PAYLOAD_TYPE, &payload);
    envelope.signatures.extend(new.say(PAYLOAD_TYPE, &payload).signatures);
    envelope
}

/// The keys that receipts may be signed with: the pinned one, and those that rotations join to it.
/// What is no list of keys adds none.
pub fn trusted(pinned: &PublicKey, shown: &[u8]) -> Vec<PublicKey> {
    let mut trusted = vec![pinned.clone()];
    let listed = strict::parse(shown).and_then(serde_json::from_value::<ReceiptKeys>);
    let Some(listed) = listed.ok().filter(|listed| listed.format == FORMAT) else { return trusted };
    let rotations: Vec<Envelope> = listed.keys.into_iter().take(MAXIMUM_KEYS).filter_map(|key| key.rotation).collect();
    // In whatever order they stand: each turn adds a key or is the last.
    while let Some(next) = rotations.iter().find_map(|rotation| successor(rotation, &trusted)) {
        trusted.push(next);
    }
    trusted
}

/// The new key of a rotation that a trusted key signed, unless it is trusted already.
fn successor(rotation: &Envelope, trusted: &[PublicKey]) -> Option<PublicKey> {
    let bytes = rotation.to_json();
    let (payload, old) = verify_payload(&bytes, PAYLOAD_TYPE, trusted).ok()?;
    let said: Rotation = strict::parse(&payload).and_then(serde_json::from_value).ok()?;
    let new = PublicKey::parse(&said.public_key).ok()?;
    let is_it = said.format == FORMAT && said.keyid == new.keyid() && said.replaces == old.keyid();
    if !is_it || trusted.contains(&new) {
        return None;
    }
    verify_payload(&bytes, PAYLOAD_TYPE, std::slice::from_ref(&new)).ok()?;
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<CollectorKey> {
        (0..count).map(|_| CollectorKey::generate()).collect()
    }

    fn at() -> Timestamp {
        "2026-11-30T20:41:07Z".parse().unwrap()
    }

    fn listed(key: &CollectorKey, rotation: Option<Envelope>) -> ReceiptKey {
        let public = key.public_key();
        ReceiptKey { keyid: public.keyid(), public_key: public.to_pem(), rotation }
    }

    fn shown(keys: Vec<ReceiptKey>) -> Vec<u8> {
        serde_json::to_vec(&ReceiptKeys { format: FORMAT, keys }).unwrap()
    }

    fn publics(keys: &[&CollectorKey]) -> Vec<PublicKey> {
        keys.iter().map(|key| key.public_key().clone()).collect()
    }

    /// The list that a collector shows after these keys have followed each other.
    fn chain(keys: &[CollectorKey]) -> Vec<ReceiptKey> {
        let mut list = vec![listed(&keys[0], None)];
        list.extend(keys.windows(2).map(|pair| listed(&pair[1], Some(rotate(&pair[0], &pair[1], at())))));
        list
    }

    #[test]
    fn a_chain_is_followed_from_the_pinned_key_to_its_end_in_any_order() {
        let keys = keys(4);
        let mut list = chain(&keys);
        assert_eq!(trusted(keys[0].public_key(), &shown(list.clone())), publics(&keys.iter().collect::<Vec<_>>()));
        list.reverse();
        assert_eq!(trusted(keys[0].public_key(), &shown(list.clone())), publics(&keys.iter().collect::<Vec<_>>()));
        // There is no way back, and none around a missing link.
        assert_eq!(trusted(keys[2].public_key(), &shown(list.clone())), publics(&[&keys[2], &keys[3]]));
        list.retain(|key| key.keyid != keys[2].public_key().keyid());
        assert_eq!(trusted(keys[0].public_key(), &shown(list)), publics(&[&keys[0], &keys[1]]));
    }

    #[test]
    fn a_key_that_the_pinned_one_did_not_sign_is_never_trusted() {
        let [pinned, thief, other] = &keys(3)[..] else { unreachable!() };
        let only = publics(&[pinned]);
        let alone = |rotation: Option<Envelope>| trusted(pinned.public_key(), &shown(vec![listed(thief, rotation)]));
        assert_eq!(alone(None), only);
        // Signed by another than the pinned key, which it names all the same.
        assert_eq!(alone(Some(rotate(other, thief, at()))), only);
        let mut forged = rotate(other, thief, at());
        forged.signatures[0].keyid = pinned.public_key().keyid();
        assert_eq!(alone(Some(forged)), only);
        // The pinned key's signature alone: nobody has shown to hold the new one.
        let mut half = rotate(pinned, thief, at());
        half.signatures.truncate(1);
        assert_eq!(alone(Some(half)), only);
        // The new key's signature alone.
        let mut half = rotate(pinned, thief, at());
        half.signatures.remove(0);
        assert_eq!(alone(Some(half)), only);
        // What was signed is about another key than the one that is shown beside it.
        assert_eq!(alone(Some(rotate(pinned, other, at()))), publics(&[pinned, other]));
    }

    #[test]
    fn what_names_its_keys_wrongly_or_is_of_another_type_is_no_rotation() {
        let [pinned, new] = &keys(2)[..] else { unreachable!() };
        let says = |change: &dyn Fn(&mut Rotation), payload_type: &str| {
            let public = new.public_key();
            let replaces = pinned.public_key().keyid();
            let mut said =
                Rotation { format: FORMAT, keyid: public.keyid(), public_key: public.to_pem(), replaces, at: at() };
            change(&mut said);
            let payload = serde_json::to_vec(&said).unwrap();
            let mut envelope = pinned.say(payload_type, &payload);
            envelope.signatures.extend(new.say(payload_type, &payload).signatures);
            trusted(pinned.public_key(), &shown(vec![listed(new, Some(envelope))])).len()
        };
        assert_eq!(says(&|_| {}, PAYLOAD_TYPE), 2);
        assert_eq!(says(&|_| {}, super::super::receipt::PAYLOAD_TYPE), 1);
        assert_eq!(says(&|said| said.replaces = new.public_key().keyid(), PAYLOAD_TYPE), 1);
        assert_eq!(says(&|said| said.keyid = pinned.public_key().keyid(), PAYLOAD_TYPE), 1);
        assert_eq!(says(&|said| said.format = 2, PAYLOAD_TYPE), 1);
    }

    #[test]
    fn what_is_no_list_adds_nothing_and_a_long_one_ends() {
        let keys = keys(2);
        let pinned = keys[0].public_key();
        for text in ["", "[]", "{}", "{\"format\":2,\"keys\":[]}", "{\"format\":1,\"keys\":[{}]}", "\u{0}"] {
            assert_eq!(trusted(pinned, text.as_bytes()).len(), 1, "{text}");
        }
        let link = chain(&keys).remove(1);
        assert_eq!(trusted(pinned, &shown(vec![link; 1000])).len(), 2);
    }
}
