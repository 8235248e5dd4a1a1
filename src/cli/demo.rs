//! `nodegate demo`: a collector on loopback, a run on a recorded host, its record sent, kept and
//! verified. Needs nothing but the build.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::{self, JoinHandle};

use clap::Parser as _;

use super::{Failure, run, terminal};
use crate::collector::access::Open;
use crate::collector::limits::Limits;
use crate::collector::serve::{ServeError, Server, Settings, Stop};
use crate::collector::store::{self as collected, Store};
use crate::collector::{enrol, receipt_key};
use crate::exit::Ending;
use crate::host::recorded::{self, Recorded};
use crate::ident::printable;
use crate::record::{PublicKey, Verified, plain, receipt, store};

/// The recorded host that is shown where nothing else is asked for.
const HEALTHY: &str = "hgx-h100-8";
/// What makes the fleet page worth looking at: machines of several kinds, and some that are wrong.
const FLEET: [&str; 10] = [
    "hgx-a100-8",
    "hgx-h200-8",
    "hgx-b200-8",
    "gb200-nvl72-tray",
    "l40s",
    "t4",
    "rtx-4090-8",
    "h200-seven-of-eight",
    "h100-link-narrow",
    "h100-fabric-in-progress",
];
/// Bytes; a receipt has less than two thousand.
const LONGEST_RECEIPT: u64 = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  nodegate demo
  nodegate demo --serve                  keep the fleet page up
  nodegate demo --fault gpu-absent       a host that is rejected
  nodegate demo --fault list             what can happen to a host";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Let this happen to the host; `list` names what can
    #[arg(long, value_name = "EVENT")]
    fault: Option<String>,
    /// Keep the collector and its pages up, with a small fleet, until Ctrl-C
    #[arg(long)]
    serve: bool,
    /// Where the collector listens: a port of your choice, on this machine
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<Ending, Failure> {
    if !arguments.listen.ip().is_loopback() {
        let text = format!("--listen {}: a demonstration is for this machine alone, 127.0.0.1:PORT", arguments.listen);
        return Err(Failure::misused(text));
    }
    let hosts = recorded::hosts().map_err(Failure::misused)?;
    if arguments.fault.as_deref() == Some("list") {
        return list(&hosts, out).map(|()| Ending::Accepted);
    }
    let host = choose(&hosts, arguments.fault.as_deref())?;
    let folder = tempfile::Builder::new().prefix("nodegate-demo-").tempdir().map_err(Failure::broken)?;
    let collector = Collector::start(folder.path(), arguments.listen)?;
    let state = folder.path().join("host");

    say(out, &format!("A collector on {}; {}: {}.\n", collector.url(), host.name, host.title))?;
    collector.judge(host, &state, "text", out)?;
    let shown = show(&collector, &state, out)?;
    if !arguments.serve {
        say(out, "\nSee it in a browser, with more hosts:  nodegate demo --serve")?;
        return collector.end().map(|()| Ending::Accepted);
    }
    for host in hosts.iter().filter(|other| FLEET.contains(&other.name.as_str()) && other.name != host.name) {
        collector.judge(host, &state, "json", &mut std::io::sink())?;
    }
    say(out, &format!("\nfleet    {}/", collector.url()))?;
    say(out, &format!("node     {}/nodes/{}", collector.url(), shown.host.hex()))?;
    say(out, &format!("record   {}/records/{}", collector.url(), shown.payload.hex()))?;
    say(out, "\nCtrl-C ends it and leaves nothing behind.")?;
    out.flush().map_err(Failure::broken)?;
    collector.wait().map(|()| Ending::Accepted)
}

/// The host that this happened to; without a wish the healthy one.
fn choose<'a>(hosts: &'a [Recorded], fault: Option<&str>) -> Result<&'a Recorded, Failure> {
    let Some(event) = fault else {
        let healthy = hosts.iter().find(|host| host.name == HEALTHY);
        return healthy.ok_or_else(|| Failure::misused(format!("recorded host {HEALTHY} is not there")));
    };
    let happened = |host: &&Recorded| host.events.iter().any(|other| other == event);
    // What has nothing else wrong shows it best.
    let best = hosts.iter().filter(happened).min_by_key(|host| (host.events.len(), host.decision != "rejected"));
    best.ok_or_else(|| {
        let names = hosts.iter().flat_map(|host| host.events.iter().map(String::as_str));
        let hint = crate::plan::document::nearest(event, names);
        let event = printable(event, 60);
        Failure::misused(format!(
            "no recorded host has the event `{event}`{hint}; `nodegate demo --fault list` names all"
        ))
    })
}

fn list(hosts: &[Recorded], out: &mut dyn Write) -> Result<(), Failure> {
    let mut events: Vec<(&str, &Recorded)> =
        hosts.iter().flat_map(|host| host.events.iter().map(move |event| (event.as_str(), host))).collect();
    events.sort_by_key(|(event, host)| (*event, host.events.len(), host.decision != "rejected"));
    events.dedup_by_key(|(event, _)| *event);
    for (event, host) in events {
        say(out, &format!("{event:<20} {:<10} {}", host.decision, host.title))?;
    }
    Ok(())
}

/// The collector of the demonstration, on a thread of its own.
struct Collector {
    address: SocketAddr,
    receipt_key: PublicKey,
    /// Its folder, with the public half of the receipt key.
    folder: std::path::PathBuf,
    stop: Stop,
    thread: JoinHandle<Result<(), ServeError>>,
}

impl Collector {
    fn start(folder: &Path, listen: SocketAddr) -> Result<Collector, Failure> {
        let folder = folder.join("collector");
        let key = receipt_key::read_or_make(&folder).map_err(Failure::broken)?;
        let receipt_key = key.public_key().clone();
        let url = format!("sqlite:{}", folder.join("collector.db").display());
        let settings = collected::Settings { policy: None, accept_simulated: true, serves: true };
        let store = Store::open(&url, key, settings).map_err(Failure::broken)?;
        let server = Server::bind(
            store,
            Settings {
                listen,
                tls: None,
                open: Open { reading: true, writing: true },
                behind_proxy: false,
                limits: Limits::default(),
                enrolment: enrol::Settings { accept_simulated: true, ..enrol::Settings::default() },
            },
        )
        .map_err(Failure::broken)?;
        let (address, stop) = (server.address(), server.stop());
        let thread = thread::Builder::new().name("collector".to_owned()).spawn(move || server.run());
        let thread = thread.map_err(Failure::broken)?;
        Ok(Collector { address, receipt_key, folder, stop, thread })
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the gate on a recorded host, as the command line would.
    fn judge(&self, host: &Recorded, state: &Path, format: &str, out: &mut dyn Write) -> Result<Ending, Failure> {
        let (url, key) = (self.url(), receipt_key::public_path(&self.folder));
        let words = ["nodegate run", "--format", format, "--collector", &url].map(std::ffi::OsStr::new);
        let paths = [("--fixture", host.path.as_path()), ("--state", state), ("--receipt-key", &key)];
        let options = paths.into_iter().flat_map(|(option, path)| [std::ffi::OsStr::new(option), path.as_os_str()]);
        let arguments = Run::try_parse_from(words.into_iter().chain(options)).map_err(Failure::broken)?;
        run::run(&arguments.run, out)
    }

    fn end(self) -> Result<(), Failure> {
        self.stop.now();
        self.wait()
    }

    /// Until somebody ends it.
    fn wait(self) -> Result<(), Failure> {
        match self.thread.join() {
            Ok(ended) => ended.map_err(Failure::broken),
            Err(_) => Err(Failure::broken("the collector of the demonstration broke")),
        }
    }
}

#[derive(clap::Parser)]
struct Run {
    #[command(flatten)]
    run: run::Arguments,
}

/// Verifies the newest record and its receipt with what lies beside them, and says what was found.
fn show(collector: &Collector, state: &Path, out: &mut dyn Write) -> Result<Verified, Failure> {
    let newest = store::simulated_records(state).map_err(Failure::broken)?.into_iter().next();
    let newest = newest.ok_or_else(|| Failure::broken("the run left no record"))?;
    let record = newest.record.map_err(Failure::broken)?;
    say(out, &format!("verified with {}: signed by {}", path_of(&newest.path.with_extension("pub")), record.keyid))?;
    let path = newest.path.with_extension("receipt.json");
    let bytes = plain::read(&path, LONGEST_RECEIPT)
        .map_err(|error| Failure::broken(format!("the collector's receipt {}: {error}", path.display())))?;
    let run_id = &record.details.run_id;
    let receipt = receipt::verify(&bytes, &collector.receipt_key, record.payload, run_id).map_err(Failure::broken)?;
    let entry = receipt.ledger.map(|place| format!(", entry {} of its ledger", place.index)).unwrap_or_default();
    let flags: Vec<&str> = receipt.flags.iter().map(|flag| flag.meaning()).collect();
    let counts = if flags.is_empty() { String::new() } else { format!("; does not count: {}", flags.join(", ")) };
    let line = format!("received {:.0}{entry}{counts}", receipt.received_at);
    say(out, &terminal::typeface().wrap(&line, "", "         ").join("\n"))?;
    Ok(record)
}

fn path_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn say(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    writeln!(out, "{text}").map_err(Failure::broken)
}
