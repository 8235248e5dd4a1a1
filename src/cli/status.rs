//! `nodegate status`: whether this host stands accepted now.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::key::folder;
use super::plan::Selection;
use crate::decision::{Level, Stage};
use crate::record::status::{Live, Reason, Refusal, Standing, Wanted, judge};
use crate::record::{NodeDocument, Verified, store};
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
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
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
/// reasons and gives the exit number.
pub fn run(args: &StatusArgs, live: &Live, out: &mut dyn Write) -> Result<u8, Box<dyn Error>> {
    let wanted = Wanted { stage: args.stage, level: args.level, max_age: args.max_age.map(Seconds::duration) };
    let folder = folder(args.state.as_deref())?;
    let standing = match own_records(&folder)? {
        Some((records, head)) => judge(&records, head, live, &wanted),
        None => Err(Refusal { rejected: false, reasons: vec![Reason::NoRecord] }),
    };
    match standing {
        Ok(standing) => {
            print_standing(&standing, out)?;
            Ok(0)
        }
        Err(refusal) => {
            print_refusal(&refusal, &live.node, out)?;
            Ok(if refusal.rejected { 1 } else { 2 })
        }
    }
}

/// What verifies with this host's own key, and the chain's head; none where there is no state.
fn own_records(folder: &Path) -> Result<Option<(Vec<Verified>, u64)>, store::StoreError> {
    let Some(head) = store::head(folder)? else { return Ok(None) };
    let shelf = store::verified(folder, &[store::own_key(folder)?])?;
    Ok(Some((shelf.into_iter().filter_map(|shelved| shelved.record.ok()).collect(), head)))
}

fn print_standing(standing: &Standing, out: &mut dyn Write) -> io::Result<()> {
    let Standing { run_id, seq, stage, level, finished_at } = standing;
    writeln!(out, "accepted for stage {stage} at level {level}: run {run_id}, seq {seq}, {finished_at}")
}

fn print_refusal(refusal: &Refusal, node: &NodeDocument, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", if refusal.rejected { "rejected" } else { "undecided" })?;
    for reason in refusal.reasons.iter().take(SHOWN) {
        match reason {
            Reason::GpuUnnamed => writeln!(out, "  {}", unnamed(node))?,
            reason => writeln!(out, "  {reason}")?,
        }
    }
    match refusal.reasons.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
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
