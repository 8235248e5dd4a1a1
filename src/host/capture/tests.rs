//! Recorded hosts, captured again and read again.

use super::*;
use crate::facts::Snapshot;
use crate::facts::redact::is_placeholder;
use crate::facts::topology::Topology;
use crate::host::replay;
use crate::host::root::Root;

fn captured(host: &str, keep_identity: bool) -> (Snapshot, Snapshot, tempfile::TempDir) {
    let folder = replay::folder(host);
    let root = Root::recording(folder.join("root"));
    let (before, answers) = replay::snapshot_and_answers(&folder, &root);
    let target = tempfile::tempdir().unwrap();
    let recording = root.recorded();
    let capture = Capture {
        answers: &answers,
        recording: &recording,
        title: "a \"host\"".into(),
        class: None,
        events: Vec::new(),
        keep_identity,
    };
    capture.write(&target.path().join("new/capture")).unwrap();
    let again = target.path().join("new/capture");
    let (after, _) = replay::snapshot_and_answers(&again, &Root::new(again.join("root")));
    (before, after, target)
}

/// All text of a folder in one.
fn everything(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        text.push_str(&path.to_string_lossy());
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            text.push_str(&everything(&path));
        } else if metadata.is_file() {
            text.push_str(&fs::read_to_string(&path).unwrap());
        } else {
            text.push_str(&fs::read_link(&path).unwrap().to_string_lossy());
        }
    }
    text
}

#[test]
fn a_capture_with_identities_reads_the_same_again() {
    for host in replay::healthy_hosts() {
        let (before, after, _folder) = captured(&host, true);
        assert_eq!(before.host, after.host, "{host}");
        assert_eq!(before, after, "{host}");
    }
}

#[test]
fn a_capture_without_identities_is_the_same_host_under_other_names() {
    for host in replay::healthy_hosts() {
        let (before, after, folder) = captured(&host, false);
        let text = everything(&folder.path().join("new"));
        let mut secrets: Vec<String> = Vec::new();
        for gpu in &before.gpus {
            secrets.extend(gpu.uuid.value().map(|uuid| uuid.trim_start_matches("GPU-").to_owned()));
            secrets.extend(gpu.serial.value().cloned());
        }
        let dmi = &before.host.dmi;
        for reading in [&dmi.product_serial, &dmi.product_uuid, &dmi.board_serial, &dmi.chassis_serial] {
            secrets.extend(reading.value().cloned());
        }
        let kernel = &before.host.kernel;
        for reading in [&before.host.hostname, &kernel.boot_id, &before.host.os.machine_id] {
            secrets.extend(reading.value().cloned());
        }
        for secret in secrets.iter().filter(|secret| !is_placeholder(secret)) {
            assert!(!text.contains(secret.as_str()), "{host}: {secret} was left");
        }
        assert_eq!(Topology::of(&before).matrix, Topology::of(&after).matrix, "{host}");
        let distinct = |snapshot: &Snapshot| {
            let serials = snapshot.gpus.iter().filter_map(|gpu| gpu.serial.value().cloned());
            serials.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(distinct(&before), distinct(&after), "{host}");
        assert_eq!(before.host.pci, after.host.pci, "{host}");
        assert_eq!(before.host.kernel_log.state, after.host.kernel_log.state, "{host}");
    }
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let target = tempfile::tempdir().unwrap();
    fs::write(target.path().join("mine"), "kept").unwrap();
    let (answers, recording) = (Answers::default(), Recording::new());
    let capture = Capture {
        answers: &answers,
        recording: &recording,
        title: String::new(),
        class: None,
        events: Vec::new(),
        keep_identity: true,
    };
    let error = capture.write(target.path()).unwrap_err();
    assert!(matches!(error, CaptureError::NotEmpty { .. }), "{error}");
    assert!(matches!(capture.write(&target.path().join("mine")), Err(CaptureError::NotEmpty { .. })));
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 1);
    let empty = target.path().join("empty");
    fs::create_dir(&empty).unwrap();
    capture.write(&empty).unwrap();
    assert!(empty.join("driver.json").is_file());
}

#[test]
fn a_capture_that_fails_leaves_nothing_behind() {
    let target = tempfile::tempdir().unwrap();
    let answers = Answers::default();
    // A file where another entry needs a folder cannot be written.
    let recording: Recording =
        [("a".to_owned(), Trace::File("x".into())), ("a/b".to_owned(), Trace::File("y".into()))].into();
    let capture = Capture {
        answers: &answers,
        recording: &recording,
        title: String::new(),
        class: None,
        events: Vec::new(),
        keep_identity: true,
    };
    assert!(matches!(capture.write(&target.path().join("new")), Err(CaptureError::Write { .. })));
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
}

#[test]
fn answers_that_are_not_the_driver_s_are_left_out() {
    use crate::facts::Question;
    use crate::reading::Code;
    let answers: Answers = [
        (Question::new("nvmlDeviceGetBrand", &[0]), Answer::value(14)),
        (Question::new("nvmlDeviceGetName", &[0]), Answer::refused(Code::HUNG)),
        (Question::new("nvmlDeviceGetSerial", &[0]), Answer::refused(Code::NOT_SUPPORTED)),
    ]
    .into_iter()
    .collect();
    let target = tempfile::tempdir().unwrap();
    let recording = Recording::new();
    let capture = Capture {
        answers: &answers,
        recording: &recording,
        title: "t".into(),
        class: Some("l4".into()),
        events: vec!["library-missing".into()],
        keep_identity: false,
    };
    let written = capture.write(&target.path().join("new")).unwrap();
    assert_eq!(written, Written { entries: 0, answers: 2, left_out: 1 });
    let fixture: toml::Table = fs::read_to_string(target.path().join("new/fixture.toml")).unwrap().parse().unwrap();
    assert_eq!(fixture["class"].as_str(), Some("l4"));
    assert_eq!(fixture["event"][0]["what"].as_str(), Some("library-missing"));
    assert_eq!(fixture["provenance"].as_str(), Some("captured"));
}
