//! A whole run on one screen: what a technician reads in the aisle, and what goes in a ticket.

use crate::decision::{Decision, Require};
use crate::event::Event;
use crate::outcome::{Action, Grade, Status};
use crate::predicate::{Details, Step};
use crate::report::problem::{self, Problem, problems};
use crate::report::typeface::Typeface;

/// The screen of a run that has ended, from its record.
pub fn render(details: &Details, typeface: Typeface) -> String {
    let mut lines = heading_of(details, typeface);
    lines.push(String::new());
    lines.extend(details.notices.iter().flat_map(|notice| notice_lines(notice, typeface)));
    let first = details.steps.first();
    lines.extend(first.and_then(|first| opening_line(&details.started_at, &first.started_at, typeface)));
    lines.extend(details.steps.iter().map(|step| step_line(step, typeface)));
    lines.push(conclusion(details, typeface));
    lines.join("\n")
}

/// `nodegate run · host · class … · stage … · level …`, in as many lines as it takes.
pub fn heading(event: &Event, typeface: Typeface) -> Vec<String> {
    match event {
        Event::RunStarted { hostname, class, stage, level, .. } => {
            let text = format!("nodegate run · {hostname} · class {class} · stage {stage} · level {level}");
            typeface.wrap_parts(&text, "  ")
        }
        _ => Vec::new(),
    }
}

fn heading_of(details: &Details, typeface: Typeface) -> Vec<String> {
    let text = format!(
        "nodegate run · {} · class {} · stage {} · level {}",
        details.host.hostname, details.plan.class.id, details.stage, details.level
    );
    typeface.wrap_parts(&text, "  ")
}

/// One line for people before the first step.
pub fn notice_lines(notice: &str, typeface: Typeface) -> Vec<String> {
    typeface.wrap(notice, "  note  ", "        ")
}

/// What goes on before the first step.
pub const OPENING: &str = "reading the host and asking the driver";

/// The time before the first step, where it is long enough to be asked about. Both are RFC 3339.
pub fn opening_line(started_at: &str, first_step_at: &str, typeface: Typeface) -> Option<String> {
    let seconds = problem::seconds_between(started_at, first_step_at).filter(|seconds| *seconds > 1.0)?;
    Some(row(&typeface.status(Status::Absent), "opening", OPENING, seconds, typeface))
}

/// Columns between a step's name and its time.
pub fn cause_columns(typeface: Typeface) -> usize {
    typeface.width.saturating_sub(32)
}

fn row(glyph: &str, name: &str, text: &str, seconds: f64, typeface: Typeface) -> String {
    let time = format!("{seconds:.1} s");
    format!("  {glyph} {} {} {time:>8}", typeface.fit(name, 17), typeface.fit(text, cause_columns(typeface)))
}

/// `  ✓ pcie-link         8 links, x16, generation 5                   0.1 s`
pub fn step_line(step: &Step, typeface: Typeface) -> String {
    let mut cause = step.outcome.cause.clone();
    if step.require != Require::Must {
        cause = format!("({}) {cause}", step.require);
    }
    let seconds = step.duration_ms as f64 / 1000.0;
    row(&typeface.status(step.outcome.status()), step.id.as_str(), &cause, seconds, typeface)
}

/// Everything under the steps: the decision, each problem, and what was waived.
pub fn conclusion(details: &Details, typeface: Typeface) -> String {
    let mut lines = vec![String::new()];
    lines.extend(verdict(details, typeface));
    if let Some(reason) = &details.reason {
        lines.extend(typeface.wrap(reason, "   ", "   "));
    }
    lines.extend(problem::way_on(details).into_iter().flat_map(|way| advice(way, typeface)));
    let mut number = 0;
    for problem in problems(details) {
        let label = match problem.finding.grade {
            Grade::Failed => {
                number += 1;
                number.to_string()
            }
            Grade::Undecided => "?".to_owned(),
            Grade::Warned => "!".to_owned(),
        };
        lines.push(String::new());
        lines.extend(problem_lines(&problem, &label, typeface));
    }
    lines.extend(not_judged(details, typeface));
    lines.extend(unmeasured(details, typeface));
    lines.extend(waived(details, typeface));
    lines.push(String::new());
    lines.join("\n")
}

fn advice(text: &str, typeface: Typeface) -> Vec<String> {
    let indent = format!("   {} ", typeface.arrow());
    typeface.wrap(text, &indent, &" ".repeat(indent.chars().count()))
}

fn verdict(details: &Details, typeface: Typeface) -> Vec<String> {
    let word = details.decision.as_str().to_uppercase();
    let colour = match details.decision {
        Decision::Accepted => "32;1",
        Decision::Rejected => "31;1",
        Decision::Undecided => "35;1",
    };
    let problems = counted(details);
    let mut marks = String::new();
    for (marked, mark) in [
        (details.simulated, " · SIMULATED HOST"),
        (details.overridden, " · OVERRIDDEN SOURCES"),
        (details.partial, " · PARTIAL RUN"),
    ] {
        if marked {
            marks.push_str(mark);
        }
    }
    let text =
        format!("{word} for stage {} at level {}{problems}{}{marks}", details.stage, details.level, took(details));
    let mut lines = typeface.wrap_parts(&text, "  ");
    // Painted last: colour has no width.
    if let Some(rest) = lines.first().and_then(|line| line.strip_prefix(word.as_str())) {
        lines[0] = format!("{}{rest}", typeface.paint(&word, colour));
    }
    lines
}

/// `, 2 problems, 1 step could not be measured`.
fn counted(details: &Details) -> String {
    problem::counted(details).iter().map(|part| format!(", {part}")).collect()
}

/// The run's wall time, opening of the driver included, which no step's own time shows.
fn took(details: &Details) -> String {
    let seconds = problem::seconds_between(&details.started_at, &details.finished_at);
    seconds.map(|seconds| format!(", {seconds:.1} s")).unwrap_or_default()
}

/// One problem, told once with every place where it is.
fn problem_lines(problem: &Problem<'_>, number: &str, typeface: Typeface) -> Vec<String> {
    let finding = problem.finding;
    let action = if finding.action == Action::None { "" } else { finding.action.as_str() };
    let room = typeface.width.saturating_sub(3 + action.len());
    let title = typeface.fit(&finding.title, room);
    let mut lines = vec![format!("{number:<3}{}{action}", typeface.grade(finding.grade, &title)).trim_end().to_owned()];
    for place in problem.places.iter().filter(|place| !place.is_empty()) {
        lines.extend(typeface.wrap(&place.join(" · "), "   ", "   "));
    }
    if !finding.expected.is_empty() || !finding.found.is_empty() {
        let compared = format!("expected {}, found {}", finding.expected, finding.found);
        lines.extend(typeface.wrap(&compared, "   ", "   "));
    }
    if let Some(during) = &finding.during {
        lines.push(format!("   arose while `{during}` ran"));
    }
    if !finding.advice.is_empty() {
        lines.extend(advice(&finding.advice, typeface));
    }
    lines
}

/// `not judged  slot 6 · bus 0000:75:00.0: gpu-idle, pcie-link (the driver does not show it)`
fn not_judged(details: &Details, typeface: Typeface) -> Vec<String> {
    let untold = problem::not_judged(details);
    let text = |untold: &problem::NotJudged<'_>| {
        let why = untold.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{}: {}{why}", untold.whom, untold.steps.join(", "))
    };
    let lines = untold.iter().flat_map(|untold| typeface.wrap(&text(untold), "not judged  ", "            "));
    after_an_empty_line(lines.collect())
}

fn unmeasured(details: &Details, typeface: Typeface) -> Vec<String> {
    match problem::unmeasured(details)[..] {
        [] => Vec::new(),
        ref names => after_an_empty_line(typeface.wrap(&format!("not measured: {}", names.join(", ")), "   ", "   ")),
    }
}

/// Waivers stand on every screen.
fn waived(details: &Details, typeface: Typeface) -> Vec<String> {
    let mut lines = Vec::new();
    for (step, finding, waiver) in problem::waived(details) {
        let text = format!(
            "waived until {}: {} {} on {} ({}; {})",
            waiver.until, step.id, finding.code, finding.subject, waiver.reason, waiver.who
        );
        lines.extend(typeface.wrap(&text, "~  ", "   "));
    }
    for change in &details.overrides {
        let text = format!(
            "overridden by the site: {} {} = {} ({}; {})",
            change.step, change.parameter, change.value, change.reason, change.who
        );
        lines.extend(typeface.wrap(&text, "~  ", "   "));
    }
    after_an_empty_line(lines)
}

fn after_an_empty_line(mut lines: Vec<String>) -> Vec<String> {
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}
