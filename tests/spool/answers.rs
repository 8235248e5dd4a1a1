//! What a collector may answer, and what becomes of the record by it: done, waiting or dead.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nodegate::ident::Digest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::peer::{Peer, ReceiptKey, Request, respond, trickle};
use super::server::{eventually, nodegate};
use super::{Delivered, deliver, host_with, receipts, records, runs, waiting};

const TOKEN: &str = "hunter2-hunter2-hunter2";

/// A receipt key, and its public half as a file.
pub struct Pinned {
    pub key: ReceiptKey,
    folder: TempDir,
}

impl Pinned {
    pub fn new() -> Pinned {
        let (key, folder) = (ReceiptKey::new(), tempfile::tempdir().unwrap());
        fs::write(folder.path().join("collector.pub"), &key.public).unwrap();
        Pinned { key, folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("collector.pub")
    }

    /// A collector that takes everything.
    pub fn willing(&self) -> Peer {
        let signer = self.key.clone();
        Peer::saying("201 Created", move |request| signer.receipt(request))
    }

    pub fn send(&self, peer: &Peer, state: &Path, more: &[&str]) -> Delivered {
        deliver(state, peer.url.trim_start_matches("http://"), &self.path(), more)
    }
}

fn dead(state: &Path) -> std::collections::BTreeSet<String> {
    runs(state, "dead", ".json")
}

/// A refusal as our collector has it.
fn refuse(stream: &mut std::net::TcpStream, status: &str, detail: &str) {
    let body = serde_json::json!({ "code": "of-a-test", "detail": detail }).to_string();
    respond(stream, status, "Content-Type: application/problem+json\r\n", body.as_bytes());
}

/// The run ids that a peer was sent, in the order of their coming.
fn heard(peer: &Peer) -> Vec<String> {
    peer.heard().iter().map(Request::run_id).collect()
}

#[test]
fn a_receipt_for_another_record_or_run_keeps_the_record_waiting() {
    let pinned = Pinned::new();
    let signer = pinned.key.clone();
    let other_record = Peer::saying("201 Created", move |request| {
        signer.receipt_for(Digest::of(b"another"), request.header("idempotency-key").unwrap())
    });
    let signer = pinned.key.clone();
    let other_run = Peer::saying("201 Created", move |request| signer.receipt_for(request.payload(), "another"));
    let (folder, _store) = host_with(1);
    for (peer, cause) in [(&other_record, "for another record"), (&other_run, "for another run")] {
        let sent = pinned.send(peer, folder.path(), &[]);
        assert!(sent.exit == 3 && sent.said.contains(cause), "{} {}", sent.exit, sent.said);
        assert!(receipts(folder.path()).is_empty() && waiting(folder.path()).len() == 1, "{}", sent.said);
    }
}

#[test]
fn a_receipt_that_lies_there_counts_only_if_it_verifies() {
    let pinned = Pinned::new();
    let peer = pinned.willing();
    let (folder, _store) = host_with(2);
    let [first, second] = &records(folder.path()).into_iter().collect::<Vec<_>>()[..] else { panic!("not two") };
    let spool = Command::new("cp").arg("-a").arg(folder.path().join("spool")).arg(folder.path().join("kept")).status();
    assert!(spool.unwrap().success());
    assert_eq!(pinned.send(&peer, folder.path(), &[]).exit, 0);
    // As after a kill between the receipt and the spool, but the second receipt is somebody else's.
    fs::remove_dir(folder.path().join("spool")).unwrap();
    fs::rename(folder.path().join("kept"), folder.path().join("spool")).unwrap();
    let receipt = |run: &str| folder.path().join("records").join(format!("{run}.receipt.json"));
    let payload = peer.heard().iter().find(|request| request.run_id() == *second).unwrap().payload();
    fs::write(receipt(second), ReceiptKey::new().receipt_for(payload, second)).unwrap();
    let sent = pinned.send(&peer, folder.path(), &[]);
    assert!(sent.exit == 0 && waiting(folder.path()).is_empty(), "{}", sent.said);
    assert_eq!(heard(&peer), [first.clone(), second.clone(), second.clone()]);
    assert_eq!(fs::read(receipt(second)).unwrap(), pinned.key.receipt_for(payload, second));
}

#[test]
fn a_refusal_for_good_sets_a_record_aside_with_its_reason_until_it_is_sent_by_hand() {
    for (number, status) in [
        (400, "400 Bad Request"),
        (403, "403 Forbidden"),
        (409, "409 Conflict"),
        (413, "413 Content Too Large"),
        (422, "422 Unprocessable Content"),
    ] {
        let pinned = Pinned::new();
        let (mended, signer) = (Arc::new(AtomicBool::new(false)), pinned.key.clone());
        let is_mended = Arc::clone(&mended);
        let peer = Peer::new(move |request, stream| match is_mended.load(Ordering::SeqCst) {
            true => respond(stream, "201 Created", "", &signer.receipt(request)),
            false => refuse(stream, status, "the reason of a test"),
        });
        let (folder, _store) = host_with(2);
        let sent = pinned.send(&peer, folder.path(), &[]);
        assert!(sent.exit == 0 && sent.said.contains("2 dead"), "{number}: {} {}", sent.exit, sent.said);
        assert!(waiting(folder.path()).is_empty() && receipts(folder.path()).is_empty(), "{number}");
        assert_eq!(dead(folder.path()), records(folder.path()), "{number}");
        for run in records(folder.path()) {
            let why = fs::read(folder.path().join("dead").join(format!("{run}.why.json"))).unwrap();
            let why: Value = serde_json::from_slice(&why).unwrap();
            assert_eq!(
                (&why["status"], why["collector"].as_str().unwrap().contains("127.0.0.1")),
                (&number.into(), true)
            );
        }
        let listed = pinned.send(&peer, folder.path(), &["--list"]);
        for text in [&number.to_string(), "the reason of a test", "2 dead"] {
            assert!(listed.exit == 0 && listed.said.contains(text), "`{text}` is not in: {}", listed.said);
        }
        // By itself it never goes again, not even when the collector has come to its senses.
        mended.store(true, Ordering::SeqCst);
        assert_eq!(pinned.send(&peer, folder.path(), &[]).exit, 0);
        assert_eq!(peer.heard().len(), 2, "{number}: a dead record was sent");
        let sent = pinned.send(&peer, folder.path(), &["--dead"]);
        assert!(sent.exit == 0 && receipts(folder.path()) == records(folder.path()), "{number}: {}", sent.said);
        assert_eq!(fs::read_dir(folder.path().join("dead")).unwrap().count(), 0, "{number}");
    }
}

#[test]
fn a_failure_that_may_pass_keeps_the_record() {
    // How many of two records are tried: an error of the collector's own may be about one alone.
    for (status, cause, tried) in [
        ("401 Unauthorized", "answered 401", 1),
        ("404 Not Found", "answered 404", 1),
        ("429 Too Many Requests", "answered 429", 1),
        ("500 Internal Server Error", "answered 500", 2),
        ("502 Bad Gateway", "answered 502", 2),
        ("503 Service Unavailable", "answered 503", 1),
    ] {
        let pinned = Pinned::new();
        let peer = Peer::new(move |_, stream| refuse(stream, status, ""));
        let (folder, _store) = host_with(2);
        let sent = pinned.send(&peer, folder.path(), &[]);
        assert!(sent.exit == 3 && sent.said.contains(cause), "{status}: {} {}", sent.exit, sent.said);
        assert_eq!((waiting(folder.path()), peer.heard().len()), (records(folder.path()), tried), "{status}");
        assert!(dead(folder.path()).is_empty() && receipts(folder.path()).is_empty(), "{status}");
    }
    let pinned = Pinned::new();
    let mut nobody = Peer::new(|_, _| {});
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    nobody.url = format!("http://{}", unused.local_addr().unwrap());
    drop(unused);
    let (folder, _store) = host_with(1);
    let sent = pinned.send(&nobody, folder.path(), &[]);
    assert!(sent.exit == 3 && sent.said.contains("Connection refused"), "{} {}", sent.exit, sent.said);
    assert_eq!(waiting(folder.path()), records(folder.path()));
}

#[test]
fn a_record_that_the_collector_cannot_take_does_not_hold_the_others() {
    let pinned = Pinned::new();
    let (folder, _store) = host_with(3);
    let first = records(folder.path()).into_iter().next().unwrap();
    let (signer, indigestible) = (pinned.key.clone(), first.clone());
    let peer = Peer::new(move |request, stream| match request.run_id() == indigestible {
        true => refuse(stream, "500 Internal Server Error", ""),
        false => respond(stream, "201 Created", "", &signer.receipt(request)),
    });
    let sent = pinned.send(&peer, folder.path(), &[]);
    assert_eq!(sent.exit, 3, "{}", sent.said);
    assert_eq!((waiting(folder.path()), receipts(folder.path()).len()), ([first].into(), 2));
}

#[test]
fn two_deliveries_at_once_send_each_record_once_and_in_order() {
    let pinned = Pinned::new();
    let signer = pinned.key.clone();
    let peer = Peer::saying("201 Created", move |request| {
        std::thread::sleep(Duration::from_millis(30));
        signer.receipt(request)
    });
    let (folder, _store) = host_with(6);
    let order: Vec<String> = records(folder.path()).into_iter().collect();
    std::thread::scope(|scope| {
        let sends = [(); 2].map(|()| scope.spawn(|| pinned.send(&peer, folder.path(), &[])));
        for send in sends {
            let sent = send.join().unwrap();
            assert_eq!(sent.exit, 0, "{}", sent.said);
        }
    });
    // Run ids are made in the order of time, as the chain is.
    assert_eq!(heard(&peer), order);
    assert_eq!(receipts(folder.path()), records(folder.path()));
}

#[test]
fn the_credential_is_in_no_output_and_no_file_even_if_the_collector_gives_it_back() {
    let pinned = Pinned::new();
    let refused = Arc::new(AtomicBool::new(false));
    let for_good = Arc::clone(&refused);
    let peer = Peer::new(move |request, stream| {
        let said = format!("no {} here", request.header("authorization").unwrap());
        let status = if for_good.load(Ordering::SeqCst) { "403 Forbidden" } else { "500 Internal Server Error" };
        refuse(stream, status, &said);
    });
    let (folder, _store) = host_with(1);
    let place = tempfile::tempdir().unwrap();
    let (token, site) = (place.path().join("token"), place.path().join("site.toml"));
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let text = format!("format = 1\n[collector]\nurl = \"{}\"\ncredential = \"{}\"\n", peer.url, token.display());
    fs::write(&site, text).unwrap();
    let site = site.display().to_string();
    let send = |more: &[&str]| {
        let sent = pinned.send(&peer, folder.path(), &[&["-vv", "--site", &site], more].concat());
        assert!(!sent.said.contains(TOKEN), "{more:?}: {}", sent.said);
        sent
    };
    let first = send(&[]);
    assert!(first.exit == 3 && first.said.contains("no Bearer … here"), "{} {}", first.exit, first.said);
    assert_eq!(peer.heard()[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    send(&["--list"]);
    refused.store(true, Ordering::SeqCst);
    let second = send(&["--format", "json"]);
    assert!(second.exit == 0 && second.said.contains("no Bearer … here"), "{} {}", second.exit, second.said);
    send(&["--list", "--format", "json"]);
    let kept = Command::new("grep").args(["-r", TOKEN]).arg(folder.path()).output().unwrap();
    assert_eq!(kept.status.code(), Some(1), "{}", String::from_utf8_lossy(&kept.stdout));
}

/// `deliver --forever`, started and not waited for.
fn forever(pinned: &Pinned, peer: &Peer, state: &Path) -> Child {
    let mut command = nodegate();
    command.args(["deliver", "--forever", "--collector", &peer.url, "--receipt-key"]).arg(pinned.path());
    command.arg("--state").arg(state).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// SIGTERM, and how it ended; what it says goes on in the meantime.
fn end(child: &mut Child) -> ExitStatus {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    let mut status = None;
    eventually(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let _gone = child.kill();
    status.expect("it does not end on SIGTERM")
}

#[test]
fn a_delivery_without_end_ends_by_a_signal_while_it_waits() {
    let pinned = Pinned::new();
    let peer = Peer::new(|_, stream| respond(stream, "503 Busy", "Retry-After: 3600\r\n", b""));
    let (folder, _store) = host_with(1);
    let mut child = forever(&pinned, &peer, folder.path());
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("1 waiting, next try in 3"), "{line}");
    assert_eq!(end(&mut child).code(), Some(3));
    assert_eq!((waiting(folder.path()), peer.heard().len()), (records(folder.path()), 1));
}

#[test]
fn a_delivery_without_end_ends_by_a_signal_while_the_collector_says_nothing() {
    let pinned = Pinned::new();
    let peer = Peer::new(|_, stream| trickle(stream, b"H"));
    let (folder, _store) = host_with(2);
    let mut child = forever(&pinned, &peer, folder.path());
    assert!(eventually(|| !peer.heard().is_empty()), "it never asked");
    assert_eq!(end(&mut child).code(), Some(3));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    // Not the end of an exchange, which comes by itself.
    assert!(said.contains("interrupted") && !said.contains("no answer within"), "{said}");
    assert_eq!((waiting(folder.path()), peer.heard().len()), (records(folder.path()), 1));
}

#[test]
fn an_entry_that_cannot_be_read_waits_and_does_not_hold_the_others() {
    let pinned = Pinned::new();
    let peer = pinned.willing();
    let (folder, _store) = host_with(3);
    let unreadable = records(folder.path()).into_iter().next().unwrap();
    let entry = folder.path().join("spool").join(format!("{unreadable}.json"));
    fs::remove_file(&entry).unwrap();
    fs::create_dir(&entry).unwrap();
    let sent = pinned.send(&peer, folder.path(), &[]);
    assert!(sent.exit == 3 && sent.said.contains("cannot be read"), "{} {}", sent.exit, sent.said);
    assert_eq!((receipts(folder.path()).len(), waiting(folder.path())), (2, [unreadable].into()), "{}", sent.said);
    fs::remove_dir(&entry).unwrap();
    assert_eq!(pinned.send(&peer, folder.path(), &[]).exit, 0);
    assert_eq!(receipts(folder.path()), records(folder.path()));
}
