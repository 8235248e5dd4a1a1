//! One record to the collector and what comes back.

use std::fmt::Display;
use std::time::Duration;

use super::target::Target;
use super::trust::Trust;
use crate::record::{Parcel, Receipt};
use crate::wire::{Answer, Method};

/// For one exchange. A collector answers in milliseconds; whoever waits for a decision waits for
/// this as well.
pub const PATIENCE: Duration = Duration::from_secs(10);

const PATH: &str = "/v1/records";
const CONTENT_TYPE: &str = "application/vnd.in-toto.test-result+dsse";
/// The event's type as CloudEvents has it.
const EVENT_TYPE: &str = "nodegate.record.v1";
/// Answers that say that this record will never be taken as it is (docs/delivery.md). 401 is none:
/// a key can be enrolled and a token mended.
const FINAL: [u16; 5] = [400, 403, 409, 413, 422];
/// The collector's code for a key that it has not seen yet.
const UNKNOWN_KEY: &str = "unknown-key";

/// Why there is no receipt.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Undelivered {
    pub cause: String,
    /// Whether sending the same record again may help.
    pub again: bool,
    /// What the collector answered, if it did.
    pub status: Option<u16>,
    /// How long it asks us to stay away.
    pub retry_after: Option<Duration>,
    /// Whether it does not know the key that signed.
    pub unknown_key: bool,
}

impl Undelivered {
    pub(super) fn again(cause: String) -> Undelivered {
        Undelivered { cause, again: true, ..Undelivered::default() }
    }

    /// Whether the next record would fare as this one did. An error of the collector's own may be
    /// about this one record.
    pub(super) fn stops_the_pass(&self) -> bool {
        self.again && !self.status.is_some_and(|status| status >= 500 && status != 503)
    }
}

/// Sends a record. The receipt is verified, and given as it came.
pub(super) fn send(
    parcel: &Parcel,
    target: &Target,
    trust: &mut Trust<'_>,
    patience: Duration,
) -> Result<(Receipt, Vec<u8>), Undelivered> {
    let named = |undelivered: Undelivered| {
        let cause = format!("{} {}", target.address.authority(), target.redact(&undelivered.cause));
        Undelivered { cause, ..undelivered }
    };
    let answer = ask(parcel, target, patience).map_err(named)?;
    let receipt = judge(&answer, |bytes| trust.verify(bytes, target, parcel)).map_err(named)?;
    Ok((receipt, answer.body.into_bytes()))
}

/// What to say where the collector has the record and its receipt cannot be written down.
pub(super) fn unkept(target: &Target, error: &dyn std::error::Error) -> String {
    let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{} has it, but its receipt could not be kept: {error}{cause}", target.address.authority())
}

fn ask(parcel: &Parcel, target: &Target, patience: Duration) -> Result<Answer, Undelivered> {
    // The source is the node by its host.json, so that source and id together are unique.
    let source = format!("urn:nodegate:host:{}", parcel.host);
    let headers = [
        ("content-type", CONTENT_TYPE),
        ("idempotency-key", &parcel.run_id),
        ("ce-specversion", "1.0"),
        ("ce-id", &parcel.run_id),
        ("ce-source", &source),
        ("ce-type", EVENT_TYPE),
        ("ce-time", &parcel.finished_at),
    ];
    let body = String::from_utf8(parcel.envelope.clone())
        .map_err(|_| Undelivered::again("was not asked: the record is not text".to_owned()))?;
    let answer = target.ask((Method::Post, PATH), &headers, Some(body), patience);
    answer.map_err(|why| Undelivered::again(format!("did not answer: {why}")))
}

/// Only 200 and 201 with a receipt that verifies are a delivery.
fn judge<E: Display>(
    answer: &Answer,
    verify: impl FnOnce(&[u8]) -> Option<Result<Receipt, E>>,
) -> Result<Receipt, Undelivered> {
    let status = answer.status;
    if matches!(status, 200 | 201) {
        return match verify(answer.body.as_bytes()) {
            Some(receipt) => {
                receipt.map_err(|error| Undelivered::again(format!("gave no receipt that counts: {error}")))
            }
            None => Err(Undelivered::again(
                "took it, but no receipt key is pinned to verify its receipt (--receipt-key)".to_owned(),
            )),
        };
    }
    let said = answer.problem.as_ref().map(|problem| problem.detail.as_str()).filter(|detail| !detail.is_empty());
    let said = said.map_or_else(String::new, |detail| format!(" (it says: {detail})"));
    Err(Undelivered {
        cause: format!("answered {status}{}{said}", meaning(status)),
        again: !FINAL.contains(&status),
        status: Some(status),
        retry_after: answer.retry_after.filter(|_| status == 429 || status >= 500),
        unknown_key: status == 401 && answer.problem.as_ref().is_some_and(|problem| problem.code == UNKNOWN_KEY),
    })
}

/// What the collector's answers mean (docs/delivery.md).
fn meaning(status: u16) -> &'static str {
    match status {
        300..=399 => ", a redirect, which is not followed",
        400 => ", not a record to it",
        401 => ", it does not know our key or token",
        403 => ", it does not take what this key signs",
        409 => ", it has another record of this run",
        413 => ", too large for it",
        422 => ", against its policy",
        429 => ", it has too much to do",
        500..=599 => ", it has failed",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Problem;

    fn judged(status: u16, pinned: bool) -> Undelivered {
        let problem = Some(Problem { code: UNKNOWN_KEY.to_owned(), detail: "who is that".to_owned() });
        let answer = Answer { status, body: String::new(), retry_after: Some(Duration::from_secs(7)), problem };
        judge(&answer, |_| pinned.then_some(Err("empty"))).unwrap_err()
    }

    #[test]
    fn no_status_is_a_delivery_without_a_receipt() {
        for status in 100..600 {
            for pinned in [true, false] {
                let undelivered = judged(status, pinned);
                assert!(!undelivered.cause.is_empty());
                assert_eq!(undelivered.again, ![400, 403, 409, 413, 422].contains(&status), "{status}");
                assert_eq!(undelivered.unknown_key, status == 401, "{status}");
            }
        }
    }

    #[test]
    fn an_error_of_the_collectors_own_may_be_about_one_record_and_a_full_house_is_about_all() {
        for status in [200, 302, 401, 404, 429, 503] {
            assert!(judged(status, true).stops_the_pass(), "{status}");
        }
        for status in [400, 403, 409, 413, 422, 500, 502, 504, 599] {
            assert!(!judged(status, true).stops_the_pass(), "{status}");
        }
        assert!(Undelivered::again("did not answer".to_owned()).stops_the_pass());
    }

    #[test]
    fn only_who_is_busy_or_has_failed_can_make_us_wait() {
        for status in 400..600 {
            let waits = judged(status, true).retry_after.is_some();
            assert_eq!(waits, status == 429 || status >= 500, "{status}");
        }
    }
}
