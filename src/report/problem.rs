//! What stands against a host, as people are told it: the one definition that the screen, the pages
//! and the difference of two records share.

use crate::decision::{Decision, Require};
use crate::ident::Subject;
use crate::outcome::{Finding, Grade, Status};
use crate::predicate::{Details, Step, Waiver};

/// Findings that differ only in their subject, told once with every place.
#[derive(Debug)]
pub struct Problem<'a> {
    pub finding: &'a Finding,
    /// Of each subject the parts of its place, the slot first; none for the host as a whole.
    pub places: Vec<Vec<String>>,
}

/// Subjects that steps expected and found no reading of, of which the same is to be said.
#[derive(Debug)]
pub struct NotJudged<'a> {
    pub whom: String,
    pub steps: Vec<&'a str>,
    /// What else stands against the subject, which is why nothing of it could be read.
    pub why: Option<String>,
}

/// The finding that closing a judgement adds for a subject that nothing was said of.
pub const NOT_JUDGED: &str = "not-judged";

/// Open findings, the worst first, otherwise in the order of the steps. What only follows from an
/// earlier step is left to the step lines, and what was not looked at to [`not_judged`].
pub fn problems(details: &Details) -> Vec<Problem<'_>> {
    let mut problems: Vec<Problem<'_>> = Vec::new();
    for (_, finding) in open_findings(details).filter(|(_, finding)| !is_not_judged(finding)) {
        let place = place(finding);
        match problems.iter_mut().find(|problem| same_story(problem.finding, finding)) {
            Some(problem) if problem.places.contains(&place) => {}
            Some(problem) => problem.places.push(place),
            None => problems.push(Problem { finding, places: vec![place] }),
        }
    }
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.finding.grade));
    problems
}

/// What stands against the host, with the step that found it: not waived, and not told for
/// information only.
pub fn open_findings(details: &Details) -> impl Iterator<Item = (&Step, &Finding)> {
    let counted = details.steps.iter().filter(|step| step.require != Require::Inform);
    let findings = counted.flat_map(|step| step.outcome.findings.iter().map(move |finding| (step, finding)));
    findings.filter(|(_, finding)| finding.waived_by.is_none())
}

/// What was left out. It is no problem of its own; what keeps it from being read is.
pub fn not_judged(details: &Details) -> Vec<NotJudged<'_>> {
    let mut shared: Vec<(Vec<&str>, Option<String>, Vec<&Finding>)> = Vec::new();
    for (finding, steps) in not_judged_by_subject(details) {
        let why = why(details, &finding.subject);
        match shared.iter_mut().find(|(known, reason, _)| *known == steps && *reason == why) {
            Some((_, _, findings)) => findings.push(finding),
            None => shared.push((steps, why, vec![finding])),
        }
    }
    shared.into_iter().map(|(steps, why, findings)| NotJudged { whom: whom(&findings), steps, why }).collect()
}

/// Required steps that ended undecided or skipped without a finding of their own.
pub fn unmeasured(details: &Details) -> Vec<&str> {
    let silent = required(details).filter(|step| step.outcome.findings.is_empty() && told_nothing(step));
    silent.map(|step| step.id.as_str()).collect()
}

/// Findings that a waiver of the site covers.
pub fn waived(details: &Details) -> impl Iterator<Item = (&Step, &Finding, &Waiver)> {
    let findings = details.steps.iter().flat_map(|step| step.outcome.findings.iter().map(move |it| (step, it)));
    findings.filter_map(|(step, finding)| Some((step, finding, details.waivers.get(finding.waived_by?)?)))
}

/// `2 problems`, and of an undecided run `1 step could not be measured`, which is no fault of the
/// machine.
pub fn counted(details: &Details) -> Vec<String> {
    let failed = problems(details).iter().filter(|problem| problem.finding.grade == Grade::Failed).count();
    let untold = match details.decision {
        // What a partial run leaves out was not tried.
        Decision::Undecided => required(details)
            .filter(|step| told_nothing(step) && !(details.partial && step.outcome.status() == Status::Skipped))
            .count(),
        Decision::Accepted | Decision::Rejected => 0,
    };
    let mut parts = Vec::new();
    match failed {
        0 => {}
        1 => parts.push("1 problem".to_owned()),
        count => parts.push(format!("{count} problems")),
    }
    match untold {
        0 => {}
        1 => parts.push("1 step could not be measured".to_owned()),
        count => parts.push(format!("{count} steps could not be measured")),
    }
    parts
}

/// How an undecided run comes to a decision, where its findings do not say it.
pub fn way_on(details: &Details) -> Option<&'static str> {
    if details.decision != Decision::Undecided {
        None
    } else if details.reason.as_deref() == Some("interrupted") {
        Some("run again")
    } else if details.partial {
        Some("a partial run never accepts: run without --only and --skip")
    } else {
        None
    }
}

/// Both RFC 3339. None where the texts are no times, as a record made elsewhere may have them.
pub fn seconds_between(from: &str, to: &str) -> Option<f64> {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    Some(time(to)?.duration_since(time(from)?).as_secs_f64())
}

/// `slot 8`, or `module 3` where the module's number stands for the slot.
pub fn slot(slot: &str) -> String {
    if slot.starts_with("module") { slot.to_owned() } else { format!("slot {slot}") }
}

/// The parts of a place, the slot first; none for the host as a whole.
pub fn place(finding: &Finding) -> Vec<String> {
    match &finding.place {
        Some(place) => [
            place.slot.as_deref().map(slot),
            place.bus_id.as_ref().map(|bus_id| format!("bus {bus_id}")),
            place.uuid.as_ref().map(|uuid| short_uuid(uuid)),
            place.serial.as_ref().map(|serial| format!("serial {serial}")),
            place.last_accepted.as_ref().map(|day| format!("last accepted {day}")),
        ]
        .into_iter()
        .flatten()
        .collect(),
        None if finding.subject.as_str() == "host" => Vec::new(),
        None => vec![finding.subject.to_string()],
    }
}

/// `GPU-3f0c…c2e1`: enough to tell GPUs of one host apart; the record has it whole.
fn short_uuid(uuid: &str) -> String {
    let characters: Vec<char> = uuid.chars().collect();
    if characters.len() <= 14 {
        return uuid.to_owned();
    }
    let head: String = characters[..8].iter().collect();
    let tail: String = characters[characters.len() - 4..].iter().collect();
    format!("{head}…{tail}")
}

fn same_story(a: &Finding, b: &Finding) -> bool {
    (&a.code, a.grade, &a.title, &a.expected, &a.found, a.action, &a.during)
        == (&b.code, b.grade, &b.title, &b.expected, &b.found, b.action, &b.during)
}

fn is_not_judged(finding: &Finding) -> bool {
    finding.code.as_str() == NOT_JUDGED
}

/// One finding of each subject, with every step that did not judge it.
fn not_judged_by_subject(details: &Details) -> Vec<(&Finding, Vec<&str>)> {
    let mut subjects: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for (step, finding) in open_findings(details).filter(|(_, finding)| is_not_judged(finding)) {
        match subjects.iter_mut().find(|(known, _)| known.subject == finding.subject) {
            Some((_, steps)) => steps.push(step.id.as_str()),
            None => subjects.push((finding, vec![step.id.as_str()])),
        }
    }
    subjects
}

fn why(details: &Details, subject: &Subject) -> Option<String> {
    let mut others = open_findings(details).map(|(_, finding)| finding);
    let other = others
        .find(|finding| finding.subject == *subject && !is_not_judged(finding) && finding.grade > Grade::Warned)?;
    Some(match other.code.as_str() {
        "gpu-not-in-driver" => "the driver does not show it".to_owned(),
        _ => other.title.clone(),
    })
}

/// A single one by its whole place, several by their short names.
fn whom(findings: &[&Finding]) -> String {
    match findings {
        [one] => match place(one).join(" · ") {
            place if place.is_empty() => one.subject.to_string(),
            place => place,
        },
        several => several.iter().map(|finding| finding.subject.to_string()).collect::<Vec<_>>().join(", "),
    }
}

fn required(details: &Details) -> impl Iterator<Item = &Step> {
    details.steps.iter().filter(|step| step.require == Require::Must)
}

fn told_nothing(step: &Step) -> bool {
    matches!(step.outcome.status(), Status::Undecided | Status::Skipped)
}
