//! Whose receipts count: the pinned key's, and those of the keys that took its place one by one.

use std::time::Duration;

use super::target::Target;
use crate::record::receipt::{self, Receipt, ReceiptError};
use crate::record::{Parcel, PublicKey, Spool, receipt_keys};
use crate::wire::Method;

const PATH: &str = "/v1/receipt-keys";
/// For the list of keys, which is asked for after a record was taken.
const PATIENCE: Duration = Duration::from_secs(3);

/// The keys that receipts are verified with. What was learned before is worked out from the pinned
/// key each time: nothing in the state folder can add a key of its own.
pub(super) struct Trust<'a> {
    pinned: Option<PublicKey>,
    keys: Vec<PublicKey>,
    spool: Option<&'a Spool>,
    asked: bool,
}

impl<'a> Trust<'a> {
    pub(super) fn of(target: &Target, spool: Option<&'a Spool>) -> Trust<'a> {
        let pinned = target.receipt_key.clone();
        let shown = spool.and_then(Spool::receipt_keys).unwrap_or_default();
        let keys = pinned.as_ref().map(|pinned| receipt_keys::trusted(pinned, &shown)).unwrap_or_default();
        Trust { pinned, keys, spool, asked: false }
    }

    /// The receipt in these bytes; none where no key is pinned. One by a key that is not known yet
    /// is a reason to ask, once, how the pinned key was followed.
    pub(super) fn verify(
        &mut self,
        bytes: &[u8],
        target: &Target,
        parcel: &Parcel,
    ) -> Option<Result<Receipt, ReceiptError>> {
        let pinned = self.pinned.clone()?;
        let verified = self.verify_kept(bytes, parcel);
        let unknown = verified.as_ref().is_err_and(ReceiptError::is_by_an_unknown_key);
        if !unknown || std::mem::replace(&mut self.asked, true) {
            return Some(verified);
        }
        let Some(shown) = ask(target) else { return Some(verified) };
        let keys = receipt_keys::trusted(&pinned, shown.as_bytes());
        if keys.len() <= self.keys.len() {
            return Some(verified);
        }
        self.keys = keys;
        if let Some(Err(error)) = self.spool.map(|spool| spool.keep_receipt_keys(shown.as_bytes())) {
            tracing::warn!(%error, "the collector's new receipt key is not kept, and asked for again");
        }
        Some(self.verify_kept(bytes, parcel))
    }

    /// The same without asking anybody.
    pub(super) fn verify_kept(&self, bytes: &[u8], parcel: &Parcel) -> Result<Receipt, ReceiptError> {
        receipt::verify_any(bytes, &self.keys, parcel.payload, &parcel.run_id)
    }
}

fn ask(target: &Target) -> Option<String> {
    let answer = target.ask((Method::Get, PATH), &[], None, PATIENCE).ok()?;
    (answer.status == 200).then_some(answer.body)
}
