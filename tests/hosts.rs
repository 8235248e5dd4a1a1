//! Every recorded host gives exactly the decision, steps, findings and subjects that it states.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use assert_cmd::Command;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Fixture {
    class: Option<String>,
    expect: Expect,
}

#[derive(Deserialize)]
struct Expect {
    decision: String,
    #[serde(default)]
    steps: Vec<ExpectedStep>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct ExpectedStep {
    id: String,
    outcome: String,
    #[serde(default)]
    findings: Vec<(String, String)>,
}

/// Hosts that need more than a folder; their tests stand elsewhere.
const ELSEWHERE: &[(&str, &str)] =
    &[("h100-call-uninterruptible", "tests/hang.rs mounts the file system that never answers")];

fn hosts() -> Vec<PathBuf> {
    let mut hosts: Vec<PathBuf> = fs::read_dir("fixtures/hosts")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("fixture.toml").exists())
        .collect();
    hosts.sort();
    assert!(hosts.len() >= 30, "recorded hosts are missing: {hosts:?}");
    hosts
}

fn name(host: &Path) -> String {
    host.file_name().unwrap().to_string_lossy().into_owned()
}

fn run(host: &Path, class: Option<&str>) -> (Value, i32) {
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::cargo_bin("nodegate").unwrap();
    command.args(["run", "--format", "json", "--fixture"]).arg(host).arg("--state").arg(state.path());
    if let Some(class) = class {
        command.args(["--class", class]);
    }
    let output = command.output().unwrap();
    let details = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{}: {error}\n{}", host.display(), String::from_utf8_lossy(&output.stderr)));
    (details, output.status.code().unwrap())
}

/// What did not pass, in the form in which a fixture states it.
fn not_passed(details: &Value) -> Vec<ExpectedStep> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let steps = details["steps"].as_array().unwrap().iter();
    steps
        .filter(|step| !["passed", "absent"].contains(&step["status"].as_str().unwrap()))
        .map(|step| {
            let findings = step["findings"].as_array().unwrap();
            let mut findings: Vec<_> =
                findings.iter().map(|finding| (text(&finding["code"]), text(&finding["subject"]))).collect();
            findings.sort();
            ExpectedStep { id: text(&step["id"]), outcome: text(&step["status"]), findings }
        })
        .collect()
}

/// What is wrong with this host's ending, if anything.
fn wrong_ending(host: &Path) -> Option<String> {
    let mut fixture: Fixture = toml::from_str(&fs::read_to_string(host.join("fixture.toml")).unwrap()).unwrap();
    fixture.expect.steps.iter_mut().for_each(|step| step.findings.sort());
    let (details, status) = run(host, fixture.class.as_deref());
    let expected_status = match fixture.expect.decision.as_str() {
        "accepted" => 0,
        "rejected" => 1,
        _ => 2,
    };
    assert_eq!(details["simulated"], true, "{} passed for a real host", name(host));
    let found = not_passed(&details);
    let as_stated = details["decision"] == fixture.expect.decision.as_str()
        && status == expected_status
        && found == fixture.expect.steps;
    (!as_stated).then(|| {
        format!(
            "{}: {} (exit {status})\n{found:#?}\nexpected {}\n{:#?}",
            name(host),
            details["decision"],
            fixture.expect.decision,
            fixture.expect.steps
        )
    })
}

#[test]
fn every_recorded_host_ends_as_it_states() {
    let hosts: Vec<PathBuf> =
        hosts().into_iter().filter(|host| ELSEWHERE.iter().all(|(elsewhere, _)| *elsewhere != name(host))).collect();
    // Hosts that hang mostly wait, so that four at a time do not get in each other's way.
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(host) = hosts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wrong.lock().unwrap().extend(wrong_ending(host));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_reading_of_a_healthy_host_is_unrecorded() {
    for host in hosts() {
        if !host.join("driver.json").exists() {
            continue;
        }
        let (details, _) = run(&host, None);
        assert!(!details.to_string().contains("not recorded"), "{}: {details:#}", name(&host));
    }
}

#[test]
fn a_healthy_host_is_silent() {
    for host in hosts().iter().filter(|host| host.join("driver.json").exists()) {
        let (details, _) = run(host, None);
        for step in details["steps"].as_array().unwrap().iter().filter(|step| step["status"] == "passed") {
            let cause = step["cause"].as_str().unwrap();
            assert!(cause.chars().count() <= 48, "{}: cut at 80 columns: {cause}", name(host));
        }
        let noisy: Vec<&Value> = details["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|step| !step["findings"].as_array().unwrap().is_empty())
            .collect();
        assert!(noisy.is_empty(), "{}: {noisy:#?}", name(host));
    }
}

#[test]
fn a_missing_gpu_is_named_by_the_last_accepted_record() {
    let state = tempfile::tempdir().unwrap();
    let run = |host: &str| {
        let mut command = Command::cargo_bin("nodegate").unwrap();
        command.args(["run", "--format", "json", "--fixture"]).arg(Path::new("fixtures/hosts").join(host));
        serde_json::from_slice::<Value>(&command.arg("--state").arg(state.path()).output().unwrap().stdout).unwrap()
    };
    let whole = run("hgx-h100-8");
    let finding = |details: &Value| {
        let findings =
            details["steps"].as_array().unwrap().iter().flat_map(|step| step["findings"].as_array().unwrap());
        findings.clone().find(|finding| finding["code"] == "gpu-missing").cloned().unwrap()
    };
    let missing = finding(&run("h100-gpu-absent"));
    let address = missing["subject"].as_str().unwrap();
    let gpus = whole["inventory"]["gpus"].as_array().unwrap();
    let known = gpus.iter().find(|gpu| gpu["busId"] == address).unwrap();
    assert_eq!(missing["place"]["serial"], known["serial"]);
    assert_eq!(missing["place"]["lastAccepted"], whole["finishedAt"].as_str().unwrap()[..10]);
}

#[test]
fn the_table_of_hosts_names_each_with_the_decision_that_it_states() {
    let table = fs::read_to_string("fixtures/hosts/README.md").unwrap();
    for host in hosts() {
        let fixture: Fixture = toml::from_str(&fs::read_to_string(host.join("fixture.toml")).unwrap()).unwrap();
        let start = format!("| `{}` |", name(&host));
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with(&start)).collect();
        assert_eq!(rows.len(), 1, "{} stands {} times in the table", name(&host), rows.len());
        // The table of the healthy ones has no column for it: they are accepted.
        let stated = match host.join("driver.json").exists() {
            true => "accepted",
            false => rows[0].trim_end_matches(" |").rsplit("| ").next().unwrap(),
        };
        assert_eq!(stated, fixture.expect.decision, "{}", name(&host));
    }
}
