//! To whom: tokens by role, and what is refused before anybody can ask.

use std::process::Output;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tempfile::TempDir;

use crate::client::{Answer, Request};
use crate::host::Host;
use crate::server::{Collector, eventually, nodegate, store_in, write};

fn token_command(state: &TempDir, arguments: &[&str]) -> Output {
    nodegate().args(["collector", "token"]).args(arguments).arg("--state").arg(state.path()).output().unwrap()
}

/// A new token, which is printed once.
fn token(state: &TempDir, role: &str, more: &[&str]) -> String {
    let output = token_command(state, &[&["new", "--role", role, "--name", role], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert!(!String::from_utf8_lossy(&output.stderr).contains(&token));
    token
}

fn asked(collector: &Collector, request: Request, token: &str) -> Answer {
    request.with("Authorization", &format!("Bearer {token}")).send(&collector.address())
}

#[test]
fn each_role_does_what_is_its_own() {
    let state = Arc::new(tempfile::tempdir().unwrap());
    let [reader, writer, admin] = ["reader", "writer", "admin"].map(|role| token(&state, role, &[]));
    let collector = Collector::again(state, &[]);
    let record = Host::known_to("a", &collector.store()).record(|_| ());
    let challenge = Request::json("/v1/challenges", &json!({ "keyid": "x" }));
    let enrolment = Request::json("/v1/enroll", &json!({}));
    let sink = Request::json("/v1/alert-sink", &json!({ "version": "4" }));
    let writes = [Request::record(&record.raw), challenge, enrolment, sink];
    let reads = ["/v1/nodes", "/v1/export", "/metrics", "/v1/ledger/head", "/v1/nodes/a", "/"].map(Request::get);
    for request in &writes {
        request.send(&collector.address()).assert_problem(401, "unauthorised");
        asked(&collector, request.clone(), &reader).assert_problem(403, "forbidden");
        asked(&collector, request.clone(), "nodegate-wrong").assert_problem(401, "unauthorised");
        for token in [&writer, &admin] {
            let status = asked(&collector, request.clone(), token).status;
            assert!([200, 201, 400].contains(&status), "{} {status}", request.path);
        }
    }
    for request in &reads {
        let refused = request.send(&collector.address());
        refused.assert_problem(401, "unauthorised");
        let asks = refused.headers.iter().filter(|(name, _)| name == "www-authenticate").count();
        assert_eq!(asks, 2, "a browser is not asked for a password");
        asked(&collector, request.clone(), &writer).assert_problem(403, "forbidden");
        for token in [&reader, &admin] {
            let status = asked(&collector, request.clone(), token).status;
            assert!([200, 404].contains(&status), "{} {status}", request.path);
        }
    }
    let basic = format!("Basic {}", STANDARD.encode(format!("anybody:{reader}")));
    assert_eq!(Request::get("/v1/nodes").with("Authorization", &basic).send(&collector.address()).status, 200);
    for path in ["/healthz", "/v1/receipt-keys"] {
        assert_eq!(collector.get(path).status, 200, "{path} needs no token");
    }
    for token in [reader, writer, admin] {
        assert!(!collector.said().contains(&token));
        let kept = std::fs::read(collector.state.path().join("collector.db")).unwrap();
        assert!(!kept.windows(token.len()).any(|window| window == token.as_bytes()));
    }
}

#[test]
fn a_token_ends_by_its_time_or_by_revocation() {
    let state = Arc::new(tempfile::tempdir().unwrap());
    let (_, brief) = (token(&state, "admin", &[]), token(&state, "reader", &["--expires", "1 ms"]));
    let collector = Collector::again(state.clone(), &[]);
    asked(&collector, Request::get("/v1/nodes"), &brief).assert_problem(401, "unauthorised");

    let writer = token(&state, "writer", &[]);
    let question = || Request::json("/v1/challenges", &json!({ "keyid": "x" }));
    assert!(eventually(|| asked(&collector, question(), &writer).status == 400), "a new token is not known");
    let list = String::from_utf8(token_command(&state, &["list"]).stdout).unwrap();
    assert!(list.lines().any(|line| line.starts_with("writer")) && list.contains("expired"), "{list}");
    assert!(!list.contains(&writer));
    assert!(token_command(&state, &["revoke", "writer"]).status.success());
    assert!(eventually(|| asked(&collector, question(), &writer).status == 401), "a revoked token still opens");
    assert_eq!(token_command(&state, &["revoke", "writer"]).status.code(), Some(64));
    assert_eq!(token_command(&state, &["new", "--role", "reader", "--name", "reader"]).status.code(), Some(64));
    assert_eq!(token_command(&state, &["new", "--role", "root", "--name", "x"]).status.code(), Some(64));
}

/// What a start says that is refused before anything listens.
#[track_caller]
fn refused(state: &TempDir, arguments: &[&str], told: &[&str]) {
    let output = nodegate().args(["collector", "serve", "--state"]).arg(state.path()).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
    assert!(!said.contains("listening") && !said.contains("hunter2"), "{said}");
    told.iter().for_each(|text| assert!(said.contains(text), "{arguments:?}: no `{text}` in {said}"));
}

#[test]
fn what_others_reach_is_closed_unless_somebody_says_otherwise() {
    let state = tempfile::tempdir().unwrap();
    let away = ["--listen", "0.0.0.0:0"];
    let with = |more: &[&'static str]| [&away[..], more].concat();
    refused(&state, &away, &["--tls-cert", "127.0.0.1", "--behind-proxy"]);
    refused(&state, &with(&["--behind-proxy"]), &["token new --role reader", "--open-reading"]);
    refused(&state, &with(&["--behind-proxy", "--open-reading"]), &["token new --role writer", "--open-writing"]);
    refused(&state, &["--behind-proxy", "--open-writing"], &["token new --role reader"]);
    refused(&state, &["--store", "postgres://me:hunter2@db/x"], &["--store-file"]);
    refused(&state, &["--store", "mysql:x"], &["sqlite:PATH"]);
    refused(&state, &["--max-body", "2 MiB"], &["--max-body"]);
    refused(&state, &["--policy", "/nonexistent"], &["/nonexistent"]);
    refused(&state, &["--tls-cert", "/nonexistent"], &["--tls-key"]);
    let key = write(state.path(), "tls.pem", "hunter2", 0o644).display().to_string();
    let not_one = write(state.path(), "cert.pem", "hunter2", 0o644).display().to_string();
    refused(&state, &["--tls-cert", &not_one, "--tls-key", &key], &["no certificate"]);
    refused(&state, &["--fleet-ca", &not_one], &["--fleet-ca"]);
}

#[test]
fn two_collectors_do_not_share_a_file_and_a_key_is_for_one_store() {
    let first = Collector::start(&[]);
    refused(&first.state, &["--listen", "127.0.0.1:0"], &["another collector"]);
    let other = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", first.state.path().join("collector.db").display());
    let state = first.state.clone();
    assert!(first.end().0.success());
    refused(&other, &["--listen", "127.0.0.1:0", "--store", &store], &["receipt"]);
    drop(store_in(state.path()));
}

#[test]
fn an_address_that_is_taken_is_told() {
    let first = Collector::start(&[]);
    let state = tempfile::tempdir().unwrap();
    let output = nodegate()
        .args(["collector", "serve", "--listen", &first.address(), "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&first.address()));
}
