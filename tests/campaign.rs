//! Long campaigns, run by `tests/run --long`: kills at random moments, and mutated input.

mod support;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{host, nodegate};

/// A small generator with a fixed seed: a campaign that fails can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*, Vigna 2016.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

fn whole_records(state: &Path) -> usize {
    let records = state.join("simulated/records");
    let mut whole = 0;
    for entry in fs::read_dir(records).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read(&path).unwrap();
            let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&text);
            assert!(parsed.is_ok(), "half-written: {}", path.display());
            whole += 1;
        }
    }
    whole
}

#[test]
#[ignore = "takes minutes; tests/run --long"]
fn killed_at_any_moment_nothing_is_half_written_and_the_next_run_goes_through() {
    let state = tempfile::tempdir().unwrap();
    let mut random = Random(0x5eed);
    // A whole run first, so that the kills fall everywhere in one, the writing of its record included.
    let began = Instant::now();
    let whole = nodegate()
        .args(["run", "--fixture"])
        .arg(host("hgx-h100-8"))
        .arg("--state")
        .arg(state.path())
        .output()
        .unwrap();
    assert_eq!(whole.status.code(), Some(0), "{}", String::from_utf8_lossy(&whole.stderr));
    let span = u64::try_from(began.elapsed().as_millis()).unwrap() * 6 / 5;
    let kills = 200;
    let mut killed = 0;
    for _ in 0..kills {
        let mut child = nodegate()
            .args(["run", "--fixture"])
            .arg(host("hgx-h100-8"))
            .arg("--state")
            .arg(state.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random.below(span)));
        killed += usize::from(child.try_wait().unwrap().is_none());
        let _ = child.kill();
        child.wait().unwrap();
        whole_records(state.path());
    }
    let next = nodegate()
        .args(["run", "--fixture"])
        .arg(host("hgx-h100-8"))
        .arg("--state")
        .arg(state.path())
        .output()
        .unwrap();
    assert_eq!(next.status.code(), Some(0), "{}", String::from_utf8_lossy(&next.stderr));
    println!(
        "campaign: {killed} of {kills} runs were killed before their end, {} files whole",
        whole_records(state.path())
    );
    assert!(killed > kills / 4, "too few kills to mean anything: {killed}");
}

#[test]
#[ignore = "takes minutes; tests/run --long"]
fn a_mutated_recording_never_panics_and_is_never_accepted_by_accident() {
    let whole = fs::read(host("hgx-h100-8").join("driver.json")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let fixture = folder.path().join("mutated");
    fs::create_dir(&fixture).unwrap();
    std::os::unix::fs::symlink(fs::canonicalize(host("hgx-h100-8").join("root")).unwrap(), fixture.join("root"))
        .unwrap();
    fs::copy(host("hgx-h100-8").join("fixture.toml"), fixture.join("fixture.toml")).unwrap();
    let mut random = Random(0xfa17);
    let mut endings = std::collections::BTreeMap::new();
    for _ in 0..300 {
        let mut driver = whole.clone();
        for _ in 0..=random.below(4) {
            let at = usize::try_from(random.below(driver.len() as u64)).unwrap();
            driver[at] = u8::try_from(random.below(256)).unwrap();
        }
        fs::write(fixture.join("driver.json"), &driver).unwrap();
        let state = tempfile::tempdir().unwrap();
        let output =
            nodegate().args(["run", "--fixture"]).arg(&fixture).arg("--state").arg(state.path()).output().unwrap();
        let status = output.status.code().unwrap_or(-1);
        assert!([0, 1, 2, 64].contains(&status), "exit {status}: {}", String::from_utf8_lossy(&output.stderr));
        *endings.entry(status).or_insert(0) += 1;
    }
    println!("campaign: endings of 300 mutated recordings by exit status: {endings:?}");
}
