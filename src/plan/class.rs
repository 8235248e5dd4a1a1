//! A class: a kind of host and its numbers, step by step, and the choice of one.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::Kind;
use crate::ident::{ClassId, Digest, PciModel, StepId, printable};

use super::Limit;
use super::document::{Document, Problems, nearest};
use super::limits;
use super::section::{self, At, Section};
use super::suite::{Step, Suite};

/// The class that is run where none is known. It matches nothing.
pub const GENERIC: &str = "generic";

/// `checks/classes`, as built in: file stem and text.
pub const BUILTIN: &[(&str, &str)] = &[
    ("a10", include_str!("../../checks/classes/a10.toml")),
    ("gb200-nvl72-tray", include_str!("../../checks/classes/gb200-nvl72-tray.toml")),
    ("generic", include_str!("../../checks/classes/generic.toml")),
    ("h100-pcie", include_str!("../../checks/classes/h100-pcie.toml")),
    ("hgx-a100-8", include_str!("../../checks/classes/hgx-a100-8.toml")),
    ("hgx-b200-8", include_str!("../../checks/classes/hgx-b200-8.toml")),
    ("hgx-h100-8", include_str!("../../checks/classes/hgx-h100-8.toml")),
    ("hgx-h200-8", include_str!("../../checks/classes/hgx-h200-8.toml")),
    ("l4", include_str!("../../checks/classes/l4.toml")),
    ("l40s", include_str!("../../checks/classes/l40s.toml")),
    ("t4", include_str!("../../checks/classes/t4.toml")),
    ("workstation", include_str!("../../checks/classes/workstation.toml")),
];

/// A kind of host.
#[derive(Clone, Debug)]
pub struct Class {
    pub id: ClassId,
    pub revision: u32,
    pub title: String,
    pub digest: Digest,
    /// GPU models of such a host; none for a class that may reject but not accept.
    pub models: BTreeSet<PciModel>,
    pub answers: BTreeMap<StepId, Answer>,
}

/// What a class says about a step.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Parameters in the order of the file.
    Limits(Vec<Limit>),
    /// It does not apply, and why.
    Absent(String),
}

/// What was asked for by option.
#[derive(Clone, Debug)]
pub enum Wish {
    /// By the GPUs on the PCI bus, unless the site names a class.
    Auto,
    /// `--class ID`.
    Id(String),
    /// `--class FILE`.
    File(Document),
}

/// A class, and how it came to be chosen.
#[derive(Clone, Debug)]
pub struct Choice {
    pub class: Class,
    /// `auto`, `named` or `site`, as the record has it.
    pub chosen: &'static str,
    /// Why no fitting class was found, for people; only for `generic`.
    pub because: Option<String>,
}

impl Class {
    /// Whether this class has something to accept by.
    pub fn can_accept(&self) -> bool {
        !self.models.is_empty()
    }
}

/// All classes that are built in.
///
/// # Errors
///
/// Everything that is wrong with them; a test keeps that empty.
pub fn all(suite: &Suite, kinds: &[Kind]) -> Result<Vec<Class>, Problems> {
    let mut problems = Problems::default();
    let mut classes = Vec::new();
    for (stem, text) in BUILTIN {
        match parse_builtin(stem, text, suite, kinds) {
            Ok(class) => classes.push(class),
            Err(Problems(more)) => problems.0.extend(more),
        }
    }
    problems.or(classes)
}

/// The built-in class of this name.
///
/// # Errors
///
/// If there is none; the message names the nearest.
pub fn builtin(id: &str, suite: &Suite, kinds: &[Kind]) -> Result<Class, Problems> {
    match BUILTIN.iter().find(|(stem, _)| *stem == id) {
        Some((stem, text)) => parse_builtin(stem, text, suite, kinds),
        None => {
            let found = printable(id, 60);
            let hint = nearest(&found, BUILTIN.iter().map(|(stem, _)| *stem));
            Err(Problems::one("class", format!("there is no class `{found}`{hint}")))
        }
    }
}

/// Chooses: what the option names, else what the site names, else by the GPUs on the PCI bus.
///
/// The bus decides by models, never by count: the class that most GPUs belong to is run, so that
/// a missing or foreign card fails that class and does not escape it.
///
/// # Errors
///
/// If the named class does not exist or has problems.
pub fn choose(
    on_bus: &[PciModel],
    site: Option<&str>,
    option: &Wish,
    suite: &Suite,
    kinds: &[Kind],
) -> Result<Choice, Problems> {
    let choice = |class, chosen, because| Choice { class, chosen, because };
    match (option, site) {
        (Wish::File(document), _) => Ok(choice(load(document, suite, kinds)?, "named", None)),
        (Wish::Id(id), _) => Ok(choice(builtin(id, suite, kinds)?, "named", None)),
        (Wish::Auto, Some(id)) => Ok(choice(builtin(id, suite, kinds)?, "site", None)),
        (Wish::Auto, None) => match by_models(on_bus, all(suite, kinds)?) {
            Ok(class) => Ok(choice(class, "auto", None)),
            Err(because) => Ok(choice(builtin(GENERIC, suite, kinds)?, "auto", Some(because))),
        },
    }
}

/// What a class file means.
///
/// # Errors
///
/// Everything that is wrong with it: each step of the suite needs an answer, each limit a source.
pub fn load(document: &Document, suite: &Suite, kinds: &[Kind]) -> Result<Class, Problems> {
    let keys = ["format", "id", "revision", "title", "match", "limits", "sources", "absent"];
    section::read(document, &keys, |file| {
        let id = file.need::<ClassId>("id");
        if let Some(id) = &id
            && id.value.as_str() != document.stem()
        {
            let stem = printable(document.stem(), 60);
            file.note(id.line, format!("class `{}` stands in a file named `{stem}`; the two must agree", id.value));
        }
        file.require("revision");
        let revision = file.number("revision", 1);
        let title = file.need_words("title");
        file.require("match");
        let models = file.section("match").map(|table| {
            table.only(&["gpus"]);
            table.require("gpus");
            table.list::<PciModel>("gpus")
        });
        let answers = answers(file, suite, kinds);
        Some(Class {
            id: id?.value,
            revision: revision?.value,
            title: printable(&title?.value, 200),
            digest: document.digest,
            models: models?.into_iter().map(|model| model.value).collect(),
            answers,
        })
    })
}

fn parse_builtin(stem: &str, text: &str, suite: &Suite, kinds: &[Kind]) -> Result<Class, Problems> {
    load(&Document::new(&format!("built-in classes/{stem}.toml"), text.as_bytes())?, suite, kinds)
}

/// The class that most GPUs belong to, or why there is none.
fn by_models(on_bus: &[PciModel], classes: Vec<Class>) -> Result<Class, String> {
    // A model that no class has is a group of its own, so that it can outnumber a class.
    let mut groups: BTreeMap<(Vec<usize>, Option<PciModel>), usize> = BTreeMap::new();
    for model in on_bus {
        let owners: Vec<usize> = classes
            .iter()
            .enumerate()
            .filter(|(_, class)| class.models.contains(model))
            .map(|(index, _)| index)
            .collect();
        let alone = owners.is_empty().then_some(*model);
        *groups.entry((owners, alone)).or_default() += 1;
    }
    let most = groups.values().copied().max().ok_or("no NVIDIA GPU is on the PCI bus")?;
    let mut largest = groups.into_iter().filter(|(_, count)| *count == most).map(|(group, _)| group);
    let (first, second) = (largest.next(), largest.next());
    match (first, second) {
        (Some((owners, None)), None) => match owners[..] {
            [index] => classes.into_iter().nth(index).ok_or_else(|| "no class has this index".to_owned()),
            _ => Err("the GPUs on the PCI bus fit several classes".to_owned()),
        },
        (Some((_, Some(model))), None) => Err(format!("no class has the GPU {model} that is on the PCI bus")),
        _ => Err("the GPUs on the PCI bus are of several classes, none with more than the others".to_owned()),
    }
}

/// The answer to each step, with everything that is wrong written down.
fn answers(file: &Section<'_>, suite: &Suite, kinds: &[Kind]) -> BTreeMap<StepId, Answer> {
    let limits = file.section("limits").map(|table| table.tables()).unwrap_or_default();
    let mut sources = file.section("sources").map(|table| table.tables()).unwrap_or_default();
    let absent: BTreeMap<String, At<toml::Value>> =
        file.section("absent").map(|table| table.values()).unwrap_or_default().into_iter().collect();

    let named = limits.iter().map(|(name, table)| (name, table.line));
    for (name, line) in named.chain(absent.iter().map(|(name, at)| (name, at.line))) {
        // A suite of one's own may be shorter than the one that a class was written for.
        if suite.step(name).is_none() && !kinds.iter().any(|kind| kind.id == name) {
            file.note(line, format!("the suite has no step `{name}`{}", nearest(name, suite.names())));
        }
    }
    for (name, table) in &sources {
        if !limits.contains_key(name) {
            file.note(table.line, format!("sources for `{name}`, which has no limits{}", nearest(name, suite.names())));
        }
    }
    let mut answers = BTreeMap::new();
    for step in &suite.steps {
        let id = step.id.as_str();
        let answer = match (limits.get(id), absent.get(id)) {
            (Some(table), None) => step_limits(table, sources.remove(id), step, kinds).map(Answer::Limits),
            (None, Some(reason)) => absence(file, id, reason),
            (Some(_), Some(reason)) => {
                file.note(reason.line, format!("step `{id}` has limits and is absent as well"));
                None
            }
            (None, None) => {
                file.note(
                    1,
                    format!("step `{id}` has no answer; write [limits.{id}], or `{id}` in [absent] with the reason"),
                );
                None
            }
        };
        answers.extend(answer.map(|answer| (step.id.clone(), answer)));
    }
    answers
}

fn absence(file: &Section<'_>, id: &str, reason: &At<toml::Value>) -> Option<Answer> {
    match reason.value.as_str().map(str::trim) {
        Some(text) if !text.is_empty() => Some(Answer::Absent(printable(text, 200))),
        _ => {
            file.note(reason.line, format!("the reason why `{id}` is absent must be a sentence"));
            None
        }
    }
}

/// The parameters of one step, each with its source, tried on the check itself.
fn step_limits(table: &Section<'_>, sources: Option<Section<'_>>, step: &Step, kinds: &[Kind]) -> Option<Vec<Limit>> {
    let kind = kinds.iter().find(|kind| kind.id == step.check.as_str())?;
    table.only(kind.parameters);
    let given: BTreeMap<String, At<toml::Value>> =
        sources.as_ref().map(|section| section.values()).unwrap_or_default().into_iter().collect();
    let values = table.values();
    for (name, source) in &given {
        if !values.iter().any(|(limit, _)| limit == name) {
            table.note(source.line, format!("a source for `{name}`, which is not limited in step `{}`", step.id));
        }
    }
    let mut limits = Vec::new();
    for (name, at) in &values {
        let source = given.get(name).and_then(|source| source.value.as_str()).unwrap_or_default().trim();
        if source.is_empty() {
            table.note(at.line, format!("`{name}` has no source; write where it comes from in [sources.{}]", step.id));
        }
        limits.push(Limit { name: name.clone(), value: at.value.clone(), source: printable(source, 300) });
    }
    let known: Vec<Limit> =
        limits.iter().filter(|limit| kind.parameters.contains(&limit.name.as_str())).cloned().collect();
    for refusal in limits::build(kind, &known).err().unwrap_or_default() {
        let line = values.iter().find(|(name, _)| Some(name) == refusal.parameter.as_ref()).map(|(_, at)| at.line);
        table.note(line.unwrap_or(table.line), format!("step `{}`: {}", step.id, refusal.text));
    }
    Some(limits)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, KINDS};
    use super::*;

    fn problems(text: &str) -> String {
        let document = Document::new("classes/small.toml", text.as_bytes()).unwrap();
        load(&document, &testing::suite(), KINDS).err().map(|problems| problems.to_string()).unwrap_or_default()
    }

    fn class(id: &str, models: &[&str]) -> Class {
        let models = models.iter().map(|model| model.parse().unwrap()).collect();
        Class { id: id.parse().unwrap(), models, ..testing::class() }
    }

    #[test]
    fn a_class_answers_each_step_and_keeps_sources() {
        let class = testing::class();
        assert_eq!(class.answers.len(), 4);
        let Some(Answer::Limits(limits)) = class.answers.get(&"power".parse().unwrap()) else { panic!() };
        assert_eq!((limits[0].name.as_str(), limits[0].source.as_str()), ("limit", "somewhere"));
    }

    #[test]
    fn everything_that_is_wrong_with_a_class_is_said_at_once() {
        let text = testing::CLASS
            .replace("id = \"small\"", "id = \"tiny\"")
            .replace("limit = \"700 W\"", "limit = \"83 C\"")
            .replace("[absent]\naftermath = \"not in this test\"", "[absent]\naftermth = \"why\"")
            .replace("minimum = \"535.129.03\"", "minimun = \"535.129.03\"")
            .replace("[sources.gpu-inventory]\ncount = \"somewhere\"\n", "")
            .replace("10de:2330", "10de-2330");
        let problems = problems(&text);
        for text in [
            "class `tiny` stands in a file named `small`",
            "`83 C` is not a power",
            "the suite has no step `aftermth`; did you mean `aftermath`?",
            "step `aftermath` has no answer",
            "unknown key `minimun` in [limits.driver]; did you mean `minimum`?",
            "`count` has no source",
            "`10de-2330` is not a PCI model",
        ] {
            assert!(problems.contains(text), "{text} is not in:\n{problems}");
        }
        let wrong_unit = problems.lines().find(|line| line.contains("83 C")).unwrap_or_default();
        let line = text.lines().position(|line| line.contains("83 C")).unwrap() + 1;
        assert!(wrong_unit.starts_with(&format!("classes/small.toml:{line}:")), "{wrong_unit}");
    }

    #[test]
    fn the_bus_chooses_by_models_and_never_by_count() {
        let bus = |models: &[&str]| -> Vec<PciModel> { models.iter().map(|model| model.parse().unwrap()).collect() };
        let classes = || vec![class("h100", &["10de:2330"]), class("h200", &["10de:2335", "10de:2336"])];
        let chosen = |models: &[&str]| by_models(&bus(models), classes()).map(|class| class.id.to_string());
        assert_eq!(chosen(&["10de:2330"; 7]).unwrap(), "h100");
        assert_eq!(chosen(&["10de:2330", "10de:2330", "10de:2335"]).unwrap(), "h100");
        assert_eq!(chosen(&["10de:2335", "10de:2336", "10de:2330"]).unwrap(), "h200");
        assert!(chosen(&["10de:2330", "10de:2335"]).unwrap_err().contains("several classes"));
        assert!(chosen(&["10de:2330", "10de:ffff", "10de:ffff"]).unwrap_err().contains("10de:ffff"));
        assert!(chosen(&["10de:2330", "10de:ffff"]).is_err());
        assert!(chosen(&[]).unwrap_err().contains("no NVIDIA GPU"));
    }

    #[test]
    fn a_model_in_two_classes_chooses_none() {
        let classes = vec![class("one", &["10de:2330"]), class("two", &["10de:2330"])];
        assert!(by_models(&["10de:2330".parse().unwrap()], classes).unwrap_err().contains("several"));
    }

    #[test]
    fn an_unknown_class_is_refused_with_the_nearest() {
        let error = builtin("hgx-h10-8", &testing::suite(), KINDS).unwrap_err().to_string();
        assert!(error.contains("there is no class `hgx-h10-8`; did you mean `hgx-h100-8`?"), "{error}");
    }
}
