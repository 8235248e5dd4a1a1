//! The command line: one file per subcommand, one place where endings and error chains meet.

mod capture;
mod checks;
mod class;
mod collector;
mod completions;
mod deliver;
mod delivery;
mod demo;
pub mod enroll;
mod input;
mod interrupt;
mod inventory;
mod job;
pub mod key;
mod lock;
mod place;
pub mod plan;
pub mod record;
mod run;
mod site;
pub mod status;
mod terminal;
mod topology;
pub mod verify;

use std::error::Error;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::check::KINDS;
use crate::exit::Ending;
use crate::host::fixture::FixtureError;
use crate::host::{Origin, clock};
use crate::ident::printable;
use crate::record::identity::host_document;
use crate::record::status::Live;
use crate::record::store::StoreError;
use crate::report::screen;

/// Decides, on evidence, whether a GPU host may take work.
#[derive(Debug, Parser)]
#[command(name = "nodegate", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    /// Say on standard error what is asked and how long it takes; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nodegate run                                      judge this host
  nodegate run --fixture fixtures/hosts/hgx-h100-8  judge a recorded one
  nodegate plan                                     what would run, with which limits
  nodegate inventory                                what is in this host
  nodegate status --max-age '24 h'                  may it take work?

Exit status: 0 accepted, 1 rejected, 2 undecided, 3 not delivered, 64 usage, 70 our own failure.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show all of it on a recorded host: run, record, collector, receipt
    Demo(demo::Arguments),
    /// Run the checks, decide, and write a signed record
    Run(Box<run::Arguments>),
    /// Show what would run, with limits and their sources; runs nothing
    Plan(PlanArguments),
    /// Show what is in this host
    Inventory(inventory::Args),
    /// Show how GPUs, NICs and CPUs are connected
    Topology(topology::Args),
    /// Record this host as a fixture, with identities replaced
    Capture(capture::Args),
    /// List and explain the checks
    Checks(checks::ChecksArgs),
    /// List, show and check the classes of hosts
    Class(class::Args),
    /// Write, check and show the site file
    Site(site::Args),
    /// Show and list the records of this host
    Record(record::RecordArgs),
    /// Verify a record's signature
    Verify(verify::VerifyArgs),
    /// Make, show and replace the signing key
    Key(key::KeyArgs),
    /// Make this host's key known to a collector
    Enroll(enroll::Args),
    /// Send what waits for the collector
    Deliver(deliver::Args),
    /// Say whether this host may take work, by its last record
    Status(StatusArguments),
    /// Take records in and show the fleet
    Collector(Box<collector::Args>),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate plan\n  nodegate plan --stage service --format json")]
struct PlanArguments {
    #[command(flatten)]
    plan: plan::Args,
    #[command(flatten)]
    place: place::Place,
    /// The state folder that a run would write to
    #[arg(long, value_name = "DIR")]
    state: Option<std::path::PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example, as a systemd drop-in:\n  [Service]\n  ExecCondition=nodegate status --require accepted --max-age '24 h'"
)]
struct StatusArguments {
    #[command(flatten)]
    status: status::StatusArgs,
    /// The class, suite and site that count now
    #[command(flatten)]
    selection: status::Present,
    #[command(flatten)]
    place: place::Place,
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
            let _closed =
                writeln!(std::io::stderr(), "nodegate: the agent itself failed; please report the lines above");
            Ending::Broken.into()
        }
    }
}

fn dispatch() -> Ending {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let printed = error.print();
            return if error.use_stderr() { Ending::Misused } else { written(Ending::Accepted, printed) };
        }
    };
    terminal::say_more(arguments.verbose);
    let mut out = terminal::Quiet::new(std::io::stdout());
    let ending = match arguments.command.run(&mut out) {
        Ok(ending) => ending,
        Err(failure) => {
            print_chain(failure.error());
            failure.ending()
        }
    };
    written(ending, out.end())
}

/// The ending, unless what was to be said did not come through: who reads half of it must not
/// take it for the whole.
fn written(ending: Ending, output: io::Result<()>) -> Ending {
    match output {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _closed = writeln!(std::io::stderr(), "nodegate: standard output: {error}");
            Ending::Broken
        }
        Ok(()) | Err(_) => ending,
    }
}

impl Command {
    fn run(self, out: &mut dyn Write) -> Result<Ending, Failure> {
        match self {
            Command::Demo(arguments) => demo::run(&arguments, out),
            Command::Run(arguments) => run::run(&arguments, out),
            Command::Plan(arguments) => {
                let around = arguments.place.surroundings(arguments.state.as_deref())?;
                told(plan::run(&arguments.plan, &around, KINDS, out))
            }
            Command::Inventory(arguments) => told(inventory::run(arguments, out)),
            Command::Topology(arguments) => told(topology::run(arguments, out)),
            Command::Capture(arguments) => told(capture::run(arguments, out)),
            Command::Checks(arguments) => told(checks::run(&arguments, out)),
            Command::Class(arguments) => told(class::run(&arguments, KINDS, out)),
            Command::Site(arguments) => told(site::run(&arguments, KINDS, out)),
            Command::Record(arguments) => {
                let typeface = terminal::typeface();
                told(record::run(&arguments, |details| screen::render(details, typeface), out))
            }
            Command::Verify(arguments) => numbered(verify::run(&arguments, out)),
            Command::Key(key::KeyArgs { command: key::AnyCommand::Here(command) }) => {
                told(key::run(&command, || host_document(&place::this_host()), out))
            }
            Command::Key(key::KeyArgs { command: key::AnyCommand::Rotate(arguments) }) => {
                enroll::rotate(&arguments, out)
            }
            Command::Enroll(arguments) => enroll::run(&arguments, out),
            Command::Deliver(arguments) => deliver::run(&arguments, out),
            Command::Status(arguments) => status(&arguments, out),
            Command::Collector(arguments) => collector::run(&arguments, out),
            Command::Completions(arguments) => completions::run(&arguments, out),
        }
    }
}

/// Looks at the host as it is now and judges its records by it.
fn status(arguments: &StatusArguments, out: &mut dyn Write) -> Result<Ending, Failure> {
    let opened = arguments.place.open().map_err(blamed)?;
    let selection = arguments.selection.selection();
    let around = arguments.place.around(&opened.snapshot.host, arguments.status.state.as_deref())?;
    let resolved = selection.resolve(&around, KINDS).map_err(Failure::misused)?;
    let (reference, collector) = (resolved.plan.reference, resolved.collector);
    let elsewhere = arguments.place.origin() != Origin::Live;
    let (class, suite) = (reference.class.digest, reference.suite.digest);
    let live = Live::of(&opened.snapshot, class, suite, elsewhere, clock::now());
    opened.machine.close();
    numbered(status::run(&arguments.status, live, &collector, out))
}

/// A subcommand that did its work or was misused; what the system refused is ours to report as broken.
fn told(result: Result<(), Box<dyn Error>>) -> Result<Ending, Failure> {
    result.map(|()| Ending::Accepted).map_err(blamed)
}

/// The same for subcommands that end with a number of their own.
fn numbered(result: Result<u8, Box<dyn Error>>) -> Result<Ending, Failure> {
    let number = result.map_err(blamed)?;
    let ending = Ending::ALL.into_iter().find(|ending| ending.status() == number);
    ending.ok_or_else(|| Failure::broken(format!("an ending without a name: {number}")))
}

/// Input and output that fail are not the caller's mistake; everything else names what was given.
fn blamed(error: Box<dyn Error>) -> Failure {
    let broken = error.is::<std::io::Error>()
        || error.downcast_ref::<StoreError>().is_some_and(|error| !matches!(error, StoreError::NoFolder))
        || error.downcast_ref::<FixtureError>().is_some_and(FixtureError::is_ours);
    if broken { Failure::Broken(error) } else { Failure::Misused(error) }
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
    // Paths and names in it may hold anything; the line breaks of a list of problems are ours.
    for line in text.lines() {
        let _closed = writeln!(std::io::stderr(), "{}", printable(line, LONGEST_LINE));
    }
}

/// Characters of an error line; a path has at most 4096 bytes.
const LONGEST_LINE: usize = 5000;
