//! Delivery: a record goes to the collector, and counts as delivered only on its signed receipt.
//!
//! A status code is somebody's word; the receipt is the pinned key's, about this very payload.
//! Until it is kept the record waits in the spool (`record::store::spool`). Whatever else happens
//! is a cause in one line, and whether sending again may help.

mod challenge;
mod credential;
pub mod enrol;
mod first_use;
mod pace;
mod pass;
mod send;
mod target;
mod trust;

pub use challenge::challenge;
pub use credential::{CredentialError, read_certificates, read_credential, read_private_key};
pub use pace::{Note, pause_before};
pub use pass::{Buried, Limits, Report, Sent, Waiting, pass};
pub use send::{PATIENCE, Undelivered};
pub use target::Target;
use trust::Trust;

use std::path::Path;

use crate::record::{Parcel, Receipt, Spool, Stored};

/// Sends a record once that no spool keeps (of a recording), and keeps the receipt beside it.
pub fn deliver_once(stored: &Stored, target: &Target) -> Result<Receipt, Undelivered> {
    let parcel = Parcel::read(stored.envelope.clone()).map_err(|error| Undelivered::again(error.to_string()))?;
    let (receipt, bytes) = send::send(&parcel, target, &mut Trust::of(target, None), PATIENCE)?;
    let kept = stored.keep_receipt(&bytes);
    kept.map_err(|error| Undelivered::again(send::unkept(target, &error)))?;
    Ok(receipt)
}

/// The receipt that this state folder keeps for a record, if it counts.
pub fn kept_receipt(folder: &Path, target: &Target, envelope: &[u8]) -> Option<Receipt> {
    let parcel = Parcel::read(envelope.to_vec()).ok()?;
    let spool = Spool::of(folder);
    let bytes = spool.receipt(&parcel.run_id)?;
    Trust::of(target, Some(&spool)).verify_kept(&bytes, &parcel).ok()
}
