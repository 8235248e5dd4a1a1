//! Delivery against collectors of every kind: only a receipt of the pinned key, for this record,
//! is a delivery; nothing else holds the run, changes its decision or betrays the credential.

mod support;

#[path = "delivery/peer.rs"]
mod peer;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nodegate::ident::Digest;
use peer::{Peer, ReceiptKey, respond, trickle};
use support::{Ran, faulty, host, nodegate, record_of, run_fixture};

const TOKEN: &str = "hunter2-hunter2-hunter2";

/// `nodegate run` on a recorded host, its receipt key pinned.
fn run(fixture: &Path, url: &str, key: &ReceiptKey, more: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let public = write(folder.path(), "collector.pub", &key.public, 0o644);
    let state = tempfile::tempdir().unwrap();
    let output = nodegate()
        .args(["run", "--collector", url, "--receipt-key", &public, "--fixture"])
        .arg(fixture)
        .arg("--state")
        .arg(state.path())
        .args(more)
        .output()
        .unwrap();
    Ran { state, output }
}

fn write(folder: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

fn healthy() -> PathBuf {
    host("hgx-h100-8")
}

fn receipt_of(ran: &Ran) -> PathBuf {
    record_of(ran.state.path()).with_extension("receipt.json")
}

/// Standard output as one line, so that it does not matter where it was wrapped.
fn flat(ran: &Ran) -> String {
    ran.stdout().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A required delivery to this peer does not take place, for this cause.
fn assert_undelivered(peer: &Peer, key: &ReceiptKey, cause: &str, again: bool) -> Ran {
    let ran = run(&healthy(), &peer.url, key, &["--require-delivery"]);
    assert_eq!(ran.status(), 3, "{cause}: {}{}", ran.stdout(), ran.stderr());
    let screen = flat(&ran);
    let outlook = if again { "run again with --collector to send a new one" } else { "sending it again will not help" };
    for text in ["not sent: ACCEPTED, not delivered: ", cause, outlook, "the record is kept"] {
        assert!(screen.contains(text), "`{text}` is not in: {screen}");
    }
    assert!(ran.stderr().trim_end().ends_with(" delivered=no"), "{}", ran.stderr());
    assert!(!receipt_of(&ran).exists(), "{cause}: a receipt was kept");
    ran
}

#[test]
fn a_receipt_is_a_delivery_and_is_kept_beside_the_record() {
    for status in ["201 Created", "200 OK"] {
        let key = ReceiptKey::new();
        let signer = key.clone();
        let peer = Peer::saying(status, move |request| signer.receipt(request));
        let ran = run(&healthy(), &format!("{}/", peer.url), &key, &["--require-delivery"]);
        assert_eq!(ran.status(), 0, "{}{}", ran.stdout(), ran.stderr());
        assert!(ran.stderr().trim_end().ends_with(" delivered=yes"), "{}", ran.stderr());
        let authority = peer.url.trim_start_matches("http://");
        assert!(
            ran.stdout().contains(&format!("sent    {authority}, receipt 2026-11-30T20:41:07Z\n")),
            "{}",
            ran.stdout()
        );

        let [request] = &peer.heard()[..] else { panic!("{:?}", peer.heard()) };
        let record = record_of(ran.state.path());
        assert_eq!(request.body, fs::read(&record).unwrap());
        assert_eq!(fs::read(receipt_of(&ran)).unwrap(), key.receipt(request));
        assert_eq!(fs::metadata(receipt_of(&ran)).unwrap().permissions().mode() & 0o777, 0o600);
        let run_id = record.file_stem().unwrap().to_str().unwrap();
        let host = Digest::of(&fs::read(record.with_extension("host.json")).unwrap());
        assert_eq!(request.line, "POST /v1/records HTTP/1.1");
        for (name, value) in [
            ("content-type", "application/vnd.in-toto.test-result+dsse"),
            ("idempotency-key", run_id),
            ("ce-specversion", "1.0"),
            ("ce-id", run_id),
            ("ce-source", &format!("urn:nodegate:host:{host}")),
            ("ce-type", "nodegate.record.v1"),
            ("content-encoding", "gzip"),
        ] {
            assert_eq!(request.header(name), Some(value));
        }
        assert_eq!(request.header("authorization"), None);
    }
}

#[test]
fn a_success_without_a_receipt_that_counts_is_no_delivery() {
    let (key, other) = (ReceiptKey::new(), ReceiptKey::new());
    let wrong_key = Peer::saying("201 Created", move |request| other.receipt(request));
    assert_undelivered(&wrong_key, &key, "none of the given keys", true);

    let signer = key.clone();
    let wrong_digest = Peer::saying("201 Created", move |request| {
        signer.receipt_for(Digest::of(b"another record"), request.header("idempotency-key").unwrap())
    });
    assert_undelivered(&wrong_digest, &key, "for another record", true);

    let signer = key.clone();
    let wrong_run = Peer::saying("201 Created", move |request| signer.receipt_for(request.payload(), "another"));
    assert_undelivered(&wrong_run, &key, "for another run", true);

    let echo = Peer::saying("201 Created", |request| request.body.clone());
    assert_undelivered(&echo, &key, "payload type", true);
    let garbage = Peer::saying("200 OK", |_| b"\x1b[2J<html>thank you</html>".to_vec());
    let ran = assert_undelivered(&garbage, &key, "not plain JSON", true);
    assert!(!ran.stdout().contains('\x1b'));
    let binary = Peer::saying("200 OK", |_| vec![0xff; 100]);
    assert_undelivered(&binary, &key, "not text", true);
    let nothing = Peer::saying("204 No Content", |_| Vec::new());
    assert_undelivered(&nothing, &key, "answered 204", true);
    let signer = key.clone();
    let accepted = Peer::saying("202 Accepted", move |request| signer.receipt(request));
    assert_undelivered(&accepted, &key, "answered 202", true);
}

#[test]
fn a_refusal_is_final_and_a_failure_is_not() {
    let key = ReceiptKey::new();
    for (status, number, again) in [
        ("400 Bad Request", "answered 400", false),
        ("401 Unauthorized", "answered 401", true),
        ("403 Forbidden", "answered 403", false),
        ("409 Conflict", "answered 409", false),
        ("413 Content Too Large", "answered 413", false),
        ("422 Unprocessable Content", "answered 422", false),
        ("429 Too Many Requests", "answered 429", true),
        ("500 Internal Server Error", "answered 500", true),
        ("404 Not Found", "answered 404", true),
    ] {
        // A receipt in a refusal is no receipt.
        let signer = key.clone();
        let peer = Peer::saying(status, move |request| signer.receipt(request));
        assert_undelivered(&peer, &key, number, again);
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let key = ReceiptKey::new();
    let signer = key.clone();
    let elsewhere = Peer::saying("201 Created", move |request| signer.receipt(request));
    let location = format!("Location: {}/v1/records\r\n", elsewhere.url);
    let peer = Peer::new(move |_, stream| respond(stream, "307 Temporary Redirect", &location, b""));
    assert_undelivered(&peer, &key, "a redirect, which is not followed", true);
    assert!(elsewhere.heard().is_empty());
}

#[test]
fn a_huge_answer_is_not_read_to_its_end() {
    let key = ReceiptKey::new();
    let declared = Peer::saying("201 Created", |_| vec![b'x'; 1 << 20]);
    assert_undelivered(&declared, &key, "more than 64 KiB", true);
    let endless = Peer::new(|_, stream| {
        use std::io::Write as _;
        let _gone = stream.write_all(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n");
        while stream.write_all(b"400\r\n").and_then(|()| stream.write_all(&[b'x'; 1024])).is_ok() {
            let _gone = stream.write_all(b"\r\n");
        }
    });
    assert_undelivered(&endless, &key, "more than 64 KiB", true);
}

#[test]
fn a_peer_that_is_gone_or_speaks_another_language_is_a_cause() {
    let key = ReceiptKey::new();
    let closed = Peer::new(|_, _| {});
    assert_undelivered(&closed, &key, "did not answer", true);
    let torn = Peer::new(|_, stream| {
        use std::io::Write as _;
        let _gone = stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{\"payload\"");
    });
    assert_undelivered(&torn, &key, "did not answer", true);
    let other = Peer::new(|_, stream| {
        use std::io::Write as _;
        let _gone = stream.write_all(b"220 mail.example ESMTP\r\n");
    });
    assert_undelivered(&other, &key, "did not answer", true);
    let mut nobody = Peer::new(|_, _| {});
    nobody.url = unused();
    assert_undelivered(&nobody, &key, "Connection refused", true);
}

#[test]
fn a_peer_that_never_comes_to_an_end_does_not_hold_the_run() {
    let key = ReceiptKey::new();
    let head = Peer::new(|_, stream| trickle(stream, b"H"));
    let body = Peer::new(|_, stream| {
        use std::io::Write as _;
        let _gone = stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 60000\r\n\r\n");
        trickle(stream, b" ");
    });
    std::thread::scope(|scope| {
        for peer in [&head, &body] {
            scope.spawn(|| {
                let began = Instant::now();
                assert_undelivered(peer, &key, "no answer within 10 s", true);
                assert!(began.elapsed() < Duration::from_secs(30), "took {:?}", began.elapsed());
            });
        }
    });
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (secret, certificate) = (path("key.pem"), path("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-keyout", &secret, "-out", &certificate])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let url = unused().replace("http", "https");
    let port = url.rsplit(':').next().unwrap();
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-www", "-accept", port, "-key", &secret, "-cert", &certificate])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let up = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_ok()
    });
    let ran = run(&healthy(), &url, &ReceiptKey::new(), &["--require-delivery"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(up, "openssl s_server did not come up");
    assert_eq!(ran.status(), 3, "{}{}", ran.stdout(), ran.stderr());
    assert!(flat(&ran).contains("UnknownIssuer") || flat(&ran).contains("CaUsedAsEndEntity"), "{}", ran.stdout());
}

#[test]
fn without_require_delivery_the_decision_stands() {
    let key = ReceiptKey::new();
    let peer = Peer::saying("500 Internal Server Error", |_| Vec::new());
    let ran = run(&healthy(), &peer.url, &key, &[]);
    assert_eq!(ran.status(), 0, "{}", ran.stderr());
    assert!(flat(&ran).contains("not sent: "), "{}", ran.stdout());
    // Without a pinned key the record is sent, and nothing counts as a delivery.
    let signer = ReceiptKey::new();
    let willing = Peer::saying("201 Created", move |request| signer.receipt(request));
    let unpinned = run_fixture(&healthy(), &["--collector", &willing.url]);
    assert_eq!(unpinned.status(), 0, "{}", unpinned.stderr());
    assert!(unpinned.stderr().contains("no receipt key is pinned"), "{}", unpinned.stderr());
    assert_eq!(willing.heard().len(), 1);
}

#[test]
fn rejected_and_undecided_stay_what_they_are() {
    let key = ReceiptKey::new();
    let failing = Peer::saying("500 Internal Server Error", |_| Vec::new());
    let signer = key.clone();
    let willing = Peer::saying("201 Created", move |request| signer.receipt(request));
    for peer in [&failing, &willing] {
        let rejected = run(&host("h100-link-narrow"), &peer.url, &key, &["--require-delivery"]);
        assert_eq!(rejected.status(), 1, "{}", rejected.stdout());
        let undecided = run(&healthy(), &peer.url, &key, &["--require-delivery", "--skip", "ecc"]);
        assert_eq!(undecided.status(), 2, "{}", undecided.stdout());
    }
    assert_eq!(willing.heard().len(), 2, "a rejection is evidence as well");
}

#[test]
fn json_stays_exactly_the_records_details() {
    let key = ReceiptKey::new();
    let peer = Peer::saying("500 Internal Server Error", |_| Vec::new());
    let ran = run(&healthy(), &peer.url, &key, &["--format", "json"]);
    let record: serde_json::Value = serde_json::from_slice(&fs::read(record_of(ran.state.path())).unwrap()).unwrap();
    let payload = nodegate::record::dsse::decode_base64(record["payload"].as_str().unwrap()).unwrap();
    let statement: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(ran.details(), statement["predicate"]["nodegate"]);
    let lines: Vec<String> = ran.stderr().lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("nodegate: not sent: ") && lines[1].starts_with("nodegate: accepted "), "{lines:?}");
}

/// A site file for this collector, with a credential beside it.
fn site(folder: &Path, url: &str, key: &ReceiptKey) -> String {
    let credential = write(folder, "token", &format!("{TOKEN}\n"), 0o600);
    let public = write(folder, "collector.pub", &key.public, 0o644);
    let text = format!(
        "format = 1\nclass = \"hgx-h100-8\"\nstage = \"rack\"\n[collector]\nurl = \"{url}\"\nreceipt-key = \"{public}\"\ncredential = \"{credential}\"\n"
    );
    write(folder, "site.toml", &text, 0o644)
}

#[test]
fn the_credential_reaches_the_collector_and_nobody_else() {
    let key = ReceiptKey::new();
    let signer = key.clone();
    let honest = Peer::saying("201 Created", move |request| signer.receipt(request));
    // A collector that gives the secret back, wherever our messages might take it from.
    let parrot = Peer::saying("201 Created", |request| {
        let said = request.header("authorization").unwrap();
        let token = said.trim_start_matches("Bearer ");
        format!("{{\"payload\":\"\",\"payloadType\":\"{token}\",\"signatures\":[]}}").into_bytes()
    });
    let refusing = Peer::saying("401 Unauthorized", |request| format!("{request:?}").into_bytes());
    for (peer, status) in [(&honest, 0), (&parrot, 3), (&refusing, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let site = site(folder.path(), &peer.url, &key);
        let ran = run(&healthy(), &peer.url, &key, &["-vv", "--require-delivery", "--site", &site]);
        assert_eq!(ran.status(), status, "{}{}", ran.stdout(), ran.stderr());
        assert_eq!(peer.heard()[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
        assert!(ran.stderr().contains("exchanged"), "-vv says nothing of the request: {}", ran.stderr());
        assert!(!ran.stdout().contains(TOKEN) && !ran.stderr().contains(TOKEN));
        let kept = Command::new("grep").args(["-r", TOKEN]).arg(ran.state.path()).output().unwrap();
        assert_eq!(kept.status.code(), Some(1), "{}", String::from_utf8_lossy(&kept.stdout));
    }
    // Another collector than the site's gets the record, not the site's secret.
    let folder = tempfile::tempdir().unwrap();
    let site = site(folder.path(), "https://collector.example", &key);
    let ran = run(&healthy(), &honest.url, &key, &["--site", &site]);
    assert_eq!(ran.status(), 0, "{}{}", ran.stdout(), ran.stderr());
    assert_eq!(honest.heard()[1].header("authorization"), None);
}

#[test]
fn the_sites_collector_is_the_default_and_never_for_a_recording() {
    let key = ReceiptKey::new();
    let signer = key.clone();
    let peer = Peer::saying("201 Created", move |request| signer.receipt(request));
    let (folder, fixture) = faulty("hgx-h100-8", "");
    let site = site(&fixture, &peer.url, &key);
    for more in [&[][..], &["--site", &site]] {
        let ran = run_fixture(&fixture, more);
        assert_eq!(ran.status(), 0, "{}", ran.stderr());
        assert!(!ran.stderr().contains("sent"), "{}", ran.stderr());
    }
    assert!(peer.heard().is_empty(), "a recording's site file has sent something");

    let state = folder.path().join("state");
    let output = nodegate()
        .args(["run", "--site", &site, "--root"])
        .arg(host("hgx-h100-8").join("root"))
        .arg("--state")
        .arg(&state)
        .output()
        .unwrap();
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(screen.contains("\nsent    127.0.0.1:"), "{screen}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(peer.heard().len(), 1);
}

#[test]
fn what_cannot_be_delivered_by_any_luck_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let key = write(folder.path(), "collector.pub", &ReceiptKey::new().public, 0o644);
    let not_a_key = write(folder.path(), "note.pub", "not a key", 0o644);
    let here = "http://127.0.0.1:9";
    for (arguments, name) in [
        (&["--require-delivery"][..], "--collector"),
        (&["--require-delivery", "--receipt-key", &key], "--collector"),
        (&["--require-delivery", "--collector", here], "--receipt-key"),
        (&["--collector", here, "--receipt-key", &not_a_key], "note.pub"),
        (&["--collector", here, "--receipt-key", "/nonexistent.pub"], "/nonexistent.pub"),
        (&["--collector", "http://collector.example"], "https://"),
        (&["--collector", "https://me:hunter2@collector.example"], "credential"),
        (&["--collector", "collector"], "https://"),
    ] {
        let ran = run_fixture(&healthy(), arguments);
        assert_eq!(ran.status(), 64, "{arguments:?}: {}", ran.stderr());
        assert!(ran.stderr().contains(name), "{arguments:?}: {}", ran.stderr());
        assert!(!ran.stderr().contains("hunter2"), "{}", ran.stderr());
        assert_eq!(fs::read_dir(ran.state.path()).unwrap().count(), 0, "{arguments:?}: something was begun");
    }
}

/// An address where nobody listens.
fn unused() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
