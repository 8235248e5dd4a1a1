//! The store's subcommands, with the real executable.

use std::process::Output;

use jiff::Timestamp;

use crate::host::Host;
use crate::suite::{Fresh, send};
use crate::{file, fresh, tampered};

fn nodegate(fresh: &Fresh, words: &[&str]) -> Output {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("nodegate"));
    command.arg("collector").args(words).args(["--store", &fresh.url]).output().unwrap()
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn filled(count: usize) -> (Fresh, Host) {
    let fresh = fresh();
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    for _ in 0..count {
        send(&store, &host.record(|_| ())).unwrap();
    }
    (fresh, host)
}

#[test]
fn verify_says_whole_with_the_head_and_names_the_first_entry_that_is_broken() {
    let (fresh, _) = filled(3);
    let head = fresh.open().head(Timestamp::now()).unwrap();
    let (status, out, _) = said(&nodegate(&fresh, &["verify"]));
    assert_eq!((status, out), (0, format!("whole: 3 entries, 3 with their records\nhead: 3 {}\n", head.entry)));
    tampered::sql(&file(&fresh), "UPDATE records SET decision = 'rejected' WHERE position = 2");
    let (status, out, error) = said(&nodegate(&fresh, &["verify"]));
    assert!(status == 1 && out.starts_with("broken at entry 2: ") && error.is_empty(), "{status} {out} {error}");
}

#[test]
fn a_head_that_was_kept_elsewhere_finds_a_ledger_that_was_written_anew() {
    let (fresh, _) = filled(3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.json");
    std::fs::write(&path, fresh.open().signed_head(Timestamp::now()).unwrap().unwrap()).unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(said(&nodegate(&fresh, &["verify", "--head", path])).0, 0);
    // Whoever has file and receipt key can write a ledger that is whole; not one with this head in it.
    let again = filled_with(&fresh.key);
    let (status, out, _) = said(&nodegate(&again, &["verify", "--head", path]));
    assert!(status == 1 && out.starts_with("broken at entry 3: "), "{status} {out}");
    let (stranger, _) = filled(1);
    assert_eq!(said(&nodegate(&stranger, &["verify", "--head", path])).0, 64, "a head of another collector");
}

fn filled_with(key: &str) -> Fresh {
    let fresh = Fresh { key: key.to_owned(), ..fresh() };
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    for _ in 0..4 {
        send(&store, &host.record(|_| ())).unwrap();
    }
    fresh
}

#[test]
fn prune_keeps_the_ledger_and_the_newest_record() {
    let (fresh, _) = filled(3);
    assert_eq!(
        said(&nodegate(&fresh, &["prune", "--older-than", "1 h"])).1,
        "dropped the bytes of 0 records, 0.0 MiB\n"
    );
    let (status, out, _) = said(&nodegate(&fresh, &["prune", "--older-than", "0 s"]));
    assert!(status == 0 && out.starts_with("dropped the bytes of 2 records"), "{out}");
    assert!(said(&nodegate(&fresh, &["verify"])).1.starts_with("whole: 3 entries, 1 with their records"));
    assert_eq!(said(&nodegate(&fresh, &["prune", "--older-than", "5 parsecs"])).0, 64);
}

#[test]
fn export_writes_one_envelope_a_line_that_verifies() {
    let (fresh, host) = filled(5);
    let (status, out, _) = said(&nodegate(&fresh, &["export", "--since", "2"]));
    assert_eq!((status, out.lines().count()), (0, 3));
    for line in out.lines() {
        let key = host.key.public_key().clone();
        assert!(nodegate::record::verify(line.as_bytes(), &[key]).is_ok());
    }
}

#[test]
fn backup_makes_a_store_and_never_overwrites_one() {
    let (fresh, _) = filled(2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.db");
    let copy = Fresh { url: format!("sqlite:{}", path.display()), key: fresh.key.clone(), _keep: Box::new(()) };
    assert_eq!(said(&nodegate(&fresh, &["backup", path.to_str().unwrap()])).0, 0);
    assert!(said(&nodegate(&copy, &["verify"])).1.starts_with("whole: 2 entries"));
    let (status, _, error) = said(&nodegate(&fresh, &["backup", path.to_str().unwrap()]));
    assert!(status == 64 && error.contains("exists already"), "{error}");
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_looking_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.db");
    let none = Fresh { url: format!("sqlite:{}", path.display()), key: String::new(), _keep: Box::new(()) };
    for words in [&["verify"][..], &["export"], &["prune", "--older-than", "1 h"], &["backup", "/nonexistent/x"]] {
        let (status, _, error) = said(&nodegate(&none, words));
        assert!(status == 64 && error.contains("there is no store"), "{words:?}: {status} {error}");
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}
