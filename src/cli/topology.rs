//! `nodegate topology`: how near GPUs and network devices are to each other.

use std::error::Error;
use std::io::Write;

use super::place::Place;
use crate::facts::topology::Topology;
use crate::report::{topology, topology_svg};

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
    Svg,
}

/// Show how near GPUs and network devices are to each other
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate topology\n  nodegate topology --format svg > host.svg")]
pub struct Args {
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    #[command(flatten)]
    pub place: Place,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let opened = args.place.open()?;
    let picture = Topology::of(&opened.snapshot);
    let text = match args.format {
        Format::Text => topology::text(&picture),
        Format::Json => topology::json(&picture)?,
        Format::Svg => {
            let hostname = opened.snapshot.host.hostname.value().map_or("this host", String::as_str);
            topology_svg::svg(&picture, hostname)
        }
    };
    out.write_all(text.as_bytes())?;
    opened.machine.close();
    Ok(())
}
