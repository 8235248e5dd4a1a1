//! What is posted: taken in, known already, or refused for its reason.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use nodegate::collector::model::KeyState;
use nodegate::record::bundle::{self, Bundle};
use nodegate::record::dsse::Envelope;
use nodegate::record::receipt::{self, Receipt};
use nodegate::record::standing::{Flag, Tier};
use nodegate::record::{Documents, EphemeralKey, Unsigned};
use serde_json::{Value, json};

use crate::client::{Answer, Request};
use crate::host::{Host, Signed};
use crate::sample;
use crate::server::Collector;

fn known(name: &str, collector: &Collector) -> Host {
    Host::known_to(name, &collector.store())
}

/// The receipt in this answer, which the collector's key signed for this record.
#[track_caller]
fn receipt(collector: &Collector, record: &Signed, answer: &Answer) -> Receipt {
    assert!([200, 201].contains(&answer.status), "{} {}", answer.status, answer.text());
    receipt::verify(&answer.body, &collector.receipt_key(), record.payload, &record.run_id).unwrap()
}

fn envelope(record: &Signed) -> Envelope {
    serde_json::from_slice(&record.raw).unwrap()
}

#[test]
fn a_record_gets_a_receipt_and_the_same_one_ever_after() {
    let collector = Collector::start(&[]);
    let mut host = known("a", &collector);
    let record = host.record(|_| ());
    let first = collector.post(&record.raw);
    assert_eq!(first.status, 201);
    let said = receipt(&collector, &record, &first);
    assert_eq!((said.tier, said.flags.as_slice(), said.ledger.unwrap().index), (Some(Tier::Token), &[][..], 1));

    // The same record in any form: sent again, spread over lines, in a bundle, packed.
    let spread = serde_json::to_vec_pretty(&serde_json::from_slice::<Value>(&record.raw).unwrap()).unwrap();
    let bundled = Bundle::of(&envelope(&record)).to_json();
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&record.raw).unwrap();
    let again = [
        collector.post(&record.raw),
        collector.post(&spread),
        Request::post("/v1/records", bundle::MEDIA_TYPE, &bundled).send(&collector.address()),
        Request::record(&packed.finish().unwrap()).with("Content-Encoding", "gzip").send(&collector.address()),
        Request::post("/v1/records", "application/json; charset=utf-8", &record.raw).send(&collector.address()),
    ];
    for answer in again {
        assert_eq!((answer.status, &answer.body), (200, &first.body), "{}", answer.text());
    }
    assert_eq!(collector.get("/v1/nodes").json()["nodes"][0]["runs"], 1);
}

#[test]
fn records_out_of_order_are_kept_and_flagged() {
    let collector = Collector::start(&[]);
    let mut host = known("a", &collector);
    let (first, second, third) = (host.record(|_| ()), host.record(|_| ()), host.record(|_| ()));
    assert!(receipt(&collector, &first, &collector.post(&first.raw)).flags.is_empty());
    assert_eq!(receipt(&collector, &third, &collector.post(&third.raw)).flags, [Flag::Gap]);
    receipt(&collector, &second, &collector.post(&second.raw));
    let (seq, prev) = (third.payload, Some(second.payload));
    let fork = host.sign(|details| (details.seq, details.prev) = (3, prev));
    assert_ne!(fork.payload, seq);
    assert_eq!(receipt(&collector, &fork, &collector.post(&fork.raw)).flags, [Flag::Fork]);
}

#[test]
fn another_record_of_the_same_run_is_a_conflict() {
    let collector = Collector::start(&[]);
    let host = known("a", &collector);
    let first = host.sign(|details| details.seq = 1);
    let other = host.sign(|details| {
        details.seq = 1;
        details.run_id.clone_from(&first.run_id);
        details.reason = Some("told otherwise".to_owned());
    });
    receipt(&collector, &first, &collector.post(&first.raw));
    collector.post(&other.raw).assert_problem(409, "conflict");
    collector.assert_said(&["refused 409 conflict", "peer=127.0.0.1", "POST /v1/records", &first.run_id]);
}

#[test]
fn what_is_forged_or_damaged_is_refused_and_leaves_nothing() {
    let collector = Collector::start(&[]);
    let mut host = known("a", &collector);
    let record = host.record(|_| ());
    let whole = envelope(&record);
    let stranger = Host::new("a").sign(|details| details.seq = 1);
    let forged = Envelope { signatures: envelope(&stranger).signatures, ..whole.clone() };
    let mut claimed = forged.clone();
    claimed.signatures[0].keyid.clone_from(&whole.signatures[0].keyid);
    let changed = Envelope { payload: envelope(&host.sign(|_| ())).payload, ..whole.clone() };
    let other_type = Envelope { payload_type: receipt::PAYLOAD_TYPE.to_owned(), ..whole.clone() };
    let unsigned = Envelope { signatures: Vec::new(), ..whole.clone() };
    let no_base64 = Envelope { payload: "!".to_owned(), ..whole.clone() };
    let text = String::from_utf8(record.raw.clone()).unwrap();
    let twice = text.replacen('{', "{\"payload\":\"AA==\",", 1);
    let malformed = [
        claimed.to_json(),
        changed.to_json(),
        other_type.to_json(),
        no_base64.to_json(),
        twice.into_bytes(),
        record.raw[..record.raw.len() / 2].to_vec(),
        [record.raw.as_slice(), record.raw.as_slice()].concat(),
        b"".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"\xff\xfe".to_vec(),
        "[".repeat(100_000).into_bytes(),
    ];
    for body in &malformed {
        let answer = collector.post(body);
        answer.assert_problem(400, "malformed");
        collector.assert_said(&["refused 400 malformed"]);
    }
    assert!([400, 401].contains(&collector.post(&unsigned.to_json()).status));
    collector.post(&forged.to_json()).assert_problem(401, "unknown-key");
    collector.post(&stranger.raw).assert_problem(401, "unknown-key");
    collector.assert_said(&["refused 401 unknown-key", &stranger_key(&stranger)]);
    assert_eq!(collector.get("/v1/nodes").json()["total"], 0);
    // And after all that, the record itself.
    receipt(&collector, &record, &collector.post(&record.raw));
}

fn stranger_key(record: &Signed) -> String {
    envelope(record).signatures[0].keyid.clone()
}

#[test]
fn a_key_opens_what_it_is_for_and_nothing_else() {
    let collector = Collector::start(&[]);
    let store = collector.store();
    let mut pending = Host::new("pending");
    store.put_key(pending.enrolled(Tier::FirstUse, KeyState::Pending)).unwrap();
    let record = pending.record(|_| ());
    assert_eq!(receipt(&collector, &record, &collector.post(&record.raw)).flags, [Flag::PendingKey]);

    let mut revoked = known("revoked", &collector);
    let before = revoked.record(|_| ());
    receipt(&collector, &before, &collector.post(&before.raw));
    store.revoke(&revoked.keyid(), "ada", "stolen").unwrap();
    let after = revoked.record(|_| ());
    let refused = collector.post(&after.raw);
    refused.assert_problem(403, "revoked-key");
    assert!(refused.text().contains("stolen"));
    collector.assert_said(&["refused 403 revoked-key", &revoked.keyid()]);

    let elsewhere = Documents::of(&sample::snapshot("another board", &sample::GPUS));
    let stray = Host { documents: elsewhere, ..known("stray", &collector) };
    let record = stray.sign(|details| details.seq = 1);
    collector.post(&record.raw).assert_problem(422, "unprocessable");
    collector.assert_said(&["refused 422", "its key belongs to host"]);
}

/// A record of a recorded host, with its key enrolled.
fn simulated(collector: &Collector) -> Signed {
    let key = EphemeralKey::generate();
    let documents = sample::documents();
    let details = sample::details_with(|details| (details.simulated, details.seq) = (true, 1));
    let run_id = details.run_id.clone();
    let unsigned = Unsigned::new(details, &documents).unwrap();
    let payload = nodegate::ident::Digest::of(unsigned.payload());
    let Unsigned::Simulated(statement) = unsigned else { panic!("a recorded host's") };
    let host = Host::new("recorded");
    let mut row = host.enrolled(Tier::Simulated, KeyState::Approved);
    row.keyid = key.public_key().keyid();
    row.public_key = key.public_key().to_pem();
    row.host = documents.host.digest();
    collector.store().put_key(row).unwrap();
    Signed { raw: key.sign(&statement).to_json(), payload, run_id }
}

#[test]
fn a_recorded_host_is_taken_only_where_somebody_said_so() {
    let collector = Collector::start(&[]);
    collector.post(&simulated(&collector).raw).assert_problem(422, "unprocessable");
    collector.assert_said(&["refused 422", "--accept-simulated"]);
    let willing = Collector::start(&["--accept-simulated"]);
    let record = simulated(&willing);
    assert!(receipt(&willing, &record, &willing.post(&record.raw)).flags.contains(&Flag::Simulated));
}

#[test]
fn a_nonce_is_for_one_key_and_one_record() {
    let collector = Collector::start(&[]);
    let mut host = known("a", &collector);
    let other = known("b", &collector);
    let ask = |keyid: &str| Request::json("/v1/challenges", &json!({ "keyid": keyid })).send(&collector.address());
    let nonce = |keyid: &str| {
        let answer = ask(keyid);
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert!(answer.json()["expires"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        answer.json()["challenge"].as_str().unwrap().to_owned()
    };
    let (mine, theirs) = (nonce(&host.keyid()), nonce(&other.keyid()));
    let mut flags = |challenge: &str| {
        let record = host.record(|details| challenge.clone_into(&mut details.challenge));
        receipt(&collector, &record, &collector.post(&record.raw)).flags
    };
    assert_eq!(flags(&mine), []);
    assert_eq!(flags(&mine), [Flag::ReusedNonce]);
    assert_eq!(flags(&theirs), [Flag::UnknownNonce]);
    assert_eq!(flags("made up"), [Flag::UnknownNonce]);
    for wrong in ["", "SHA256:", "SHA256:short", "\u{1b}[2J", &"x".repeat(1000)] {
        ask(wrong).assert_problem(400, "malformed");
    }
    for body in [json!([]), json!({}), json!({ "keyid": 1 })] {
        Request::json("/v1/challenges", &body).send(&collector.address()).assert_problem(400, "malformed");
    }
}

#[test]
fn a_request_that_names_another_run_is_refused() {
    let collector = Collector::start(&[]);
    let mut host = known("a", &collector);
    let (one, other) = (host.record(|_| ()), host.record(|_| ()));
    let named = |record: &Signed, run: &str| {
        Request::record(&record.raw).with("Idempotency-Key", run).send(&collector.address())
    };
    named(&one, &other.run_id).assert_problem(400, "malformed");
    receipt(&collector, &one, &named(&one, &one.run_id));
}

#[test]
fn a_body_is_of_a_type_and_an_encoding_that_we_read() {
    let collector = Collector::start(&[]);
    let record = known("a", &collector).record(|_| ());
    for content_type in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""]
    {
        let answer = Request::post("/v1/records", content_type, &record.raw).send(&collector.address());
        answer.assert_problem(415, "unsupported-type");
    }
    for encoding in ["br", "gzip, gzip", "deflate", "x"] {
        let answer = Request::record(&record.raw).with("Content-Encoding", encoding).send(&collector.address());
        answer.assert_problem(415, "unsupported-encoding");
    }
    Request::record(&record.raw)
        .with("Content-Encoding", "gzip")
        .send(&collector.address())
        .assert_problem(400, "malformed");
}

#[test]
fn a_key_that_sends_too_much_is_told_when_to_come_again() {
    let collector = Collector::start(&["--key-rate", "1"]);
    let (mut eager, mut calm) = (known("eager", &collector), known("calm", &collector));
    let mut refused = None;
    for _ in 0..300 {
        let answer = collector.post(&eager.record(|_| ()).raw);
        if answer.status != 201 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("nothing was refused");
    refused.assert_problem(429, "too-many");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let record = calm.record(|_| ());
    receipt(&collector, &record, &collector.post(&record.raw));
}

#[test]
fn archivistas_clients_can_post_here_and_read_again() {
    let collector = Collector::start(&[]);
    let mut host = known("a", &collector);
    for path in ["/upload", "/v1/upload"] {
        let record = host.record(|_| ());
        let answer = Request::post(path, "application/json", &record.raw).send(&collector.address());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let gitoid = answer.json()["gitoid"].as_str().unwrap().to_owned();
        assert_eq!(gitoid, record.payload.hex());
        assert_eq!(collector.get(&format!("/download/{gitoid}")).body, record.raw);
    }
    Request::post("/upload", "application/json", b"{}").send(&collector.address()).assert_problem(400, "malformed");
}

/// `nodegate run` on a recorded host, and the record that it wrote.
fn run_of_the_agent() -> (tempfile::TempDir, Signed, String) {
    let state = tempfile::tempdir().unwrap();
    let ran = crate::server::nodegate()
        .args(["run", "--fixture", "fixtures/hosts/hgx-h100-8", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let records = state.path().join("simulated/records");
    let public = std::fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().path());
    let public = public.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "pub")).unwrap();
    let run_id = public.file_stem().unwrap().to_str().unwrap().to_owned();
    let raw = std::fs::read(public.with_extension("json")).unwrap();
    let envelope: Envelope = serde_json::from_slice(&raw).unwrap();
    let payload = nodegate::record::dsse::decode_base64(&envelope.payload).unwrap();
    let payload = nodegate::ident::Digest::of(&payload);
    (state, Signed { raw, payload, run_id }, std::fs::read_to_string(public).unwrap())
}

#[test]
fn a_record_that_the_agent_wrote_is_taken_and_shown() {
    let (state, record, public) = run_of_the_agent();
    let collector = Collector::start(&["--accept-simulated"]);
    let host = std::fs::read(state.path().join(format!("simulated/records/{}.host.json", record.run_id))).unwrap();
    let mut row = Host::new("recorded").enrolled(Tier::Simulated, KeyState::Approved);
    row.keyid = nodegate::record::PublicKey::parse(&public).unwrap().keyid();
    row.public_key = public;
    row.host = nodegate::ident::Digest::of(&host);
    collector.store().put_key(row).unwrap();
    let said = receipt(&collector, &record, &collector.post(&record.raw));
    assert!(said.flags.contains(&Flag::Simulated));
    let page = collector.get(&format!("/records/{}", record.payload.hex()));
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("H100"));
    assert_eq!(collector.get("/v1/nodes").json()["standings"], json!({ "uncounted": 1 }));
}

#[test]
fn the_agent_sends_its_record_and_keeps_the_receipt() {
    for (options, status, delivered) in [(&["--accept-simulated"][..], 0, "delivered=yes"), (&[], 3, "delivered=no")] {
        let collector = Collector::start(options);
        let state = tempfile::tempdir().unwrap();
        let ran = crate::server::nodegate()
            .args(["run", "--fixture", "fixtures/hosts/hgx-h100-8", "--require-delivery", "--collector"])
            .arg(format!("http://{}", collector.address()))
            .arg("--receipt-key")
            .arg(collector.state.path().join("receipt.pub"))
            .arg("--state")
            .arg(state.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(status), "{said}{}", collector.said());
        assert!(said.contains(delivered), "{said}");
        let kept = if status == 0 { 1 } else { 0 };
        assert_eq!(collector.get("/v1/nodes").json()["total"], kept, "{}", collector.said());
        let run = said.split("run=").nth(1).unwrap().split(' ').next().unwrap();
        let receipt = state.path().join(format!("simulated/records/{run}.receipt.json"));
        assert_eq!(receipt.exists(), status == 0);
    }
}
