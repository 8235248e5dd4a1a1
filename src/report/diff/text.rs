//! The difference on a screen of eighty columns, as it goes in a ticket.

use super::{Difference, FoundAt, GpuChange, Side, StepChange, VersionChange, What};
use crate::ident::printable;
use crate::outcome::Status;
use crate::report::columns::{LINE, align, cut};
use crate::report::record::moment;
use crate::report::typeface::Typeface;

/// Measurements that are shown; `--format json` has all.
const SHOWN: usize = 20;

/// Characters of a digest or version that tell two apart at a glance.
const SHORT: usize = 40;

pub fn text(difference: &Difference) -> String {
    let mut lines = vec![side("before", &difference.before), side("after", &difference.after)];
    lines.extend(difference.cautions.iter().map(|caution| format!("note    {caution}")));
    section(&mut lines, "hardware", difference.gpus.iter().flat_map(gpu));
    section(&mut lines, "versions", difference.versions.iter().flat_map(version));
    section(&mut lines, "steps", align(&difference.steps.iter().map(step).collect::<Vec<_>>()));
    section(&mut lines, "new findings", difference.new_findings.iter().flat_map(finding));
    section(&mut lines, "findings that are gone", difference.gone_findings.iter().flat_map(finding));
    section(&mut lines, "measurements, larger changes first", measurements(difference));
    if difference.is_empty() {
        lines.extend([String::new(), "no difference".to_owned()]);
    }
    if difference.same_measurements > 0 {
        let are = if difference.same_measurements == 1 { "measurement is" } else { "measurements are" };
        lines.extend([String::new(), format!("{} {are} the same", difference.same_measurements)]);
    }
    lines.iter().map(|line| format!("{}\n", cut(line, LINE))).collect()
}

fn section(lines: &mut Vec<String>, heading: &str, content: impl IntoIterator<Item = String>) {
    let mut content = content.into_iter().peekable();
    if content.peek().is_some() {
        lines.extend([String::new(), heading.to_owned()]);
        lines.extend(content.map(|line| format!("  {line}")));
    }
}

fn side(word: &str, side: &Side) -> String {
    let marks: String = side.marks.iter().map(|mark| format!(" · {}", mark.to_uppercase())).collect();
    let run: String = printable(&side.run_id, 36).chars().take(13).collect();
    format!(
        "{word:<7} {run} · {} · {} · {}/{}{marks}",
        moment(&side.finished_at),
        side.decision,
        side.stage,
        side.level
    )
}

fn gpu(change: &GpuChange) -> Vec<String> {
    let (place, identity) = (printable(&change.gpu.place(), 60), printable(&change.gpu.identity(), 60));
    match &change.what {
        What::Appeared => vec![format!("+ GPU new       {place} · {identity}")],
        What::Gone => vec![format!("- GPU gone      {place} · {identity}")],
        What::Moved { from } => {
            vec![
                format!("~ GPU moved     {place} · {identity}"),
                format!("                was in {}", printable(&from.place(), 60)),
            ]
        }
        What::Changed { property, before, after } => {
            vec![format!("~ {property:<13} {place}: {} → {}", either(before), either(after))]
        }
    }
}

fn version(change: &VersionChange) -> Vec<String> {
    let line = format!("{:<13} {} → {}", change.what, either(&change.before), either(&change.after));
    if line.chars().count() + 2 <= LINE {
        return vec![line];
    }
    vec![format!("{:<13} {}", change.what, either(&change.before)), format!("{:<11} → {}", "", either(&change.after))]
}

fn either(text: &Option<String>) -> String {
    text.as_ref().map_or_else(|| "none".to_owned(), |text| printable(text, SHORT))
}

fn step(change: &StepChange) -> Vec<String> {
    let word = |status: Option<Status>| status.map_or("not run", Status::as_str);
    let words = format!("{} → {}", word(change.before), word(change.after));
    vec![change.step.clone(), words, printable(&change.cause, 60)]
}

fn finding(found: &FoundAt) -> Vec<String> {
    let finding = &found.finding;
    let place = crate::report::problem::place(finding).join(" · ");
    let mut lines = vec![format!("{} ({})", printable(&finding.title, 60), found.step)];
    let compared = format!("expected {}, found {}", finding.expected, finding.found);
    for text in [place, if finding.expected.is_empty() { String::new() } else { compared }] {
        if !text.is_empty() {
            lines.extend(Typeface { width: LINE - 2, ..Typeface::PLAIN }.wrap(&printable(&text, 300), "  ", "  "));
        }
    }
    lines
}

fn measurements(difference: &Difference) -> Vec<String> {
    let rows: Vec<Vec<String>> = difference
        .measurements
        .iter()
        .take(SHOWN)
        .map(|change| {
            vec![
                printable(&change.name, 28),
                printable(&change.place, 14),
                format!("{} → {}", change.before_words(), change.after_words()),
                change.change(),
                if change.breaks { "✗".to_owned() } else { String::new() },
            ]
        })
        .collect();
    let mut lines = align(&rows);
    if difference.measurements.len() > SHOWN {
        lines.push(format!("and {} smaller ones: --format json has all", difference.measurements.len() - SHOWN));
    }
    lines
}
