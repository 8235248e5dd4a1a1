//! A collector in a process of its own, which a test can kill: this test program, started again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use jiff::Timestamp;
use nodegate::collector::store::{Settings, Store};
use nodegate::ident::Digest;
use nodegate::record::receipt;

use crate::host::Host;
use crate::suite::{Fresh, send};

const URL: &str = "NODEGATE_TEST_STORE";
const KEY: &str = "NODEGATE_TEST_KEY";
const NAME: &str = "NODEGATE_TEST_NAME";
/// Hosts that send at once, so that records wait for each other's commit.
const HOSTS: usize = 6;

/// What the child does: it takes records in until it is killed, and says each that got its receipt.
/// Nothing where no test started it.
pub fn be_one() {
    let Ok(url) = std::env::var(URL) else { return };
    let key = nodegate::record::CollectorKey::parse(&std::env::var(KEY).unwrap()).unwrap();
    let name = std::env::var(NAME).unwrap();
    let public = key.public_key().clone();
    let store = Store::open(&url, key, Settings::default()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..HOSTS {
            let (store, public, name) = (&store, &public, &name);
            scope.spawn(move || {
                let mut host = Host::known_to(&format!("{name}-{number}"), store);
                loop {
                    let signed = host.record(|_| ());
                    // Busy: it is tried again, as an agent would.
                    let admission = loop {
                        match send(store, &signed) {
                            Ok(admission) => break admission,
                            Err(_) => std::thread::sleep(PAUSE),
                        }
                    };
                    receipt::verify(&admission.receipt, public, signed.payload, &signed.run_id).unwrap();
                    // One write a line: a line that is there is whole.
                    std::io::stdout().write_all(format!("receipt {}\n", signed.payload).as_bytes()).unwrap();
                }
            });
        }
    });
}

const PAUSE: Duration = Duration::from_millis(20);

/// The child, and what it said.
pub struct Writer {
    child: Child,
    lines: Receiver<Digest>,
    pub receipts: Vec<Digest>,
}

impl Writer {
    pub fn start(fresh: &Fresh, name: &str) -> Writer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_collector_of_its_own", "--nocapture", "--test-threads=1"])
            .envs([(URL, fresh.url.as_str()), (KEY, &fresh.key), (NAME, name)])
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let reader = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                // The test harness may say something before it on the same line.
                let payload = line.split_once("receipt ").and_then(|(_, payload)| payload.parse().ok());
                if payload.is_some_and(|payload| sender.send(payload).is_err()) {
                    return;
                }
            }
        });
        Writer { child, lines, receipts: Vec::new() }
    }

    /// Waits until it has given so many receipts.
    pub fn gives(&mut self, count: usize) {
        while self.receipts.len() < count {
            let receipt = self.lines.recv_timeout(Duration::from_secs(60));
            self.receipts.push(receipt.expect("the collector gives receipts"));
        }
    }

    /// SIGKILL, and everything that it had said.
    pub fn kill(mut self) -> Vec<Digest> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while let Ok(receipt) = self.lines.recv_timeout(Duration::from_secs(10)) {
            self.receipts.push(receipt);
        }
        std::mem::take(&mut self.receipts)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Whether each of these is in the store, once, and the ledger is whole.
pub fn nothing_is_lost(store: &Store, receipts: &[Digest]) {
    for payload in receipts {
        let kept = store.record(payload).unwrap().unwrap_or_else(|| panic!("{payload} got a receipt and is lost"));
        assert!(kept.raw.is_some() && kept.receipt.is_some());
    }
    let whole = store.audit(Timestamp::now()).unwrap().unwrap();
    assert!(whole.head.index >= receipts.len() as u64);
}
