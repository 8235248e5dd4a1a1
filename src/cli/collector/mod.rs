//! `nodegate collector …`: run the collector, and look after its keys, tokens and store.

mod at;
mod keys;
mod receipt_key;
mod serve;
mod store;
mod token;

use std::io::Write;

use super::Failure;
use crate::collector::receipt_key::ReceiptKeyError;
use crate::collector::store::StoreError;
use crate::exit::Ending;

/// The collector takes records in, keeps them in a ledger, and shows the fleet.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate collector serve --listen 127.0.0.1:8080\n  nodegate collector keys list --only pending"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Take records in and show the fleet, until told to end
    Serve(Box<serve::Args>),
    /// Make, list and revoke tokens for readers and writers
    Token(token::Args),
    /// Show and rotate the key that signs receipts
    ReceiptKey(receipt_key::Args),
    /// Look after the keys that may sign for hosts, and what vouches for them
    Keys(keys::Args),
    #[command(flatten)]
    Store(store::Command),
}

pub fn run(arguments: &Args, out: &mut dyn Write) -> Result<Ending, Failure> {
    match &arguments.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Token(arguments) => token::run(arguments, out),
        Command::ReceiptKey(arguments) => receipt_key::run(arguments, out),
        Command::Keys(arguments) => keys::run(arguments, out),
        Command::Store(command) => return store::run(command, out),
    }
    .map(|()| Ending::Accepted)
}

/// A store that was named wrongly is the caller's mistake; one that breaks is not.
fn blame_store(error: StoreError) -> Failure {
    match error {
        StoreError::Damaged { .. } | StoreError::Engine(_) | StoreError::Ended => Failure::broken(error),
        _ => Failure::misused(error),
    }
}

fn blame_key(error: ReceiptKeyError) -> Failure {
    match error {
        ReceiptKeyError::Store(error) => blame_store(error),
        ReceiptKeyError::Write { .. } => Failure::broken(error),
        _ => Failure::misused(error),
    }
}
