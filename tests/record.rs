//! The record: what it says, who can verify it, how it is kept, and whether a host stands by it.

#[path = "record/commands.rs"]
mod commands;
#[path = "record/envelope.rs"]
mod envelope;
#[path = "record/sample.rs"]
mod sample;
#[path = "record/signed_by_others.rs"]
mod signed_by_others;
#[path = "record/statement.rs"]
mod statement;
#[path = "record/status.rs"]
mod status;
#[path = "record/store.rs"]
mod store;
#[path = "record/strangers.rs"]
mod strangers;
#[path = "record/tools.rs"]
mod tools;
