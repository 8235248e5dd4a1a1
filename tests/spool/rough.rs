//! A disk that takes nothing more, and kills at any moment: nothing is lost, and the next one goes on.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nodegate::record::receipt;
use nodegate::record::{Parcel, PublicKey, Store, store};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use tempfile::TempDir;

use super::answers::Pinned;
use super::sample;
use super::server::{Collector, nodegate};
use super::{deliver, receipt_key, receipts, records, waiting};

/// A small file system of its own with a host's state folder on it.
struct Small(TempDir);

impl Small {
    fn with(options: &str, records: u64) -> Small {
        let folder = tempfile::tempdir().unwrap();
        let options = CString::new(options).unwrap();
        let flags = MountFlags::empty();
        mount("nodegate-test", folder.path(), "tmpfs", flags, Some(options.as_c_str())).expect("run as root");
        let small = Small(folder);
        let documents = sample::documents();
        let store = Store::for_host(&small.state(), &documents.host).unwrap();
        for _ in 0..records {
            store.commit(sample::details(), &documents).unwrap();
        }
        small
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn remount(&self, flags: MountFlags) {
        mount_remount(self.0.path(), flags, "").unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _busy = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn on_a_full_disk_the_receipt_cannot_be_kept_and_the_record_waits() {
    let small = Small::with("size=1m", 2);
    let (pinned, state) = (Pinned::new(), small.state());
    let peer = pinned.willing();
    let full = small.0.path().join("full");
    fs::write(&full, vec![0; 2 << 20]).expect_err("the disk is not full");
    let sent = pinned.send(&peer, &state, &[]);
    assert!(sent.exit == 3 && sent.said.contains("could not be kept"), "{} {}", sent.exit, sent.said);
    assert_eq!((waiting(&state), receipts(&state).len(), peer.heard().len()), (records(&state), 0, 1));
    fs::remove_file(full).unwrap();
    let sent = pinned.send(&peer, &state, &[]);
    assert!(sent.exit == 0 && receipts(&state) == records(&state), "{} {}", sent.exit, sent.said);
}

#[test]
fn without_room_for_one_more_file_nothing_is_sent_and_nothing_lost() {
    let small = Small::with("size=8m,nr_inodes=200", 2);
    let (pinned, state) = (Pinned::new(), small.state());
    let peer = pinned.willing();
    let many = small.0.path().join("many");
    fs::create_dir(&many).unwrap();
    let made = (0..1000).take_while(|number| File::create(many.join(number.to_string())).is_ok()).count();
    assert!(made < 1000, "there is still room");
    let sent = pinned.send(&peer, &state, &[]);
    assert!(sent.exit == 70 && !sent.said.contains("panic"), "{} {}", sent.exit, sent.said);
    assert_eq!((waiting(&state), peer.heard().len()), (records(&state), 0), "{}", sent.said);
    fs::remove_dir_all(many).unwrap();
    let sent = pinned.send(&peer, &state, &[]);
    assert!(sent.exit == 0 && receipts(&state) == records(&state), "{} {}", sent.exit, sent.said);
}

#[test]
fn a_folder_that_is_read_only_is_shown_and_not_sent_from() {
    let small = Small::with("size=1m", 2);
    let (pinned, state) = (Pinned::new(), small.state());
    let peer = pinned.willing();
    small.remount(MountFlags::RDONLY);
    let sent = pinned.send(&peer, &state, &[]);
    assert!(sent.exit == 70 && sent.said.contains("cannot be used"), "{} {}", sent.exit, sent.said);
    assert!(!sent.said.contains("panic") && peer.heard().is_empty(), "{}", sent.said);
    let listed = pinned.send(&peer, &state, &["--list"]);
    assert!(listed.exit == 3 && listed.said.contains("2 waiting"), "{} {}", listed.exit, listed.said);
    small.remount(MountFlags::empty());
    let sent = pinned.send(&peer, &state, &[]);
    assert!(sent.exit == 0 && receipts(&state) == records(&state), "{} {}", sent.exit, sent.said);
}

fn site(folder: &Path, collector: &Collector) -> PathBuf {
    let path = folder.join("site.toml");
    let text = format!(
        "format = 1\n[collector]\nurl = \"http://{}\"\nreceipt-key = \"{}\"\nenroll = \"first-use\"\n",
        collector.address(),
        receipt_key(collector).display()
    );
    fs::write(&path, text).unwrap();
    path
}

/// Each receipt counts, and what waits is the record byte for byte.
fn nothing_is_half(state: &Path, key: &PublicKey) {
    let read = |folder: &str, name: String| fs::read(state.join(folder).join(name));
    for run in receipts(state) {
        let parcel = Parcel::read(read("records", format!("{run}.json")).unwrap()).unwrap();
        let kept = read("records", format!("{run}.receipt.json")).unwrap();
        receipt::verify(&kept, key, parcel.payload, &run).unwrap();
    }
    for run in waiting(state) {
        let name = || format!("{run}.json");
        assert_eq!(read("spool", name()).unwrap(), read("records", name()).unwrap());
    }
}

/// Kills it after this time, if it is still there then.
fn was_killed(child: &mut Child, after: Duration) -> bool {
    std::thread::sleep(after);
    let was_there = child.try_wait().unwrap().is_none();
    let _gone = child.kill();
    child.wait().unwrap();
    was_there
}

#[test]
fn runs_and_deliveries_that_are_killed_side_by_side_lose_nothing_and_double_nothing() {
    println!("{}", kill_side_by_side(24));
}

#[test]
#[ignore = "takes minutes; tests/run --long"]
fn runs_and_deliveries_that_are_killed_hundreds_of_times_lose_nothing_and_double_nothing() {
    println!("{}", kill_side_by_side(300));
}

/// What was killed, in figures.
fn kill_side_by_side(rounds: u64) -> String {
    let mut collector = Collector::start(&["--key-rate", "0", "--approve-first-use"]);
    let key = collector.receipt_key();
    let (host, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (state, site) = (host.path(), site(place.path(), &collector));
    let delivery = || {
        let mut command = nodegate();
        command.args(["deliver", "--site"]).arg(&site).arg("--state").arg(state);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let run_without_delivery = || {
        let mut command = nodegate();
        command.arg("run").arg("--state").arg(state).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // A whole run, so that the kills fall everywhere in one.
    let began = Instant::now();
    run_without_delivery().status().unwrap();
    let span = u64::try_from(began.elapsed().as_millis()).unwrap() * 6 / 5;
    // The golden ratio spreads the moments evenly over a span, in no order.
    let moment = |number: u64, span: u64| Duration::from_millis(number * 618 % 1000 * span / 1000);
    let (mut killed, mut deliveries, mut killed_deliveries) = (0, 0, 0);
    for round in 0..rounds {
        let mut run = run_without_delivery().spawn().unwrap();
        let end = Instant::now() + moment(round, span);
        while Instant::now() < end {
            deliveries += 1;
            killed_deliveries += u32::from(was_killed(&mut delivery().spawn().unwrap(), moment(deliveries, 80)));
        }
        killed += u32::from(was_killed(&mut run, Duration::ZERO));
        nothing_is_half(state, &key);
    }
    let made = records(state).len();
    assert!(killed > 5 && killed_deliveries > 10 && made > 2, "{killed} {killed_deliveries} {made}");

    // Nobody is there: what has no receipt waits, and nothing else does.
    collector.signal(rustix::process::Signal::KILL);
    collector.wait();
    let alone = deliver(state, &collector.address(), &receipt_key(&collector), &[]);
    let without: BTreeSet<String> = records(state).difference(&receipts(state)).cloned().collect();
    assert_eq!((alone.exit, waiting(state)), (if without.is_empty() { 0 } else { 3 }, without), "{}", alone.said);

    let collector = Collector::again(Arc::clone(&collector.state), &["--key-rate", "0", "--approve-first-use"]);
    let site = self::site(place.path(), &collector);
    let more = ["--for", "30 s", "--site", site.to_str().unwrap()];
    let sent = deliver(state, &collector.address(), &receipt_key(&collector), &more);
    assert!(sent.exit == 0 && receipts(state) == records(state), "{} {}", sent.exit, sent.said);
    nothing_is_half(state, &key);
    let chain = store::records(state).unwrap();
    let numbers: Vec<u64> = chain.iter().map(|shelved| shelved.record.as_ref().unwrap().details.seq).rev().collect();
    assert_eq!(numbers, (1..=records(state).len() as u64).collect::<Vec<_>>());
    let kept = collector.store().export(0, 1000).unwrap();
    let payloads: BTreeSet<_> = kept.iter().map(|kept| kept.record.payload).collect();
    let ours: BTreeSet<_> = chain.iter().map(|shelved| shelved.record.as_ref().unwrap().payload).collect();
    assert_eq!((kept.len(), payloads), (ours.len(), ours));
    let flags: Vec<&str> = kept.iter().flat_map(|kept| &kept.record.flags).map(|flag| flag.as_str()).collect();
    assert!(!flags.contains(&"gap") && !flags.contains(&"fork"), "{flags:?}");
    let verified = Command::new(assert_cmd::cargo::cargo_bin("nodegate"))
        .args(["collector", "verify", "--state"])
        .arg(collector.state.path())
        .output()
        .unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    format!(
        "campaign: {killed} of {rounds} runs and {killed_deliveries} of {deliveries} deliveries killed, {made} records"
    )
}
