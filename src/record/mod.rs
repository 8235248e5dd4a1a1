//! The signed record of a run: statement, envelope, keys, state folder, verification, status.
//!
//! A record is an in-toto Statement v1 in a DSSE envelope, so that tools which are not ours
//! verify it; `docs/records.md` shows how. Verification and [`status::judge`] are pure.

pub mod bundle;
pub mod dsse;
pub(crate) mod durable;
pub mod enrolment;
pub mod identity;
pub mod keyfile;
pub mod keys;
pub mod ledger;
mod new_key;
pub mod outside;
pub mod plain;
pub mod public_key;
pub mod receipt;
pub mod receipt_keys;
pub mod standing;
pub mod statement;
pub mod status;
#[expect(clippy::disallowed_methods, reason = "the state folder is read and waited for here")]
pub mod store;
mod strict;
pub mod tpm;
pub mod verify;

pub use enrolment::Enrolment;
pub use identity::{Documents, HostDocument, NodeDocument};
pub use keys::{Algorithm, CollectorKey, EphemeralKey, HostKey, Signing};
pub use new_key::{NewKey, NewKeyError};
pub use outside::{OutsideKey, SignError};
pub use public_key::PublicKey;
pub use receipt::Receipt;
pub use statement::{Statement, Unsigned};
pub use store::spool::{Parcel, Spool};
pub use store::{Store, StoreError, Stored};
pub use verify::{Verified, VerifyError, verify};
