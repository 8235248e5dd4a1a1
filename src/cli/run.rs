//! `nodegate run`: judge a host, decide, and write the signed record.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::delivery::{self, Delivered, Delivery};
use super::place::{self, Place};
use super::plan::{Resolved, Selection};
use super::{Failure, interrupt, lock, terminal};
use crate::check::KINDS;
use crate::decision::Decision;
use crate::deliver::{self, Target};
use crate::event::Event;
use crate::exit::Ending;
use crate::facts::{HostFacts, Snapshot};
use crate::gate::{self, Account, Opening};
use crate::host::machine::Sweep;
use crate::host::{Machine, Origin, Source, clock};
use crate::ident::{Digest, printable};
use crate::plan::Plan;
use crate::plan::site::Collector;
use crate::predicate::{Agent, Details, Operator};
use crate::record::identity::{Documents, HostDocument, host_document};
use crate::record::plain;
use crate::record::store::{self, Store, Stored};
use crate::report::jsonl::JsonLines;
use crate::report::live::Live;
use crate::report::{self, Reporter, summary};
use crate::units::Seconds;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub delivery: Delivery,
    /// Wait up to this long for a host that is still coming up, e.g. '10 min'
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

pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<Ending, Failure> {
    interrupt::install()?;
    let started_at = clock::utc_now();
    let mut reporter = Output::new(arguments.format, out);
    let agent = agent()?;
    if let Some(path) = &arguments.record {
        plain::may_replace(path).map_err(|error| Failure::misused(format!("--record {}: {error}", path.display())))?;
    }
    let prepared = arguments.place.prepare().map_err(interrupt::or(super::blamed))?;
    // The host without its driver decides the class and whose state this is, before anything is run.
    let deadline = Instant::now() + place::PATIENCE;
    let sweep = Sweep::of(&prepared.source, deadline);
    if let Some(reason) = &sweep.refused {
        return Err(Failure::misused(reason.clone()));
    }
    let around = arguments.place.around(&sweep.facts, arguments.state.as_deref())?;
    let Resolved { mut plan, collector, .. } = arguments.selection.resolve(&around, KINDS).map_err(Failure::misused)?;
    let target = arguments.target(prepared.source.origin, collector)?;
    distrust_environment(&mut plan);
    let store = open_store(&around.state, prepared.source.origin, &sweep.facts)?;
    let _lock = lock::take(store.folder())?;

    let run_id = uuid::Uuid::now_v7().to_string();
    let mut notices = notices(&plan, &around.lacking, prepared.source.origin, &store);
    let challenge = challenge(target.as_ref(), &store, &mut notices);
    // Before the driver is opened, which takes its patience where it hangs.
    announce(&plan, &sweep.facts, &run_id, &started_at, &mut reporter);
    tell(&notices, &mut reporter);
    let Ready { mut machine, snapshot: opening, openings, waited_for } =
        ready(&prepared.source, (sweep, deadline), arguments.wait_ready, &mut reporter);
    let mut later: Vec<String> = opening.warnings.iter().map(|text| printable(text, LONGEST_NOTICE)).collect();
    later.extend(waited_for.map(|reason| format!("opened {openings} times, since {reason}")));
    tell(&later, &mut reporter);
    notices.extend(later);
    let verdict = gate::run(
        &mut plan,
        &mut machine,
        &Opening { snapshot: &opening, openings },
        &interrupt::interrupted,
        &mut |event| reporter.hear(event),
    );
    let boot_ids = [opening.host.kernel.boot_id.value().cloned(), machine.boot_id()];
    let log_end = machine.log_end();
    let mut verdict = verdict.after_close(machine.close());
    if gate::misses_a_gpu(&verdict.steps)
        && let Some(last) = last_accepted(&around.state, prepared.source.origin)
    {
        gate::name_the_missing(&mut verdict.steps, &opening, &last);
    }

    let account = Account {
        run_id,
        agent,
        origin: prepared.source.origin,
        operator: operator(arguments),
        started_at,
        boot_ids: boot_ids.into_iter().flatten().map(|id| printable(id.trim(), 40)).collect(),
        log_end,
        challenge,
        notices,
    };
    let details = gate::account(&plan, &opening, verdict, account);
    let documents = Documents::of(&opening);
    let stored = store.commit(details, &documents).map_err(Failure::broken)?;
    reporter.hear(&Event::RunEnded { details: Box::new(stored.details.clone()) });
    let ending = finish(arguments, (&stored, &store, &documents.host), target.as_ref(), out)?;
    // The decision has been told; that its copy is missing is a failure of its own.
    let copied = arguments.record.as_deref().map_or(Ok(()), |path| stored.copy_to(path));
    copied.map(|()| ending).map_err(Failure::broken)
}

impl Arguments {
    /// Where the record goes. What a recording says of a collector is not heard: it is sent only
    /// where the command line says so, and a site file that came with it gives no key and no secret.
    fn target(&self, origin: Origin, mut site: Collector) -> Result<Option<Target>, Failure> {
        let own_site = self.selection.site.is_none();
        if origin == Origin::Simulated && (own_site || self.delivery.collector.collector.is_none()) {
            site = Collector::default();
        }
        self.delivery.target(&site)
    }
}

/// The reporter that `--format` asks for.
enum Output<'a> {
    /// The JSON comes at the end.
    Silent,
    Lines(JsonLines<'a>),
    Live(Box<Live<'a>>),
}

impl<'a> Output<'a> {
    fn new(format: Format, out: &'a mut dyn Write) -> Self {
        match format {
            Format::Json => Output::Silent,
            Format::Jsonl => Output::Lines(JsonLines::new(out)),
            Format::Text => Output::Live(Box::new(Live::new(out, terminal::typeface(), terminal::draws_progress()))),
        }
    }
}

impl Reporter for Output<'_> {
    fn hear(&mut self, event: &Event) {
        match self {
            Output::Silent => {}
            Output::Lines(lines) => lines.hear(event),
            Output::Live(live) => live.hear(event),
        }
    }
}

/// The state folder: the host's own key and chain, or a throw-away key for a recording.
fn open_store(folder: &Path, origin: Origin, host: &HostFacts) -> Result<Store, Failure> {
    match origin {
        Origin::Simulated => Store::for_recording(folder),
        Origin::Live => Store::for_host(folder, &host_document(host)),
        Origin::Overridden => Store::for_override(folder, &host_document(host)),
    }
    .map_err(Failure::broken)
}

/// The collector's nonce for what this run will sign. It is asked for before the driver is opened, so
/// that the record is younger than it; a run goes on without one and says why.
fn challenge(target: Option<&Target>, store: &Store, notices: &mut Vec<String>) -> Option<String> {
    let target = target?;
    let given = deliver::challenge(target, &store.public_key().keyid(), store.folder());
    given.map_err(|why| notices.push(printable(&format!("no nonce for this record: {why}"), LONGEST_NOTICE))).ok()
}

/// The newest accepted record of the same kind of host, for what it says of GPUs that are gone. That
/// none can be read changes nothing about this run.
fn last_accepted(state: &Path, origin: Origin) -> Option<Details> {
    let shelf = match origin {
        Origin::Simulated => store::simulated_records(state),
        Origin::Live | Origin::Overridden => store::records(state),
    };
    let verified = shelf.ok()?.into_iter().filter_map(|shelved| shelved.record.ok());
    verified.map(|record| record.details).find(|details| details.decision == Decision::Accepted)
}

/// Variables of the caller that bend what we or the GPUs' users see. Our children start without
/// any; but a run that was started in a bent view is not one to accept a host by.
const BENDING: [&str; 3] = ["LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES"];

fn distrust_environment(plan: &mut Plan) {
    let set = BENDING.iter().filter(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let names: Vec<&str> = set.copied().collect();
    if !names.is_empty() {
        plan.can_accept = false;
        plan.cannot_accept_because =
            Some(format!("{} set in the caller's environment: unset it and run again", names.join(" and ")));
    }
}

/// A machine that is up, or that was not within the patience.
struct Ready {
    machine: Machine,
    snapshot: Snapshot,
    openings: u32,
    /// The last reason to wait.
    waited_for: Option<String>,
}

/// Opens the machine; with `--wait-ready`, again and again until it is up or the time is over.
fn ready(
    source: &Source,
    (mut sweep, mut deadline): (Sweep, Instant),
    patience: Option<Seconds>,
    reporter: &mut dyn Reporter,
) -> Ready {
    let until = Instant::now() + patience.map_or(Duration::ZERO, Seconds::duration);
    let (mut openings, mut waited_for) = (1, None);
    // Who the host is was settled when the state folder was opened.
    let (dmi, machine_id) = (sweep.facts.dmi.clone(), sweep.facts.os.machine_id.clone());
    loop {
        let (machine, snapshot) = Machine::open_on(source.clone(), sweep, deadline);
        let not_yet = gate::not_ready_yet(&snapshot).filter(|_| clock::pause(RETRY, until));
        let Some(reason) = not_yet else { return Ready { machine, snapshot, openings, waited_for } };
        machine.close();
        reporter.hear(&Event::Waiting { reason: reason.clone(), attempt: openings });
        openings += 1;
        waited_for = Some(reason);
        deadline = Instant::now() + place::PATIENCE;
        sweep = Sweep::of(source, deadline);
        sweep.facts.dmi = dmi.clone();
        sweep.facts.os.machine_id = machine_id.clone();
    }
}

/// A driver build or a fabric set-up takes minutes; asking every two seconds disturbs neither.
const RETRY: Duration = Duration::from_secs(2);

fn announce(plan: &Plan, host: &HostFacts, run_id: &str, started_at: &str, reporter: &mut dyn Reporter) {
    let hostname = host.hostname.value().map_or_else(|| "unknown host".to_owned(), |name| printable(name, 64));
    reporter.hear(&Event::RunStarted {
        run_id: run_id.to_owned(),
        hostname,
        class: plan.reference.class.id.clone(),
        stage: plan.stage,
        level: plan.level,
        steps: plan.steps.iter().map(|step| step.id.clone()).collect(),
        at: started_at.to_owned(),
    });
}

fn tell(notices: &[String], reporter: &mut dyn Reporter) {
    for text in notices {
        reporter.hear(&Event::Notice { text: text.clone() });
    }
}

/// Characters of a notice.
const LONGEST_NOTICE: usize = 300;

/// What a person should know before the host is opened.
fn notices(plan: &Plan, lacking: &[String], origin: Origin, store: &Store) -> Vec<String> {
    let mut notices = Vec::new();
    if origin == Origin::Simulated {
        notices.push("a recorded host with a simulated driver; its record is signed with a throw-away key".to_owned());
    }
    for more in [&plan.notices[..], lacking, store.notices()] {
        notices.extend(more.iter().map(|text| printable(text, LONGEST_NOTICE)));
    }
    notices
}

fn operator(arguments: &Arguments) -> Operator {
    let safe = |text: &Option<String>| text.as_ref().map(|text| printable(text, 200));
    Operator { name: safe(&arguments.operator), ticket: safe(&arguments.ticket), reason: safe(&arguments.reason) }
}

fn agent() -> Result<Agent, Failure> {
    let digest = std::fs::File::open("/proc/self/exe")
        .and_then(Digest::of_reader)
        .map_err(|error| Failure::broken(format!("own executable /proc/self/exe: {error}")))?;
    Ok(Agent { version: env!("CARGO_PKG_VERSION").to_owned(), digest })
}

fn finish(
    arguments: &Arguments,
    sender: (&Stored, &Store, &HostDocument),
    target: Option<&Target>,
    out: &mut dyn Write,
) -> Result<Ending, Failure> {
    let (stored, ..) = sender;
    match arguments.format {
        Format::Text => {
            let lines =
                report::record::kept(&stored.path, &stored.keyid, stored.details.seq, terminal::typeface()).join("\n");
            writeln!(out, "\n{lines}").map_err(Failure::broken)?;
        }
        Format::Json => {
            let json = serde_json::to_string_pretty(&stored.details).map_err(Failure::broken)?;
            writeln!(out, "{json}").map_err(Failure::broken)?;
        }
        Format::Jsonl => {}
    }
    let screen: Option<&mut dyn Write> = if arguments.format == Format::Text { Some(out) } else { None };
    let required = arguments.delivery.require_delivery;
    let delivered = target.map(|target| delivery::send(sender, target, required, screen)).transpose()?;
    let has_receipt = delivered.as_ref().map(|delivered| matches!(delivered, Delivered::Receipt(_)));
    // Standard error may be closed; the exit status still says it.
    let _closed = writeln!(std::io::stderr(), "{}", summary::line(&stored.details, Some(stored.payload), has_receipt));
    match (stored.details.decision, delivered) {
        (Decision::Accepted, Some(Delivered::Not(_))) if required => Ok(Ending::Undelivered),
        (decision, _) => Ok(decision.into()),
    }
}
