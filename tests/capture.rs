//! A capture of a host replays to the same result, with and without the host's identities.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{host, nodegate, run_fixture};

/// What a run says of the host, without times, names and places of files.
fn story(details: &Value) -> Vec<Value> {
    let steps = details["steps"].as_array().unwrap().iter();
    let told = steps.map(|step| {
        let findings: Vec<Value> = step["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| {
                serde_json::json!([finding["code"], finding["subject"], finding["expected"], finding["action"]])
            })
            .collect();
        serde_json::json!([step["id"], step["status"], step["expected"], step["judged"], findings])
    });
    std::iter::once(details["decision"].clone()).chain(told).collect()
}

fn capture(from: &Path, to: &Path, more: &[&str]) {
    let output = nodegate().arg("capture").arg(to).arg("--fixture").arg(from).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_capture_replays_to_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "hgx-h100-8",
        "hgx-h200-8",
        "gb200-nvl72-tray",
        "t4",
        "rtx-4080-super",
        "h100-link-narrow",
        "h100-gpu-absent",
        "h100-ecc-off",
    ] {
        let original = story(&run_fixture(&host(name), &[]).details());
        for (kind, more) in [("redacted", &[][..]), ("kept", &["--keep-identity"])] {
            let captured = folder.path().join(format!("{name}-{kind}"));
            capture(&host(name), &captured, more);
            assert_eq!(story(&run_fixture(&captured, &[]).details()), original, "{name}, {kind}");
        }
    }
}

#[test]
fn a_redacted_capture_holds_none_of_the_identities() {
    let folder = tempfile::tempdir().unwrap();
    let captured = folder.path().join("captured");
    capture(&host("hgx-h100-8"), &captured, &[]);
    let details = run_fixture(&host("hgx-h100-8"), &[]).details();
    let mut identities: Vec<String> = vec![details["host"]["hostname"].as_str().unwrap().to_owned()];
    identities.extend(details["host"]["serial"].as_str().map(str::to_owned));
    for gpu in details["inventory"]["gpus"].as_array().unwrap() {
        identities.extend(["uuid", "serial"].iter().filter_map(|key| gpu[key].as_str().map(str::to_owned)));
    }
    assert!(identities.len() > 16, "{identities:?}");
    let mut texts = String::new();
    fn gather(folder: &Path, texts: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                gather(&path, texts);
            } else if path.is_file() {
                texts.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
            }
        }
    }
    gather(&captured, &mut texts);
    let leaked: Vec<&String> = identities.iter().filter(|identity| texts.contains(identity.as_str())).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[test]
fn a_capture_does_not_overwrite_a_folder_that_holds_something() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("precious"), "x").unwrap();
    let output = nodegate().arg("capture").arg(folder.path()).arg("--fixture").arg(host("t4")).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
