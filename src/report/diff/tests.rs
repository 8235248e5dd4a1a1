//! What differs between two runs, in order and in words.

use super::*;
use crate::ident::{Digest, Subject};
use crate::outcome::{Action, Grade, Judgement, Measurement};
use crate::predicate::{
    Agent, ClassReference, Clock, Host, Inventory, InventoryGpu, Operator, PlanReference, SCHEMA, Step, SuiteReference,
};

fn gpu(bus: &str, slot: &str, serial: &str) -> InventoryGpu {
    InventoryGpu {
        bus_id: bus.to_owned(),
        slot: Some(slot.to_owned()),
        serial: Some(serial.to_owned()),
        uuid: Some(format!("GPU-{serial}")),
        vbios: Some("96.00".to_owned()),
        ..InventoryGpu::default()
    }
}

fn details(gpus: Vec<InventoryGpu>) -> Details {
    let digest = Digest::of(b"x");
    Details {
        schema: SCHEMA,
        run_id: "0193a5d0-0000-7000-8000-000000000001".to_owned(),
        decision: Decision::Accepted,
        reason: None,
        stage: Stage::Rack,
        level: Level::Quick,
        simulated: false,
        overridden: false,
        partial: false,
        agent: Agent { version: "0.1.0".to_owned(), digest },
        host: Host { hostname: "h".to_owned(), serial: Some("S1".to_owned()), ..Host::default() },
        operator: Operator::default(),
        plan: PlanReference {
            suite: SuiteReference { id: "preflight".parse().unwrap(), revision: 1, digest },
            class: ClassReference { id: "c".parse().unwrap(), revision: 1, digest, chosen: "auto".to_owned() },
            site: None,
            policy: digest,
        },
        seq: 1,
        prev: None,
        challenge: "none".to_owned(),
        boot_ids: Vec::new(),
        clock: Clock::default(),
        started_at: "2026-11-30T20:40:26Z".to_owned(),
        finished_at: "2026-11-30T20:41:07Z".to_owned(),
        inventory: Inventory { gpus, ..Inventory::default() },
        topology: None,
        steps: Vec::new(),
        waivers: Vec::new(),
        overrides: Vec::new(),
        evidence: Vec::new(),
        notices: Vec::new(),
    }
}

fn step(id: &str, judge: impl FnOnce(&mut Judgement)) -> Step {
    let mut judgement = Judgement::expecting([Subject::host()]);
    judgement.judged(&Subject::host());
    judge(&mut judgement);
    Step {
        id: id.parse().unwrap(),
        check: id.parse().unwrap(),
        require: crate::decision::Require::Must,
        outcome: judgement.close("fine"),
        started_at: "2026-11-30T20:40:26Z".to_owned(),
        duration_ms: 1,
    }
}

fn temperature(bus: &str, value: f64) -> Measurement {
    Measurement { ceiling: Some(85.0), ..Measurement::new("temperature", &Subject::named(bus), value, "C") }
}

#[test]
fn a_record_does_not_differ_from_itself() {
    let details = details(vec![gpu("0000:1b:00.0", "1", "a")]);
    let difference = Difference::between(&details, &details);
    assert!(difference.is_empty() && difference.cautions.is_empty(), "{difference:?}");
    assert!(text(&difference).contains("no difference"));
}

#[test]
fn gpus_are_known_by_what_they_are_and_not_by_where_they_are() {
    let before =
        details(vec![gpu("0000:1b:00.0", "1", "a"), gpu("0000:2b:00.0", "2", "b"), gpu("0000:3b:00.0", "3", "c")]);
    let mut renewed = gpu("0000:3b:00.0", "3", "c");
    renewed.vbios = Some("97.00".to_owned());
    let after = details(vec![gpu("0000:2b:00.0", "2", "a"), gpu("0000:1b:00.0", "1", "d"), renewed]);
    let changes = Difference::between(&before, &after).gpus;
    let told = |serial: &str| -> Vec<&What> {
        let of = changes.iter().filter(|change| change.gpu.serial.as_deref() == Some(serial));
        of.map(|change| &change.what).collect()
    };
    assert!(matches!(told("a")[..], [What::Moved { from }] if from.slot.as_deref() == Some("1")));
    assert!(matches!(told("b")[..], [What::Gone]));
    assert!(matches!(told("d")[..], [What::Appeared]));
    assert!(matches!(told("c")[..], [What::Changed { property: "VBIOS", .. }]));
}

#[test]
fn a_moved_gpu_is_measured_against_itself() {
    let mut before = details(vec![gpu("0000:1b:00.0", "1", "a"), gpu("0000:2b:00.0", "2", "b")]);
    let mut after = details(vec![gpu("0000:2b:00.0", "2", "a"), gpu("0000:1b:00.0", "1", "b")]);
    before.steps = vec![step("power", |it| {
        it.measure(temperature("0000:1b:00.0", 40.0));
        it.measure(temperature("0000:2b:00.0", 60.0));
    })];
    after.steps = vec![step("power", |it| {
        it.measure(temperature("0000:2b:00.0", 40.0));
        it.measure(temperature("0000:1b:00.0", 66.0));
    })];
    let difference = Difference::between(&before, &after);
    assert_eq!(difference.same_measurements, 1);
    assert_eq!(difference.measurements.len(), 1);
    let change = &difference.measurements[0];
    assert_eq!((change.before, change.after, change.place.as_str()), (60.0, 66.0, "slot 1"));
    assert_eq!(change.change(), "+10 %");
}

#[test]
fn what_breaks_a_limit_comes_first_and_then_the_larger_change() {
    let (mut before, mut after) = (details(Vec::new()), details(Vec::new()));
    let measure = |values: [f64; 3]| {
        step("power", |it| {
            for (name, value) in ["a", "b", "c"].into_iter().zip(values) {
                it.measure(temperature(name, value));
            }
        })
    };
    before.steps = vec![measure([40.0, 40.0, 80.0])];
    after.steps = vec![measure([44.0, 60.0, 90.0])];
    let subjects: Vec<String> =
        Difference::between(&before, &after).measurements.into_iter().map(|change| change.subject).collect();
    assert_eq!(subjects, ["c", "b", "a"]);
}

#[test]
fn findings_and_outcomes_that_changed_are_told_with_their_step() {
    let (mut before, mut after) = (details(Vec::new()), details(Vec::new()));
    let finding =
        |code: &'static str| Finding::new(Grade::Failed, code, Subject::host(), "It is wrong", Action::Reseat);
    before.steps = vec![step("ecc", |it| it.find(finding("ecc-off"))), step("old", |_| ())];
    after.steps = vec![step("ecc", |it| it.find(finding("ecc-pending"))), step("power", |_| ())];
    after.decision = Decision::Rejected;
    let difference = Difference::between(&before, &after);
    assert_eq!(difference.new_findings[0].finding.code.as_str(), "ecc-pending");
    assert_eq!(difference.gone_findings[0].finding.code.as_str(), "ecc-off");
    let steps: Vec<_> = difference.steps.iter().map(|it| (it.step.as_str(), it.before, it.after)).collect();
    assert_eq!(steps, [("power", None, Some(Status::Passed)), ("old", Some(Status::Passed), None)]);
}

#[test]
fn two_hosts_and_two_sets_of_limits_are_said_to_be_that() {
    let before = details(Vec::new());
    let mut after = details(Vec::new());
    after.host.serial = Some("S2".to_owned());
    after.plan.class.digest = Digest::of(b"y");
    after.level = Level::Standard;
    after.finished_at = "2026-11-30T20:00:00Z".to_owned();
    let cautions = Difference::between(&before, &after).cautions;
    for word in ["two hosts", "limits differ", "stage or level", "later one"] {
        assert!(cautions.iter().any(|caution| caution.contains(word)), "{word}: {cautions:?}");
    }
}

#[test]
fn the_text_fits_eighty_columns_whatever_is_in_it() {
    use unicode_width::UnicodeWidthStr as _;
    let long = "幅\u{1b}[31m\n".repeat(400);
    let mut before = details(vec![gpu(&long, &long, &long)]);
    before.host.kernel = Some(long.clone());
    let mut after = details(vec![gpu("0000:1b:00.0", "1", "a")]);
    after.run_id = long.clone();
    after.finished_at = long.clone();
    after.steps = vec![step("power", |it| {
        it.find(Finding::new(Grade::Failed, "hot", Subject::named(&long), &long, Action::Cool).compared(&long, &long));
    })];
    let text = text(&Difference::between(&before, &after));
    for line in text.lines() {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}
