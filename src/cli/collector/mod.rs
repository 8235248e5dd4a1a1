//! `nodegate collector …`: run the collector, and look after its keys, tokens and store.

mod keys;

use std::io::Write;

use super::Failure;
use crate::exit::Ending;

/// The collector takes records in, keeps them in a ledger, and shows the fleet.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Look after the keys that may sign for hosts, and what vouches for them
    Keys(keys::Args),
}

pub fn run(arguments: &Args, out: &mut dyn Write) -> Result<Ending, Failure> {
    match &arguments.command {
        Command::Keys(arguments) => keys::run(arguments, out),
    }
    .map(|()| Ending::Accepted)
}
