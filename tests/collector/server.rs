//! A collector as a process, and what a test wants of it.

#![allow(dead_code, reason = "each test crate uses its own part")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nodegate::collector::store::{Settings, Store};
use nodegate::record::PublicKey;
use tempfile::TempDir;

use crate::client::{Answer, Request};

/// Nothing here takes longer on a machine that works.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Collector {
    child: Child,
    pub state: Arc<TempDir>,
    pub port: u16,
    said: Arc<Mutex<String>>,
}

pub fn nodegate() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nodegate"));
    command.stdin(Stdio::null());
    command
}

impl Collector {
    /// Serves on a free port of this machine.
    pub fn start(arguments: &[&str]) -> Collector {
        Collector::again(Arc::new(tempfile::tempdir().unwrap()), arguments)
    }

    /// The same with a state folder that is there.
    pub fn again(state: Arc<TempDir>, arguments: &[&str]) -> Collector {
        let mut command = nodegate();
        command.args(["collector", "serve", "--listen", "127.0.0.1:0", "--state"]).arg(state.path());
        let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = Arc::new(Mutex::new(String::new()));
        let mut port = None;
        let mut start = String::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            start.push_str(&line);
            start.push('\n');
            if let Some((_, address)) = line.split_once("listening on ") {
                port = address.rsplit(':').next().unwrap().parse().ok();
            }
            if line.contains("is open") || line.contains("needs a token") {
                break;
            }
        }
        let port = port.unwrap_or_else(|| panic!("the collector did not start: {start}"));
        said.lock().unwrap().push_str(&start);
        let hears = said.clone();
        std::thread::spawn(move || {
            for line in lines {
                let Ok(line) = line else { return };
                let mut said = hears.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        Collector { child, state, port, said }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its store, as another process has it.
    pub fn store(&self) -> Store {
        store_in(self.state.path())
    }

    pub fn receipt_key(&self) -> PublicKey {
        PublicKey::parse(&std::fs::read_to_string(self.state.path().join("receipt.pub")).unwrap()).unwrap()
    }

    pub fn get(&self, path: &str) -> Answer {
        Request::get(path).send(&self.address())
    }

    /// Posts a record as the agent does.
    pub fn post(&self, record: &[u8]) -> Answer {
        Request::record(record).send(&self.address())
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until a line of the log has all of these.
    pub fn assert_said(&self, parts: &[&str]) {
        let says = || self.said().lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(eventually(says), "no line with {parts:?} in:\n{}", self.said());
    }

    /// The most kilobytes of memory that it ever had.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// SIGTERM, and how it ended.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.wait();
        // The thread that reads may be behind the process that wrote.
        std::thread::sleep(Duration::from_millis(100));
        (status, self.said())
    }

    pub fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the collector does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

pub fn store_in(state: &Path) -> Store {
    let url = format!("sqlite:{}", state.join("collector.db").display());
    Store::attend(&url, Settings::default()).unwrap()
}

pub fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A file in a folder, with this mode.
pub fn write(folder: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}
