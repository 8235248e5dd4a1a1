//! `nodegate record diff`: what is different between two records.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Found, Place, RecordError, RecordFormat, found, shelf};
use crate::cli::key::folder;
use crate::decision::Decision;
use crate::predicate::Details;
use crate::record::store::Shelved;
use crate::report::diff::{Difference, text};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nodegate record diff\n  nodegate record diff --last-accepted\n  nodegate record diff 01a2 01a3 --format json"
)]
pub struct DiffArgs {
    /// The earlier record: a run id, the beginning of one, or a file
    #[arg(value_name = "A", conflicts_with = "last_accepted")]
    pub before: Option<String>,
    /// The later record; the newest, if none is named
    #[arg(value_name = "B")]
    pub after: Option<String>,
    /// Compare the newest with the last accepted one before it
    #[arg(long)]
    pub last_accepted: bool,
    #[arg(long, value_enum, default_value_t)]
    pub format: RecordFormat,
    /// The public key that files must verify with; this host's if none is named, or the key beside a
    /// recording's record
    #[arg(long, value_name = "PUB")]
    pub key: Option<PathBuf>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

pub fn run(args: &DiffArgs, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let (before, after) = pair(args)?;
    let difference = Difference::between(&before.verified.details, &after.verified.details);
    match args.format {
        RecordFormat::Text => write!(out, "{}", text(&difference))?,
        RecordFormat::Json => writeln!(out, "{}", serde_json::to_string_pretty(&difference)?)?,
    }
    Ok(())
}

fn pair(args: &DiffArgs) -> Result<(Found, Found), Box<dyn Error>> {
    let place = Place { state: args.state.as_deref(), key: args.key.as_deref() };
    if let Some(before) = &args.before {
        return Ok((place.find(Some(before))?, place.find(args.after.as_deref())?));
    }
    let folder = folder(args.state.as_deref())?;
    let mut shelf = comparable(shelf(&folder, true)?, &folder)?.into_iter();
    let none = || RecordError::None(folder.clone());
    let after = found(shelf.next().ok_or_else(none)?, &folder)?;
    let before = if args.last_accepted {
        let mut accepted = shelf.filter(|shelved| shelved.record.as_ref().is_ok_and(|it| is_accepted(&it.details)));
        accepted.next().ok_or_else(|| RecordError::NoneAccepted(folder.clone()))?
    } else {
        shelf.next().ok_or_else(|| RecordError::One(folder.clone()))?
    };
    Ok((found(before, &folder)?, after))
}

/// Newest first; runs on recordings only where the host has no record of its own.
fn comparable(shelf: Vec<Shelved>, folder: &Path) -> Result<Vec<Shelved>, RecordError> {
    let own = folder.join("records");
    let (host, recordings): (Vec<Shelved>, Vec<Shelved>) =
        shelf.into_iter().partition(|shelved| shelved.path.parent() == Some(own.as_path()));
    let chosen = if host.is_empty() { recordings } else { host };
    if chosen.is_empty() { Err(RecordError::None(folder.to_owned())) } else { Ok(chosen) }
}

fn is_accepted(details: &Details) -> bool {
    details.decision == Decision::Accepted && !details.overridden && !details.partial
}
