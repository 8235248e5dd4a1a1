//! The collector: it verifies records, keeps them in a ledger, and shows the fleet.
//!
//! A record is stored before its receipt is given, and what is given a receipt is never lost.
//! What the collector thinks of a record (flags, policy, the key's tier) stands beside it and
//! never changes it.

pub mod chain;
pub mod intake;
pub mod model;
pub mod nonce;
pub mod page;
pub mod policy;
pub mod store;
