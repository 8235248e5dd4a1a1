//! The state folder: the chain, cloned images, kills, and a disk that is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nodegate::ident::Digest;
use nodegate::outcome::Outcome;
use nodegate::reading::{Code, Reading};
use nodegate::record::{Documents, Store, StoreError, Verified, store, verify};
use serde_json::Value;

use super::sample;

fn state_json(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("state.json")).unwrap()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn own(folder: &Path) -> Vec<Verified> {
    store::records(folder).unwrap().into_iter().map(|shelved| shelved.record.unwrap()).collect()
}

fn commit(folder: &Path) -> nodegate::record::Stored {
    let documents = sample::documents();
    Store::for_host(folder, &documents.host).unwrap().commit(sample::details(), &documents).unwrap()
}

#[test]
fn records_form_a_chain_by_number_and_digest() {
    let folder = tempfile::tempdir().unwrap();
    let first = commit(folder.path());
    let second = commit(folder.path());
    let third = commit(folder.path());
    assert_eq!([first.details.seq, second.details.seq, third.details.seq], [1, 2, 3]);
    assert_eq!([first.details.prev, second.details.prev], [None, Some(first.payload)]);
    assert_eq!(third.details.prev, Some(second.payload));
    assert_eq!(first.keyid, third.keyid);
    assert_eq!(store::head(folder.path()).unwrap(), Some(3));
    assert_eq!(own(folder.path()).iter().map(|record| record.details.seq).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn a_store_that_is_open_twice_still_makes_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let documents = sample::documents();
    let open = || Store::for_host(folder.path(), &documents.host).unwrap();
    let stores = [open(), open()];
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| (0..5).for_each(|_| drop(store.commit(sample::details(), &documents).unwrap())));
        }
    });
    let records = own(folder.path());
    assert_eq!(records.iter().map(|record| record.details.seq).collect::<Vec<_>>(), (1..=10).rev().collect::<Vec<_>>());
    for pair in records.windows(2) {
        assert_eq!(pair[0].details.prev, Some(pair[1].payload));
    }
}

#[test]
fn beside_each_record_lie_its_bundle_and_the_documents_of_its_subjects() {
    let folder = tempfile::tempdir().unwrap();
    let stored = commit(folder.path());
    let beside = |extension: &str| fs::read(stored.path.with_extension(extension)).unwrap();
    let verified = verify(&fs::read(&stored.path).unwrap(), std::slice::from_ref(&stored.public_key)).unwrap();
    assert_eq!(Digest::of(&beside("host.json")), verified.host);
    assert_eq!(Digest::of(&beside("node.json")), verified.node);
    assert_eq!(verify(&beside("sigstore.json"), std::slice::from_ref(&stored.public_key)).unwrap(), verified);
    assert_eq!(names(&folder.path().join("records")).len(), 4);
}

#[test]
fn a_cloned_image_gets_a_key_of_its_own_and_the_history_is_not_its() {
    let folder = tempfile::tempdir().unwrap();
    let original = commit(folder.path());
    let clone = Documents::of(&sample::snapshot(sample::OTHER_SERIAL, &sample::GPUS));
    let store = Store::for_host(folder.path(), &clone.host).unwrap();
    assert_ne!(store.public_key().keyid(), original.keyid);
    assert!(store.notices().iter().any(|notice| notice.contains("another machine")), "{:?}", store.notices());
    let record = store.commit(sample::details(), &clone).unwrap();
    assert_eq!((record.details.seq, record.details.prev), (1, None));
    assert_eq!(own(folder.path()).len(), 1);
    let aside = folder.path().join(format!("foreign-{}", &sample::documents().host.digest().hex()[..8]));
    assert_eq!(names(&aside), ["key.pem", "key.pub", "records", "spool", "state.json"]);
}

#[test]
fn setting_aside_that_was_cut_short_is_finished_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path());
    let aside = folder.path().join(format!("foreign-{}", &sample::documents().host.digest().hex()[..8]));
    fs::create_dir(&aside).unwrap();
    fs::rename(folder.path().join("records"), aside.join("records")).unwrap();
    fs::rename(folder.path().join("key.pem"), aside.join("key.pem")).unwrap();
    let clone = Documents::of(&sample::snapshot(sample::OTHER_SERIAL, &sample::GPUS));
    Store::for_host(folder.path(), &clone.host).unwrap().commit(sample::details(), &clone).unwrap();
    assert_eq!(own(folder.path()).len(), 1);
    assert_eq!(names(&aside), ["key.pem", "key.pub", "records", "spool", "state.json"]);
}

#[test]
fn a_host_whose_serial_cannot_be_read_does_not_throw_its_history_away() {
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path());
    let mut snapshot = sample::snapshot(sample::SERIAL, &sample::GPUS);
    snapshot.host.dmi.board_serial = Reading::Failed(Code::NO_PERMISSION);
    let error = Store::for_host(folder.path(), &Documents::of(&snapshot).host).unwrap_err().to_string();
    assert!(error.contains("boardSerial") && error.contains("root"), "{error}");
    assert_eq!(store::head(folder.path()).unwrap(), Some(1));
    fs::remove_file(folder.path().join("state.json")).unwrap();
    let error = Store::for_host(folder.path(), &Documents::of(&snapshot).host).unwrap_err().to_string();
    assert!(error.contains("boardSerial"), "{error}");
}

#[test]
fn a_host_without_an_identity_is_told_what_its_key_is_worth() {
    let folder = tempfile::tempdir().unwrap();
    let documents = Documents::of(&sample::snapshot("Default string", &sample::GPUS));
    let store = Store::for_host(folder.path(), &documents.host).unwrap();
    assert!(store.notices()[0].contains("no identity"), "{:?}", store.notices());
    let again = Store::for_host(folder.path(), &documents.host).unwrap();
    assert_eq!(again.public_key(), store.public_key());
}

#[test]
fn a_killed_write_leaves_nothing_that_counts() {
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path());
    let records = folder.path().join("records");
    fs::write(folder.path().join(".nodegate-aB3.tmp"), "{\"form").unwrap();
    fs::write(records.join(".nodegate-cD4.tmp"), "{\"payl").unwrap();
    assert_eq!(commit(folder.path()).details.seq, 2);
    assert!(names(folder.path()).iter().chain(&names(&records)).all(|name| !name.ends_with(".tmp")));
}

/// Puts the state back to where it was before the last commit, with that commit begun.
fn killed_during_commit(folder: &Path, before: &Value, run_id: &str) {
    let mut state = before.clone();
    state["intent"] = run_id.into();
    fs::write(folder.join("state.json"), state.to_string()).unwrap();
}

#[test]
fn a_record_that_appeared_before_the_kill_is_taken_into_the_chain() {
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path());
    let before = state_json(folder.path());
    let second = commit(folder.path());
    killed_during_commit(folder.path(), &before, &second.details.run_id);
    assert_eq!(store::head(folder.path()).unwrap(), Some(2));
    let third = commit(folder.path());
    assert_eq!((third.details.seq, third.details.prev), (3, Some(second.payload)));
}

#[test]
fn a_record_that_had_not_appeared_at_the_kill_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let first = commit(folder.path());
    let before = state_json(folder.path());
    let second = commit(folder.path());
    fs::remove_file(&second.path).unwrap();
    killed_during_commit(folder.path(), &before, &second.details.run_id);
    assert_eq!(store::head(folder.path()).unwrap(), Some(1));
    let again = commit(folder.path());
    assert_eq!((again.details.seq, again.details.prev), (2, Some(first.payload)));
    assert!(!second.path.with_extension("host.json").exists());
}

#[test]
fn a_lost_or_damaged_state_is_rebuilt_from_the_records() {
    for damage in [None, Some("{\"format\":1,")] {
        let folder = tempfile::tempdir().unwrap();
        commit(folder.path());
        let second = commit(folder.path());
        let path = folder.path().join("state.json");
        match damage {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let third = commit(folder.path());
        assert_eq!((third.details.seq, third.details.prev), (3, Some(second.payload)));
        assert_eq!(third.keyid, second.keyid);
    }
}

#[test]
fn a_key_that_is_bound_to_no_machine_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let first = commit(folder.path());
    fs::remove_file(folder.path().join("state.json")).unwrap();
    fs::remove_dir_all(folder.path().join("records")).unwrap();
    let second = commit(folder.path());
    assert_ne!(second.keyid, first.keyid);
    assert_eq!(second.details.seq, 1);
}

#[test]
fn a_lost_key_begins_a_new_history_and_a_first_start_cut_short_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = commit(folder.path());
    fs::remove_file(folder.path().join("key.pem")).unwrap();
    let second = commit(folder.path());
    assert_ne!(second.keyid, first.keyid);
    assert_eq!(second.details.seq, 1);

    let folder = tempfile::tempdir().unwrap();
    Store::for_host(folder.path(), &sample::documents().host).unwrap();
    fs::remove_file(folder.path().join("key.pem")).unwrap();
    assert_eq!(commit(folder.path()).details.seq, 1);
    assert!(names(folder.path()).iter().all(|name| !name.starts_with("foreign")));
}

#[test]
fn a_start_that_was_cut_short_before_the_public_key_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let first = commit(folder.path());
    fs::remove_file(folder.path().join("key.pub")).unwrap();
    assert_eq!(commit(folder.path()).keyid, first.keyid);
    assert_eq!(store::public_key(folder.path()).unwrap(), first.public_key);
}

#[test]
fn a_newer_state_and_an_unreadable_key_are_errors_that_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path());
    let host = sample::documents().host;
    let mut newer = state_json(folder.path());
    newer["format"] = 2.into();
    let state = fs::read(folder.path().join("state.json")).unwrap();
    fs::write(folder.path().join("state.json"), newer.to_string()).unwrap();
    let error = Store::for_host(folder.path(), &host).unwrap_err().to_string();
    assert!(error.contains("state.json") && error.contains("format 2") && error.contains("newer"), "{error}");
    fs::write(folder.path().join("state.json"), state).unwrap();
    fs::write(folder.path().join("key.pem"), "garbage").unwrap();
    let error = Store::for_host(folder.path(), &host).unwrap_err().to_string();
    assert!(error.contains("key.pem"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let host = sample::documents().host;
    for path in [file.clone(), file.join("state"), PathBuf::from("/proc/nodegate")] {
        let error = Store::for_host(&path, &host).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("--state"), "{error}");
    }
}

#[test]
fn a_recording_never_touches_the_hosts_key_and_chain() {
    let folder = tempfile::tempdir().unwrap();
    let live = commit(folder.path());
    let before = (names(&folder.path().join("records")), fs::read(folder.path().join("state.json")).unwrap());
    let documents = sample::documents();
    let simulate = || {
        let details = sample::details_with(|details| details.simulated = true);
        Store::for_recording(folder.path()).unwrap().commit(details, &documents).unwrap()
    };
    let (one, two) = (simulate(), simulate());
    assert!(one.keyid != two.keyid && one.keyid != live.keyid);
    assert_eq!([one.details.seq, two.details.seq], [1, 1]);
    assert!(one.path.starts_with(folder.path().join("simulated")));
    assert_eq!((names(&folder.path().join("records")), fs::read(folder.path().join("state.json")).unwrap()), before);
    let shelf = store::simulated_records(folder.path()).unwrap();
    assert!(shelf.len() == 2 && shelf.iter().all(|shelved| shelved.record.is_ok()));
    assert!(!names(&folder.path().join("simulated")).contains(&"key.pem".to_owned()));
}

#[test]
fn a_simulated_run_cannot_be_signed_by_the_host_nor_a_live_one_by_a_throw_away_key() {
    let folder = tempfile::tempdir().unwrap();
    let documents = sample::documents();
    let host = Store::for_host(folder.path(), &documents.host).unwrap();
    let simulated = sample::details_with(|details| details.simulated = true);
    assert!(matches!(host.commit(simulated, &documents), Err(StoreError::WrongKind { .. })));
    let recording = Store::for_recording(folder.path()).unwrap();
    assert!(matches!(recording.commit(sample::details(), &documents), Err(StoreError::WrongKind { .. })));
    assert!(names(&folder.path().join("records")).is_empty());
}

#[test]
fn a_commit_of_another_host_or_under_a_path_for_a_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let documents = sample::documents();
    let store = Store::for_host(folder.path(), &documents.host).unwrap();
    let other = Documents::of(&sample::snapshot(sample::OTHER_SERIAL, &sample::GPUS));
    assert!(matches!(store.commit(sample::details(), &other), Err(StoreError::WrongHost)));
    let details = sample::details_with(|details| details.run_id = "../../etc/passwd".to_owned());
    assert!(matches!(store.commit(details, &documents), Err(StoreError::RunId(_))));
}

/// Runs in a process of its own whose files may have 1 KiB at most; see below.
#[test]
#[ignore = "the child of `a_full_disk_leaves_no_half_of_a_record`"]
fn child_on_a_full_disk() {
    let folder = PathBuf::from(std::env::var_os("NODEGATE_TEST_STATE").expect("started by the test below"));
    let documents = sample::documents();
    let store = Store::for_host(&folder, &documents.host).unwrap();
    let error = store.commit(sample::details(), &documents).unwrap_err();
    assert!(matches!(error, StoreError::Write { .. }), "{error}");
    assert_eq!(names(&folder.join("records")), Vec::<String>::new());
    let small = sample::details_with(|details| details.steps = vec![sample::step("driver", Outcome::skipped("x"))]);
    assert!(store.commit(small, &documents).is_err());
    println!("child ended well");
}

#[test]
fn a_full_disk_leaves_no_half_of_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" --exact store::child_on_a_full_disk --ignored --nocapture";
    let output = Command::new("bash")
        .args(["-c", script])
        .arg(&test)
        .env("NODEGATE_TEST_STATE", folder.path())
        .output()
        .unwrap();
    let words = super::tools::words(&output);
    assert!(output.status.success() && words.contains("child ended well"), "{words}");
    assert_eq!(commit(folder.path()).details.seq, 1);
}

/// Commits until it is killed; see below.
#[test]
#[ignore = "the child of `kills_at_any_moment_leave_one_chain`"]
fn child_that_commits_for_ever() {
    let folder = PathBuf::from(std::env::var_os("NODEGATE_TEST_STATE").expect("started by the test below"));
    loop {
        commit(&folder);
    }
}

fn count(folder: &Path) -> usize {
    let is_record = |name: &String| name.ends_with(".json") && name.matches('.').count() == 1;
    fs::read_dir(folder.join("records")).map_or(0, |entries| {
        entries.filter(|entry| is_record(&entry.as_ref().unwrap().file_name().into_string().unwrap())).count()
    })
}

#[test]
fn kills_at_any_moment_leave_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    for round in 0..40 {
        let before = count(folder.path());
        let mut child = Command::new(&test)
            .args(["--exact", "store::child_that_commits_for_ever", "--ignored"])
            .env("NODEGATE_TEST_STATE", folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Once a record is there, the kill moves through the commits that follow.
        let deadline = Instant::now() + Duration::from_secs(20);
        while count(folder.path()) == before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 230));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    commit(folder.path());
    let records = own(folder.path());
    let numbers: Vec<u64> = records.iter().map(|record| record.details.seq).collect();
    assert!(numbers.len() > 40, "the kills left no time for records: {numbers:?}");
    assert_eq!(numbers, (1..=numbers.len() as u64).rev().collect::<Vec<_>>());
    for pair in records.windows(2) {
        assert_eq!(pair[0].details.prev, Some(pair[1].payload));
    }
    assert!(names(folder.path()).iter().all(|name| !name.starts_with("foreign")));
}
