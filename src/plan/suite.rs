//! The suite: the ordered list of steps, one for all hosts.

use std::time::Duration;

use crate::check::Kind;
use crate::decision::{Level, Require, Stage};
use crate::ident::{CheckId, Digest, StepId, SuiteId};
use crate::units::Seconds;

use super::document::{Document, Problems, nearest};
use super::section::{self, At, Section};

/// `checks/suite.toml`, as built in.
pub const BUILTIN: &str = include_str!("../../checks/suite.toml");

/// The check that the last `must` step of every suite uses.
pub const LAST: &str = "aftermath";

/// The ordered list of steps.
#[derive(Clone, Debug)]
pub struct Suite {
    pub id: SuiteId,
    pub revision: u32,
    pub digest: Digest,
    pub steps: Vec<Step>,
}

/// One use of a check.
#[derive(Clone, Debug)]
pub struct Step {
    pub id: StepId,
    pub check: CheckId,
    pub require: Require,
    pub stage: Stage,
    pub level: Level,
    pub timeout: Duration,
    /// Steps before this one.
    pub needs: Vec<StepId>,
}

impl Suite {
    /// The step of this name.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id.as_str() == id)
    }

    /// The names of all steps, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| step.id.as_str())
    }
}

/// The suite that is built in.
///
/// # Errors
///
/// If a step uses a check that is not among `kinds`.
pub fn builtin(kinds: &[Kind]) -> Result<Suite, Problems> {
    load(&Document::new("built-in suite", BUILTIN.as_bytes())?, kinds)
}

/// What a suite file means.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn load(document: &Document, kinds: &[Kind]) -> Result<Suite, Problems> {
    section::read(document, &["format", "id", "revision", "step"], |file| {
        let id = file.need::<SuiteId>("id");
        file.require("revision");
        let revision = file.number("revision", 1);
        let tables = file.sections("step");
        if tables.is_empty() {
            file.note(1, "the suite has no [[step]]; an empty suite proves nothing");
        }
        let mut steps: Vec<At<Step>> = Vec::new();
        for table in &tables {
            steps.extend(step(table, &steps, kinds).map(|value| At { value, line: table.line }));
        }
        if steps.len() == tables.len() {
            check_last(file, &steps);
        }
        let steps = steps.into_iter().map(|step| step.value).collect();
        Some(Suite { id: id?.value, revision: revision?.value, digest: document.digest, steps })
    })
}

fn step(table: &Section<'_>, before: &[At<Step>], kinds: &[Kind]) -> Option<Step> {
    table.only(&["id", "check", "require", "stage", "level", "timeout", "needs"]);
    for key in ["require", "stage", "level"] {
        table.require(key);
    }
    let id = table.need::<StepId>("id");
    if let Some(id) = &id
        && let Some(first) = before.iter().find(|step| step.value.id == id.value)
    {
        table.note(id.line, format!("step `{}` stands on line {} already", id.value, first.line));
    }
    let check = table.need::<CheckId>("check");
    if let Some(check) = &check
        && !kinds.iter().any(|kind| kind.id == check.value.as_str())
    {
        let hint = nearest(check.value.as_str(), kinds.iter().map(|kind| kind.id));
        table.note(check.line, format!("there is no check `{}`{hint}", check.value));
    }
    let require = table.choice("require", &[Require::Must, Require::Should, Require::Inform]);
    let stage = table.choice("stage", &[Stage::Rack, Stage::Image, Stage::Service]);
    let level = table.choice("level", &[Level::Quick, Level::Standard, Level::Soak]);
    let timeout = table.need::<Seconds>("timeout");
    if let Some(timeout) = &timeout
        && timeout.value.number() <= 0.0
    {
        table.note(timeout.line, "`timeout` must be more than nothing");
    }
    let needs = needs(table, before);
    Some(Step {
        id: id?.value,
        check: check?.value,
        require: require?.value,
        stage: stage?.value,
        level: level?.value,
        timeout: timeout?.value.duration(),
        needs,
    })
}

/// Each step that is needed must stand before this one.
fn needs(table: &Section<'_>, before: &[At<Step>]) -> Vec<StepId> {
    let needs: Vec<At<StepId>> = table.list("needs");
    for need in &needs {
        if !before.iter().any(|step| step.value.id == need.value) {
            let hint = nearest(need.value.as_str(), before.iter().map(|step| step.value.id.as_str()));
            table.note(need.line, format!("no step `{}` stands before the step that needs it{hint}", need.value));
        }
    }
    needs.into_iter().map(|need| need.value).collect()
}

/// What our own work leaves behind is judged last, or it is not judged.
fn check_last(file: &Section<'_>, steps: &[At<Step>]) {
    let last = steps.iter().rfind(|step| step.value.require == Require::Must);
    match last {
        Some(step) if step.value.check.as_str() == LAST => {}
        Some(step) => file.note(
            step.line,
            format!("the last step with require = \"must\" is `{}`; it must use the check `{LAST}`", step.value.id),
        ),
        None if steps.is_empty() => {}
        None => file.note(1, format!("no step has require = \"must\"; the last of them must use the check `{LAST}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, KINDS};
    use super::*;

    fn problems(text: &str) -> String {
        let document = Document::new("suite.toml", text.as_bytes()).unwrap();
        load(&document, KINDS).err().map(|problems| problems.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_suite_reads_its_steps_in_order() {
        let suite = testing::suite();
        assert_eq!(suite.names().collect::<Vec<_>>(), ["driver", "gpu-inventory", "power", "aftermath"]);
        assert_eq!(suite.step("power").map(|step| step.timeout), Some(Duration::from_secs(20)));
    }

    #[test]
    fn an_empty_suite_and_one_without_an_end_are_refused() {
        assert!(problems("format = 1\nid = \"a\"\nrevision = 1\n").contains("no [[step]]"));
        let text = testing::SUITE.replace("check = \"aftermath\"", "check = \"power\"");
        assert!(
            problems(&text).contains("the last step with require = \"must\" is `aftermath`"),
            "{}",
            problems(&text)
        );
    }

    #[test]
    fn every_mistake_in_a_step_is_reported_at_its_line() {
        let text = testing::SUITE
            .replace("check = \"power\"", "check = \"powr\"")
            .replace("id = \"gpu-inventory\"", "id = \"driver\"")
            .replace("timeout = \"20 s\"", "timeout = \"20 W\"")
            .replace("level = \"quick\" # power", "level = \"quik\"")
            .replace("needs = [\"driver\"] # power", "needs = [\"aftermath\"]\ncolour = 1");
        let problems = problems(&text);
        for text in [
            "there is no check `powr`; did you mean `power`?",
            "step `driver` stands on line 4 already",
            "`20 W` is not a time",
            "`level` cannot be `quik`; did you mean `quick`?",
            "no step `aftermath` stands before",
            "unknown key `colour` in step 3",
        ] {
            assert!(problems.contains(text), "{text} is not in:\n{problems}");
        }
        assert!(problems.lines().all(|line| line.starts_with("suite.toml:")), "{problems}");
    }
}
