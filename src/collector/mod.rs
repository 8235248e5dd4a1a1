//! The collector: it verifies records, keeps them in a ledger, and shows the fleet.
//!
//! A record is stored before its receipt is given, and what is given a receipt is never lost.
//! What the collector thinks of a record (flags, policy, the key's tier) stands beside it and
//! never changes it.

pub mod access;
pub mod api;
pub mod chain;
pub mod crew;
pub mod enrol;
pub mod intake;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod model;
pub mod nonce;
pub mod page;
pub mod policy;
pub mod receipt_key;
pub mod secret;
pub mod serve;
pub mod store;
pub mod tls;
