//! The commands over records, as functions: what they print and how they end.

use std::path::{Path, PathBuf};

use nodegate::cli::key::{KeyCommand, KeyFormat, KeyType, Kind, NewArgs, ShowArgs};
use nodegate::cli::plan::Format;
use nodegate::cli::record::{ListArgs, RecordArgs, RecordCommand, RecordFormat, ShowArgs as ShowRecordArgs};
use nodegate::cli::status::{Required, StatusArgs};
use nodegate::cli::verify::VerifyArgs;
use nodegate::cli::{key, record, status, verify};
use nodegate::decision::{Decision, Level, Stage};
use nodegate::plan::site::Collector;
use nodegate::predicate::Details;
use nodegate::record::status::{Events, Live};
use nodegate::record::{Store, Stored};

use super::sample;

fn text(run: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    run(&mut out);
    String::from_utf8(out).unwrap()
}

fn commit(folder: &Path, change: impl FnOnce(&mut Details)) -> Stored {
    let documents = sample::documents();
    Store::for_host(folder, &documents.host).unwrap().commit(sample::details_with(change), &documents).unwrap()
}

fn verify_args(record: &Path, key: &Path) -> VerifyArgs {
    VerifyArgs { record: record.to_owned(), key: vec![key.to_owned()], keys: None }
}

#[test]
fn verify_says_who_signed_and_what_and_ends_with_0_whatever_the_decision() {
    let folder = tempfile::tempdir().unwrap();
    let stored = commit(folder.path(), |details| {
        details.decision = Decision::Rejected;
        details.host.hostname = "evil\u{1b}[2J".to_owned();
    });
    for path in [stored.path.clone(), stored.path.with_extension("sigstore.json")] {
        let printed = text(|out| {
            assert_eq!(verify::run(&verify_args(&path, &folder.path().join("key.pub")), out).unwrap(), 0);
        });
        assert!(printed.starts_with("VERIFIED  REJECTED for stage rack at level quick"), "{printed}");
        assert!(printed.contains(&stored.keyid) && !printed.contains('\u{1b}'), "{printed}");
    }
}

#[test]
fn verify_ends_with_1_for_another_key_and_with_an_error_for_what_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let stored = commit(folder.path(), |_| {});
    let other = folder.path().join("other.pub");
    std::fs::write(&other, nodegate::record::EphemeralKey::generate().public_key().to_openssh("x")).unwrap();
    let printed = text(|out| assert_eq!(verify::run(&verify_args(&stored.path, &other), out).unwrap(), 1));
    assert!(printed.starts_with("NOT VERIFIED"), "{printed}");
    let own = folder.path().join("key.pub");
    for path in [folder.path().join("state.json"), folder.path().join("absent.json"), folder.path().to_owned()] {
        assert!(verify::run(&verify_args(&path, &own), &mut Vec::new()).is_err(), "{}", path.display());
    }
    assert!(verify::run(&verify_args(&stored.path, &stored.path), &mut Vec::new()).is_err());
    let keys = VerifyArgs { record: stored.path, key: Vec::new(), keys: Some(folder.path().to_owned()) };
    // The state folder has key.pem, a private key, among its .pem files.
    assert!(verify::run(&keys, &mut Vec::new()).unwrap_err().to_string().contains("key.pem"));
}

fn new_key(state: Option<PathBuf>, out: Option<PathBuf>) -> KeyCommand {
    let kind = Kind { key_type: KeyType::P256, ..Kind::default() };
    KeyCommand::New(NewArgs { kind, out, state })
}

#[test]
fn key_new_makes_the_hosts_key_once_and_key_show_prints_it() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let host = || sample::documents().host;
    let printed = text(|out| key::run(&new_key(Some(state.clone()), None), host, out).unwrap());
    assert!(printed.contains("made a new key for this host: SHA256:"), "{printed}");
    let again = key::run(&new_key(Some(state.clone()), None), host, &mut Vec::new()).unwrap_err().to_string();
    assert!(again.contains("has a key already"), "{again}");
    let show = |format| {
        let args = KeyCommand::Show(ShowArgs { format, state: Some(state.clone()) });
        text(|out| key::run(&args, host, out).unwrap())
    };
    assert!(show(KeyFormat::Pem).starts_with("-----BEGIN PUBLIC KEY-----\n"));
    assert!(show(KeyFormat::Openssh).starts_with("ecdsa-sha2-nistp256 AAAA"));
    assert!(show(KeyFormat::Fingerprint).starts_with("SHA256:"));
}

#[test]
fn key_new_with_out_writes_a_pair_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.key");
    let args = new_key(None, Some(path.clone()));
    key::run(&args, || unreachable!("no host is asked"), &mut Vec::new()).unwrap();
    assert!(path.exists() && folder.path().join("node.pub").exists());
    let private = std::fs::read(&path).unwrap();
    assert!(key::run(&args, || unreachable!("no host is asked"), &mut Vec::new()).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), private);
}

#[test]
fn record_list_and_show_give_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let first = commit(folder.path(), |_| {});
    commit(folder.path(), |details| details.decision = Decision::Rejected);
    let state = Some(folder.path().to_owned());
    let list = RecordArgs { command: RecordCommand::List(ListArgs { simulated: true, state: state.clone() }) };
    let screen = |details: &Details| nodegate::report::record::summary(details);
    let printed = text(|out| record::run(&list, screen, out).unwrap());
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].contains("rejected") && lines[2].contains("accepted"), "{printed}");

    let show = |wanted: Option<&str>, format| {
        let wanted = wanted.map(str::to_owned);
        let args = ShowRecordArgs { record: wanted, format, html: None, key: None, state: state.clone() };
        let mut out = Vec::new();
        record::run(&RecordArgs { command: RecordCommand::Show(args) }, screen, &mut out)
            .map(|()| String::from_utf8(out).unwrap())
            .map_err(|error| error.to_string())
    };
    assert!(show(None, RecordFormat::Text).unwrap().contains("REJECTED for stage rack"));
    let json = show(Some(&first.details.run_id), RecordFormat::Json).unwrap();
    assert_eq!(serde_json::from_str::<Details>(&json).unwrap(), first.details);
    assert_eq!(show(first.path.to_str(), RecordFormat::Json).unwrap(), json);
    assert!(show(Some("0"), RecordFormat::Text).unwrap_err().contains("begins 2"));
    assert!(show(Some("zzz"), RecordFormat::Text).unwrap_err().contains("record list"));
}

#[test]
fn status_ends_with_0_1_or_2_and_gives_the_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let live = Live {
        node: sample::documents().node,
        class: sample::digest("class"),
        suite: sample::digest("suite"),
        boot_id: Some(sample::BOOT.to_owned()),
        events: Events::Seen(Vec::new()),
        elsewhere: false,
        receipts: Default::default(),
        now: "2026-11-30T22:00:00Z".parse().unwrap(),
    };
    let status = |stage| {
        let args = StatusArgs {
            require_receipt: false,
            receipt_key: None,
            format: Format::Text,
            require: Required::Accepted,
            stage,
            level: Level::Quick,
            max_age: Some("24h".parse().unwrap()),
            state: Some(folder.path().to_owned()),
        };
        let mut out = Vec::new();
        let exit = status::run(&args, live.clone(), &Collector::default(), &mut out).unwrap();
        (exit, String::from_utf8(out).unwrap())
    };
    let (exit, printed) = status(Stage::Rack);
    assert!(exit == 2 && printed.contains("no record"), "{printed}");
    commit(folder.path(), |_| {});
    assert_eq!(status(Stage::Rack).0, 0);
    let (exit, printed) = status(Stage::Image);
    assert!(exit == 2 && printed.contains("asked for image"), "{printed}");
    commit(folder.path(), |details| details.decision = Decision::Rejected);
    let (exit, printed) = status(Stage::Rack);
    assert!(exit == 1 && printed.starts_with("rejected"), "{printed}");
}
