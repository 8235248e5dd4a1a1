//! From suite, class and site to a plan.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::civil::Date;

use crate::check::{Kind, xid::XidPolicy};
use crate::decision::{CORE, FLOOR, Level, Require, Stage};
use crate::ident::{StepId, printable};
use crate::predicate::{ClassReference, Override, PlanReference, SuiteReference};

use super::class::{Answer, Choice};
use super::document::{Problem, Problems, nearest};
use super::limits;
use super::section::At;
use super::site::{self, Site, SiteWaiver};
use super::suite::{self, Step, Suite};
use super::{Limit, Plan, PlannedStep, Work};

/// What a run needs beside its steps: opening the session, the record, the farewell.
const MARGIN: Duration = Duration::from_secs(30);

/// A waiver that ends within so many days is announced.
const ENDS_SOON: i32 = 14;

/// What a plan is made of.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    pub suite: &'a Suite,
    pub choice: &'a Choice,
    pub site: Option<&'a Site>,
    /// By option; without one the site's, else `rack` without and `service` with a site file.
    pub stage: Option<Stage>,
    pub level: Level,
    /// Step names; empty for all.
    pub only: &'a [String],
    pub skip: &'a [String],
    /// The host's own name, if it could be read.
    pub hostname: Option<&'a str>,
    /// The day by which waivers end.
    pub today: Date,
}

impl Plan {
    /// Resolves what will run.
    ///
    /// # Errors
    ///
    /// A name in `only` or `skip` that is no step, an override that the check refuses, an
    /// expectation that contradicts the class.
    pub fn resolve(inputs: &Inputs<'_>, kinds: &[Kind]) -> Result<Plan, Problems> {
        let mut problems = Problems::default();
        check_names("--only", inputs.only, inputs.suite, &mut problems);
        check_names("--skip", inputs.skip, inputs.suite, &mut problems);
        let default = if inputs.site.is_some() { Stage::Service } else { Stage::Rack };
        let asked = inputs.stage.or(inputs.site.and_then(|site| site.stage));
        // A default promises no more than the suite has; who asks for more is told.
        let furthest = inputs.suite.steps.iter().map(|step| step.stage).max().unwrap_or(Stage::Rack);
        let stage = asked.unwrap_or(default.min(furthest));
        let wanted = wanted(inputs);
        let mut steps = Vec::new();
        for step in inputs.suite.steps.iter().filter(|step| step.stage <= stage && step.level <= inputs.level) {
            let left_out = left_out(step, &wanted, inputs.skip);
            steps.extend(planned(step, left_out, inputs, kinds, &mut problems));
        }
        let because = cannot_accept_because(inputs)
            .or_else(|| what_the_floor_lacks(&steps))
            .or_else(|| more_than_the_suite_has(stage, inputs));
        let timeouts = steps.iter().filter(|step| matches!(step.work, Work::Run(_))).map(|step| step.timeout);
        let plan = Plan {
            reference: reference(inputs),
            stage,
            level: inputs.level,
            can_accept: because.is_none(),
            cannot_accept_because: because,
            partial: steps.iter().any(|step| matches!(step.work, Work::LeftOut { .. })),
            waivers: standing_waivers(inputs).map(|waiver| waiver.value.waiver.clone()).collect(),
            overrides: inputs.site.map(|site| site.overrides.iter().map(record_of).collect()).unwrap_or_default(),
            deadline: timeouts.sum::<Duration>() + MARGIN,
            notices: notices(inputs, stage),
            steps,
        };
        problems.or(plan)
    }
}

impl PlannedStep {
    /// The entry of the site file that would make this step sharper, if one is missing.
    pub fn lacks(&self) -> Option<&'static str> {
        let counted = self.check.as_str() == "gpu-inventory";
        let ranged = self.limits.iter().any(|limit| limit.name == "count" && limit.value.is_table());
        (counted && ranged).then_some("[expect] gpu-count: the class knows a range only")
    }
}

fn reference(inputs: &Inputs<'_>) -> PlanReference {
    let (suite, class) = (inputs.suite, &inputs.choice.class);
    PlanReference {
        suite: SuiteReference { id: suite.id.clone(), revision: suite.revision, digest: suite.digest },
        class: ClassReference {
            id: class.id.clone(),
            revision: class.revision,
            digest: class.digest,
            chosen: inputs.choice.chosen.to_owned(),
        },
        site: inputs.site.map(|site| site.digest),
        policy: XidPolicy::builtin().digest,
    }
}

fn check_names(option: &str, names: &[String], suite: &Suite, problems: &mut Problems) {
    for name in names.iter().filter(|name| suite.step(name).is_none()) {
        let found = printable(name, 60);
        let text = format!("the suite has no step `{found}`{}", nearest(&found, suite.names()));
        problems.0.push(Problem { place: option.to_owned(), line: None, text });
    }
}

/// The steps that `--only` names, and those that they need.
fn wanted<'a>(inputs: &Inputs<'a>) -> BTreeSet<&'a str> {
    let mut wanted: BTreeSet<&str> = inputs.only.iter().map(String::as_str).collect();
    // Needs point backwards only, so that one pass from the end finds them all.
    for step in inputs.suite.steps.iter().rev() {
        if wanted.contains(step.id.as_str()) {
            wanted.extend(step.needs.iter().map(StepId::as_str));
        }
    }
    wanted
}

fn left_out(step: &Step, wanted: &BTreeSet<&str>, skip: &[String]) -> Option<String> {
    if skip.iter().any(|name| name == step.id.as_str()) {
        Some("left out by --skip".to_owned())
    } else if !wanted.is_empty() && !wanted.contains(step.id.as_str()) {
        Some("not named by --only".to_owned())
    } else {
        None
    }
}

/// One step with its limits; none if something is wrong with it, which is then in `problems`.
fn planned(
    step: &Step,
    left_out: Option<String>,
    inputs: &Inputs<'_>,
    kinds: &[Kind],
    problems: &mut Problems,
) -> Option<PlannedStep> {
    let answer = inputs.choice.class.answers.get(&step.id);
    let kind = kinds.iter().find(|kind| kind.id == step.check.as_str());
    let (limits, work) = match (answer, kind) {
        (Some(Answer::Absent(reason)), Some(_)) => {
            refuse_override_of_absent(step, inputs, problems);
            (Vec::new(), Work::Absent { reason: reason.clone() })
        }
        (Some(Answer::Limits(limits)), Some(kind)) => {
            let limits = at_this_place(step, limits, inputs, problems);
            match limits::build(kind, &limits) {
                Ok(check) => (limits, Work::Run(check)),
                Err(refusals) => {
                    problems.0.extend(refusals.into_iter().map(|refusal| blame(step, refusal, inputs)));
                    return None;
                }
            }
        }
        _ => {
            let text = format!("class `{}` has no answer to step `{}`", inputs.choice.class.id, step.id);
            problems.0.push(Problem { place: "class".to_owned(), line: None, text });
            return None;
        }
    };
    let work = match left_out {
        Some(reason) => Work::LeftOut { reason },
        None => work,
    };
    Some(PlannedStep {
        id: step.id.clone(),
        check: step.check.clone(),
        require: step.require,
        stage: step.stage,
        timeout: step.timeout,
        needs: step.needs.clone(),
        limits,
        work,
    })
}

/// The class's limits with what the site expects and overrides.
fn at_this_place(step: &Step, limits: &[Limit], inputs: &Inputs<'_>, problems: &mut Problems) -> Vec<Limit> {
    let mut limits = limits.to_vec();
    let Some(site) = inputs.site else { return limits };
    let mine = || site.overrides.iter().filter(|at| at.value.step == step.id);
    if step.check.as_str() == "gpu-inventory"
        && let Some(count) = &site.expect.gpu_count
        && !mine().any(|at| at.value.parameter == "count")
    {
        match limits.iter_mut().find(|limit| limit.name == "count") {
            Some(limit) if !contains(&limit.value, count.value) => {
                problems.0.push(contradiction(site, count, limit, inputs));
            }
            Some(limit) => {
                limit.value = toml::Value::Integer(i64::from(count.value));
                limit.source = "site [expect] gpu-count".to_owned();
            }
            None => {}
        }
    }
    for At { value: change, .. } in mine() {
        let source = format!("site override by {}: {}", change.who, change.reason);
        let changed = Limit { name: change.parameter.clone(), value: change.value.clone(), source };
        match limits.iter_mut().find(|limit| limit.name == change.parameter) {
            Some(limit) => *limit = changed,
            None => limits.push(changed),
        }
    }
    limits
}

/// Whether a class's count, a number or a range, allows this number.
fn contains(count: &toml::Value, number: u32) -> bool {
    let number = i64::from(number);
    let bound = |key, otherwise| count.get(key).and_then(toml::Value::as_integer).unwrap_or(otherwise);
    match count.as_integer() {
        Some(exact) => exact == number,
        None => (bound("min", 1)..=bound("max", i64::MAX)).contains(&number),
    }
}

fn contradiction(site: &Site, count: &At<u32>, limit: &Limit, inputs: &Inputs<'_>) -> Problem {
    let text = format!(
        "`gpu-count` is {}, but class `{}` says {}; name another class, or write an [[override]] of `count` with its reason",
        count.value, inputs.choice.class.id, limit.value
    );
    Problem { place: site.name.clone(), line: Some(count.line), text }
}

fn refuse_override_of_absent(step: &Step, inputs: &Inputs<'_>, problems: &mut Problems) {
    let Some(site) = inputs.site else { return };
    for at in site.overrides.iter().filter(|at| at.value.step == step.id) {
        let text = format!("step `{}` is absent in class `{}`: nothing to override", step.id, inputs.choice.class.id);
        problems.0.push(Problem { place: site.name.clone(), line: Some(at.line), text });
    }
}

/// A refused parameter, at the line of the override that set it, or at the class.
fn blame(step: &Step, refusal: limits::Refusal, inputs: &Inputs<'_>) -> Problem {
    let text = format!("step `{}`: {}", step.id, refusal.text);
    let overridden = inputs.site.and_then(|site| {
        let set = |at: &&At<site::Override>| {
            at.value.step == step.id && Some(&at.value.parameter) == refusal.parameter.as_ref()
        };
        site.overrides.iter().find(set).map(|at| (site.name.clone(), at.line))
    });
    match overridden {
        Some((place, line)) => Problem { place, line: Some(line), text },
        None => Problem { place: format!("class {}", inputs.choice.class.id), line: None, text },
    }
}

fn standing_waivers<'a>(inputs: &Inputs<'a>) -> impl Iterator<Item = &'a At<SiteWaiver>> {
    let today = inputs.today;
    inputs.site.into_iter().flat_map(|site| &site.waivers).filter(move |waiver| waiver.value.until >= today)
}

fn record_of(at: &At<site::Override>) -> Override {
    Override {
        step: at.value.step.to_string(),
        parameter: at.value.parameter.clone(),
        value: json(&at.value.value),
        reason: at.value.reason.clone(),
        who: at.value.who.clone(),
    }
}

/// The same value as JSON; a date becomes its text.
pub fn json(value: &toml::Value) -> serde_json::Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(value) => (*value).into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(array) => array.iter().map(json).collect::<Vec<_>>().into(),
        toml::Value::Table(table) => {
            table.iter().map(|(key, value)| (key.clone(), json(value))).collect::<serde_json::Map<_, _>>().into()
        }
    }
}

/// Why this run can reject but not accept, if so.
fn cannot_accept_because(inputs: &Inputs<'_>) -> Option<String> {
    let class = &inputs.choice.class;
    if !class.can_accept() {
        let why = inputs.choice.because.clone().unwrap_or_else(|| "it has no GPU models to accept by".to_owned());
        return Some(format!(
            "class {} can reject but not accept: {why}; name a class with --class or in the site file",
            class.id
        ));
    }
    let expected = inputs.site?.expect.hostname.as_ref()?;
    let name = printable(&expected.value, 100);
    match inputs.hostname {
        Some(found) if found == expected.value => None,
        Some(found) => Some(format!("the site file is for host `{name}`, and this is `{}`", printable(found, 100))),
        None => Some(format!("the site file is for host `{name}`, and this host's name could not be read")),
    }
}

/// The furthest stage and the deepest level that a step which decides has.
fn deepest(inputs: &Inputs<'_>) -> (Stage, Level) {
    let required = || inputs.suite.steps.iter().filter(|step| step.require == Require::Must);
    let stage = required().map(|step| step.stage).max().unwrap_or(Stage::Rack);
    let level = required().map(|step| step.level).max().unwrap_or(Level::Quick);
    (stage, level)
}

/// A stage or level of which the suite has no step is not one to accept for: the record would
/// promise what nothing has looked at.
fn more_than_the_suite_has(stage: Stage, inputs: &Inputs<'_>) -> Option<String> {
    let (furthest, deepest) = deepest(inputs);
    let suite = &inputs.suite.id;
    if stage > furthest {
        return Some(format!("suite {suite} has no step of stage {stage} yet; decide for less: --stage {furthest}"));
    }
    (inputs.level > deepest)
        .then(|| format!("suite {suite} has no step of level {} yet; decide for less: --level {deepest}", inputs.level))
}

/// What these steps could never accept for: a check of the floor that is not required of this run
/// or is declared away, or work of ours that nothing judges afterwards.
fn what_the_floor_lacks(steps: &[PlannedStep]) -> Option<String> {
    let required = || steps.iter().filter(|step| step.require == Require::Must);
    for check in FLOOR {
        let Some(step) = required().find(|step| step.check.as_str() == check) else {
            return Some(format!("no step of this run requires the check `{check}`: nothing is accepted without it"));
        };
        if let Work::Absent { reason } = &step.work
            && CORE.contains(&check)
        {
            return Some(format!("step `{}` is absent ({reason}): nothing is accepted without it", step.id));
        }
    }
    let last = required().next_back().filter(|step| step.check.as_str() != suite::LAST)?;
    Some(format!("step `{}` runs after `{}`: what it leaves behind would not be judged", last.id, suite::LAST))
}

fn notices(inputs: &Inputs<'_>, stage: Stage) -> Vec<String> {
    let mut notices = Vec::new();
    let Some(site) = inputs.site else {
        if inputs.stage.is_none() {
            notices.push(format!("no site file {}: stage {stage}", site::SITE_PATH));
        }
        return notices;
    };
    for SiteWaiver { waiver, until } in site.waivers.iter().map(|at| &at.value) {
        let (step, finding, subject) = (&waiver.step, &waiver.finding, &waiver.subject);
        let what = format!("the waiver by {} of {finding} on {subject} in step {step}", waiver.who);
        let days = inputs.today.until(*until).map_or(i32::MAX, |span| span.get_days());
        if *until < inputs.today {
            notices.push(format!("{what} ended on {until} and is not applied"));
        } else if days <= ENDS_SOON {
            notices.push(format!("{what} ends on {until}"));
        }
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::super::class::{self, Wish};
    use super::super::testing::{self, KINDS};
    use super::*;

    fn choice() -> Choice {
        Choice { class: testing::class(), chosen: "named", because: None }
    }

    fn site_of(text: &str) -> Site {
        let text = format!("format = 1\n{text}");
        site::load(&Document::new("site.toml", text.as_bytes()).unwrap(), &testing::suite(), KINDS).unwrap()
    }

    fn resolve(site: Option<&Site>, only: &[&str], skip: &[&str]) -> Result<Plan, Problems> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (suite, choice, only, skip) = (testing::suite(), choice(), names(only), names(skip));
        let today = "2030-06-01".parse().unwrap();
        let inputs = Inputs {
            suite: &suite,
            choice: &choice,
            site,
            stage: None,
            level: Level::Quick,
            only: &only,
            skip: &skip,
            hostname: Some("here"),
            today,
        };
        Plan::resolve(&inputs, KINDS)
    }

    fn step<'a>(plan: &'a Plan, id: &str) -> &'a PlannedStep {
        plan.steps.iter().find(|step| step.id.as_str() == id).unwrap()
    }

    #[test]
    fn without_a_site_file_the_stage_is_rack_and_it_is_said() {
        let plan = resolve(None, &[], &[]).unwrap();
        assert_eq!(plan.stage, Stage::Rack);
        assert!(plan.notices[0].contains("no site file"), "{:?}", plan.notices);
        assert!(!plan.steps.iter().any(|step| step.id.as_str() == "power"), "power is of stage image");
        assert!(matches!(step(&plan, "aftermath").work, Work::Absent { .. }));
        assert_eq!(plan.deadline, Duration::from_secs(30 + 10) + MARGIN);
        assert!(!plan.partial);
        let because = plan.cannot_accept_because.unwrap();
        assert!(!plan.can_accept && because.contains("requires the check `pcie-link`"), "{because}");
        let plan = resolve(Some(&site_of("")), &[], &[]).unwrap();
        assert_eq!((plan.stage, plan.steps.len()), (Stage::Image, 4), "as far as the suite goes");
        let asked = resolve(Some(&site_of("stage = \"service\"")), &[], &[]).unwrap();
        assert_eq!(asked.stage, Stage::Service, "who asks by name gets what was asked");
        assert_eq!(resolve(Some(&site_of("stage = \"image\"")), &[], &[]).unwrap().stage, Stage::Image);
    }

    #[test]
    fn an_override_replaces_value_and_source_and_its_mistake_is_at_its_line() {
        let text = |value: &str| {
            format!(
                "[[override]]\nstep = \"power\"\nparameter = \"limit\"\nvalue = {value}\nreason = \"cap\"\nwho = \"R. Roe\"\n"
            )
        };
        let plan = resolve(Some(&site_of(&text("\"600 W\""))), &[], &[]).unwrap();
        let limit = &step(&plan, "power").limits[0];
        assert_eq!((limit.value.as_str(), limit.source.as_str()), (Some("600 W"), "site override by R. Roe: cap"));
        assert_eq!(plan.overrides[0].value, "600 W");
        let error = resolve(Some(&site_of(&text("\"600 C\""))), &[], &[]).unwrap_err().to_string();
        assert!(error.starts_with("site.toml:5: step `power`: `600 C` is not a power"), "{error}");
    }

    #[test]
    fn an_override_of_an_absent_step_is_refused() {
        let text =
            "[[override]]\nstep = \"aftermath\"\nparameter = \"xid\"\nvalue = \"x\"\nreason = \"r\"\nwho = \"w\"\n";
        assert!(resolve(Some(&site_of(text)), &[], &[]).unwrap_err().to_string().contains("nothing to override"));
    }

    #[test]
    fn an_expected_count_narrows_the_class_and_never_contradicts_it() {
        assert!(step(&resolve(None, &[], &[]).unwrap(), "gpu-inventory").lacks().is_some());
        let plan = resolve(Some(&site_of("[expect]\ngpu-count = 4")), &[], &[]).unwrap();
        let limit = &step(&plan, "gpu-inventory").limits[0];
        assert_eq!((limit.value.as_integer(), limit.source.as_str()), (Some(4), "site [expect] gpu-count"));
        assert!(step(&plan, "gpu-inventory").lacks().is_none());
        let error = resolve(Some(&site_of("[expect]\ngpu-count = 9")), &[], &[]).unwrap_err().to_string();
        assert!(error.starts_with("site.toml:3: `gpu-count` is 9"), "{error}");
    }

    #[test]
    fn a_site_file_of_another_host_accepts_nothing() {
        let plan = resolve(Some(&site_of("[expect]\nhostname = \"there\"")), &[], &[]).unwrap();
        assert!(!plan.can_accept && plan.cannot_accept_because.unwrap().contains("`there`"));
        let plan = resolve(Some(&site_of("[expect]\nhostname = \"here\"")), &[], &[]).unwrap();
        assert!(!plan.cannot_accept_because.unwrap().contains("here"));
    }

    #[test]
    fn waivers_hold_to_their_last_day_and_are_announced_near_it() {
        let waiver = |until: &str| {
            site_of(&format!(
                "[[waiver]]\nstep = \"power\"\nfinding = \"too-hot\"\nsubject = \"host\"\nreason = \"r\"\nwho = \"w\"\nuntil = {until}\n"
            ))
        };
        let of =
            |until| resolve(Some(&waiver(until)), &[], &[]).map(|plan| (plan.waivers.len(), plan.notices)).unwrap();
        assert_eq!(of("2030-12-31"), (1, vec![]));
        let (count, notices) = of("2030-06-01");
        assert!(count == 1 && notices[0].contains("ends on 2030-06-01"), "{notices:?}");
        let (count, notices) = of("2030-05-31");
        assert!(count == 0 && notices[0].contains("is not applied"), "{notices:?}");
    }

    #[test]
    fn only_keeps_what_it_names_with_its_needs_and_unknown_names_are_refused() {
        let plan = resolve(None, &["gpu-inventory"], &[]).unwrap();
        assert!(plan.partial);
        assert!(matches!(step(&plan, "driver").work, Work::Run(_)), "gpu-inventory needs driver");
        assert!(matches!(&step(&plan, "aftermath").work, Work::LeftOut { reason } if reason.contains("--only")));
        let plan = resolve(None, &[], &["gpu-inventory"]).unwrap();
        assert!(matches!(&step(&plan, "gpu-inventory").work, Work::LeftOut { reason } if reason.contains("--skip")));
        let error = resolve(None, &["gpu-inventry"], &["nothing-like-it"]).unwrap_err().to_string();
        assert!(
            error.contains("--only: the suite has no step `gpu-inventry`; did you mean `gpu-inventory`?"),
            "{error}"
        );
        assert!(error.contains("--skip: "), "{error}");
    }

    #[test]
    fn a_class_without_models_can_reject_but_not_accept() {
        let mut choice = choice();
        choice.class.models.clear();
        let suite = testing::suite();
        let inputs = Inputs {
            suite: &suite,
            choice: &choice,
            site: None,
            stage: None,
            level: Level::Quick,
            only: &[],
            skip: &[],
            hostname: None,
            today: "2030-06-01".parse().unwrap(),
        };
        let plan = Plan::resolve(&inputs, KINDS).unwrap();
        assert!(!plan.can_accept && plan.cannot_accept_because.unwrap().contains("can reject but not accept"));
    }

    /// The built-in suite with these changes to its text, under the built-in class with these to its own.
    fn built_in(in_suite: &[(&str, &str)], in_class: &[(&str, &str)]) -> Plan {
        built_in_for(None, Level::Quick, in_suite, in_class)
    }

    fn built_in_for(stage: Option<Stage>, level: Level, in_suite: &[(&str, &str)], in_class: &[(&str, &str)]) -> Plan {
        let changed = |text: &str, changes: &[(&str, &str)]| {
            changes.iter().fold(text.to_owned(), |text, (from, to)| {
                assert!(text.contains(from), "{from}");
                text.replace(from, to)
            })
        };
        let kinds = crate::check::KINDS;
        let suite = changed(suite::BUILTIN, in_suite);
        let suite = suite::load(&Document::new("suite.toml", suite.as_bytes()).unwrap(), kinds).unwrap();
        let (stem, text) = class::BUILTIN.iter().find(|(stem, _)| *stem == "l4").unwrap();
        let document = Document::new(&format!("{stem}.toml"), changed(text, in_class).as_bytes()).unwrap();
        let choice = class::choose(&[], None, &Wish::File(document), &suite, kinds).unwrap();
        let inputs = Inputs {
            suite: &suite,
            choice: &choice,
            site: None,
            stage,
            level,
            only: &[],
            skip: &[],
            hostname: None,
            today: "2030-06-01".parse().unwrap(),
        };
        Plan::resolve(&inputs, kinds).unwrap()
    }

    #[test]
    fn a_suite_or_class_of_ones_own_that_drops_the_floor_accepts_nothing_and_says_why() {
        assert_eq!(built_in(&[], &[]).cannot_accept_because, None);
        let ecc = "check = \"ecc\"\nrequire = ";
        let lax = built_in(&[(&format!("{ecc}\"must\""), &format!("{ecc}\"should\""))], &[]);
        assert!(!lax.can_accept && lax.cannot_accept_because.unwrap().contains("requires the check `ecc`"));

        let late = "id = \"ecc\"\ncheck = \"ecc\"\nrequire = \"must\"\nstage = ";
        let later = built_in(&[(&format!("{late}\"rack\""), &format!("{late}\"image\""))], &[]);
        assert!(!later.can_accept, "a step of a later stage is none of this run");

        let more = "\n[[step]]\nid = \"again\"\ncheck = \"mig\"\nrequire = \"must\"\nstage = \"rack\"\n\
                    level = \"quick\"\ntimeout = \"9 s\"\n[[step]]\nid = \"end\"\ncheck = \"aftermath\"\n\
                    require = \"must\"\nstage = \"service\"\nlevel = \"quick\"\ntimeout = \"9 s\"\n";
        let whole = suite::BUILTIN;
        let suite = format!("{whole}{more}");
        let absent = "[absent]\nagain = \"a test of the suite\"\nend = \"a test of the suite\"\n";
        let plan = built_in(&[(whole, &suite)], &[("[absent]\n", absent)]);
        assert!(plan.cannot_accept_because.unwrap().contains("`again` runs after `aftermath`"));
    }

    #[test]
    fn a_stage_or_level_that_no_deciding_step_has_accepts_nothing_and_says_what_would() {
        let because = |stage, level| built_in_for(Some(stage), level, &[], &[]).cannot_accept_because;
        assert_eq!(because(Stage::Rack, Level::Quick), None);
        assert!(because(Stage::Service, Level::Quick).unwrap().contains("--stage rack"));
        assert!(because(Stage::Rack, Level::Soak).unwrap().contains("--level quick"));
    }

    #[test]
    fn a_named_class_wins_over_the_site_and_the_site_over_the_bus() {
        let document = Document::new("small.toml", testing::CLASS.as_bytes()).unwrap();
        let choice = class::choose(&[], Some("l4"), &Wish::File(document), &testing::suite(), KINDS).unwrap();
        assert_eq!((choice.class.id.as_str(), choice.chosen), ("small", "named"));
        let error = class::choose(&[], Some("l5"), &Wish::Auto, &testing::suite(), KINDS).unwrap_err();
        assert!(error.to_string().contains("`l5`"), "{error}");
    }
}
