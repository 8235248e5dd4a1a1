//! `nodegate run`: judge a host, decide, and write the signed record.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Failure, interrupt, lock, planning, sign, source, terminal};
use crate::decision::Decision;
use crate::event::Event;
use crate::exit::Ending;
use crate::facts::Snapshot;
use crate::gate::{self, Account};
use crate::host::{Machine, Origin, clock};
use crate::ident::{Digest, printable};
use crate::plan::Plan;
use crate::predicate::{Agent, Details, Operator};
use crate::report::jsonl::JsonLines;
use crate::report::live::Live;
use crate::report::{Reporter, summary};
use crate::units::Seconds;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub planning: planning::Arguments,
    #[command(flatten)]
    pub source: source::Arguments,
    /// Wait up to this long for a host that is still coming up, e.g. "10 min"
    #[arg(long, value_name = "DURATION")]
    pub wait_ready: Option<Seconds>,
    /// Keep records and the signing key in this folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Also write the record to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// What to print on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Who runs this, for the record
    #[arg(long, value_name = "NAME", help_heading = "For the record")]
    pub operator: Option<String>,
    /// The ticket that this run belongs to
    #[arg(long, value_name = "ID", help_heading = "For the record")]
    pub ticket: Option<String>,
    /// Why this run is made
    #[arg(long, value_name = "TEXT", help_heading = "For the record")]
    pub reason: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  nodegate run
  nodegate run --stage image --wait-ready '10 min' --format json
  nodegate run --only driver,gpu-inventory          (a partial run never accepts)
  nodegate run --fixture fixtures/hosts/h100-link-narrow
  nodegate run --operator kim --ticket RMA-17 --reason 'GPU 3 replaced'";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One screen for people
    Text,
    /// The object predicate.nodegate of the record, at the end
    Json,
    /// One event a line, as it happens
    Jsonl,
}

/// Prints nothing: the JSON comes at the end.
struct Silent;

impl Reporter for Silent {
    fn hear(&mut self, _event: &Event) {}
}

pub fn run(arguments: Arguments, out: &mut dyn Write) -> Result<Ending, Failure> {
    interrupt::install()?;
    let started_at = clock::utc_now();
    let chosen = arguments.planning.load(arguments.source.fixture.as_deref())?;
    let state = sign::State::open(arguments.state.clone(), arguments.source.origin())?;
    let _lock = lock::take(state.folder())?;
    let opened = arguments.source.open()?;

    let typeface = terminal::typeface();
    let mut silent = Silent;
    let mut lines;
    let mut live;
    let reporter: &mut dyn Reporter = match arguments.format {
        Format::Json => &mut silent,
        Format::Jsonl => {
            lines = JsonLines::new(&mut *out);
            &mut lines
        }
        Format::Text => {
            live = Live::new(&mut *out, typeface, terminal::draws_progress());
            &mut live
        }
    };

    let (mut machine, opening) = ready(&opened.source, arguments.wait_ready, reporter);
    let mut plan = chosen.resolve(&opening.host)?;
    let run_id = uuid::Uuid::now_v7().to_string();
    let notices = notices(&plan, &opening, opened.source.origin);
    announce(&plan, &opening, &run_id, &started_at, &notices, reporter);

    let verdict =
        gate::run(&mut plan, &mut machine, &opening, &interrupt::interrupted, &mut |event| reporter.hear(event));
    let boot_ids = machine.boot_ids();
    machine.close();
    let account = Account {
        run_id,
        agent: agent()?,
        origin: opened.source.origin,
        operator: operator(&arguments),
        started_at,
        boot_ids,
        notices,
    };
    let details = gate::account(&plan, &opening, verdict, account);
    let kept = state.keep(details, &opening, arguments.record.as_deref())?;
    reporter.hear(&Event::RunEnded { details: Box::new(kept.details.clone()) });
    finish(&arguments, &kept, out)
}

/// Opens the machine; with `--wait-ready`, again and again until it is up or the time is over.
fn ready(
    source: &crate::host::Source,
    patience: Option<Seconds>,
    reporter: &mut dyn Reporter,
) -> (Machine, Snapshot) {
    let until = Instant::now() + patience.map_or(Duration::ZERO, Seconds::duration);
    let mut attempt = 1;
    loop {
        let (machine, opening) = Machine::open(source.clone(), Instant::now() + source::PATIENCE);
        let Some(reason) = gate::not_ready_yet(&opening) else { return (machine, opening) };
        if Instant::now() + RETRY >= until || interrupt::interrupted() {
            return (machine, opening);
        }
        machine.close();
        reporter.hear(&Event::Waiting { reason, attempt });
        attempt += 1;
        clock::pause(RETRY, &interrupt::interrupted);
    }
}

/// A driver build or a fabric set-up takes minutes; asking every two seconds disturbs neither.
const RETRY: Duration = Duration::from_secs(2);

fn announce(
    plan: &Plan,
    opening: &Snapshot,
    run_id: &str,
    started_at: &str,
    notices: &[String],
    reporter: &mut dyn Reporter,
) {
    let hostname = opening.host.hostname.value().map_or_else(|| "unknown host".to_owned(), |name| printable(name, 64));
    reporter.hear(&Event::RunStarted {
        run_id: run_id.to_owned(),
        hostname,
        class: plan.reference.class.id.clone(),
        stage: plan.stage,
        level: plan.level,
        steps: plan.steps.iter().map(|step| step.id.clone()).collect(),
        at: started_at.to_owned(),
    });
    for text in notices {
        reporter.hear(&Event::Notice { text: text.clone() });
    }
}

/// What a person should know before the first step: one line on privileges, and the plan's own.
fn notices(plan: &Plan, opening: &Snapshot, origin: Origin) -> Vec<String> {
    let mut notices = Vec::new();
    if origin == Origin::Simulated {
        notices.push("this is a recorded host with a simulated driver; its record is signed with a throw-away key".to_owned());
    }
    notices.extend(plan.notices.iter().cloned());
    if origin != Origin::Simulated && !rustix::process::geteuid().is_root() {
        notices.push("not root: SRAM error counters, the kernel log and serial numbers may not be readable".to_owned());
    }
    notices.extend(opening.warnings.iter().cloned());
    notices
}

fn operator(arguments: &Arguments) -> Operator {
    let safe = |text: &Option<String>| text.as_ref().map(|text| printable(text, 200));
    Operator { name: safe(&arguments.operator), ticket: safe(&arguments.ticket), reason: safe(&arguments.reason) }
}

#[expect(clippy::disallowed_methods, reason = "the edge reads its own executable, to name it in the record")]
fn agent() -> Result<Agent, Failure> {
    let bytes = std::fs::read("/proc/self/exe")
        .map_err(|error| Failure::broken(format!("own executable /proc/self/exe: {error}")))?;
    Ok(Agent { version: env!("CARGO_PKG_VERSION").to_owned(), digest: Digest::of(&bytes) })
}

fn finish(arguments: &Arguments, kept: &sign::Kept, out: &mut dyn Write) -> Result<Ending, Failure> {
    let details: &Details = &kept.details;
    match arguments.format {
        Format::Text => writeln!(out, "{}", kept.describe()).map_err(Failure::broken)?,
        Format::Json => {
            let json = serde_json::to_string_pretty(details).map_err(Failure::broken)?;
            writeln!(out, "{json}").map_err(Failure::broken)?;
        }
        Format::Jsonl => {}
    }
    // Standard error may be closed; the exit status still says it.
    let _closed = writeln!(std::io::stderr(), "{}", summary::line(details, Some(kept.payload_digest)));
    Ok(match details.decision {
        Decision::Accepted => Ending::Accepted,
        decision => decision.into(),
    })
}
