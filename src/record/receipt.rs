//! A collector's receipt: its signed word that it keeps a record.
//!
//! A DSSE envelope like the record's own, of another payload type, so that neither can be taken
//! for the other. Only a receipt that the pinned key signed, about this very payload, counts.

use serde::{Deserialize, Serialize};

use super::dsse::Envelope;
use super::keys::CollectorKey;
use super::public_key::PublicKey;
use super::standing::{Flag, Tier};
use super::strict;
use super::verify::{VerifyError, verify_payload};
use crate::ident::{Digest, printable};

/// The payload type of a receipt's envelope.
pub const PAYLOAD_TYPE: &str = "application/vnd.nodegate.receipt+json";

/// A receipt is a few hundred bytes; what is larger is something else.
pub const MAXIMUM_BYTES: usize = 64 * 1024;

/// What a receipt says. A newer collector may say more, another one less.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// SHA-256 of the record's payload.
    pub payload: Digest,
    /// When the collector had it, by the collector's clock.
    pub received_at: jiff::Timestamp,
    pub run_id: String,
    /// How the key that signed the record is known to the collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Why the record does not count as accepted, whatever it decided. Empty: nothing is against it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
    /// The record's entry in the collector's ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerPlace>,
}

/// An entry of the ledger by its position, from 1, and the hash that chains it (`record::ledger`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPlace {
    pub index: u64,
    pub entry: Digest,
}

/// The receipt, signed.
pub fn sign(receipt: &Receipt, key: &CollectorKey) -> Envelope {
    let payload = serde_json::to_vec(receipt).expect("a receipt of strings and numbers is JSON");
    key.say(PAYLOAD_TYPE, &payload)
}

/// Why bytes are no receipt for a record.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    #[error("{bytes} bytes: a receipt has at most {MAXIMUM_BYTES}")]
    TooLarge { bytes: usize },
    #[error(transparent)]
    Unverified(#[from] VerifyError),
    #[error("what was signed is not a receipt: {0}")]
    NotAReceipt(String),
    #[error("it is for another record, {found}")]
    OtherRecord { found: Digest },
    #[error("it is for another run, {found}")]
    OtherRun { found: String },
}

impl ReceiptError {
    /// Whether it may be a receipt by a key that we have not heard of.
    pub fn is_by_an_unknown_key(&self) -> bool {
        matches!(self, ReceiptError::Unverified(VerifyError::UnknownSigner { .. }))
    }
}

/// The receipt in these bytes, if this key signed it for this payload of this run.
pub fn verify(bytes: &[u8], key: &PublicKey, payload: Digest, run_id: &str) -> Result<Receipt, ReceiptError> {
    verify_any(bytes, std::slice::from_ref(key), payload, run_id)
}

/// The same, if any of these keys signed it (`record::receipt_keys`).
pub fn verify_any(bytes: &[u8], keys: &[PublicKey], payload: Digest, run_id: &str) -> Result<Receipt, ReceiptError> {
    if bytes.len() > MAXIMUM_BYTES {
        return Err(ReceiptError::TooLarge { bytes: bytes.len() });
    }
    let (signed, _) = verify_payload(bytes, PAYLOAD_TYPE, keys)?;
    let not_a_receipt = |error: serde_json::Error| ReceiptError::NotAReceipt(printable(&error.to_string(), 200));
    let receipt: Receipt = strict::parse(&signed).and_then(serde_json::from_value).map_err(not_a_receipt)?;
    if receipt.payload != payload {
        return Err(ReceiptError::OtherRecord { found: receipt.payload });
    }
    if receipt.run_id != run_id {
        return Err(ReceiptError::OtherRun { found: printable(&receipt.run_id, 60) });
    }
    Ok(receipt)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::record::dsse::{self, Envelope, Signature, pre_authentication_encoding};
    use crate::record::{Algorithm, HostKey, verify as verify_record};

    const RUN: &str = "0193a5d0-0000-7000-8000-000000000001";

    fn payload() -> Digest {
        Digest::of(b"a record")
    }

    fn said(payload: Digest, run_id: &str) -> String {
        format!("{{\"payload\":\"{payload}\",\"receivedAt\":\"2026-11-30T20:41:07Z\",\"runId\":\"{run_id}\"}}")
    }

    fn signed(payload_type: &str, body: &str) -> (Vec<u8>, PublicKey) {
        let pair = Ed25519KeyPair::generate().unwrap();
        let signature = pair.sign(&pre_authentication_encoding(payload_type, body.as_bytes()));
        let envelope = Envelope {
            payload: STANDARD.encode(body),
            payload_type: payload_type.to_owned(),
            signatures: vec![Signature { keyid: String::new(), sig: STANDARD.encode(signature) }],
        };
        (envelope.to_json(), PublicKey::new(Algorithm::Ed25519, pair.public_key().as_ref()))
    }

    fn refusal(payload_type: &str, body: &str) -> String {
        let (bytes, key) = signed(payload_type, body);
        verify(&bytes, &key, payload(), RUN).unwrap_err().to_string()
    }

    #[test]
    fn a_receipt_says_when_the_record_was_taken() {
        let (bytes, key) = signed(PAYLOAD_TYPE, &said(payload(), RUN));
        let receipt = verify(&bytes, &key, payload(), RUN).unwrap();
        assert_eq!(receipt.received_at.to_string(), "2026-11-30T20:41:07Z");
    }

    #[test]
    fn a_receipt_by_another_key_or_for_another_record_or_run_is_none() {
        let (bytes, _) = signed(PAYLOAD_TYPE, &said(payload(), RUN));
        let other = HostKey::generate(Algorithm::Ed25519);
        assert!(matches!(
            verify(&bytes, other.public_key(), payload(), RUN),
            Err(ReceiptError::Unverified(VerifyError::UnknownSigner { .. }))
        ));
        assert!(refusal(PAYLOAD_TYPE, &said(Digest::of(b"other"), RUN)).contains("another record"));
        assert!(refusal(PAYLOAD_TYPE, &said(payload(), "other")).contains("another run"));
    }

    #[test]
    fn what_is_signed_but_no_receipt_is_none() {
        for body in ["{}", "", "[]", &said(payload(), RUN).replace("2026-11-30T20", "2026-11-30 at 20")] {
            assert!(refusal(PAYLOAD_TYPE, body).contains("not a receipt"), "{body}");
        }
        let twice = said(payload(), RUN).replace("{\"payload", "{\"runId\":\"x\",\"payload");
        assert!(refusal(PAYLOAD_TYPE, &twice).contains("twice"));
    }

    #[test]
    fn a_receipt_cannot_stand_for_a_record_nor_a_record_for_a_receipt() {
        assert!(refusal(dsse::PAYLOAD_TYPE, &said(payload(), RUN)).contains("payload type"));
        let (bytes, key) = signed(PAYLOAD_TYPE, &said(payload(), RUN));
        assert!(matches!(verify_record(&bytes, &[key]), Err(VerifyError::PayloadType { .. })));
    }
}
