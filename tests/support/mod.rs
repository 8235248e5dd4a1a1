//! What several tests need: runs of the real executable, and a file system that never answers.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod fuse;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The executable under test.
pub fn nodegate() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nodegate"));
    command.env_remove("NODEGATE_STATE").stdin(std::process::Stdio::null());
    command
}

/// One run with its own state folder.
pub struct Ran {
    pub state: TempDir,
    pub output: Output,
}

impl Ran {
    pub fn status(&self) -> i32 {
        self.output.status.code().unwrap_or(-1)
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// `predicate.nodegate`, of a run with `--format json`.
    pub fn details(&self) -> Value {
        serde_json::from_slice(&self.output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout(), self.stderr()))
    }
}

/// `nodegate run --format json` on a recorded host with a fresh state folder.
pub fn run_fixture(fixture: &Path, more: &[&str]) -> Ran {
    let state = tempfile::tempdir().unwrap();
    let output = nodegate()
        .args(["run", "--format", "json", "--fixture"])
        .arg(fixture)
        .arg("--state")
        .arg(state.path())
        .args(more)
        .output()
        .unwrap();
    Ran { state, output }
}

pub fn host(name: &str) -> PathBuf {
    Path::new("fixtures/hosts").join(name)
}

/// A host of its own: `base` with these events, in a temporary folder beside a link to the base.
pub fn faulty(base: &str, events: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path();
    std::os::unix::fs::symlink(fs::canonicalize(host(base)).unwrap(), hosts.join(base)).unwrap();
    let fixture = hosts.join("faulty");
    fs::create_dir(&fixture).unwrap();
    let text = format!(
        "format = 1\ntitle = \"made by a test\"\nprovenance = \"synthetic\"\nsource = \"a test\"\nbase = \"{base}\"\n{events}\n[expect]\ndecision = \"undecided\"\nsteps = []\n"
    );
    fs::write(fixture.join("fixture.toml"), text).unwrap();
    (folder, fixture)
}

/// The step of this name in a run's details.
pub fn step<'a>(details: &'a Value, id: &str) -> &'a Value {
    details["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|step| step["id"] == id)
        .unwrap_or_else(|| panic!("no step {id}: {details:#}"))
}

/// The one record file of a run.
pub fn record_of(state: &Path) -> PathBuf {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(state, &mut found);
    let is_record = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        path.parent().is_some_and(|folder| folder.ends_with("records"))
            && name.ends_with(".json")
            && !name.ends_with(".sigstore.json")
            && !name.ends_with(".host.json")
            && !name.ends_with(".node.json")
            && !name.ends_with(".receipt.json")
    };
    found.retain(is_record);
    assert_eq!(found.len(), 1, "one record expected under {}: {found:?}", state.display());
    found.remove(0)
}
