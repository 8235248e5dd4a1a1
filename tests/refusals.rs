//! What must never be accepted, however it is dressed up.

mod support;

use std::fs;
use std::path::Path;

use support::{faulty, host, nodegate, record_of, run_fixture, step};

#[test]
fn a_healthy_recorded_host_is_accepted_so_that_the_refusals_below_mean_something() {
    let ran = run_fixture(&host("hgx-h100-8"), &[]);
    assert_eq!((ran.status(), ran.details()["decision"].as_str()), (0, Some("accepted")), "{}", ran.stderr());
}

#[test]
fn seven_of_eight_gpus_are_not_accepted() {
    for gpu in 0..8 {
        let (_folder, fixture) = faulty("hgx-h100-8", &format!("[[event]]\nwhat = \"gpu-absent\"\ngpu = {gpu}\n"));
        let ran = run_fixture(&fixture, &[]);
        assert_eq!(ran.status(), 1, "without GPU {gpu}: {}", ran.stdout());
        assert_eq!(step(&ran.details(), "gpu-inventory")["findings"][0]["code"], "gpu-missing");
    }
}

#[test]
fn one_h200_among_h100s_is_not_accepted() {
    let ran = run_fixture(&host("h100-one-h200"), &[]);
    assert_eq!(ran.status(), 1);
}

#[test]
fn a_model_that_no_class_knows_is_not_accepted() {
    let ran = run_fixture(&host("unknown-model"), &[]);
    assert_eq!(ran.details()["plan"]["class"]["id"], "generic");
    assert_ne!(ran.status(), 0);
}

#[test]
fn a_caller_whose_environment_bends_the_view_is_not_accepted() {
    for (name, value) in
        [("CUDA_VISIBLE_DEVICES", "0"), ("LD_PRELOAD", "/nonexistent/shim.so"), ("LD_AUDIT", "/nonexistent/audit.so")]
    {
        let state = tempfile::tempdir().unwrap();
        let output = nodegate()
            .env(name, value)
            .args(["run", "--format", "json", "--fixture", "fixtures/hosts/hgx-h100-8", "--state"])
            .arg(state.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        let details: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(details["reason"].as_str().unwrap().contains(name), "{}", details["reason"]);
    }
}

#[test]
fn the_simulated_library_without_a_fixture_is_refused_not_believed() {
    // The library that stands beside the executable, given by path and laid into a root folder.
    let library = assert_cmd::cargo::cargo_bin("nodegate").with_file_name("libnodegate_driver.so");
    assert!(library.exists(), "{} is built with the workspace", library.display());
    let root = tempfile::tempdir().unwrap();
    copy_tree(&host("hgx-h100-8").join("root"), root.path());
    let folder = root.path().join("usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(&library, folder.join("libnvidia-ml.so.1")).unwrap();
    for arguments in [
        vec!["--nvml".to_owned(), library.display().to_string()],
        vec!["--root".to_owned(), root.path().display().to_string()],
        vec![
            "--root".to_owned(),
            root.path().display().to_string(),
            "--nvml".to_owned(),
            library.display().to_string(),
        ],
    ] {
        let state = tempfile::tempdir().unwrap();
        let output = nodegate()
            .args(["run", "--format", "json", "--class", "hgx-h100-8", "--state"])
            .arg(state.path())
            .args(&arguments)
            .output()
            .unwrap();
        let details: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(details["overridden"], true);
        assert_eq!(details["simulated"], false);
        let text = step(&details, "driver").to_string();
        assert!(text.contains("library-untrusted") || text.contains("driver-not-loaded"), "{arguments:?}: {text}");
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), &target).unwrap();
        } else if kind.is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[test]
fn a_partial_run_is_not_accepted() {
    for arguments in [["--only", "driver"], ["--skip", "ecc"], ["--skip", "power"]] {
        let ran = run_fixture(&host("hgx-h100-8"), &arguments);
        assert_eq!(ran.status(), 2, "{arguments:?}: {}", ran.stdout());
        assert_eq!(ran.details()["partial"], true);
    }
}

#[test]
fn status_does_not_count_a_simulated_record() {
    let ran = run_fixture(&host("hgx-h100-8"), &[]);
    let output = nodegate()
        .args(["status", "--require", "accepted", "--fixture", "fixtures/hosts/hgx-h100-8", "--state"])
        .arg(ran.state.path())
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_record_says_that_it_is_simulated_to_whoever_verifies_it() {
    let ran = run_fixture(&host("hgx-h100-8"), &[]);
    let record = fs::read_to_string(record_of(ran.state.path())).unwrap();
    let envelope: serde_json::Value = serde_json::from_str(&record).unwrap();
    use base64::Engine as _;
    let payload = base64::engine::general_purpose::STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let statement: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(statement["predicate"]["nodegate"]["simulated"], true);
}

#[test]
fn a_stage_or_level_of_which_the_suite_has_no_step_is_not_accepted() {
    for (arguments, less) in [(["--level", "soak"], "--level quick"), (["--stage", "service"], "--stage rack")] {
        let ran = run_fixture(&host("hgx-h100-8"), &arguments);
        assert_eq!(ran.status(), 2, "{arguments:?}");
        assert!(ran.details()["reason"].as_str().unwrap().contains(less), "{}", ran.details()["reason"]);
    }
}
