//! Every recorded host gives exactly the decision, steps, findings and subjects that it states.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn every_recorded_host_ends_as_it_states() {
    let mut wrong = BTreeMap::new();
    for host in hosts() {
        if ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == name(&host)) {
            continue;
        }
        let mut fixture: Fixture = toml::from_str(&fs::read_to_string(host.join("fixture.toml")).unwrap()).unwrap();
        fixture.expect.steps.iter_mut().for_each(|step| step.findings.sort());
        let (details, status) = run(&host, fixture.class.as_deref());
        let expected_status = match fixture.expect.decision.as_str() {
            "accepted" => 0,
            "rejected" => 1,
            _ => 2,
        };
        let found = not_passed(&details);
        if details["decision"] != fixture.expect.decision.as_str()
            || status != expected_status
            || found != fixture.expect.steps
        {
            wrong.insert(
                name(&host),
                format!(
                    "{} (exit {status})\n{found:#?}\nexpected {}\n{:#?}",
                    details["decision"], fixture.expect.decision, fixture.expect.steps
                ),
            );
        }
        assert_eq!(details["simulated"], true, "{} passed for a real host", name(&host));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
        let noisy: Vec<&Value> = details["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|step| !step["findings"].as_array().unwrap().is_empty())
            .collect();
        assert!(noisy.is_empty(), "{}: {noisy:#?}", name(host));
    }
}
