//! `nodegate inventory`: what the host has.

use std::error::Error;
use std::io::Write;

use super::place::Place;
use crate::report::inventory::Inventory;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Show what the host has: machine, driver and every GPU with its slot
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate inventory\n  nodegate inventory --format json")]
pub struct Args {
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    #[command(flatten)]
    pub place: Place,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let opened = args.place.open()?;
    let inventory = Inventory::of(&opened.snapshot);
    let text = match args.format {
        Format::Text => inventory.to_text(),
        Format::Json => inventory.to_json()?,
    };
    out.write_all(text.as_bytes())?;
    opened.machine.close();
    Ok(())
}
