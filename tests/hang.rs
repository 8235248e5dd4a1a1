//! Promise 2, it always answers: a driver that hangs, ignores signals, sits in the kernel or dies
//! ends the run within the step's deadline + 5 s, undecided, with a signed record.

mod support;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::fuse::NeverAnswers;
use support::{faulty, nodegate, record_of, run_fixture, step};

/// The `driver` step's timeout in `checks/suite.toml` bounds the opening sweep.
const DEADLINE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(5);

fn hanging(how: &str, more: &str) -> String {
    format!(
        "[[event]]\nwhat = \"call-hangs\"\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 3\nhow = \"{how}\"\n{more}"
    )
}

#[test]
fn a_call_that_ignores_sigterm_ends_undecided_and_is_named() {
    let (_folder, fixture) = faulty("hgx-h100-8", &hanging("ignores-sigterm", ""));
    let began = Instant::now();
    let ran = run_fixture(&fixture, &[]);
    assert!(began.elapsed() < DEADLINE + MARGIN, "took {:?}", began.elapsed());
    assert_eq!(ran.status(), 2, "{}", ran.stderr());
    let details = ran.details();
    assert_eq!(details["decision"], "undecided");
    let driver = step(&details, "driver");
    assert_eq!(driver["status"], "undecided");
    let finding = &driver["findings"][0];
    assert_eq!(finding["code"], "driver-hung");
    assert!(finding["found"].as_str().unwrap().contains("nvmlDeviceGetTemperature(3"), "{finding:#}");
    assert!(record_of(ran.state.path()).exists());
}

#[test]
fn a_call_stuck_in_the_kernel_is_abandoned_while_the_run_ends() {
    let (folder, fixture) = faulty("hgx-h100-8", &hanging("uninterruptible", "path = \"stuck/never\""));
    let stuck = fixture.join("stuck");
    fs::create_dir(&stuck).unwrap();
    let never = NeverAnswers::mount(&stuck);
    let state = folder.path().join("state");

    let began = Instant::now();
    let mut child = nodegate()
        .args(["run", "--format", "json", "--fixture"])
        .arg(&fixture)
        .arg("--state")
        .arg(&state)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Standard output reaches its end although the abandoned child still lives.
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    let status = child.wait().unwrap();
    assert!(began.elapsed() < DEADLINE + MARGIN, "took {:?}", began.elapsed());
    assert_eq!(status.code(), Some(2));

    let details: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let finding = &step(&details, "driver")["findings"][0];
    let found = finding["found"].as_str().unwrap();
    assert_eq!(finding["code"], "driver-hung");
    assert!(found.contains("nvmlDeviceGetTemperature(3"), "{found}");
    assert!(found.contains("state D"), "{found}");
    assert!(found.contains("abandoned"), "{found}");
    assert!(record_of(&state).exists());

    // The child is really still there, in state D; and the lock is free for the next run.
    let abandoned = stuck_children();
    assert!(!abandoned.is_empty(), "no child of ours is in state D: the test proves nothing");
    let again =
        nodegate().args(["run", "--fixture", "fixtures/hosts/hgx-h100-8", "--state"]).arg(&state).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stderr));
    drop(never);
}

/// Pids of `nodegate __job session` processes in uninterruptible sleep.
fn stuck_children() -> Vec<u32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    processes
        .filter(|pid: &u32| {
            let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let stat = String::from_utf8_lossy(&read("stat")).into_owned();
            let state = stat.rsplit(')').next().unwrap_or("").trim().chars().next();
            stat.contains("(nodegate)") && state == Some('D')
        })
        .collect()
}

/// A root folder in which this path hangs: a copy of a recorded host's, with a file system that never
/// answers mounted over one of its folders.
fn hanging_root(folder: &Path, over: &str) -> (PathBuf, NeverAnswers) {
    let root = folder.join("root");
    let copied = Command::new("cp")
        .args(["-a", "fixtures/hosts/hgx-h100-8/root"])
        .arg(&root)
        .env("PATH", "/usr/bin:/bin")
        .status()
        .unwrap();
    assert!(copied.success());
    let never = NeverAnswers::mount(&root.join(over));
    (root, never)
}

fn run_on_root(root: &Path, state: &Path) -> (Option<i32>, String, String, Duration) {
    let began = Instant::now();
    let output =
        nodegate().args(["run", "--format", "json", "--root"]).arg(root).arg("--state").arg(state).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr), began.elapsed())
}

#[test]
fn a_root_folder_that_hangs_in_the_kernel_accuses_nobody_and_leaves_the_host_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let (root, never) = hanging_root(folder.path(), "proc/driver/nvidia");
    let (status, stdout, stderr, took) = run_on_root(&root, &state);
    assert!(took < DEADLINE + MARGIN, "took {took:?}");
    // A recording's root folder has no library: that alone is wrong with it.
    assert!(matches!(status, Some(1 | 2)), "{stderr}");
    let details: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(details["notices"].to_string().contains("host facts could not be read"), "{}", details["notices"]);
    for step in details["steps"].as_array().unwrap().iter().filter(|step| step["id"] != "driver") {
        assert_ne!(step["status"], "failed", "a hang is no fault of the hardware: {step:#}");
    }
    assert!(record_of(&state).exists());

    // The same host answers again: it is still the same host, with the same key and one chain.
    drop(never);
    let (_, stdout, stderr, _) = run_on_root(&root, &state);
    let details: serde_json::Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
    assert_eq!(details["seq"].to_string().trim_matches('"'), "2", "{stderr}");
}

#[test]
fn a_root_folder_that_hangs_before_the_host_is_known_never_sets_its_history_aside() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let (root, never) = hanging_root(folder.path(), "proc/driver/nvidia");
    drop(never);
    assert!(run_on_root(&root, &state).0.is_some());
    let key = fs::read(state.join("key.pem")).unwrap();
    let never = NeverAnswers::mount(&root.join("proc/sys/kernel"));
    let (status, _, stderr, took) = run_on_root(&root, &state);
    drop(never);
    assert!(took < DEADLINE + MARGIN, "took {took:?}");
    assert!(status == Some(2) || (status == Some(70) && stderr.contains("cannot tell")), "{status:?} {stderr}");
    assert_eq!(fs::read(state.join("key.pem")).unwrap(), key);
}

#[test]
fn a_session_child_that_dies_by_a_signal_ends_undecided() {
    let events = "[[event]]\nwhat = \"session-dies\"\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 3\n";
    let (_folder, fixture) = faulty("hgx-h100-8", events);
    let ran = run_fixture(&fixture, &[]);
    assert_eq!(ran.status(), 2, "{}", ran.stderr());
    let details = ran.details();
    let finding = &step(&details, "driver")["findings"][0];
    assert_eq!(finding["code"], "driver-died");
    assert!(finding["found"].as_str().unwrap().contains("SIGSEGV"), "{finding:#}");
}

#[test]
fn a_hang_in_the_middle_of_the_run_leaves_the_earlier_steps_as_they_were() {
    let events = hanging("ignores-sigterm", "when = \"step:power\"");
    let (_folder, fixture) = faulty("hgx-h100-8", &events);
    let ran = run_fixture(&fixture, &[]);
    let details = ran.details();
    assert_eq!((ran.status(), step(&details, "driver")["status"].as_str()), (2, Some("passed")));
    assert_eq!(step(&details, "ecc")["status"], "passed");
    assert_eq!(step(&details, "power")["status"], "undecided");
    assert_eq!(step(&details, "aftermath")["status"], "undecided");
}

#[test]
fn a_driver_that_does_not_let_the_session_go_is_never_accepted() {
    let events = "[[event]]\nwhat = \"call-hangs\"\nfunction = \"nvmlShutdown\"\nhow = \"ignores-sigterm\"\n";
    let (_folder, fixture) = faulty("hgx-h100-8", events);
    let ran = run_fixture(&fixture, &[]);
    let details = ran.details();
    assert_eq!((ran.status(), details["decision"].as_str()), (2, Some("undecided")));
    assert!(details["reason"].as_str().unwrap().contains("nvmlShutdown"), "{}", details["reason"]);
}

#[test]
fn a_signal_ends_the_run_with_a_signed_undecided_record() {
    let (folder, fixture) = faulty("hgx-h100-8", &hanging("ignores-sigterm", "when = \"step:power\""));
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let state = folder.path().join(format!("state-{}", signal.as_raw()));
        let child = nodegate()
            .args(["run", "--format", "json", "--fixture"])
            .arg(&fixture)
            .arg("--state")
            .arg(&state)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let began = Instant::now();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(),
            signal,
        )
        .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(began.elapsed() < Duration::from_secs(8), "took {:?} after the signal", began.elapsed());
        assert_eq!(output.status.code(), Some(2));
        let details: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(details["reason"], "interrupted");
        assert_eq!(details["decision"], "undecided");
        assert!(record_of(&state).exists());
    }
}

#[test]
fn a_host_that_is_not_up_yet_is_waited_for_and_every_attempt_is_in_the_record() {
    let began = Instant::now();
    let ran = run_fixture(&support::host("h100-fabric-in-progress"), &["--wait-ready", "5 s"]);
    assert!(began.elapsed() > Duration::from_secs(3), "it did not wait: {:?}", began.elapsed());
    let details = ran.details();
    assert_eq!(ran.status(), 2);
    assert!(step(&details, "driver")["attempts"].as_u64().unwrap() >= 2, "{details:#}");
    assert!(details["notices"].to_string().contains("fabric"), "{}", details["notices"]);
}
