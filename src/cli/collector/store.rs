//! `nodegate collector backup|verify|prune|export`: look after what a collector keeps.

use std::io::Write;
use std::path::PathBuf;

use super::super::{Failure, input};
use super::at::At;
use super::blame_store;
use crate::collector::api::export;
use crate::collector::store::{BackupError, Store};
use crate::exit::Ending;
use crate::host::clock;
use crate::ident::printable;
use crate::record::PublicKey;
use crate::record::ledger::{self, Head};
use crate::units::Seconds;

/// Records that are read at once.
const PAGE: u32 = 100;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Copy an SQLite store to a file while it serves
    Backup(Backup),
    /// Walk the ledger and find what was changed in it
    Verify(Verify),
    /// Drop the bytes of old records; hashes, rows and ledger stay
    Prune(Prune),
    /// Write every record's envelope, one a line (.intoto.jsonl)
    Export(Export),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nodegate collector backup --store sqlite:/srv/fleet.db /backup/fleet-0301.db")]
pub struct Backup {
    /// The copy; it must not exist yet
    file: PathBuf,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 whole, 1 broken; the first entry that is wrong is named.\n\n\
                        Examples:\n  nodegate collector verify\n  nodegate collector verify --head head-of-monday.json")]
pub struct Verify {
    /// A signed head that was kept elsewhere (GET /v1/ledger/head): the ledger must still contain it
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nodegate collector prune --older-than '8760 h'")]
pub struct Prune {
    /// How long ago a record must have been received; the newest of a node always stays
    #[arg(long, value_name = "TIME")]
    older_than: Seconds,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nodegate collector export --since 1200 > fleet.intoto.jsonl")]
pub struct Export {
    /// Only records after this position of the ledger
    #[arg(long, value_name = "INDEX", default_value_t)]
    since: u64,
    #[command(flatten)]
    at: At,
}

pub fn run(command: &Command, out: &mut dyn Write) -> Result<Ending, Failure> {
    match command {
        Command::Backup(backup) => copy(backup, out),
        Command::Verify(verify) => walk(verify, out),
        Command::Prune(prune) => drop_old(prune, out),
        Command::Export(export) => write_out(export, out),
    }
}

fn copy(backup: &Backup, out: &mut dyn Write) -> Result<Ending, Failure> {
    let store = open(&backup.at)?;
    store.backup(&backup.file).map_err(|error| match error {
        BackupError::Copy(error) => blame_store(error),
        BackupError::Server | BackupError::Exists { .. } => Failure::misused(error),
        BackupError::Write { .. } | BackupError::Damaged(_) => Failure::broken(error),
    })?;
    writeln!(out, "copied to {}", printable(&backup.file.to_string_lossy(), 300)).map_err(Failure::broken)?;
    Ok(Ending::Accepted)
}

fn walk(verify: &Verify, out: &mut dyn Write) -> Result<Ending, Failure> {
    let store = open(&verify.at)?;
    let contained = verify.head.as_ref().map(|file| known_head(&store, file)).transpose()?;
    let whole = match store.audit(clock::now()).map_err(blame_store)? {
        Ok(whole) => whole,
        Err(broken) => {
            writeln!(out, "broken at {}", printable(&broken.to_string(), 400)).map_err(Failure::broken)?;
            return Ok(Ending::Rejected);
        }
    };
    if let Some(head) = &contained
        && store.entry(head.index).map_err(blame_store)? != Some(head.entry)
    {
        let Head { index, entry, at } = head;
        writeln!(out, "broken at entry {index}: on {at} it was {entry}").map_err(Failure::broken)?;
        return Ok(Ending::Rejected);
    }
    let Head { index, entry, .. } = whole.head;
    writeln!(out, "whole: {index} entries, {} with their records", whole.kept).map_err(Failure::broken)?;
    writeln!(out, "head: {index} {entry}").map_err(Failure::broken)?;
    Ok(Ending::Accepted)
}

/// The head in a file, if a key of this store signed it.
fn known_head(store: &Store, file: &std::path::Path) -> Result<Head, Failure> {
    let document = input::required(file).map_err(Failure::misused)?;
    let keys = store.receipt_keys().map_err(blame_store)?;
    let keys: Vec<PublicKey> = keys.iter().filter_map(|key| PublicKey::parse(&key.public_key).ok()).collect();
    ledger::verify(document.text.as_bytes(), &keys).map_err(Failure::misused)
}

fn drop_old(prune: &Prune, out: &mut dyn Write) -> Result<Ending, Failure> {
    let store = open(&prune.at)?;
    let age = jiff::SignedDuration::try_from(prune.older_than.duration()).unwrap_or(jiff::SignedDuration::MAX);
    let before = clock::now().checked_sub(age).unwrap_or(jiff::Timestamp::MIN);
    let pruned = store.prune(before).map_err(blame_store)?;
    let mebibytes = pruned.bytes as f64 / (1024.0 * 1024.0);
    writeln!(out, "dropped the bytes of {} records, {mebibytes:.1} MiB", pruned.records).map_err(Failure::broken)?;
    Ok(Ending::Accepted)
}

fn write_out(export: &Export, out: &mut dyn Write) -> Result<Ending, Failure> {
    let store = open(&export.at)?;
    let mut after = export.since;
    loop {
        let page = store.export(after, PAGE).map_err(blame_store)?;
        let Some(last) = page.last() else { return Ok(Ending::Accepted) };
        after = last.record.ledger.index;
        for line in page.iter().filter_map(|kept| export::line(kept.raw.as_deref()?)) {
            out.write_all(&line).map_err(Failure::broken)?;
        }
    }
}

/// A store that is there: none is made by looking for it.
fn open(at: &At) -> Result<Store, Failure> {
    Store::attend_existing(&at.url()?).map_err(blame_store)
}
