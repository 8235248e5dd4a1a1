//! Long campaigns over agent and collector, run by `tests/run --long`: killed again and again, they lose
//! nothing that got a receipt, and double nothing.

#[path = "collector/client.rs"]
mod client;
#[path = "store/host.rs"]
mod host;
#[path = "collector/server.rs"]
mod server;
// The hosts of the store's tests stand on it.
#[path = "record/sample.rs"]
mod sample;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::Request;
use host::Host;
use nodegate::ident::Digest;
use nodegate::record::receipt;
use server::{Collector, nodegate, store_in};

/// A small generator with a fixed seed: a campaign that fails can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*, Vigna 2016.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

fn ledger_verifies(state: &Path) -> String {
    let output = nodegate().args(["collector", "verify", "--state"]).arg(state).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
#[ignore = "takes minutes; tests/run --long"]
fn a_collector_that_is_killed_fifty_times_under_load_keeps_what_it_gave_a_receipt_for() {
    let mut random = Random(0x5eed);
    let first = Collector::start(&["--key-rate", "0"]);
    let state = first.state.clone();
    let key = first.receipt_key();
    let mut hosts: Vec<Host> = (0..8).map(|number| Host::known_to(&format!("h{number}"), &first.store())).collect();
    drop(first);
    let receipts: Mutex<Vec<Digest>> = Mutex::default();
    for _ in 0..50 {
        let mut collector = Collector::again(state.clone(), &["--key-rate", "0"]);
        let (address, over) = (collector.address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for host in &mut hosts {
                let (address, key, receipts, over) = (&address, &key, &receipts, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let record = host.record(|_| ());
                        let Some(answer) = Request::record(&record.raw).try_send(address) else { return };
                        if answer.status == 201
                            && receipt::verify(&answer.body, key, record.payload, &record.run_id).is_ok()
                        {
                            receipts.lock().unwrap().push(record.payload);
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(100 + random.below(400)));
            collector.signal(rustix::process::Signal::KILL);
            collector.wait();
            over.store(true, Ordering::Relaxed);
        });
    }
    let receipts = receipts.into_inner().unwrap();
    let distinct: BTreeSet<&Digest> = receipts.iter().collect();
    let store = store_in(state.path());
    let missing = distinct.iter().filter(|payload| store.record(payload).unwrap().is_none()).count();
    let kept = store.head(jiff::Timestamp::now()).unwrap().index;
    println!("campaign: 50 collectors killed, {} receipts, {missing} of them lost, {kept} records kept", receipts.len());
    assert_eq!((missing, distinct.len()), (0, receipts.len()));
    ledger_verifies(state.path());
}

/// Run ids of the records in a folder.
fn run_ids(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    names
        .filter_map(|name| name.to_str()?.strip_suffix(".json").map(str::to_owned))
        .filter(|stem| !stem.contains('.'))
        .collect()
}

#[test]
#[ignore = "takes minutes; tests/run --long"]
fn an_agent_that_is_killed_at_fifty_points_of_a_run_leaves_each_record_in_the_spool_or_with_a_receipt() {
    let mut random = Random(0xa6e7);
    let collector = Collector::start(&["--key-rate", "0", "--approve-first-use"]);
    let state = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site.toml");
    let text = format!(
        "format = 1\n[collector]\nurl = \"http://{}\"\nreceipt-key = \"{}\"\nenroll = \"first-use\"\n",
        collector.address(),
        collector.state.path().join("receipt.pub").display()
    );
    fs::write(&site, text).unwrap();
    let run = || {
        let mut command = nodegate();
        command.arg("run").arg("--site").arg(&site).arg("--state").arg(state.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    };
    // A whole run, so that the kills fall everywhere in one.
    let began = Instant::now();
    run().status().unwrap();
    let span = u64::try_from(began.elapsed().as_millis()).unwrap() * 6 / 5;
    let mut killed = 0;
    for _ in 0..50 {
        let mut child = run().spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.below(span)));
        killed += u32::from(child.try_wait().unwrap().is_none());
        let _gone = child.kill();
        child.wait().unwrap();
        let records = run_ids(&state.path().join("records"));
        let waiting = run_ids(&state.path().join("spool"));
        let receipt = |run: &&String| state.path().join("records").join(format!("{run}.receipt.json")).exists();
        // A kill between record and spool is mended by whoever looks next.
        let homeless: Vec<&String> = records.iter().filter(|run| !waiting.contains(*run) && !receipt(run)).collect();
        assert!(homeless.len() <= 1, "{homeless:?}");
    }
    let deliver = nodegate()
        .args(["deliver", "--for", "30 s", "--site"])
        .arg(&site)
        .arg("--state")
        .arg(state.path())
        .output()
        .unwrap();
    assert_eq!(deliver.status.code(), Some(0), "{}", String::from_utf8_lossy(&deliver.stdout));
    let records = run_ids(&state.path().join("records"));
    let without = records.iter().filter(|run| !state.path().join("records").join(format!("{run}.receipt.json")).exists());
    assert_eq!((without.count(), run_ids(&state.path().join("spool")).len()), (0, 0));
    let kept = collector.store().export(0, 1000).unwrap();
    println!("campaign: {killed} of 50 agents killed before their end, {} records, {} at the collector", records.len(), kept.len());
    let known: BTreeSet<String> = kept.iter().map(|kept| kept.record.run_id.clone()).collect();
    assert_eq!((known, kept.len()), (records.clone(), records.len()));
    // No gap and no fork: nothing was sent twice with effect, and nothing was left out.
    let flagged: Vec<_> = kept.iter().filter(|kept| kept.record.flags.iter().any(|flag| ["gap", "fork"].contains(&flag.as_str()))).collect();
    assert!(flagged.is_empty(), "{flagged:?}");
    ledger_verifies(collector.state.path());
}
