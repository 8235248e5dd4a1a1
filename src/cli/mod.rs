//! The command line: one file per subcommand, one place where endings and error chains meet.

mod capture;
mod checks;
mod class;
mod completions;
mod inventory;
mod job;
mod key;
mod plan;
mod record;
mod run;
mod sign;
mod site;
mod source;
mod status;
mod terminal;
mod topology;
mod verify;

use std::error::Error;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Ending;

/// Decides, on evidence, whether a GPU host may take work.
#[derive(Debug, Parser)]
#[command(name = "nodegate", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nodegate run                                   judge this host
  nodegate run --fixture fixtures/hosts/hgx-h100-8   judge a recorded one
  nodegate plan                                  what would run, with which limits
  nodegate inventory                             what is in this host
  nodegate status --require accepted --max-age 24h   may it take work?

Exit status: 0 accepted, 1 rejected, 2 undecided, 3 not delivered, 64 usage, 70 our own failure.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the checks, decide, and write a signed record
    Run(run::Arguments),
    /// Show what would run, with limits and their sources; runs nothing
    Plan(plan::Arguments),
    /// Show what is in this host
    Inventory(inventory::Arguments),
    /// Show how GPUs, NICs and CPUs are connected
    Topology(topology::Arguments),
    /// Record this host as a fixture, with identities replaced
    Capture(capture::Arguments),
    /// List and explain the checks
    Checks(checks::Arguments),
    /// List, show and check the classes of hosts
    Class(class::Arguments),
    /// Write, check and show the site file
    Site(site::Arguments),
    /// Show and list the records of this host
    Record(record::Arguments),
    /// Verify a record's signature
    Verify(verify::Arguments),
    /// Make and show the signing key
    Key(key::Arguments),
    /// Say whether this host may take work, by its last record
    Status(status::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
}

/// Why a subcommand could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// What we were given is wrong.
    Misused(Box<dyn Error>),
    /// We broke, or what we stand on did.
    Broken(Box<dyn Error>),
    /// Another run holds the host.
    Held(Box<dyn Error>),
}

impl Failure {
    pub fn misused(error: impl Into<Box<dyn Error>>) -> Self {
        Failure::Misused(error.into())
    }

    pub fn broken(error: impl Into<Box<dyn Error>>) -> Self {
        Failure::Broken(error.into())
    }

    fn ending(&self) -> Ending {
        match self {
            Failure::Misused(_) => Ending::Misused,
            Failure::Broken(_) => Ending::Broken,
            Failure::Held(_) => Ending::Undecided,
        }
    }

    fn error(&self) -> &dyn Error {
        match self {
            Failure::Misused(error) | Failure::Broken(error) | Failure::Held(error) => error.as_ref(),
        }
    }
}

/// Parses the command line and runs it. Never unwinds: a panic ends as [`Ending::Broken`].
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "__job") {
        let name = words.next().unwrap_or_default();
        return job::serve(&name.to_string_lossy());
    }
    match catch_unwind(AssertUnwindSafe(dispatch)) {
        Ok(ending) => ending.into(),
        Err(_) => {
            let _closed = writeln!(std::io::stderr(), "nodegate: the agent itself failed; please report the lines above");
            Ending::Broken.into()
        }
    }
}

fn dispatch() -> Ending {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _closed = error.print();
            return if error.use_stderr() { Ending::Misused } else { Ending::Accepted };
        }
    };
    let mut out = terminal::Quiet::new(std::io::stdout());
    match arguments.command.run(&mut out) {
        Ok(ending) => ending,
        Err(failure) => {
            print_chain(failure.error());
            failure.ending()
        }
    }
}

impl Command {
    fn run(self, out: &mut dyn Write) -> Result<Ending, Failure> {
        match self {
            Command::Run(arguments) => run::run(arguments, out),
            Command::Plan(arguments) => plan::run(arguments, out),
            Command::Inventory(arguments) => inventory::run(arguments, out),
            Command::Topology(arguments) => topology::run(arguments, out),
            Command::Capture(arguments) => capture::run(arguments, out),
            Command::Checks(arguments) => checks::run(arguments, out),
            Command::Class(arguments) => class::run(arguments, out),
            Command::Site(arguments) => site::run(arguments, out),
            Command::Record(arguments) => record::run(arguments, out),
            Command::Verify(arguments) => verify::run(arguments, out),
            Command::Key(arguments) => key::run(arguments, out),
            Command::Status(arguments) => status::run(arguments, out),
            Command::Completions(arguments) => completions::run(&arguments, out),
        }
    }
}

/// The whole chain of causes, once, at the edge.
fn print_chain(error: &dyn Error) {
    let mut text = format!("nodegate: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    let _closed = writeln!(std::io::stderr(), "{text}");
}
