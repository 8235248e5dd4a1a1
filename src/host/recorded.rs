//! The recorded hosts that come with us: where they lie, and what was made to happen on each.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::ident::printable;
use crate::isolate;

/// In the source tree, and in an installation beside the executable's folder.
const FOLDERS: [&str; 2] = ["fixtures/hosts", "share/nodegate/hosts"];
/// Bytes; the file has a few hundred.
const LONGEST: u64 = 64 << 10;

/// A recorded host, by what its `fixture.toml` says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The name of its folder.
    pub name: String,
    pub path: PathBuf,
    pub title: String,
    /// Machine events that were put upon it; none on a healthy host.
    pub events: Vec<String>,
    /// `accepted`, `rejected` or `undecided`.
    pub decision: String,
}

/// Nowhere are there recorded hosts.
#[derive(Debug, thiserror::Error)]
#[error("no recorded hosts in {}: name one with --fixture", .searched.join(", "))]
pub struct NoneFound {
    searched: Vec<String>,
}

/// The part of `fixture.toml` that is read here; fixtures/FORMAT.md has all of it.
#[derive(Deserialize)]
struct File {
    title: String,
    #[serde(default)]
    event: Vec<Event>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Event {
    what: String,
}

#[derive(Deserialize)]
struct Expect {
    decision: String,
}

/// All that are found, by name. What is no recorded host is passed over.
pub fn hosts() -> Result<Vec<Recorded>, NoneFound> {
    let mut searched = Vec::new();
    for folder in folders() {
        let found = hosts_in(&folder);
        if !found.is_empty() {
            return Ok(found);
        }
        searched.push(folder.display().to_string());
    }
    Err(NoneFound { searched })
}

/// Above the executable, nearest first: `target/debug` and `bin` lie below what they belong to.
fn folders() -> Vec<PathBuf> {
    let executable = isolate::executable();
    let above = executable.ancestors().skip(1).take(4);
    above.flat_map(|folder| FOLDERS.map(|name| folder.join(name))).collect()
}

fn hosts_in(folder: &Path) -> Vec<Recorded> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<Recorded> = entries.filter_map(|entry| read(&entry.path())).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn read(path: &Path) -> Option<Recorded> {
    let file = path.join("fixture.toml");
    fs::metadata(&file).ok().filter(|metadata| metadata.is_file() && metadata.len() <= LONGEST)?;
    let file: File = toml::from_str(&fs::read_to_string(file).ok()?).ok()?;
    let mut events: Vec<String> = file.event.iter().map(|event| printable(&event.what, 60)).collect();
    events.dedup();
    Some(Recorded {
        name: path.file_name()?.to_str()?.to_owned(),
        path: path.to_owned(),
        title: printable(&file.title, 200),
        events,
        decision: printable(&file.expect.decision, 20),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_of_the_source_tree_are_found_from_the_executable() {
        let hosts = hosts().unwrap();
        let of = |name: &str| hosts.iter().find(|host| host.name == name).unwrap();
        assert_eq!((of("hgx-h100-8").decision.as_str(), of("hgx-h100-8").events.len()), ("accepted", 0));
        assert_eq!(of("h100-link-narrow").decision, "rejected");
        assert_eq!(of("h100-link-narrow").events, ["link-narrow"]);
        assert!(hosts.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn what_is_no_recorded_host_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let host = |name: &str, text: &str| {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("fixture.toml"), text).unwrap();
        };
        host("good", "title = 'x'\nexpect.decision = 'accepted'\n");
        host("damaged", "title = ");
        host("large", &format!("title = 'x'\nexpect.decision = 'accepted'\n#{}", "x".repeat(70_000)));
        fs::create_dir(folder.path().join("empty")).unwrap();
        assert_eq!(hosts_in(folder.path()).iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["good"]);
    }
}
