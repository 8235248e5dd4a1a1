//! A machine without GPU or driver, and one with NVIDIA's real user-space driver but no GPU.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use support::{nodegate, record_of};

fn has_gpu() -> bool {
    Path::new("/proc/driver/nvidia/version").exists()
}

#[test]
fn a_bare_machine_is_rejected_at_once_and_says_what_is_missing() {
    assert!(!has_gpu(), "this test is for machines without an NVIDIA driver");
    let state = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let output = nodegate().args(["run", "--state"]).arg(state.path()).output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "took {:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(1));
    let screen = String::from_utf8_lossy(&output.stdout);
    assert!(screen.contains("REJECTED for stage rack at level quick"), "{screen}");
    assert!(screen.contains("configure"), "{screen}");
    assert!(screen.contains("Install"), "{screen}");
    assert!(record_of(state.path()).exists());
    let last = String::from_utf8_lossy(&output.stderr);
    assert!(
        last.lines().last().unwrap().starts_with("nodegate: rejected stage=rack level=quick class=generic"),
        "{last}"
    );
}

/// Runs with the real libraries laid over the library folder, in a mount namespace, as an ordinary user:
/// as root the real library would create device nodes.
fn with_real_driver(executable: &Path, state: &Path) -> Output {
    let overlay = fs::canonicalize("target/real-driver/lib").unwrap();
    let script = format!(
        "mount -t overlay overlay -o lowerdir={}:/usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu && exec setpriv --reuid=65534 --regid=65534 --clear-groups {} run --format json --state {}",
        overlay.display(),
        executable.display(),
        state.display()
    );
    Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap()
}

#[test]
fn the_real_driver_library_without_a_gpu_is_rejected_with_its_own_return_code() {
    let fetched = Command::new("bash").arg("tests/real-driver.sh").status().unwrap();
    assert!(fetched.success(), "NVIDIA's libraries could not be fetched from Debian's non-free component");
    // An ordinary user must be able to reach the executable and the state folder.
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let executable = folder.path().join("nodegate");
    fs::copy(assert_cmd::cargo::cargo_bin("nodegate"), &executable).unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65534), Some(65534)).unwrap();

    let began = Instant::now();
    let output = with_real_driver(&executable, &state);
    assert!(began.elapsed() < Duration::from_secs(3), "took {:?}", began.elapsed());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let details: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let driver = support::step(&details, "driver");
    assert_eq!(driver["status"], "failed");
    let finding = &driver["findings"][0];
    assert_eq!(finding["code"], "driver-not-loaded");
    assert!(details["inventory"].get("nvmlLibrary").is_some(), "the real library was found and hashed");
    assert!(record_of(&state).exists());
}

/// The session child alone, told that a driver is loaded, so that the real library speaks for itself.
#[test]
fn the_real_library_says_nvml_9_through_our_session() {
    let fetched = Command::new("bash").arg("tests/real-driver.sh").status().unwrap();
    assert!(fetched.success());
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let executable = folder.path().join("nodegate");
    fs::copy(assert_cmd::cargo::cargo_bin("nodegate"), &executable).unwrap();
    let overlay = fs::canonicalize("target/real-driver/lib").unwrap();
    let request =
        serde_json::json!({ "origin": "live", "root": "/", "nvml": null, "cuda": null, "driver_loaded": true });
    let script = format!(
        "mount -t overlay overlay -o lowerdir={}:/usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu && echo '{request}' | setpriv --reuid=65534 --regid=65534 --clear-groups {} __job session",
        overlay.display(),
        executable.display()
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("\"code\":9"), "{answer} {}", String::from_utf8_lossy(&output.stderr));
    assert!(!Path::new("/dev/nvidiactl").exists(), "the real library made a device node");
}
