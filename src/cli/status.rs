//! `nodegate status`: whether this host stands accepted now.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::delivery::flags;
use super::key::folder;
use super::plan::{Format, Selection};
use crate::decision::{Level, Stage};
use crate::ident::Digest;
use crate::plan::site::Collector;
use crate::record::status::{Live, Reason, Refusal, Standing, Wanted, judge};
use crate::record::{NodeDocument, PublicKey, Receipt, Spool, Verified, keyfile, receipt, receipt_keys, store};
use crate::units::Seconds;

/// More reasons than this tell nobody more.
const SHOWN: usize = 8;

/// Says whether this host stands accepted by one of its records, for systemd and schedulers.
///
/// Exit 0: accepted. 1: the last decision was rejected. 2: neither is known.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// What is asked for
    #[arg(long, value_enum, default_value_t)]
    pub require: Required,
    /// At least this stage
    #[arg(long, value_enum, default_value_t = Stage::Rack)]
    pub stage: Stage,
    /// At least this level
    #[arg(long, value_enum, default_value_t = Level::Quick)]
    pub level: Level,
    /// The record must not be older, e.g. '24 h'; any age if not given
    #[arg(long, value_name = "DURATION")]
    pub max_age: Option<Seconds>,
    /// Only a record that the collector holds and that counts there, by its signed receipt
    #[arg(long)]
    pub require_receipt: bool,
    /// The collector's public key, by which receipts are verified [default: the site's]
    #[arg(long, value_name = "PUB")]
    pub receipt_key: Option<PathBuf>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// The class, suite and site that count now.
#[derive(Debug, clap::Args)]
pub struct Present {
    /// The kind of host: a class by name or file, or by the GPUs on the PCI bus
    #[arg(long, value_name = "auto|ID|FILE", default_value = "auto")]
    pub class: String,
    /// A suite of your own
    #[arg(long, value_name = "FILE")]
    pub suite: Option<PathBuf>,
    /// The site file
    #[arg(long, value_name = "FILE")]
    pub site: Option<PathBuf>,
}

impl Present {
    pub fn selection(&self) -> Selection {
        Selection {
            class: self.class.clone(),
            suite: self.suite.clone(),
            stage: None,
            level: Level::Quick,
            only: Vec::new(),
            skip: Vec::new(),
            site: self.site.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Required {
    #[default]
    Accepted,
}

/// Judges the records of the state folder by what the host is now; prints the standing or the
/// reasons and gives the exit number. `collector` is the site's.
pub fn run(
    args: &StatusArgs,
    mut live: Live,
    collector: &Collector,
    out: &mut dyn Write,
) -> Result<u8, Box<dyn Error>> {
    let max_age = args.max_age.map(Seconds::duration);
    let wanted = Wanted { stage: args.stage, level: args.level, max_age, receipt: args.require_receipt };
    let folder = folder(args.state.as_deref())?;
    let key = args.receipt_key.as_ref().or(collector.receipt_key.as_ref());
    let key = key.map(|path| keyfile::read_public(path)).transpose()?;
    if wanted.receipt && key.is_none() {
        return Err(StatusError::NoReceiptKey.into());
    }
    let standing = match own_records(&folder)? {
        Some((records, head)) => {
            live.receipts = key.map(|key| receipts(&folder, &key, &records)).unwrap_or_default();
            judge(&records, head, &live, &wanted)
        }
        None => Err(Refusal { rejected: false, reasons: vec![Reason::NoRecord] }),
    };
    let post = Post::of(&folder, collector)?;
    match args.format {
        Format::Text => print(&standing, &live.node, &post, out)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &Told::of(&standing, &live.node, &post))?;
            writeln!(out)?;
        }
    }
    Ok(match standing {
        Ok(_) => 0,
        Err(refusal) if refusal.rejected => 1,
        Err(_) => 2,
    })
}

/// Why receipts cannot be asked for.
#[derive(Debug, thiserror::Error)]
enum StatusError {
    #[error("--require-receipt, and no key to verify a receipt with: name the collector's with --receipt-key")]
    NoReceiptKey,
}

/// The kept receipts of these records that the pinned key signed, or one that took its place.
fn receipts(folder: &Path, pinned: &PublicKey, records: &[Verified]) -> BTreeMap<Digest, Receipt> {
    let spool = Spool::of(folder);
    let keys = receipt_keys::trusted(pinned, &spool.receipt_keys().unwrap_or_default());
    let kept = |record: &Verified| {
        let run_id = &record.details.run_id;
        let receipt = receipt::verify_any(&spool.receipt(run_id)?, &keys, record.payload, run_id).ok()?;
        Some((record.payload, receipt))
    };
    records.iter().filter_map(kept).collect()
}

/// What is on its way; nothing where there is no collector and never was one.
struct Post {
    waiting: usize,
    dead: usize,
}

impl Post {
    fn of(folder: &Path, collector: &Collector) -> Result<Post, store::StoreError> {
        let spool = Spool::of(folder);
        if collector.url.is_none() && !spool.was_ever_used() {
            return Ok(Post { waiting: 0, dead: 0 });
        }
        Ok(Post { waiting: spool.waiting()?.len(), dead: spool.dead()?.len() })
    }
}

/// The answer for machines.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    format: u32,
    /// `accepted`, `rejected` or `undecided`.
    standing: &'static str,
    run_id: Option<&'a str>,
    seq: Option<u64>,
    stage: Option<Stage>,
    level: Option<Level>,
    finished_at: Option<&'a str>,
    receipt: Option<&'a Receipt>,
    reasons: Vec<String>,
    waiting: usize,
    dead: usize,
}

impl<'a> Told<'a> {
    fn of(standing: &'a Result<Standing, Refusal>, node: &NodeDocument, post: &Post) -> Self {
        let accepted = standing.as_ref().ok();
        let reasons = standing.as_ref().err().map(|refusal| refusal.reasons.as_slice()).unwrap_or_default();
        Told {
            format: 1,
            standing: word(standing),
            run_id: accepted.map(|standing| standing.run_id.as_str()),
            seq: accepted.map(|standing| standing.seq),
            stage: accepted.map(|standing| standing.stage),
            level: accepted.map(|standing| standing.level),
            finished_at: accepted.map(|standing| standing.finished_at.as_str()),
            receipt: accepted.and_then(|standing| standing.receipt.as_ref()),
            reasons: reasons.iter().map(|reason| shown(reason, node)).collect(),
            waiting: post.waiting,
            dead: post.dead,
        }
    }
}

fn word(standing: &Result<Standing, Refusal>) -> &'static str {
    match standing {
        Ok(_) => "accepted",
        Err(refusal) if refusal.rejected => "rejected",
        Err(_) => "undecided",
    }
}

/// What verifies with this host's own key, and the chain's head; none where there is no state.
fn own_records(folder: &Path) -> Result<Option<(Vec<Verified>, u64)>, store::StoreError> {
    let Some(head) = store::head(folder)? else { return Ok(None) };
    let shelf = store::verified(folder, &[store::own_key(folder)?])?;
    Ok(Some((shelf.into_iter().filter_map(|shelved| shelved.record.ok()).collect(), head)))
}

fn print(
    standing: &Result<Standing, Refusal>,
    node: &NodeDocument,
    post: &Post,
    out: &mut dyn Write,
) -> io::Result<()> {
    match standing {
        Ok(standing) => print_standing(standing, out)?,
        Err(refusal) => print_refusal(refusal, word(&Err(refusal.clone())), node, out)?,
    }
    if post.waiting > 0 {
        writeln!(out, "  {} of its records wait for the collector: nodegate deliver", post.waiting)?;
    }
    if post.dead > 0 {
        writeln!(out, "  {} of its records were refused for good: nodegate deliver --list", post.dead)?;
    }
    Ok(())
}

fn print_standing(standing: &Standing, out: &mut dyn Write) -> io::Result<()> {
    let Standing { run_id, seq, stage, level, finished_at, receipt } = standing;
    writeln!(out, "accepted for stage {stage} at level {level}: run {run_id}, seq {seq}, {finished_at}")?;
    let Some(receipt) = receipt else { return Ok(()) };
    let tier = receipt.tier.map_or_else(String::new, |tier| format!(", key known by {tier}"));
    writeln!(out, "  received {:.0}{tier}{}", receipt.received_at, flags(receipt))
}

fn print_refusal(refusal: &Refusal, word: &str, node: &NodeDocument, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{word}")?;
    for reason in refusal.reasons.iter().take(SHOWN) {
        writeln!(out, "  {}", shown(reason, node))?;
    }
    match refusal.reasons.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn shown(reason: &Reason, node: &NodeDocument) -> String {
    match reason {
        Reason::GpuUnnamed => unnamed(node),
        reason => reason.to_string(),
    }
}

/// Which GPU could not be identified; the judgement only knows that there is one.
fn unnamed(node: &NodeDocument) -> String {
    if node.gpus.is_empty() {
        return "no GPU on this host".to_owned();
    }
    let unnamed = node.gpus.iter().filter(|gpu| gpu.uuid.is_none());
    let places: Vec<String> = unnamed
        .map(|gpu| gpu.bus_id.map_or_else(|| "a GPU without address".to_owned(), |bus_id| bus_id.to_string()))
        .collect();
    format!("could not be identified now, the driver gives no UUID: {}", places.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Snapshot;
    use crate::record::identity::node_document;

    #[test]
    fn a_host_without_gpu_and_a_gpu_without_name_are_told_apart() {
        let mut node = node_document(&Snapshot::default());
        assert_eq!(unnamed(&node), "no GPU on this host");
        let bus_id = Some("0000:75:00.0".parse().unwrap());
        node.gpus.push(crate::record::identity::GpuIdentity { bus_id, serial: None, uuid: None });
        assert!(unnamed(&node).ends_with("no UUID: 0000:75:00.0"), "{}", unnamed(&node));
    }
}
