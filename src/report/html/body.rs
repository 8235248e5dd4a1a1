//! The body of a record's page: all that it says, worst first.

use std::collections::BTreeMap;
use std::fmt;

use askama::Template;

use super::age::written;
use super::escape::escaped;
use super::measured::{Grid, Group, Names};
use super::verify::{Commands, File, Signed, Where};
use super::{Markup, Shape, Verdict, markup};
use crate::facts::topology::Topology;
use crate::outcome::{Action, Grade};
use crate::predicate::{Details, InventoryGpu, Step};
use crate::report::problem::{self, NotJudged, Problem};
use crate::report::{quantity, topology_svg};

/// GPUs, and network devices, that a drawing has at most.
const MOST_DRAWN: usize = 64;

/// A record with what signed it. Writes the sections from the verdict to the files.
pub struct Body<'a> {
    details: &'a Details,
    signed: &'a Signed,
    verdict: Verdict,
    names: Names,
}

#[derive(Template)]
#[template(path = "record-body.html")]
struct Sections<'a> {
    details: &'a Details,
    signed: &'a Signed,
    commands: Commands,
    verdict: &'a Verdict,
    names: &'a Names,
    counted: Vec<String>,
    way_on: Option<&'static str>,
    problems: Vec<Problem<'a>>,
    not_judged: Vec<NotJudged<'a>>,
    unmeasured: Vec<&'a str>,
    waived: Vec<Waived<'a>>,
    topology: Option<Markup>,
    seconds: Option<f64>,
}

struct Waived<'a> {
    step: &'a str,
    code: &'a str,
    subject: String,
    waiver: &'a crate::predicate::Waiver,
}

impl<'a> Body<'a> {
    pub fn new(details: &'a Details, signed: &'a Signed, verdict: Verdict) -> Body<'a> {
        Body { details, signed, verdict, names: Names::of(details) }
    }

    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    pub fn markup(&self) -> Markup {
        markup(self.to_string())
    }

    fn sections(&self) -> Sections<'_> {
        let details = self.details;
        let waived = problem::waived(details).map(|(step, finding, waiver)| Waived {
            step: step.id.as_str(),
            code: finding.code.as_str(),
            subject: self.names.long(finding.subject.as_str()),
            waiver,
        });
        Sections {
            details,
            signed: self.signed,
            commands: Commands::of(&details.run_id, details.simulated, self.signed),
            verdict: &self.verdict,
            names: &self.names,
            counted: problem::counted(details),
            way_on: problem::way_on(details),
            problems: problem::problems(details),
            not_judged: problem::not_judged(details),
            unmeasured: problem::unmeasured(details),
            waived: waived.collect(),
            topology: drawing(details),
            seconds: problem::seconds_between(&details.started_at, &details.finished_at),
        }
    }
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sections().render_into(f).map_err(|_| fmt::Error)
    }
}

/// The topology as part of a page, in the page's colours, with what failed marked where it is.
pub fn drawing(details: &Details) -> Option<Markup> {
    // More than any host has; a record may say anything, and drawing grows with the square.
    let drawable =
        |topology: &&Topology| (1..=MOST_DRAWN).contains(&topology.gpus.len()) && topology.nics.len() <= MOST_DRAWN;
    let topology = details.topology.as_ref().filter(drawable)?;
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    for (_, finding) in problem::open_findings(details).filter(|(_, finding)| finding.grade == Grade::Failed) {
        let known = wrong.entry(finding.subject.to_string()).or_default();
        if !known.contains(&finding.title) {
            let separator = if known.is_empty() { "" } else { ", " };
            known.push_str(&format!("{separator}{}", finding.title));
        }
    }
    Some(markup(topology_svg::inline(topology, &details.host.hostname, &wrong)))
}

impl Sections<'_> {
    fn steps(&self) -> &[Step] {
        &self.details.steps
    }

    fn measured(&self) -> impl Iterator<Item = &Step> {
        self.details.steps.iter().filter(|step| !step.outcome.measurements.is_empty())
    }

    fn groups<'b>(&self, step: &'b Step) -> Vec<Group<'b>> {
        Group::all(&step.outcome.measurements)
    }

    fn grid<'b>(&self, step: &'b Step) -> Grid<'b> {
        Grid::of(&step.outcome.measurements, self.names)
    }

    /// By slot where slots are numbers, as someone walks along them.
    fn gpus(&self) -> Vec<&InventoryGpu> {
        let mut gpus: Vec<&InventoryGpu> = self.details.inventory.gpus.iter().collect();
        let number = |gpu: &InventoryGpu| gpu.slot.as_ref().and_then(|slot| slot.parse::<u32>().ok());
        gpus.sort_by_key(|gpu| (number(gpu).is_none(), number(gpu)));
        gpus
    }

    /// What is wrong with the GPU at this address, in words.
    fn wrong(&self, gpu: &InventoryGpu) -> Vec<&str> {
        let mut titles: Vec<&str> = Vec::new();
        for (_, finding) in problem::open_findings(self.details) {
            if finding.subject.as_str() == gpu.bus_id && !titles.contains(&finding.title.as_str()) {
                titles.push(&finding.title);
            }
        }
        titles
    }

    fn has_measurements(&self) -> bool {
        self.measured().next().is_some()
    }

    fn shape(&self, step: &Step) -> Shape {
        step.outcome.status().into()
    }

    fn grade_shape(&self, problem: &Problem<'_>) -> Shape {
        problem.finding.grade.into()
    }

    fn waived_shape(&self) -> Shape {
        Shape::Waived
    }

    fn wrong_shape(&self) -> Shape {
        Shape::Bad
    }

    /// What a problem is, where it is no fault of the machine.
    fn grade(&self, problem: &Problem<'_>) -> Option<&'static str> {
        match problem.finding.grade {
            Grade::Failed => None,
            Grade::Undecided => Some("could not be found out"),
            Grade::Warned => Some("worth knowing"),
        }
    }

    /// What to do in a word; nothing where there is nothing to do.
    fn action(&self, problem: &Problem<'_>) -> Option<&'static str> {
        Some(problem.finding.action).filter(|action| *action != Action::None).map(Action::as_str)
    }

    fn slot(&self, slot: &str) -> String {
        problem::slot(slot)
    }

    /// Bytes as a string of digits, in GiB.
    fn size(&self, bytes: &str) -> String {
        let words = bytes.parse::<u64>().ok().map(|bytes| quantity::words(bytes as f64, "B"));
        words.unwrap_or_else(|| bytes.to_owned())
    }

    fn duration(&self, step: &Step) -> String {
        self.took(&(step.duration_ms as f64 / 1000.0))
    }

    fn took(&self, seconds: &f64) -> String {
        format!("{seconds:.1} s")
    }

    fn written(&self, time: &str) -> String {
        written(time)
    }

    /// A file in the page itself is far longer than a text may be, and base64 needs no escape.
    fn href(&self, file: &File) -> Markup {
        match file.place {
            Where::Here { .. } => markup(file.href()),
            Where::Link(_) => markup(escaped(&file.href())),
        }
    }
}
