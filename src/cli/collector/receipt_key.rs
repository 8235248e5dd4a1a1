//! `nodegate collector receipt-key`: the key that signs receipts.

use std::io::Write;

use super::super::Failure;
use super::super::key::{KeyFormat, print};
use super::at::At;
use super::{blame_key, blame_store};
use crate::collector::receipt_key;
use crate::collector::store::{Settings, Store};
use crate::host::clock;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate collector receipt-key show > receipt.pub\n  nodegate collector receipt-key rotate"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the public half, which agents pin
    Show(Show),
    /// Make a new key, signed by the old one; agents that pin the old one follow
    Rotate(Rotate),
}

#[derive(Debug, clap::Args)]
struct Show {
    #[arg(long, value_enum, default_value_t)]
    format: KeyFormat,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
struct Rotate {
    #[command(flatten)]
    at: At,
}

pub fn run(arguments: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &arguments.command {
        Command::Show(show) => {
            let key = receipt_key::read(&show.at.folder()?).map_err(blame_key)?;
            print(key.public_key(), show.format, out).map_err(Failure::broken)
        }
        Command::Rotate(rotate) => {
            let store = Store::attend(&rotate.at.url()?, Settings::default()).map_err(blame_store)?;
            let key = receipt_key::rotate(&rotate.at.folder()?, &store, clock::now()).map_err(blame_key)?;
            writeln!(out, "receipts will be signed by {}", key.public_key().keyid()).map_err(Failure::broken)?;
            let note = "restart the collector, and copy the folder to every other that has this store";
            writeln!(out, "{note}").map_err(Failure::broken)
        }
    }
}
