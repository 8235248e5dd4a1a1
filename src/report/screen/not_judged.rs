//! What was left out: the subjects that a step expected and found no reading of. They are no
//! problems of their own; what keeps them from being read is.

use super::{open_findings, place};
use crate::ident::Subject;
use crate::outcome::{Finding, Grade};
use crate::predicate::Details;
use crate::report::typeface::Typeface;

/// The finding that closing a judgement adds for a subject that nothing was said of.
const CODE: &str = "not-judged";

pub fn is(finding: &Finding) -> bool {
    finding.code.as_str() == CODE
}

/// `not judged  slot 6 · bus 0000:75:00.0: gpu-idle, pcie-link (the driver does not show it)`, one
/// for each subject; those of which the same is to be said share one.
pub fn lines(details: &Details, typeface: Typeface) -> Vec<String> {
    let mut shared: Vec<(String, Vec<&Finding>)> = Vec::new();
    for (finding, steps) in by_subject(details) {
        let why = why(details, &finding.subject).map(|why| format!(" ({why})")).unwrap_or_default();
        let text = format!("{}{why}", steps.join(", "));
        match shared.iter_mut().find(|(known, _)| *known == text) {
            Some((_, findings)) => findings.push(finding),
            None => shared.push((text, vec![finding])),
        }
    }
    let mut lines: Vec<String> = shared
        .iter()
        .flat_map(|(text, findings)| {
            typeface.wrap(&format!("{}: {text}", whom(findings)), "not judged  ", "            ")
        })
        .collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

/// One finding of each subject, with every step that did not judge it.
fn by_subject(details: &Details) -> Vec<(&Finding, Vec<&str>)> {
    let mut subjects: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for (step, finding) in open_findings(details).filter(|(_, finding)| is(finding)) {
        match subjects.iter_mut().find(|(known, _)| known.subject == finding.subject) {
            Some((_, steps)) => steps.push(step.id.as_str()),
            None => subjects.push((finding, vec![step.id.as_str()])),
        }
    }
    subjects
}

/// What else stands against the subject, which is why nothing of it could be read.
fn why(details: &Details, subject: &Subject) -> Option<String> {
    let mut others = open_findings(details).map(|(_, finding)| finding);
    let other = others.find(|finding| finding.subject == *subject && !is(finding) && finding.grade > Grade::Warned)?;
    Some(match other.code.as_str() {
        "gpu-not-in-driver" => "the driver does not show it".to_owned(),
        _ => other.title.clone(),
    })
}

/// A single one by its whole place, several by their short names.
fn whom(findings: &[&Finding]) -> String {
    match findings {
        [one] => match place(one) {
            place if place.is_empty() => one.subject.to_string(),
            place => place,
        },
        several => several.iter().map(|finding| finding.subject.to_string()).collect::<Vec<_>>().join(", "),
    }
}
