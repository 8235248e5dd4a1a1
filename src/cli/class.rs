//! `nodegate class`: the kinds of host that are known, one of them in full, a file checked.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use crate::check::Kind;
use crate::plan::{class, suite};
use crate::report::plan as report;

use super::input;

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate class list\n  nodegate class show hgx-h100-8\n  nodegate class check ./mine.toml"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// The classes that are built in
    #[command(after_help = "Examples:\n  nodegate class list")]
    List,
    /// One class: what it matches, its limits and where each comes from
    #[command(after_help = "Examples:\n  nodegate class show hgx-h100-8")]
    Show { id: String },
    /// Says everything that is wrong with a class file
    #[command(after_help = "Examples:\n  nodegate class check ./mine.toml")]
    Check { file: PathBuf },
}

/// Lists, shows or checks.
///
/// # Errors
///
/// [`crate::plan::Problems`] with the class, or the output's own error.
pub fn run(args: &Args, kinds: &[Kind], out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let suite = suite::builtin(kinds)?;
    match &args.command {
        Command::List => {
            for class in class::all(&suite, kinds)? {
                writeln!(out, "{:<18} {}", class.id, class.title)?;
            }
        }
        Command::Show { id } => {
            let class = class::builtin(id, &suite, kinds)?;
            out.write_all(report::class_text(&class).as_bytes())?;
        }
        Command::Check { file } => {
            let class = class::load(&input::required(file)?, &suite, kinds)?;
            let (id, count) = (&class.id, class.answers.len());
            writeln!(out, "class {id} is right: it answers all {count} steps of suite {}", suite.id)?;
        }
    }
    Ok(())
}
