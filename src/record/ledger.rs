//! The collector's ledger: every record's entry holds the hash of the entry before it.
//!
//! Who has an entry's hash, in a receipt or a signed head, can tell whether anything before it was
//! changed, left out or put in. The payload may be gone (retention); its digest stays in the entry.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::dsse::Envelope;
use super::keys::CollectorKey;
use super::public_key::PublicKey;
use super::strict;
use super::verify::{VerifyError, verify_payload};
use crate::ident::{Digest, printable};

/// The payload type of a signed head.
pub const PAYLOAD_TYPE: &str = "application/vnd.nodegate.ledger-head+json";

/// The hash before the first entry.
pub const BEGINNING: Digest = Digest([0; 32]);

/// What the ledger holds of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position, from 1.
    pub index: u64,
    /// Hash of the entry before it.
    pub previous: Digest,
    pub payload: Digest,
    pub received_at: Timestamp,
    pub keyid: String,
}

impl Entry {
    /// SHA-256 over the lines `nodegate ledger 1`, index, previous, payload, receivedAt (microseconds
    /// since 1970) and keyid, each with its line feed. `printf | sha256sum` does the same.
    pub fn hash(&self) -> Digest {
        let Entry { index, previous, payload, received_at, keyid } = self;
        let microseconds = received_at.as_microsecond();
        Digest::of(format!("nodegate ledger 1\n{index}\n{previous}\n{payload}\n{microseconds}\n{keyid}\n").as_bytes())
    }
}

/// Where the ledger stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Position of the last entry; 0 before the first.
    pub index: u64,
    pub entry: Digest,
    /// When this was signed.
    pub at: Timestamp,
}

/// The head, signed.
pub fn sign(head: &Head, key: &CollectorKey) -> Envelope {
    let payload = serde_json::to_vec(head).expect("a head of strings and numbers is JSON");
    key.say(PAYLOAD_TYPE, &payload)
}

/// The head in these bytes, if one of the keys signed it.
pub fn verify(bytes: &[u8], keys: &[PublicKey]) -> Result<Head, VerifyError> {
    let (signed, _) = verify_payload(bytes, PAYLOAD_TYPE, keys)?;
    let not_a_head = |error: serde_json::Error| VerifyError::NotARecord(printable(&error.to_string(), 200));
    strict::parse(&signed).and_then(serde_json::from_value).map_err(not_a_head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            index: 1,
            previous: BEGINNING,
            payload: Digest::of(b"a record"),
            received_at: "2026-11-30T20:41:07.000001Z".parse().unwrap(),
            keyid: "SHA256:abc".to_owned(),
        }
    }

    #[test]
    fn a_hash_covers_every_field() {
        let hash = entry().hash();
        let changed = [
            Entry { index: 2, ..entry() },
            Entry { previous: hash, ..entry() },
            Entry { payload: hash, ..entry() },
            Entry { received_at: "2026-11-30T20:41:07.000002Z".parse().unwrap(), ..entry() },
            Entry { keyid: "SHA256:abd".to_owned(), ..entry() },
        ];
        assert!(changed.iter().all(|other| other.hash() != hash));
    }

    #[test]
    fn a_head_verifies_with_its_key_and_with_no_other() {
        let key = CollectorKey::generate();
        let head = Head { index: 1, entry: entry().hash(), at: "2026-11-30T20:41:07Z".parse().unwrap() };
        let bytes = sign(&head, &key).to_json();
        assert_eq!(verify(&bytes, &[key.public_key().clone()]).unwrap(), head);
        assert!(verify(&bytes, &[CollectorKey::generate().public_key().clone()]).is_err());
    }
}
