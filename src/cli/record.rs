//! `nodegate record`: the records that this host keeps.

mod difference;
mod page;

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::key::folder;
use super::verify::read_record;
use crate::predicate::Details;
use crate::record::store::{self, Shelved};
use crate::record::{PublicKey, Verified, keyfile, verify};
use crate::report;

pub use difference::DiffArgs;

/// The records that this host keeps.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate record list\n  nodegate record show\n  nodegate record show 01a2 --html /media/usb/report.html\n  nodegate record diff --last-accepted"
)]
pub struct RecordArgs {
    #[command(subcommand)]
    pub command: RecordCommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum RecordCommand {
    /// One line per record, newest first
    List(ListArgs),
    /// One record: the last one, one by run id (or its beginning), or a file
    Show(ShowArgs),
    /// What is different between two records: the last two, if none is named
    Diff(DiffArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nodegate record list\n  nodegate record list --simulated")]
pub struct ListArgs {
    /// Runs on recordings, too
    #[arg(long)]
    pub simulated: bool,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate record show\n  nodegate record show 01a2 --format json\n  nodegate record show RUN.json --key host.pub\n  nodegate record show --html /media/usb/report.html"
)]
pub struct ShowArgs {
    /// A run id, the beginning of one, or a file
    #[arg(value_name = "ID|FILE")]
    pub record: Option<String>,
    #[arg(long, value_enum, default_value_t)]
    pub format: RecordFormat,
    /// Write it as one web page that loads nothing and contains the signed record; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub html: Option<PathBuf>,
    /// The public key that a file must verify with; this host's if none is named, or the key beside a
    /// recording's record
    #[arg(long, value_name = "PUB")]
    pub key: Option<PathBuf>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RecordFormat {
    /// As at the end of the run
    #[default]
    Text,
    /// The object predicate.nodegate
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("no record in {0}: run `nodegate run` first")]
    None(PathBuf),
    #[error("no record `{wanted}` in {folder}: `nodegate record list` shows those that are there")]
    Unknown { wanted: String, folder: PathBuf },
    #[error("only one record in {0}: two are compared")]
    One(PathBuf),
    #[error("no accepted record before the last one in {0}")]
    NoneAccepted(PathBuf),
    #[error("`{wanted}` begins {count} run ids: give more of it")]
    Several { wanted: String, count: usize },
    #[error("record {path}: this host's key did not sign it; give --key")]
    NotOurs { path: PathBuf },
    #[error("record {path} does not verify")]
    Unverified {
        path: PathBuf,
        #[source]
        source: crate::record::VerifyError,
    },
}

/// Prints to `out`. `screen` draws the text form of one record.
pub fn run(args: &RecordArgs, screen: impl Fn(&Details) -> String, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    match &args.command {
        RecordCommand::List(list) => {
            let folder = folder(list.state.as_deref())?;
            let shelf = shelf(&folder, list.simulated)?;
            if shelf.is_empty() {
                return Ok(writeln!(out, "no records in {}", folder.display())?);
            }
            Ok(print_list(&shelf, out)?)
        }
        RecordCommand::Show(show) => {
            let place = Place { state: show.state.as_deref(), key: show.key.as_deref() };
            let found = place.find(show.record.as_deref())?;
            let details = &found.verified.details;
            match (&show.html, show.format) {
                (Some(path), _) => page::write(&found, path, out)?,
                (None, RecordFormat::Text) => write!(out, "{}", screen(details))?,
                (None, RecordFormat::Json) => writeln!(out, "{}", serde_json::to_string_pretty(details)?)?,
            }
            Ok(())
        }
        RecordCommand::Diff(diff) => difference::run(diff, out),
    }
}

/// The host's own records, then, where asked for, those of runs on recordings.
fn shelf(folder: &Path, simulated: bool) -> Result<Vec<Shelved>, store::StoreError> {
    let has_key = folder.join("key.pub").exists();
    let mut shelf = if has_key { store::records(folder)? } else { Vec::new() };
    if simulated {
        shelf.extend(store::simulated_records(folder)?);
    }
    Ok(shelf)
}

fn print_list(shelf: &[Shelved], out: &mut dyn Write) -> io::Result<()> {
    let verified = shelf.iter().filter_map(|shelved| shelved.record.as_ref().ok());
    write!(out, "{}", report::record::list(verified.map(|record| &record.details)))?;
    for shelved in shelf {
        if let Err(error) = &shelved.record {
            writeln!(out, "{} does not verify: {error}", shelved.path.display())?;
        }
    }
    Ok(())
}

/// A record, where it lies, and the key that it verified with.
struct Found {
    verified: Verified,
    path: PathBuf,
    key: PublicKey,
}

/// Where records are looked for, and what a file must verify with.
struct Place<'a> {
    state: Option<&'a Path>,
    key: Option<&'a Path>,
}

impl Place<'_> {
    /// The record that is meant: a file, the beginning of a run id, or without a wish the newest of
    /// the host, then of recordings.
    fn find(&self, wanted: Option<&str>) -> Result<Found, Box<dyn Error>> {
        match wanted {
            Some(file) if Path::new(file).is_file() => self.file(Path::new(file)),
            wanted => {
                let folder = folder(self.state)?;
                let shelved = choose(shelf(&folder, true)?, wanted, &folder)?;
                Ok(found(shelved, &folder)?)
            }
        }
    }

    fn file(&self, path: &Path) -> Result<Found, Box<dyn Error>> {
        let beside = throwaway_key(path);
        let not_ours = || RecordError::NotOurs { path: path.to_owned() };
        let key = match self.key.or(beside.as_deref()) {
            Some(key) => keyfile::read_public(key)?,
            None => store::public_key(&folder(self.state)?).map_err(|_| not_ours())?,
        };
        match verify(&read_record(path)?, std::slice::from_ref(&key)) {
            Ok(verified) => Ok(Found { verified, path: path.to_owned(), key }),
            Err(error) if self.key.is_none() && beside.is_none() && error.is_about_the_signature() => {
                Err(not_ours().into())
            }
            Err(source) => Err(RecordError::Unverified { path: path.to_owned(), source }.into()),
        }
    }
}

/// A record of the shelf with its key: the one beside it of a run on a recording, else the host's.
fn found(shelved: Shelved, folder: &Path) -> Result<Found, Box<dyn Error>> {
    let Shelved { path, record, .. } = shelved;
    match record {
        Ok(verified) => {
            let beside = throwaway_key(&path);
            let key = match beside {
                Some(key) => keyfile::read_public(&key)?,
                None => store::public_key(folder)?,
            };
            Ok(Found { verified, path, key })
        }
        Err(source) => Err(RecordError::Unverified { path, source }.into()),
    }
}

/// The key beside the record of a run on a recording, where it lies in a folder of such runs.
fn throwaway_key(record: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(record).ok()?.parent()?.to_owned();
    let name = record.file_name()?.to_str()?;
    let run_id = name.strip_suffix(".sigstore.json").or_else(|| name.strip_suffix(".json"))?;
    let key = folder.join(format!("{run_id}.pub"));
    (folder.ends_with("simulated/records") && key.is_file()).then_some(key)
}

/// The record whose run id begins so; without a wish the newest of the host, then of recordings.
fn choose(shelf: Vec<Shelved>, wanted: Option<&str>, folder: &Path) -> Result<Shelved, RecordError> {
    let begins = |shelved: &Shelved| wanted.is_none_or(|wanted| shelved.run_id.starts_with(wanted));
    let mut found: Vec<Shelved> = shelf.into_iter().filter(begins).collect();
    match (found.len(), wanted) {
        (0, None) => return Err(RecordError::None(folder.to_owned())),
        (0, Some(wanted)) => {
            return Err(RecordError::Unknown {
                wanted: crate::ident::printable(wanted, 60),
                folder: folder.to_owned(),
            });
        }
        (count, Some(wanted)) if count > 1 => {
            return Err(RecordError::Several { wanted: crate::ident::printable(wanted, 60), count });
        }
        _ => {}
    }
    Ok(found.swap_remove(0))
}
