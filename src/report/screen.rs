//! A whole run on one screen: what a technician reads in the aisle, and what goes in a ticket.

mod not_judged;

use crate::decision::{Decision, Require};
use crate::event::Event;
use crate::outcome::{Action, Finding, Grade, Place, Status};
use crate::predicate::{Details, Step};
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
    let seconds = seconds_between(started_at, first_step_at).filter(|seconds| *seconds > 1.0)?;
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
    lines.extend(way_on(details).into_iter().flat_map(|way| advice(way, typeface)));
    let mut number = 0;
    for group in problems(details) {
        let label = match group.finding.grade {
            Grade::Failed => {
                number += 1;
                number.to_string()
            }
            Grade::Undecided => "?".to_owned(),
            Grade::Warned => "!".to_owned(),
        };
        lines.push(String::new());
        lines.extend(group.lines(&label, typeface));
    }
    lines.extend(not_judged::lines(details, typeface));
    lines.extend(unmeasured(details, typeface));
    lines.extend(waived(details, typeface));
    lines.push(String::new());
    lines.join("\n")
}

/// How an undecided run comes to a decision, where its findings do not say it.
fn way_on(details: &Details) -> Option<&'static str> {
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

/// `, 2 problems`; of an undecided run also the required steps that told nothing, which are no
/// faults of the machine.
fn counted(details: &Details) -> String {
    let failed = problems(details).iter().filter(|group| group.finding.grade == Grade::Failed).count();
    let untold = match details.decision {
        // What a partial run leaves out was not tried.
        Decision::Undecided => required(details)
            .filter(|step| told_nothing(step) && !(details.partial && step.outcome.status() == Status::Skipped))
            .count(),
        Decision::Accepted | Decision::Rejected => 0,
    };
    let mut text = match failed {
        0 => String::new(),
        1 => ", 1 problem".to_owned(),
        count => format!(", {count} problems"),
    };
    match untold {
        0 => {}
        1 => text.push_str(", 1 step could not be measured"),
        count => text.push_str(&format!(", {count} steps could not be measured")),
    }
    text
}

fn required(details: &Details) -> impl Iterator<Item = &Step> {
    details.steps.iter().filter(|step| step.require == Require::Must)
}

fn told_nothing(step: &Step) -> bool {
    matches!(step.outcome.status(), Status::Undecided | Status::Skipped)
}

/// The run's wall time, opening of the driver included, which no step's own time shows.
fn took(details: &Details) -> String {
    let seconds = seconds_between(&details.started_at, &details.finished_at);
    seconds.map(|seconds| format!(", {seconds:.1} s")).unwrap_or_default()
}

/// None where the texts are no times, as a record made elsewhere may have them.
fn seconds_between(from: &str, to: &str) -> Option<f64> {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    Some(time(to)?.duration_since(time(from)?).as_secs_f64())
}

/// Findings that differ only in their subject, told once with every place.
struct Group<'a> {
    finding: &'a Finding,
    places: Vec<String>,
}

/// Open findings, the worst first, otherwise in the order of the steps. What only follows from an
/// earlier step is left to the step lines, and what was not looked at to lines of its own.
fn problems(details: &Details) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (_, finding) in open_findings(details).filter(|(_, finding)| !not_judged::is(finding)) {
        let place = place(finding);
        match groups.iter_mut().find(|group| same_story(group.finding, finding)) {
            Some(group) if group.places.contains(&place) => {}
            Some(group) => group.places.push(place),
            None => groups.push(Group { finding, places: vec![place] }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.finding.grade));
    groups
}

/// What stands against the host, with the step that found it: not waived, and not told for
/// information only.
fn open_findings(details: &Details) -> impl Iterator<Item = (&Step, &Finding)> {
    let counted = details.steps.iter().filter(|step| step.require != Require::Inform);
    let findings = counted.flat_map(|step| step.outcome.findings.iter().map(move |finding| (step, finding)));
    findings.filter(|(_, finding)| finding.waived_by.is_none())
}

fn same_story(a: &Finding, b: &Finding) -> bool {
    (&a.code, a.grade, &a.title, &a.expected, &a.found, a.action, &a.during)
        == (&b.code, b.grade, &b.title, &b.expected, &b.found, b.action, &b.during)
}

impl Group<'_> {
    fn lines(&self, number: &str, typeface: Typeface) -> Vec<String> {
        let finding = self.finding;
        let action = if finding.action == Action::None { "" } else { finding.action.as_str() };
        let room = typeface.width.saturating_sub(3 + action.len());
        let title = typeface.fit(&finding.title, room);
        let mut lines =
            vec![format!("{number:<3}{}{action}", typeface.grade(finding.grade, &title)).trim_end().to_owned()];
        for place in self.places.iter().filter(|place| !place.is_empty()) {
            lines.extend(typeface.wrap(place, "   ", "   "));
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
}

fn place(finding: &Finding) -> String {
    match &finding.place {
        Some(Place { slot, bus_id, uuid, serial, last_accepted }) => [
            slot.as_ref().map(|slot| if slot.starts_with("module") { slot.clone() } else { format!("slot {slot}") }),
            bus_id.as_ref().map(|bus_id| format!("bus {bus_id}")),
            uuid.as_ref().map(|uuid| short_uuid(uuid)),
            serial.as_ref().map(|serial| format!("serial {serial}")),
            last_accepted.as_ref().map(|day| format!("last accepted {day}")),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" · "),
        None if finding.subject.as_str() == "host" => String::new(),
        None => finding.subject.as_str().to_owned(),
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

/// Required steps that ended undecided or skipped without a finding of their own.
fn unmeasured(details: &Details, typeface: Typeface) -> Vec<String> {
    let silent: Vec<&Step> =
        required(details).filter(|step| step.outcome.findings.is_empty() && told_nothing(step)).collect();
    if silent.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = silent.iter().map(|step| step.id.as_str()).collect();
    let text = format!("not measured: {}", names.join(", "));
    let mut lines = vec![String::new()];
    lines.extend(typeface.wrap(&text, "   ", "   "));
    lines
}

/// Waivers stand on every screen.
fn waived(details: &Details, typeface: Typeface) -> Vec<String> {
    let mut lines = Vec::new();
    let findings =
        details.steps.iter().flat_map(|step| step.outcome.findings.iter().map(move |finding| (step, finding)));
    for (step, finding) in findings {
        let Some(waiver) = finding.waived_by.and_then(|index| details.waivers.get(index)) else { continue };
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
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}
