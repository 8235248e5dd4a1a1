//! The spool: what was committed waits until its receipt is kept, whatever happens in between.

#[path = "spool/answers.rs"]
mod answers;
#[path = "collector/client.rs"]
mod client;
#[path = "delivery/peer.rs"]
mod peer;
#[path = "spool/rough.rs"]
mod rough;
#[path = "record/sample.rs"]
mod sample;
#[path = "collector/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nodegate::collector::model::{Key, KeyState};
use nodegate::record::Store;
use nodegate::record::standing::Tier;
use server::{Collector, nodegate};
use tempfile::TempDir;

/// A host's state folder with so many records in its chain.
fn host_with(records: u64) -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let documents = sample::documents();
    let store = Store::for_host(folder.path(), &documents.host).unwrap();
    for _ in 0..records {
        store.commit(sample::details(), &documents).unwrap();
    }
    (folder, store)
}

/// Makes the host's key known, as an operator's token would.
fn enrol(collector: &Collector, store: &Store) {
    let now = jiff::Timestamp::now();
    let key = Key {
        keyid: store.public_key().keyid(),
        public_key: store.public_key().to_pem(),
        tier: Tier::Token,
        state: KeyState::Approved,
        host: sample::documents().host.digest(),
        hostname: "gpu-r12-u07".to_owned(),
        serial: None,
        replaces: None,
        replaced_by: None,
        enrolled_at: now,
        decided_at: Some(now),
        decided_by: Some("test".to_owned()),
        reason: None,
        seq: 0,
        head: None,
    };
    collector.store().put_key(key).unwrap();
}

struct Delivered {
    exit: i32,
    said: String,
}

fn deliver(state: &Path, address: &str, key: &Path, more: &[&str]) -> Delivered {
    let mut command = nodegate();
    command.args(["deliver", "--collector", &format!("http://{address}"), "--receipt-key"]).arg(key);
    let output = command.arg("--state").arg(state).args(more).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    Delivered { exit: output.status.code().unwrap_or(-1), said }
}

fn receipt_key(collector: &Collector) -> PathBuf {
    collector.state.path().join("receipt.pub")
}

/// Run ids of the records, of what waits, of what is dead, of what has a receipt.
fn runs(state: &Path, folder: &str, extension: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(state.join(folder)).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| name.strip_suffix(extension).filter(|stem| !stem.contains('.')).map(str::to_owned))
        .collect()
}

fn records(state: &Path) -> BTreeSet<String> {
    runs(state, "records", ".json")
}

fn waiting(state: &Path) -> BTreeSet<String> {
    runs(state, "spool", ".json")
}

fn receipts(state: &Path) -> BTreeSet<String> {
    runs(state, "records", ".receipt.json")
}

#[test]
fn what_was_committed_waits_and_goes_in_the_order_of_its_chain_once_its_receipt_is_kept() {
    let collector = Collector::start(&[]);
    let (folder, store) = host_with(3);
    enrol(&collector, &store);
    assert_eq!(waiting(folder.path()), records(folder.path()));
    let sent = deliver(folder.path(), &collector.address(), &receipt_key(&collector), &[]);
    assert_eq!(sent.exit, 0, "{}", sent.said);
    assert!(waiting(folder.path()).is_empty() && receipts(folder.path()) == records(folder.path()), "{}", sent.said);
    let kept = collector.store().export(0, 10).unwrap();
    let order: Vec<(u64, bool)> = kept.iter().map(|kept| (kept.record.seq, kept.record.flags.is_empty())).collect();
    assert_eq!(order, [(1, true), (2, true), (3, true)]);
}

#[test]
fn a_receipt_by_another_key_keeps_the_record_waiting() {
    let (collector, other) = (Collector::start(&[]), Collector::start(&[]));
    let (folder, store) = host_with(1);
    enrol(&collector, &store);
    let sent = deliver(folder.path(), &collector.address(), &receipt_key(&other), &[]);
    assert!(sent.exit == 3 && receipts(folder.path()).is_empty(), "{}", sent.said);
    assert_eq!(waiting(folder.path()).len(), 1);
    // The right key: the same record again, and the collector's first receipt.
    let sent = deliver(folder.path(), &collector.address(), &receipt_key(&collector), &[]);
    assert!(sent.exit == 0 && waiting(folder.path()).is_empty(), "{}", sent.said);
    assert_eq!(collector.store().export(0, 10).unwrap().len(), 1);
}

#[test]
fn an_unknown_key_waits_and_a_revoked_one_is_dead_until_it_is_sent_again_by_hand() {
    let collector = Collector::start(&[]);
    let (folder, store) = host_with(1);
    let send = |more: &[&str]| deliver(folder.path(), &collector.address(), &receipt_key(&collector), more);
    let sent = send(&[]);
    assert!(sent.exit == 3 && waiting(folder.path()).len() == 1, "{}", sent.said);
    enrol(&collector, &store);
    collector.store().revoke(&store.public_key().keyid(), "test", "stolen").unwrap();
    let sent = send(&[]);
    assert!(sent.said.contains("dead") && waiting(folder.path()).is_empty(), "{}", sent.said);
    assert_eq!(runs(folder.path(), "dead", ".json"), records(folder.path()));
    let listed = send(&["--list"]);
    assert!(listed.said.contains("403") && listed.said.contains("1 dead"), "{}", listed.said);
    // Sent again it is refused again, and still not lost.
    let sent = send(&["--dead"]);
    assert!(
        sent.said.contains("1 dead") && runs(folder.path(), "dead", ".json") == records(folder.path()),
        "{}",
        sent.said
    );
}

#[test]
fn a_folder_from_before_there_was_a_spool_is_taken_up() {
    let collector = Collector::start(&[]);
    let (folder, store) = host_with(2);
    enrol(&collector, &store);
    fs::remove_dir_all(folder.path().join("spool")).unwrap();
    let sent = deliver(folder.path(), &collector.address(), &receipt_key(&collector), &[]);
    assert!(sent.exit == 0 && receipts(folder.path()).len() == 2, "{}", sent.said);
}

#[test]
fn a_wish_to_be_left_alone_holds_for_the_next_process_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            while stream.read(&mut [0; 65536]).is_ok_and(|length| length > 0) {}
            count.fetch_add(1, Ordering::SeqCst);
            let answer = "HTTP/1.1 503 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _gone = stream.write_all(answer.as_bytes());
        }
    });
    let (folder, store) = host_with(1);
    let key = folder.path().join("collector.pub");
    fs::write(&key, store.public_key().to_pem()).unwrap();
    assert_eq!(deliver(folder.path(), &address, &key, &[]).exit, 3);
    let asked_once = asked.load(Ordering::SeqCst);
    assert_eq!(asked_once, 1);
    let again = deliver(folder.path(), &address, &key, &[]);
    assert!(again.exit == 3 && asked.load(Ordering::SeqCst) == asked_once, "{}", again.said);
    assert_eq!(waiting(folder.path()).len(), 1);
}

#[test]
fn deliveries_that_are_killed_again_and_again_lose_nothing_and_double_nothing() {
    let collector = Collector::start(&["--key-rate", "0"]);
    let (folder, store) = host_with(12);
    enrol(&collector, &store);
    for round in 0..20_u64 {
        let mut command = nodegate();
        command.args(["deliver", "--collector", &format!("http://{}", collector.address()), "--receipt-key"]);
        command.arg(receipt_key(&collector)).arg("--state").arg(folder.path());
        let mut child =
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(5 + round * 7));
        let _gone = child.kill();
        child.wait().unwrap();
        let (kept, waits) = (receipts(folder.path()), waiting(folder.path()));
        assert!(
            records(folder.path()).iter().all(|run| kept.contains(run) || waits.contains(run)),
            "{kept:?} {waits:?}"
        );
    }
    let sent = deliver(folder.path(), &collector.address(), &receipt_key(&collector), &["--for", "30 s"]);
    assert!(sent.exit == 0 && receipts(folder.path()).len() == 12, "{}", sent.said);
    let kept = collector.store().export(0, 100).unwrap();
    assert!(kept.len() == 12 && kept.iter().all(|kept| kept.record.flags.is_empty()), "{}", kept.len());
}

#[test]
fn a_state_folder_that_cannot_be_written_loses_nothing() {
    let collector = Collector::start(&[]);
    let (folder, store) = host_with(1);
    enrol(&collector, &store);
    let small = tempfile::tempdir().unwrap();
    let options = std::ffi::CString::new("size=256k").unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("nodegate-test", small.path(), "tmpfs", flags, Some(options.as_c_str())).expect("run as root");
    let copied = std::process::Command::new("cp").arg("-a").arg(folder.path()).arg(small.path().join("state")).status();
    assert!(copied.unwrap().success());
    let state = small.path().join("state");
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    // Nothing more fits: the receipt cannot be kept, and so the record waits.
    let _full = fs::write(small.path().join("full"), vec![0; 1 << 20]);
    let full = deliver(&state, &collector.address(), &receipt_key(&collector), &[]);
    let still = waiting(&state).len();
    fs::remove_file(small.path().join("full")).unwrap();
    let sent = deliver(&state, &collector.address(), &receipt_key(&collector), &[]);
    let done = receipts(&state).len();
    rustix::mount::unmount(small.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!([3, 70].contains(&full.exit) && still == 1, "{} {}", full.exit, full.said);
    assert!(sent.exit == 0 && done == 1, "{}", sent.said);
    assert_eq!(collector.store().export(0, 10).unwrap().len(), 1);
}
