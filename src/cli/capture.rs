//! `nodegate capture DIR`: this host as a recording that `--fixture` reads.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::place::{Opened, Place};
use crate::facts::snapshot::{DriverSession, Pair, SessionState};
use crate::facts::{Answer, Answers, Gpu, Question, Snapshot};
use crate::host::capture::Capture;
use crate::host::root::Recording;
use crate::ident::printable;
use crate::isolate;

/// How long the reading of the root folder may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Write this host as a recording, with pseudonyms for what identifies it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate capture ./this-host\n  nodegate run --fixture ./this-host")]
pub struct Args {
    /// The folder to write; it must be empty or not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Write serials, UUIDs, names and addresses as they are
    #[arg(long)]
    pub keep_identity: bool,
    /// The class that a run on the recording passes as --class
    #[arg(long, value_name = "ID")]
    pub class: Option<String>,
    #[command(flatten)]
    pub place: Place,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut opened = args.place.open()?;
    let answers = ask_everything(&mut opened);
    let request = json!({ "root": opened.machine.source.root });
    let recording = isolate::call::<_, Result<Recording, String>>("record", &request, PATIENCE)??;
    let capture = Capture {
        answers: &answers,
        recording: &recording,
        title: title(&opened.snapshot),
        events: events(&opened.snapshot.driver.session),
        class: args.class,
        keep_identity: args.keep_identity,
    };
    let written = capture.write(&args.folder)?;
    opened.machine.close();
    let identity = if args.keep_identity { "identities as they are" } else { "identities as pseudonyms" };
    writeln!(
        out,
        "{}: {} answers, {} files and links, {identity}",
        args.folder.display(),
        written.answers,
        written.entries
    )?;
    if written.left_out > 0 {
        writeln!(out, "{} questions had no answer of the driver and were left out", written.left_out)?;
    }
    Ok(())
}

/// What `driver.json` cannot say of a session that never began.
fn events(session: &SessionState) -> Vec<String> {
    match session {
        SessionState::NoLibrary { .. } | SessionState::Refused { .. } => vec!["library-missing".to_owned()],
        _ => Vec::new(),
    }
}

/// Everything that an opening snapshot asks, once more for its raw answers; of a driver that does
/// not start, that it does not.
fn ask_everything(opened: &mut Opened) -> Answers {
    match &opened.snapshot.driver.session {
        SessionState::InitFailed { code, .. } => {
            return Answers::from_iter([(Question::new("nvmlInit_v2", &[]), Answer::refused(*code))]);
        }
        SessionState::NoLibrary { .. } | SessionState::Refused { .. } | SessionState::NotStarted => {
            return Answers::default();
        }
        SessionState::Answering | SessionState::Hung(_) | SessionState::Died { .. } => {}
    }
    let (machine, deadline) = (&mut opened.machine, opened.deadline);
    let gpus: Vec<u32> = opened.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let mut first = DriverSession::questions();
    first.extend(gpus.iter().flat_map(|gpu| Gpu::questions(*gpu)));
    let mut answers = machine.ask(&first, deadline);
    let mut second: Vec<Question> = gpus.iter().flat_map(|gpu| Gpu::follow_up(*gpu, &answers)).collect();
    second.extend(opened.snapshot.pairs.iter().flat_map(|pair| Pair::questions(pair.a, pair.b)));
    answers.extend(machine.ask(&second, deadline));
    answers
}

/// What the host is, without its name: `8 × NVIDIA H100 80GB HBM3, driver 580.105.08`.
fn title(snapshot: &Snapshot) -> String {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for gpu in &snapshot.gpus {
        let name = gpu.name.value().cloned().unwrap_or_else(|| "GPU that gives no name".to_owned());
        *counts.entry(printable(&name, 60)).or_default() += 1;
    }
    let models: Vec<String> = counts.iter().map(|(name, count)| format!("{count} × {name}")).collect();
    let models = if models.is_empty() { "no GPU".to_owned() } else { models.join(", ") };
    match snapshot.driver.driver_version.value() {
        Some(version) => format!("{models}, driver {}", printable(version, 30)),
        None => format!("{models}, no driver"),
    }
}
