//! The server under test: the real executable on loopback, and its store looked at afterwards.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nodegate::collector::model::{Key, KeyState};
use nodegate::collector::store::{Settings, Store};
use nodegate::ident::Digest;
use nodegate::record::CollectorKey;
use nodegate::record::standing::Tier;

use super::records::Member;

/// A collector that was started for this, and is stopped with it.
pub struct Server {
    pub address: SocketAddr,
    child: Child,
}

/// Puts the members' keys into the store, approved.
pub fn enrol(url: &str, folder: &Path, members: &[Member]) {
    let store = open(url, folder);
    let now = jiff::Timestamp::now();
    for member in members {
        let key = Key {
            keyid: member.key.keyid(),
            public_key: member.key.to_pem(),
            tier: Tier::Token,
            state: KeyState::Approved,
            host: member.host,
            hostname: member.hostname.clone(),
            serial: None,
            replaces: None,
            replaced_by: None,
            enrolled_at: now,
            decided_at: Some(now),
            decided_by: Some("bench".to_owned()),
            reason: None,
            seq: 0,
            head: None,
        };
        store.put_key(key).unwrap();
    }
}

fn open(url: &str, folder: &Path) -> Store {
    let path = folder.join("collector/receipt.pem");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    if !path.exists() {
        std::fs::write(&path, CollectorKey::generate().to_pem()).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    let key = CollectorKey::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    Store::open(url, key, Settings::default()).unwrap()
}

impl Server {
    pub fn start(url: &str, folder: &Path) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_nodegate"))
            .args(["collector", "serve", "--listen", "127.0.0.1:0", "--store", url, "--state"])
            .arg(folder.join("collector"))
            .args(["--peer-rate", "1000000"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            println!("  {line}");
            let (_, rest) = line.split_once("127.0.0.1:")?;
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)))
        });
        std::thread::spawn(move || lines.for_each(|line| println!("  {}", line.unwrap_or_default())));
        Server { address: address.expect("the collector says where it listens"), child }
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // Fields 14 and 15 of proc(5), in clock ticks of 1/100 s.
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// Its largest resident set so far.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// By SIGTERM, as a service manager does.
    pub fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        println!("server ended    {}", self.child.wait().unwrap());
    }
}

/// What got a receipt is in the store once, and the ledger holds.
pub fn verify(url: &str, folder: &Path, payloads: &[Digest]) {
    let store = open(url, folder);
    let distinct: HashSet<&Digest> = payloads.iter().collect();
    let missing = distinct.iter().filter(|payload| store.record(payload).unwrap().is_none()).count();
    let head = store.head(jiff::Timestamp::now()).unwrap();
    println!(
        "receipts        {}, distinct {}, missing {missing}, ledger {}",
        payloads.len(),
        distinct.len(),
        head.index
    );
    assert_eq!((missing, head.index), (0, distinct.len() as u64));
    let verified = Command::new(env!("CARGO_BIN_EXE_nodegate"))
        .args(["collector", "verify", "--store", url, "--state"])
        .arg(folder.join("collector"))
        .output()
        .unwrap();
    println!("ledger          {} {}", verified.status, String::from_utf8_lossy(&verified.stdout).trim());
}
