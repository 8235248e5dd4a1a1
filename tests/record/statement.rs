//! What a record says to readers that are not ours.

use nodegate::decision::{Decision, Require};
use nodegate::ident::Subject;
use nodegate::outcome::{Grade, Judgement, Measurement};
use nodegate::predicate::{Details, Override};
use nodegate::record::{Statement, Unsigned};
use serde_json::{Value, json};

use super::sample;

fn statement(details: Details) -> Value {
    let unsigned = Unsigned::new(details, &sample::documents()).unwrap();
    serde_json::from_slice(unsigned.payload()).unwrap()
}

fn names(statement: &Value, list: &str) -> Vec<String> {
    let names = statement["predicate"][list].as_array().unwrap();
    names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn scope(prefix: &str) -> Vec<String> {
    let class = format!("class:hgx-h100-8@{}", sample::digest("class"));
    ["stage:rack", "level:quick", &class].map(|name| format!("{prefix}{name}")).to_vec()
}

#[test]
fn the_statement_has_only_fields_that_in_toto_knows() {
    let statement = statement(sample::details());
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&statement), ["_type", "predicate", "predicateType", "subject"]);
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["predicateType"], "https://in-toto.io/attestation/test-result/v0.1");
    for subject in statement["subject"].as_array().unwrap() {
        assert_eq!(keys(subject), ["annotations", "digest", "name"]);
        assert_eq!(keys(&subject["digest"]), ["sha256"]);
    }
    let predicate = ["configuration", "failedTests", "nodegate", "passedTests", "result", "warnedTests"];
    assert_eq!(keys(&statement["predicate"]), predicate);
}

#[test]
fn each_configuration_entry_has_a_digest_or_an_address() {
    let statement = statement(sample::details());
    let entries = statement["predicate"]["configuration"].as_array().unwrap();
    assert!(entries.len() >= 6);
    for entry in entries {
        assert!(entry.get("digest").is_some() || entry.get("uri").is_some(), "{entry}");
    }
    let image = entries.iter().find(|entry| entry["name"] == "os-image").unwrap();
    assert_eq!(image["uri"], "pkg:generic/os-image@Ubuntu%2024.04.1%20LTS");
}

#[test]
fn subjects_are_the_digests_of_the_documents_beside_the_record() {
    let documents = sample::documents();
    let statement = Statement::of(&sample::details(), &documents);
    assert_eq!(statement.subject_digest("host.json"), Some(documents.host.digest()));
    assert_eq!(statement.subject_digest("node.json"), Some(documents.node.digest()));
}

#[test]
fn an_accepted_run_passes_by_name_and_an_absent_step_is_not_among_them() {
    let statement = statement(sample::details());
    assert_eq!(statement["predicate"]["result"], "PASSED");
    let expected = [vec!["driver".to_owned(), "gpu-inventory".to_owned()], scope("")].concat();
    assert_eq!(names(&statement, "passedTests"), expected);
    assert!(names(&statement, "warnedTests").is_empty() && names(&statement, "failedTests").is_empty());
}

#[test]
fn a_warning_is_seen_in_the_result() {
    let warned = statement(sample::details_with(|details| {
        details.steps.push(sample::step("pcie-link", sample::found(Grade::Warned)));
    }));
    assert_eq!(warned["predicate"]["result"], "WARNED");
    assert_eq!(names(&warned, "warnedTests"), ["pcie-link"]);
    let overridden = statement(sample::details_with(|details| details.overrides.push(limit(1.into()))));
    assert_eq!(overridden["predicate"]["result"], "WARNED");
    assert_eq!(names(&overridden, "warnedTests"), ["override:power.floor"]);
}

#[test]
fn neither_rejected_nor_undecided_passes_any_stage() {
    for (decision, grade) in [(Decision::Rejected, Grade::Failed), (Decision::Undecided, Grade::Undecided)] {
        let statement = statement(sample::details_with(|details| {
            details.decision = decision;
            details.steps.push(sample::step("pcie-link", sample::found(grade)));
        }));
        assert_eq!(statement["predicate"]["result"], "FAILED");
        assert_eq!(names(&statement, "passedTests"), ["driver", "gpu-inventory"]);
        assert_eq!(names(&statement, "failedTests"), [vec!["pcie-link".to_owned()], scope("")].concat());
    }
}

#[test]
fn what_only_warns_or_informs_does_not_fail() {
    let statement = statement(sample::details_with(|details| {
        for (id, require) in [("a", Require::Should), ("b", Require::Inform)] {
            let mut step = sample::step(id, sample::found(Grade::Failed));
            step.require = require;
            details.steps.push(step);
        }
    }));
    assert_eq!(statement["predicate"]["result"], "WARNED");
    assert_eq!((names(&statement, "warnedTests"), names(&statement, "failedTests").len()), (vec!["a".to_owned()], 0));
}

#[test]
fn a_run_that_says_less_than_it_seems_carries_that_in_its_names() {
    let simulated = statement(sample::details_with(|details| details.simulated = true));
    assert!(names(&simulated, "passedTests").ends_with(&scope("simulated:")));
    for (prefix, change) in [
        ("overridden:", (|details| details.overridden = true) as fn(&mut Details)),
        ("partial:", |details| details.partial = true),
    ] {
        let statement = statement(sample::details_with(change));
        assert_eq!(statement["predicate"]["result"], "WARNED");
        assert_eq!(names(&statement, "warnedTests"), scope(prefix));
        assert!(!names(&statement, "passedTests").contains(&"stage:rack".to_owned()));
    }
}

#[test]
fn numbers_past_2_to_53_are_strings_and_what_is_no_number_is_left_out() {
    let statement = statement(sample::details_with(|details| {
        details.overrides.push(limit(u64::MAX.into()));
        details.clock.maximum_error = Some(i64::MAX);
        details.clock.log_end = Some(u64::MAX);
        let mut judgement = Judgement::expecting([Subject::host()]);
        judgement.judged(&Subject::host());
        judgement.measure(Measurement::new("rate", &Subject::host(), f64::NAN, "GB/s"));
        details.steps.push(sample::step("pcie-link", judgement.close("fine")));
    }));
    let nodegate = &statement["predicate"]["nodegate"];
    assert_eq!(nodegate["overrides"][0]["value"], json!("18446744073709551615"));
    assert_eq!(nodegate["clock"], json!({"synchronised": true}));
    assert_eq!(nodegate["steps"][3]["measurements"], json!([]));
    assert_eq!(nodegate["notices"], json!(["pcie-link: measurement rate left out, it is not a finite number"]));
    assert_eq!(nodegate["inventory"]["gpus"][0]["memory"], json!("85520809984"));
}

#[test]
fn a_number_that_cannot_be_a_string_is_refused_by_name() {
    let details = sample::details_with(|details| details.steps[0].duration_ms = u64::MAX);
    let error = Unsigned::new(details, &sample::documents()).err().unwrap().to_string();
    assert!(error.contains("durationMs"), "{error}");
}

#[test]
fn a_record_that_grew_too_large_loses_its_measurements_and_says_so() {
    let with_measurements = |count: usize| {
        sample::details_with(|details| {
            let mut judgement = Judgement::expecting([Subject::host()]);
            judgement.judged(&Subject::host());
            (0..count).for_each(|_| judgement.measure(Measurement::new("rate", &Subject::host(), 1.5, "GB/s")));
            details.steps.push(sample::step("pcie-link", judgement.close("fine")));
        })
    };
    let statement = statement(with_measurements(20_000));
    let notices = statement["predicate"]["nodegate"]["notices"].as_array().unwrap().clone();
    assert!(notices[0].as_str().unwrap().contains("measurements left out"));
    let hopeless = sample::details_with(|details| details.notices = vec!["x".repeat(1000); 1000]);
    assert!(Unsigned::new(hopeless, &sample::documents()).is_err());
}

fn limit(value: Value) -> Override {
    Override {
        step: "power".to_owned(),
        parameter: "floor".to_owned(),
        value,
        reason: "lab".to_owned(),
        who: "ada".to_owned(),
    }
}
