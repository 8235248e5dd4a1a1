//! A signal at any moment ends a run with a signed undecided record, and the host stays who it is.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{faulty, nodegate};

/// Runs, and sends this signal twice after this time.
fn signalled(arguments: &[&str], state: &Path, after: Duration, signal: Signal) -> Output {
    let child = nodegate()
        .args(["run", "--format", "json"])
        .args(arguments)
        .arg("--state")
        .arg(state)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    for _ in 0..2 {
        // The run may be over by now.
        let _over = kill_process(Pid::from_child(&child), signal);
    }
    child.wait_with_output().unwrap()
}

/// Late enough that the executable has started on a busy machine, and spread over the sweep of the host.
fn moments() -> impl Iterator<Item = Duration> {
    (0..10).map(|tenth| Duration::from_millis(60 + 25 * tenth))
}

#[test]
fn the_chain_goes_on_whenever_a_run_on_this_machine_is_interrupted() {
    let state = tempfile::tempdir().unwrap();
    nodegate().arg("run").arg("--state").arg(state.path()).output().unwrap();
    let key = fs::read(state.path().join("key.pem")).unwrap();
    for (index, after) in moments().enumerate() {
        let output = signalled(&[], state.path(), after, Signal::TERM);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "after {after:?}: {:?} {message}", output.status);
        let details: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(details["seq"].to_string().trim_matches('"'), (index + 2).to_string(), "after {after:?}");
    }
    assert_eq!(fs::read(state.path().join("key.pem")).unwrap(), key);
}

#[test]
fn a_run_that_waits_for_its_host_is_ended_by_each_signal_and_a_lost_connection() {
    let (folder, fixture) = faulty("hgx-h100-8", "[[event]]\nwhat = \"driver-not-loaded\"\n");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let state = folder.path().join(format!("state-{}", signal.as_raw()));
        let waiting = ["--wait-ready", "1 h", "--fixture", fixture.to_str().unwrap()];
        let output = signalled(&waiting, &state, Duration::from_secs(3), signal);
        assert_eq!(output.status.code(), Some(2), "{signal:?}: {}", String::from_utf8_lossy(&output.stderr));
        let details: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(details["reason"], "interrupted", "{signal:?}");
    }
}

#[test]
fn a_run_under_nohup_outlives_the_connection() {
    let state = tempfile::tempdir().unwrap();
    let mut shell = std::process::Command::new("/bin/sh");
    let script =
        "trap '' HUP; \"$0\" run --fixture fixtures/hosts/hgx-h100-8 --state \"$1\" & sleep 0.3; kill -HUP $!; wait $!";
    shell.args(["-c", script]).arg(nodegate().get_program()).arg(state.path());
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
