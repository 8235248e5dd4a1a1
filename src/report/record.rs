//! Kept records for people: one line each, and the short form of one.

use std::path::Path;

use unicode_width::UnicodeWidthStr;

use crate::ident::printable;
use crate::outcome::Status;
use crate::predicate::Details;
use crate::report::columns::{LINE, align, cut};
use crate::report::typeface::Typeface;

/// Characters of a run id that tell runs apart to the millisecond (a UUIDv7 begins with its time).
const RUN: usize = 13;

/// One line per record, under a heading; what makes it say less than its decision stands below it
/// where it does not fit.
pub fn list<'a>(records: impl Iterator<Item = &'a Details>) -> String {
    let heads = ["SEQ", "FINISHED", "DECISION", "STAGE", "LEVEL", "RUN", "CLASS"].map(str::to_owned).to_vec();
    let (mut rows, mut below) = (vec![heads], vec![String::new()]);
    for details in records {
        let finished = moment(&details.finished_at);
        rows.push(vec![
            details.seq.to_string(),
            finished,
            details.decision.to_string(),
            details.stage.to_string(),
            details.level.to_string(),
            printable(&details.run_id, 36).chars().take(RUN).collect(),
            details.plan.class.id.to_string(),
        ]);
        below.push(marks(details).join(", "));
    }
    let mut text = String::new();
    for (line, marks) in align(&rows).iter().zip(below) {
        let line = cut(line, LINE);
        match (marks.is_empty(), line.width() + 2 + marks.width() <= LINE) {
            (true, _) => text.push_str(&line),
            (false, true) => text.push_str(&format!("{line}  {marks}")),
            (false, false) => text.push_str(&format!("{line}\n     {marks}")),
        }
        text.push('\n');
    }
    text
}

/// `2026-12-01 00:58` of an RFC 3339 text.
pub fn moment(time: &str) -> String {
    printable(time, 30).replace('T', " ").chars().take(16).collect()
}

/// A record in a few lines.
pub fn summary(details: &Details) -> String {
    let plan = &details.plan;
    let mut lines = vec![format!(
        "nodegate run · {} · class {} · stage {} · level {}",
        printable(&details.host.hostname, 64),
        plan.class.id,
        details.stage,
        details.level
    )];
    lines.push(String::new());
    lines.extend(details.steps.iter().map(|step| {
        format!("  {} {:<18} {}", mark(step.outcome.status()), step.id, printable(&step.outcome.cause, 56))
    }));
    lines.push(String::new());
    lines.push(decision_line(details));
    lines.push(format!("run     {}   seq {}   {}", details.run_id, details.seq, printable(&details.finished_at, 30)));
    lines.join("\n") + "\n"
}

/// Where a record was kept and what signed it. A path that would not fit its line has its file name
/// on the next one, so that neither half is broken where the terminal ends.
pub fn kept(path: &Path, keyid: &str, seq: u64, typeface: Typeface) -> Vec<String> {
    let line = format!("record  {}", path.display());
    let mut lines = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if line.width() > typeface.width => {
            vec![format!("record  {}/", folder.display()), format!("        {}", name.display())]
        }
        _ => vec![line],
    };
    lines.push(format!("signed  {keyid}  seq {seq}"));
    lines
}

/// `ACCEPTED for stage rack at level quick, simulated`.
pub fn decision_line(details: &Details) -> String {
    let mut line =
        format!("{} for stage {} at level {}", details.decision.as_str().to_uppercase(), details.stage, details.level);
    marks(details).iter().for_each(|mark| line.push_str(&format!(", {mark}")));
    if let Some(reason) = &details.reason {
        line.push_str(&format!(": {}", printable(reason, 200)));
    }
    line
}

/// What makes a record say less than its decision.
pub fn marks(details: &Details) -> Vec<&'static str> {
    [
        (details.simulated, "simulated"),
        (details.overridden, "overridden"),
        (details.partial, "partial"),
        (!details.waivers.is_empty(), "waivers"),
        (!details.overrides.is_empty(), "limits changed by the site"),
    ]
    .into_iter()
    .filter_map(|(holds, mark)| holds.then_some(mark))
    .collect()
}

fn mark(status: Status) -> char {
    match status {
        Status::Passed => '✓',
        Status::Failed => '✗',
        Status::Warned | Status::Waived => '!',
        Status::Undecided => '?',
        Status::Skipped | Status::Absent => '-',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_does_not_fit_has_its_file_name_on_the_next_line() {
        let kept = |folder: &str| kept(&Path::new(folder).join("0193.json"), "SHA256:x", 2, Typeface::PLAIN);
        assert_eq!(kept("/var"), ["record  /var/0193.json", "signed  SHA256:x  seq 2"]);
        let long = format!("/{}", "a".repeat(68));
        assert_eq!(kept(&long)[..2], [format!("record  {long}/"), "        0193.json".to_owned()]);
    }
}
