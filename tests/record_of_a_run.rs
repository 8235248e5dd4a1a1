//! The record of a real run of the executable, not of one made for a test: it verifies with our own
//! command, with OpenSSL, and only with its own key.

mod support;

use std::fs;
use std::process::Command;

use base64::Engine as _;
use support::{host, nodegate, record_of, run_fixture};

#[test]
fn the_record_of_a_run_verifies_and_one_changed_byte_breaks_it() {
    let ran = run_fixture(&host("hgx-h100-8"), &[]);
    let record = record_of(ran.state.path());
    let key = record.with_extension("pub");
    let verify = |record: &std::path::Path| {
        let output = nodegate().arg("verify").arg(record).arg("--key").arg(&key).output().unwrap();
        output.status.code().unwrap()
    };
    assert_eq!(verify(&record), 0);

    let mut envelope: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let engine = base64::engine::general_purpose::STANDARD;
    let payload = engine.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let text = String::from_utf8(payload).unwrap().replacen("accepted", "rejected", 1);
    envelope["payload"] = engine.encode(text).into();
    let forged = ran.state.path().join("forged.json");
    fs::write(&forged, envelope.to_string()).unwrap();
    assert_eq!(verify(&forged), 1);
}

#[test]
fn openssl_verifies_the_record_of_a_run_over_its_pae() {
    let ran = run_fixture(&host("h100-link-narrow"), &[]);
    let record = record_of(ran.state.path());
    let envelope: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let engine = base64::engine::general_purpose::STANDARD;
    let payload = engine.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let mut pae = format!("DSSEv1 28 application/vnd.in-toto+json {} ", payload.len()).into_bytes();
    pae.extend(payload);
    let folder = ran.state.path();
    fs::write(folder.join("pae"), pae).unwrap();
    fs::write(folder.join("sig"), engine.decode(envelope["signatures"][0]["sig"].as_str().unwrap()).unwrap()).unwrap();
    let output = Command::new("openssl")
        .args(["pkeyutl", "-verify", "-pubin", "-rawin", "-inkey"])
        .arg(record.with_extension("pub"))
        .arg("-in")
        .arg(folder.join("pae"))
        .arg("-sigfile")
        .arg(folder.join("sig"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_screen_of_a_kept_record_is_the_screen_of_its_run() {
    let state = tempfile::tempdir().unwrap();
    let run = nodegate()
        .args(["run", "--fixture", "fixtures/hosts/h100-link-narrow", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    let show = nodegate().args(["record", "show", "--state"]).arg(state.path()).output().unwrap();
    let (run, show) = (String::from_utf8(run.stdout).unwrap(), String::from_utf8(show.stdout).unwrap());
    let body = run.split("\nrecord  ").next().unwrap().trim();
    assert!(show.contains(body), "{show}\n----\n{body}");
}

#[test]
fn the_details_of_a_run_fit_the_published_schema() {
    let schema: serde_json::Value =
        serde_json::from_slice(&fs::read("docs/schema/nodegate.schema.json").unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for name in ["hgx-h100-8", "h100-gpu-absent", "h100-session-dies", "h100-mig"] {
        let details = run_fixture(&host(name), &[]).details();
        let errors: Vec<String> = validator.iter_errors(&details).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

/// What a run on this recording prints.
fn screen_of(name: &str, more: &[&str]) -> String {
    let state = tempfile::tempdir().unwrap();
    let run =
        nodegate().args(["run", "--fixture"]).arg(host(name)).arg("--state").arg(state.path()).args(more).output();
    String::from_utf8(run.unwrap().stdout).unwrap()
}

#[test]
fn what_was_not_looked_at_is_one_line_and_no_problem() {
    let screen = screen_of("h100-gpu-not-in-driver", &[]);
    assert!(screen.contains(", 1 problem, "), "{screen}");
    assert!(screen.contains("\nnot judged  slot 6 · bus 0000:75:00.0: gpu-idle, pcie-link, "), "{screen}");
    let flat = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("aftermath (the driver does not show it)"), "{screen}");
    assert_eq!(screen.matches("\n2  ").count(), 0, "{screen}");
}

#[test]
fn an_undecided_run_says_how_it_comes_to_a_decision() {
    let screen = screen_of("hgx-h100-8", &["--only", "driver"]);
    assert!(screen.contains("→ a partial run never accepts: run without --only and --skip"), "{screen}");
    let screen = screen_of("h100-session-dies", &[]);
    assert!(screen.contains("steps could not be measured") && !screen.contains(" problem"), "{screen}");
}
