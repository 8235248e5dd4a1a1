//! A plan and a class for people, and a plan as JSON. Nothing here has run yet.

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::check::Kind;
use crate::plan::class::{Answer, Class};
use crate::plan::{self, Limit, Plan, PlannedStep, Work};

/// The version of the JSON form of a plan.
pub const FORMAT: u32 = 1;

/// Columns of a screen.
const WIDTH: usize = 80;

/// Where the text below a step begins.
const INDENT: usize = 3;

/// The column in which values stand, and sources below them.
const VALUE: usize = 26;

/// What a run would leave behind, for the last lines.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// What cannot be read as this user, one line each.
    pub lacking: Vec<String>,
    /// The state folder.
    pub state: String,
    /// About how many bytes a run writes there.
    pub bytes: u64,
}

/// The plan on a screen of 80 columns.
pub fn text(plan: &Plan, title: &str, kinds: &[Kind], footprint: &Footprint) -> String {
    let class = &plan.reference.class;
    let mut lines = vec![
        format!("nodegate plan · class {} ({}) · stage {} · level {}", class.id, class.chosen, plan.stage, plan.level),
        title.to_owned(),
    ];
    for (index, step) in plan.steps.iter().enumerate() {
        lines.push(String::new());
        step_lines(index + 1, step, plan, kinds, &mut lines);
    }
    lines.push(String::new());
    lines.extend(foot(plan, kinds, footprint));
    lines.join("\n") + "\n"
}

/// The plan as JSON, with its limits, sources and digests.
pub fn as_json(plan: &Plan, kinds: &[Kind], footprint: &Footprint) -> Value {
    let step = |step: &PlannedStep| {
        let (what, reason) = match &step.work {
            Work::Run(_) => ("run", None),
            Work::Absent { reason } => ("absent", Some(reason)),
            Work::LeftOut { reason } => ("left-out", Some(reason)),
        };
        json!({
            "id": step.id, "check": step.check, "require": step.require, "stage": step.stage,
            "work": what, "reason": reason, "needs": step.needs, "timeoutSeconds": step.timeout.as_secs_f64(),
            "expectedSeconds": seconds(step, plan, kinds),
            "proves": kind_of(step, kinds).map(|kind| kind.proves),
            "lacks": step.lacks(),
            "limits": step.limits.iter().map(|limit| json!({
                "name": limit.name, "value": plan::json(&limit.value), "source": limit.source,
            })).collect::<Vec<_>>(),
        })
    };
    json!({
        "format": FORMAT,
        "plan": plan.reference, "stage": plan.stage, "level": plan.level, "partial": plan.partial,
        "canAccept": plan.can_accept, "cannotAcceptBecause": plan.cannot_accept_because,
        "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
        "waivers": plan.waivers, "overrides": plan.overrides, "notices": plan.notices,
        "expectedSeconds": total(plan, kinds), "deadlineSeconds": plan.deadline.as_secs_f64(),
        "lacking": footprint.lacking,
        "writes": { "state": footprint.state, "bytes": footprint.bytes },
    })
}

/// A class on a screen: what it matches, and its answer to each step.
pub fn class_text(class: &Class) -> String {
    let mut lines = vec![format!("{} revision {} · {}", class.id, class.revision, class.title)];
    let models: Vec<String> = class.models.iter().map(ToString::to_string).collect();
    lines.push(if models.is_empty() {
        "matches nothing; it can reject but not accept".to_owned()
    } else {
        wrap(&format!("matches {}", models.join(", ")), 0).join("\n")
    });
    lines.push(class.digest.to_string());
    for (id, answer) in &class.answers {
        lines.push(String::new());
        lines.push(id.to_string());
        match answer {
            Answer::Limits(limits) => limits.iter().for_each(|limit| limit_lines(limit, &mut lines)),
            Answer::Absent(reason) => lines.extend(wrap(&format!("absent: {reason}"), INDENT)),
        }
    }
    lines.join("\n") + "\n"
}

fn step_lines(number: usize, step: &PlannedStep, plan: &Plan, kinds: &[Kind], lines: &mut Vec<String>) {
    let time = seconds(step, plan, kinds).map_or("–".to_owned(), |seconds| format!("{seconds:.1} s"));
    lines.push(format!("{number:<INDENT$}{:<54} {:<9}{time:>12}", step.id, step.require));
    if let Some(kind) = kind_of(step, kinds) {
        lines.extend(wrap(kind.proves, INDENT));
    }
    match &step.work {
        Work::Run(_) => step.limits.iter().for_each(|limit| limit_lines(limit, lines)),
        Work::Absent { reason } => lines.extend(wrap(&format!("absent in this class: {reason}"), INDENT)),
        Work::LeftOut { reason } => lines.extend(wrap(&format!("will not run: {reason}"), INDENT)),
    }
    lines.extend(step.lacks().into_iter().flat_map(|lack| wrap(&format!("the site lacks {lack}"), INDENT)));
}

fn limit_lines(limit: &Limit, lines: &mut Vec<String>) {
    let mut value = wrap(&shown(&limit.value), VALUE).into_iter();
    let first = value.next().unwrap_or_default();
    let width = VALUE - INDENT;
    lines.push(format!("{:INDENT$}{:<width$}{}", "", limit.name, first.trim_start()));
    lines.extend(value);
    lines.extend(wrap(&limit.source, VALUE));
}

/// A value for people: no quotes, a range as `1 to 8`.
fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(array) if array.is_empty() => "none".to_owned(),
        toml::Value::Array(array) => array.iter().map(shown).collect::<Vec<_>>().join(", "),
        toml::Value::Table(table) => match (table.get("min"), table.get("max"), table.len()) {
            (Some(min), Some(max), 2) => format!("{} to {}", shown(min), shown(max)),
            _ => value.to_string(),
        },
        other => other.to_string(),
    }
}

fn foot(plan: &Plan, kinds: &[Kind], footprint: &Footprint) -> Vec<String> {
    let mut lines = Vec::new();
    let notices = plan.notices.iter().chain(&plan.cannot_accept_because);
    lines.extend(notices.flat_map(|notice| wrap(&format!("note   {notice}"), 7)));
    if plan.partial {
        lines.extend(wrap("note   a partial run: with required steps left out it ends undecided", 7));
    }
    for waiver in &plan.waivers {
        let (finding, subject, step) = (&waiver.finding, &waiver.subject, &waiver.step);
        let text = format!(
            "waived {finding} on {subject} in {step} until {} by {}: {}",
            waiver.until, waiver.who, waiver.reason
        );
        lines.extend(wrap(&text, 7));
    }
    let lacking = match footprint.lacking.is_empty() {
        true => "none".to_owned(),
        false => footprint.lacking.join("; "),
    };
    let (time, deadline) = (total(plan, kinds), plan.deadline.as_secs());
    lines.push(format!("time   about {time:.1} s; given up after {deadline} s"));
    lines.extend(wrap(&format!("lacks  privileges: {lacking}"), 7));
    lines.extend(wrap(&format!("writes about {} kB under {}", footprint.bytes.div_ceil(1000), footprint.state), 7));
    lines
}

/// What the step takes by the table of kinds; none where it does not run.
fn seconds(step: &PlannedStep, plan: &Plan, kinds: &[Kind]) -> Option<f64> {
    let runs = matches!(step.work, Work::Run(_));
    kind_of(step, kinds).filter(|_| runs).and_then(|kind| kind.cost.get(plan.level as usize).copied())
}

fn total(plan: &Plan, kinds: &[Kind]) -> f64 {
    plan.steps.iter().filter_map(|step| seconds(step, plan, kinds)).sum()
}

fn kind_of<'a>(step: &PlannedStep, kinds: &'a [Kind]) -> Option<&'a Kind> {
    kinds.iter().find(|kind| kind.id == step.check.as_str())
}

/// The text in lines of at most [`WIDTH`] columns. All lines are indented, but a first word
/// that is itself followed by spaces up to the indent, a label, stands at the edge.
fn wrap(text: &str, indent: usize) -> Vec<String> {
    let (label, rest) = match text.split_at_checked(indent) {
        Some((label, rest)) if is_label(label) => (label.to_owned(), rest),
        _ => (" ".repeat(indent), text),
    };
    let mut lines = vec![label];
    let mut empty = true;
    for word in rest.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.width());
        if !empty && last + 1 + word.width() > WIDTH {
            lines.push(" ".repeat(indent));
            empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
        empty = false;
    }
    lines
}

/// `note   `, `waived `: one word and then spaces only.
fn is_label(text: &str) -> bool {
    let word = text.trim_end();
    text.len() == 7 && text.ends_with(' ') && !word.is_empty() && !word.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{self, KINDS};

    #[test]
    fn a_plan_names_each_step_with_limits_sources_and_what_the_site_lacks() {
        let plan = testing::plan();
        let footprint =
            Footprint { lacking: vec!["kernel log".into()], state: "/var/lib/nodegate".into(), bytes: 200_000 };
        let text = text(&plan, "A small host", KINDS, &footprint);
        for part in [
            "class small (named) · stage rack · level quick",
            "1  driver ",
            "minimum                535.129.03",
            "                          somewhere",
            "count                  1 to 8",
            "absent in this class: not in this test",
            "the site lacks [expect] gpu-count",
            "note   no site file",
            "lacks  privileges: kernel log",
            "writes about 200 kB under /var/lib/nodegate",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(text.lines().all(|line| line.width() <= WIDTH), "{text}");
    }

    #[test]
    fn the_json_form_has_the_same_steps_and_limits() {
        let json = as_json(&testing::plan(), KINDS, &Footprint::default());
        assert_eq!(json["steps"][0]["limits"][0]["value"], "535.129.03");
        assert_eq!(json["steps"][2]["work"], "absent");
        assert_eq!(json["canAccept"], false, "this small suite lacks most of the floor");
        assert_eq!(json["steps"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn long_text_is_wrapped_and_a_label_stands_at_the_edge() {
        let lines = wrap(&format!("note   {}", "word ".repeat(40)), 7);
        assert!(lines.len() > 2 && lines[0].starts_with("note   word") && lines[1].starts_with("       word"));
        assert!(lines.iter().all(|line| line.width() <= WIDTH));
        assert_eq!(wrap("a b", 3), ["   a b"]);
    }
}
