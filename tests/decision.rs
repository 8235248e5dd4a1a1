//! Promise 1, the closed verdict: over random plans and outcomes, nothing is accepted without evidence.

use std::collections::BTreeSet;

use nodegate::decision::{CORE, Decision, FLOOR, Judged, Require, decide};
use nodegate::ident::{CheckId, StepId, Subject};
use nodegate::outcome::{Action, Finding, Grade, Judgement, Outcome, Status};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Step {
    id: StepId,
    check: CheckId,
    require: Require,
    outcome: Outcome,
}

fn subjects() -> impl Strategy<Value = BTreeSet<u8>> {
    proptest::collection::btree_set(0u8..4, 0..4)
}

fn named(number: u8) -> Subject {
    Subject::named(&format!("gpu {number}"))
}

/// Outcomes as a check makes them, and outcomes as a broken check or a forged file might claim them.
fn outcome() -> impl Strategy<Value = Outcome> {
    let grade = prop_oneof![Just(Grade::Warned), Just(Grade::Undecided), Just(Grade::Failed)];
    let honest = (subjects(), subjects(), proptest::collection::vec((grade, 0u8..4), 0..3), any::<bool>()).prop_map(
        |(expected, judged, findings, waive)| {
            let mut judgement = Judgement::expecting(expected.into_iter().map(named));
            judged.into_iter().for_each(|subject| judgement.judged(&named(subject)));
            for (grade, subject) in findings {
                judgement.find(Finding::new(grade, "link-narrow", named(subject), "Link narrow", Action::Reseat));
            }
            let outcome = judgement.close("fine");
            if waive { outcome.waive(|_| Some(0)) } else { outcome }
        },
    );
    let complete = subjects().prop_filter("not empty", |set| !set.is_empty()).prop_map(|set| {
        let mut judgement = Judgement::expecting(set.iter().copied().map(named));
        set.into_iter().for_each(|subject| judgement.judged(&named(subject)));
        judgement.close("fine")
    });
    let claimed = (status(), subjects(), subjects()).prop_map(|(status, expected, judged)| {
        let list = |set: BTreeSet<u8>| set.into_iter().map(|n| named(n).as_str().to_owned()).collect::<Vec<_>>();
        serde_json::from_value(serde_json::json!({
            "status": status.as_str(), "cause": "claimed", "expected": list(expected), "judged": list(judged),
            "findings": [], "measurements": [], "attempts": 1
        }))
        .unwrap()
    });
    prop_oneof![
        2 => honest,
        6 => complete,
        1 => claimed,
        1 => Just(Outcome::skipped("left out")),
        1 => Just(Outcome::absent("not in this class")),
        1 => Just(Outcome::undecided("no answer")),
    ]
}

fn status() -> impl Strategy<Value = Status> {
    proptest::sample::select(vec![
        Status::Passed,
        Status::Warned,
        Status::Failed,
        Status::Undecided,
        Status::Skipped,
        Status::Waived,
        Status::Absent,
    ])
}

fn require() -> impl Strategy<Value = Require> {
    prop_oneof![6 => Just(Require::Must), 1 => Just(Require::Should), 1 => Just(Require::Inform)]
}

/// Mostly the whole floor, so that acceptance is reached often; sometimes a step is missing or doubled.
fn plan() -> impl Strategy<Value = Vec<Step>> {
    let others = ["power", "mig", "gpu-idle"];
    let names: Vec<&'static str> = FLOOR.iter().chain(&others).copied().collect();
    let each = names
        .into_iter()
        .map(|name| {
            let step = (require(), outcome()).prop_map(move |(require, outcome)| Step {
                id: name.parse().unwrap(),
                check: name.parse().unwrap(),
                require,
                outcome,
            });
            prop_oneof![9 => step.prop_map(Some), 1 => Just(None)]
        })
        .collect::<Vec<_>>();
    prop_oneof![15 => each.prop_map(|steps| steps.into_iter().flatten().collect()), 1 => Just(Vec::new())]
}

fn judged(steps: &[Step]) -> Vec<Judged<'_>> {
    steps
        .iter()
        .map(|step| Judged { id: &step.id, check: &step.check, require: step.require, outcome: &step.outcome })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn accepted_only_on_evidence(steps in plan(), can_accept in any::<bool>()) {
        let decision = decide(&judged(&steps), can_accept);
        if decision == Decision::Accepted {
            prop_assert!(can_accept);
            prop_assert!(!steps.is_empty());
            for floor in FLOOR {
                prop_assert!(
                    steps.iter().any(|step| step.check.as_str() == floor && step.require == Require::Must),
                    "{floor} was not required"
                );
            }
            for core in CORE {
                prop_assert!(
                    steps.iter().any(|step| step.check.as_str() == core
                        && step.require == Require::Must
                        && step.outcome.status() != Status::Absent),
                    "{core} did not run"
                );
            }
            for step in steps.iter().filter(|step| step.require == Require::Must) {
                let status = step.outcome.status();
                prop_assert!(
                    matches!(status, Status::Passed | Status::Warned | Status::Waived | Status::Absent),
                    "{} is {status:?}", step.id
                );
                if status != Status::Absent {
                    prop_assert!(!step.outcome.expected().is_empty(), "{} expected nothing", step.id);
                    prop_assert!(step.outcome.expected().is_subset(step.outcome.judged()), "{} left a subject out", step.id);
                }
            }
        }
    }

    #[test]
    fn rejected_exactly_when_a_required_step_failed(steps in plan(), can_accept in any::<bool>()) {
        let failed = steps.iter().any(|step| step.require == Require::Must && step.outcome.status() == Status::Failed);
        prop_assert_eq!(decide(&judged(&steps), can_accept) == Decision::Rejected, failed);
    }

    #[test]
    fn a_step_that_passes_has_judged_all_that_it_expected(outcome in outcome()) {
        // Outcomes that were claimed in a file are not covered: `decide` looks at their subjects again.
        if outcome.cause != "claimed" && matches!(outcome.status(), Status::Passed | Status::Warned | Status::Waived) {
            prop_assert!(outcome.is_complete());
        }
    }
}

#[test]
fn a_whole_floor_that_passed_is_accepted() {
    let mut judgement = Judgement::expecting([named(0)]);
    judgement.judged(&named(0));
    let outcome = judgement.close("fine");
    let steps: Vec<Step> = FLOOR
        .iter()
        .map(|name| Step {
            id: name.parse().unwrap(),
            check: name.parse().unwrap(),
            require: Require::Must,
            outcome: outcome.clone(),
        })
        .collect();
    assert_eq!(decide(&judged(&steps), true), Decision::Accepted);
    assert_eq!(decide(&judged(&steps), false), Decision::Undecided);
    assert_eq!(decide(&judged(&steps[1..]), true), Decision::Undecided);
}

#[test]
fn a_class_that_declares_the_whole_floor_away_accepts_nothing() {
    let steps = |absent: &[&str]| -> Vec<Step> {
        let mut judgement = Judgement::expecting([named(0)]);
        judgement.judged(&named(0));
        let passed = judgement.close("fine");
        let outcome = |name: &str| {
            if absent.contains(&name) { Outcome::absent("not in this class") } else { passed.clone() }
        };
        let step = |name: &&str| Step {
            id: name.parse().unwrap(),
            check: name.parse().unwrap(),
            require: Require::Must,
            outcome: outcome(name),
        };
        FLOOR.iter().map(step).collect()
    };
    assert_eq!(decide(&judged(&steps(&FLOOR)), true), Decision::Undecided);
    for core in CORE {
        assert_eq!(decide(&judged(&steps(&[core])), true), Decision::Undecided, "{core}");
    }
    assert_eq!(decide(&judged(&steps(&["pcie-link", "ecc", "memory-repair"])), true), Decision::Accepted);
}

#[test]
fn an_empty_plan_is_undecided() {
    assert_eq!(decide(&[], true), Decision::Undecided);
}
