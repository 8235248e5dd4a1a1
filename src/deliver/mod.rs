//! Delivery: a record goes to the collector, and counts as delivered only on its signed receipt.
//!
//! A status code is somebody's word; the receipt is the pinned key's, about this very payload.
//! Whatever else happens is a cause in one line, and whether sending again may help.

mod credential;
pub mod enrol;

use std::time::Duration;

pub use credential::{CredentialError, read_credential};

use crate::record::receipt::{self, Receipt};
use crate::record::{PublicKey, Stored};
use crate::wire::{self, Address, Answer, Post, Secret};

/// For the whole exchange. A collector answers in milliseconds; whoever waits for the decision
/// waits for this as well.
const PATIENCE: Duration = Duration::from_secs(10);
const PATH: &str = "/v1/records";
const CONTENT_TYPE: &str = "application/vnd.in-toto.test-result+dsse";
/// The event's type as CloudEvents has it.
const EVENT_TYPE: &str = "nodegate.record.v1";
/// Answers that say that this record will never be taken as it is (docs/records.md).
const FINAL: [u16; 6] = [400, 401, 403, 409, 413, 422];

/// The collector of a run.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: Address,
    /// By which its receipts are verified. Without one nothing counts as delivered.
    pub receipt_key: Option<PublicKey>,
    pub token: Option<Secret>,
}

/// Why there is no receipt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Undelivered {
    pub cause: String,
    /// Whether sending the same record again may help.
    pub again: bool,
}

/// Sends a record that is in the state folder, and keeps the receipt beside it.
pub fn deliver(stored: &Stored, target: &Target) -> Result<Receipt, Undelivered> {
    exchange(stored, target).map_err(|Undelivered { cause, again }| {
        let cause = target.token.as_ref().map_or(cause.clone(), |token| token.redact(&cause));
        Undelivered { cause: format!("{} {cause}", target.address.authority()), again }
    })
}

fn exchange(stored: &Stored, target: &Target) -> Result<Receipt, Undelivered> {
    let post = request(stored, target)?;
    let answer = wire::post(&post).map_err(|why| again(format!("did not answer: {why}")))?;
    let run_id = &stored.details.run_id;
    let receipt = judge(&answer, target, |bytes, key| receipt::verify(bytes, key, stored.payload, run_id))?;
    let kept = stored.keep_receipt(answer.body.as_bytes());
    kept.map_err(|error| again(format!("has it, but its receipt could not be kept: {error}")))?;
    Ok(receipt)
}

fn request(stored: &Stored, target: &Target) -> Result<Post, Undelivered> {
    let run_id = &stored.details.run_id;
    // The source is the node by its host.json, so that source and id together are unique.
    let source = format!("urn:nodegate:host:{}", stored.host);
    let headers = [
        ("content-type", CONTENT_TYPE),
        ("idempotency-key", run_id),
        ("ce-specversion", "1.0"),
        ("ce-id", run_id),
        ("ce-source", &source),
        ("ce-type", EVENT_TYPE),
    ];
    Ok(Post {
        address: target.address.clone(),
        path: PATH.to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        token: target.token.clone(),
        body: String::from_utf8(stored.envelope.clone()).map_err(|_| again("the record is not text".to_owned()))?,
        patience: PATIENCE,
    })
}

/// Only 200 and 201 with a receipt that verifies are a delivery.
fn judge(
    answer: &Answer,
    target: &Target,
    verify: impl Fn(&[u8], &PublicKey) -> Result<Receipt, receipt::ReceiptError>,
) -> Result<Receipt, Undelivered> {
    match (answer.status, &target.receipt_key) {
        (200 | 201, Some(key)) => {
            verify(answer.body.as_bytes(), key).map_err(|error| again(format!("gave no receipt that counts: {error}")))
        }
        (200 | 201, None) => {
            Err(again("took it, but no receipt key is pinned to verify its receipt (--receipt-key)".to_owned()))
        }
        (status, _) => {
            Err(Undelivered { cause: format!("answered {status}{}", meaning(status)), again: !FINAL.contains(&status) })
        }
    }
}

/// What the collector's answers mean (docs/records.md).
fn meaning(status: u16) -> &'static str {
    match status {
        300..=399 => ", a redirect, which is not followed",
        400 => ", not a record to it",
        401 | 403 => ", it does not know our key or credential",
        409 => ", it has another record of this run",
        413 => ", too large for it",
        422 => ", against its policy",
        429 => ", it has too much to do",
        500..=599 => ", it has failed",
        _ => "",
    }
}

fn again(cause: String) -> Undelivered {
    Undelivered { cause, again: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::receipt::ReceiptError;
    use crate::record::{Algorithm, HostKey};

    fn judged(status: u16, pinned: bool) -> Undelivered {
        let key = HostKey::generate(Algorithm::Ed25519).public_key().clone();
        let target =
            Target { address: "https://c.example".parse().unwrap(), receipt_key: pinned.then_some(key), token: None };
        let answer = Answer { status, body: String::new() };
        judge(&answer, &target, |_, _| Err(ReceiptError::NotAReceipt("empty".to_owned()))).unwrap_err()
    }

    #[test]
    fn no_status_is_a_delivery_without_a_receipt() {
        for status in 100..600 {
            for pinned in [true, false] {
                let undelivered = judged(status, pinned);
                assert!(!undelivered.cause.is_empty());
                assert_eq!(undelivered.again, ![400, 401, 403, 409, 413, 422].contains(&status), "{status}");
            }
        }
    }
}
