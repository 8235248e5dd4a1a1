//! `nodegate deliver`: sends what waits for the collector, and says what is left.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use aws_lc_rs::rand;
use serde::Serialize;

use super::delivery::{self, CollectorArgs};
use super::key::folder;
use super::plan::Format;
use super::{Failure, input, interrupt};
use crate::deliver::{Limits, Note, Report, Sent, Target, Waiting, pass, pause_before};
use crate::exit::Ending;
use crate::host::clock;
use crate::plan::site::{self, Collector, SITE_PATH};
use crate::record::Spool;
use crate::record::standing::{Flag, Tier};
use crate::record::store::spool::Dead;
use crate::units::Seconds;

/// Sends what waits for the collector.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    pub collector: CollectorArgs,
    /// The site file [default: /etc/nodegate/site.toml, where it exists]
    #[arg(long, value_name = "FILE")]
    pub site: Option<PathBuf>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Try again for this long, while something waits
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "forever")]
    pub patience: Option<Seconds>,
    /// Try again until nothing waits
    #[arg(long)]
    pub forever: bool,
    /// Also send what the collector has refused for good
    #[arg(long)]
    pub dead: bool,
    /// Only show what waits and what is dead; sends nothing
    #[arg(long, conflicts_with_all = ["patience", "forever", "dead"])]
    pub list: bool,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

const AFTER_HELP: &str = "\
Examples:
  nodegate deliver                      once
  nodegate deliver --for '10 min'       again and again, for this long
  nodegate deliver --list               what waits and what is dead, and why
  nodegate deliver --dead               the refused ones too, after the cause is mended

Exit status: 0 nothing waits, 3 something waits, 64 usage, 70 our own failure.";

/// Everything that is to be told, as JSON tells it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    format: u32,
    collector: Option<String>,
    sent: Vec<SentTold<'a>>,
    waiting: Vec<WaitingTold<'a>>,
    dead: Vec<DeadTold<'a>>,
    attempts: u32,
    not_before: Option<String>,
    last_try: Option<String>,
    cause: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SentTold<'a> {
    run_id: &'a str,
    seq: u64,
    received_at: String,
    tier: Option<Tier>,
    flags: &'a [Flag],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitingTold<'a> {
    run_id: &'a str,
    seq: u64,
    cause: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeadTold<'a> {
    run_id: &'a str,
    at: Option<String>,
    collector: Option<&'a str>,
    status: Option<u16>,
    cause: &'a str,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Result<Ending, Failure> {
    interrupt::install()?;
    let target = args.collector.target(&site_collector(args.site.as_deref())?)?;
    let folder = folder(args.state.as_deref()).map_err(|error| super::blamed(error.into()))?;
    let spool = Spool::of(&folder);
    if args.list {
        let report = listed(&spool, target.as_ref())?;
        return tell(args, &spool, target.as_ref(), &report, out);
    }
    let Some(target) = target else {
        return Err(Failure::misused("no collector: name one with --collector, or in the site file's [collector]"));
    };
    if target.receipt_key.is_none() {
        let text = "no key to verify receipts with, and without them nothing is delivered: name the collector's with --receipt-key";
        return Err(Failure::misused(text));
    }
    let report = if folder.exists() { send(args, &folder, &target, out)? } else { Report::default() };
    tell(args, &spool, Some(&target), &report, out)
}

/// The site's collector. The rest of the file is about runs, and is not judged here.
fn site_collector(named: Option<&Path>) -> Result<Collector, Failure> {
    let document = match named {
        Some(path) => Some(input::required(path)),
        None => input::optional(SITE_PATH.as_ref()).transpose(),
    };
    let collector =
        document.transpose().and_then(|document| document.map(|found| site::load_collector(&found)).transpose());
    collector.map(Option::unwrap_or_default).map_err(Failure::misused)
}

/// Passes until nothing waits, the time is over or a signal came. What was sent in all of them is in
/// the report, with what the last one left.
fn send(args: &Args, folder: &Path, target: &Target, out: &mut dyn Write) -> Result<Report, Failure> {
    let end = args.patience.and_then(|patience| Instant::now().checked_add(patience.duration()));
    let again = args.forever || args.patience.is_some();
    if args.dead {
        revive(folder)?;
    }
    let mut sent = Vec::new();
    loop {
        let mut report = pass(folder, target, Limits::default()).map_err(Failure::broken)?;
        if args.format == Format::Text {
            report.sent.iter().try_for_each(|one| say_sent(one, out)).map_err(Failure::broken)?;
        }
        sent.append(&mut report.sent);
        let left = report.waiting.len();
        let stays = left > 0 && again && !interrupt::interrupted() && wait(&report, left, end);
        if !stays {
            return Ok(Report { sent, ..report });
        }
    }
}

/// Waits as the collector wishes and as is fair to it. False where the time does not last, or a
/// signal came.
fn wait(report: &Report, left: usize, end: Option<Instant>) -> bool {
    let Some(note) = &report.note else { return false };
    let mut random = [0; 4];
    // Without random numbers the bound itself is as good.
    let drawn = rand::fill(&mut random).map_or(u32::MAX, |()| u32::from_ne_bytes(random));
    let pause = pause_before(note, clock::now(), drawn);
    let cause = report.waiting.first().map_or("", |waiting| waiting.cause.as_str());
    drop(writeln!(io::stderr(), "nodegate: {left} waiting, next try in {} s: {cause}", pause.as_secs()));
    // Without an end of our own there is one that no process lives to see.
    let end = end.unwrap_or_else(|| Instant::now() + pause + pause);
    clock::pause(pause, end)
}

/// Under the lock, so that nobody sends one of them twice.
fn revive(folder: &Path) -> Result<(), Failure> {
    let spool = Spool::of(folder);
    let until = Instant::now() + super::place::PATIENCE;
    match spool.lock(until, interrupt::interrupted).map_err(Failure::broken)? {
        Some(_lock) => spool.revive().map(drop).map_err(Failure::broken),
        None => Err(Failure::broken("another nodegate delivers from here; the dead were left as they are")),
    }
}

/// What lies there now, with nothing touched.
fn listed(spool: &Spool, target: Option<&Target>) -> Result<Report, Failure> {
    let note = target.map(|target| Note::read(spool, &target.address, clock::now()));
    let cause = note.as_ref().and_then(|note| note.cause.clone()).unwrap_or_else(|| "not tried yet".to_owned());
    let mut waiting = Vec::new();
    for run_id in spool.waiting().map_err(Failure::broken)? {
        // It may have gone, or be damaged, which the next delivery says.
        let seq = spool.parcel(&run_id).ok().and_then(Result::ok).map_or(0, |parcel| parcel.seq);
        waiting.push(Waiting { run_id, seq, cause: cause.clone() });
    }
    waiting.sort_by_key(|waiting| waiting.seq);
    Ok(Report { waiting, note, ..Report::default() })
}

fn tell(
    args: &Args,
    spool: &Spool,
    target: Option<&Target>,
    report: &Report,
    out: &mut dyn Write,
) -> Result<Ending, Failure> {
    let dead = spool.dead().map_err(Failure::broken)?;
    match args.format {
        Format::Text => say(report, &dead, out),
        Format::Json => {
            let told = told(report, &dead, target);
            serde_json::to_writer_pretty(&mut *out, &told).map_err(io::Error::from).and_then(|()| writeln!(out))
        }
    }
    .map_err(Failure::broken)?;
    Ok(if report.waiting.is_empty() { Ending::Accepted } else { Ending::Undelivered })
}

fn say_sent(sent: &Sent, out: &mut dyn Write) -> io::Result<()> {
    let Sent { run_id, seq, receipt, .. } = sent;
    let tier = receipt.tier.map_or_else(String::new, |tier| format!(", tier {tier}"));
    let flags = delivery::flags(receipt);
    writeln!(out, "sent   seq {seq:<5} {run_id}  receipt {:.0}{tier}{flags}", receipt.received_at)
}

fn say(report: &Report, dead: &[Dead], out: &mut dyn Write) -> io::Result<()> {
    for Waiting { run_id, seq, cause } in &report.waiting {
        writeln!(out, "waits  seq {seq:<5} {run_id}  {cause}")?;
    }
    for one in dead {
        writeln!(out, "dead   {}  {}", one.run_id, cause(one))?;
    }
    let counts = [(report.sent.len(), "sent"), (report.waiting.len(), "waiting"), (dead.len(), "dead")];
    let words: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    match words.is_empty() {
        true => writeln!(out, "nothing waits"),
        false => writeln!(out, "{}", words.join(", ")),
    }
}

fn told<'a>(report: &'a Report, dead: &'a [Dead], target: Option<&Target>) -> Told<'a> {
    let note = report.note.as_ref();
    let time = |time: Option<jiff::Timestamp>| time.map(|time| format!("{time:.0}"));
    Told {
        format: 1,
        collector: target.map(|target| target.address.to_string()),
        sent: report.sent.iter().map(SentTold::of).collect(),
        waiting: report
            .waiting
            .iter()
            .map(|Waiting { run_id, seq, cause }| WaitingTold { run_id, seq: *seq, cause })
            .collect(),
        dead: dead.iter().map(DeadTold::of).collect(),
        attempts: note.map_or(0, |note| note.attempts),
        not_before: time(note.and_then(|note| note.not_before)),
        last_try: time(note.and_then(|note| note.last_try)),
        cause: note.and_then(|note| note.cause.as_deref()),
    }
}

impl<'a> SentTold<'a> {
    fn of(sent: &'a Sent) -> Self {
        let receipt = &sent.receipt;
        let received_at = receipt.received_at.to_string();
        SentTold { run_id: &sent.run_id, seq: sent.seq, received_at, tier: receipt.tier, flags: &receipt.flags }
    }
}

impl<'a> DeadTold<'a> {
    fn of(dead: &'a Dead) -> Self {
        let why = dead.why.as_ref();
        DeadTold {
            run_id: &dead.run_id,
            at: why.map(|why| format!("{:.0}", why.at)),
            collector: why.and_then(|why| why.collector.as_deref()),
            status: why.and_then(|why| why.status),
            cause: cause(dead),
        }
    }
}

fn cause(dead: &Dead) -> &str {
    dead.why.as_ref().map_or("its reason cannot be read", |why| why.cause.as_str())
}
