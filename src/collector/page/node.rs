//! One node: how it stands, what is wrong with it where, how it came to that.

use askama::Template;
use jiff::Timestamp;

use super::link::{diff_address, record_address};
use super::standing::{is_weak, of_node, tier_meaning, verdict};
use super::trend::{Trend, Trends};
use super::{Frame, written};
use crate::collector::model::{Key, Node, Problem, Record};
use crate::collector::policy::{Policy, standing};
use crate::ident::Digest;
use crate::outcome::{Finding, Grade};
use crate::predicate::Details;
use crate::record::standing::Tier;
use crate::report::html::age::{Moment, exact};
use crate::report::html::{Markup, Shape, Verdict, drawing};
use crate::report::problem;

/// Problems that a line of the history tells.
const MOST_TOLD: usize = 3;

/// All that the page of a node shows.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    pub node: &'a Node,
    /// Its records, newest first.
    pub records: &'a [Record],
    /// What verified of these records' payloads, by the payload's digest, newest first; retention may
    /// have left less.
    pub history: &'a [(Digest, Details)],
    /// The key of the newest record.
    pub key: Option<&'a Key>,
    pub policy: &'a Policy,
    /// Where older records than these are to be had, if there are any.
    pub older: Option<&'a str>,
    pub now: Timestamp,
}

pub fn node(view: &NodeView<'_>) -> String {
    let record = &view.node.record;
    let details: Vec<&Details> = view.history.iter().map(|(_, details)| details).collect();
    let newest = view.history.iter().find(|(payload, _)| *payload == record.payload).map(|(_, details)| details);
    written(&Page {
        frame: Frame::new(&record.hostname, ""),
        view: *view,
        node: view.node,
        record,
        verdict: of_node(view.node),
        received: Moment::of(record.received_at, view.now),
        newest,
        problems: told(view.node).map(|problem| Current::new(problem, newest)).collect(),
        not_judged: not_judged(view.node),
        topology: details.iter().find_map(|details| drawing(details)),
        trends: Trends::of(&details),
        runs: runs(view),
    })
}

#[derive(Template)]
#[template(path = "node.html")]
struct Page<'a> {
    frame: Frame,
    view: NodeView<'a>,
    node: &'a Node,
    record: &'a Record,
    verdict: Verdict,
    received: Moment,
    newest: Option<&'a Details>,
    problems: Vec<Current<'a>>,
    /// Where, and the steps that did not judge it.
    not_judged: Vec<(String, Vec<&'a str>)>,
    topology: Option<Markup>,
    trends: Trends,
    runs: Vec<Run<'a>>,
}

/// A current problem, with what the newest record says more about it.
struct Current<'a> {
    problem: &'a Problem,
    finding: Option<&'a Finding>,
}

/// A line of the history.
struct Run<'a> {
    record: &'a Record,
    verdict: Verdict,
    received: Moment,
    href: String,
    /// What was wrong, where the record is still here.
    problems: Vec<String>,
    /// The difference to the run before it.
    diff: Option<String>,
}

impl<'a> Current<'a> {
    fn new(problem: &'a Problem, newest: Option<&'a Details>) -> Current<'a> {
        let mut findings = newest.into_iter().flat_map(|details| &details.steps).filter_map(|step| {
            let same = |finding: &&Finding| {
                finding.code.as_str() == problem.code && finding.subject.as_str() == problem.subject
            };
            (step.id.as_str() == problem.step).then(|| step.outcome.findings.iter().find(same)).flatten()
        });
        Current { problem, finding: findings.next() }
    }

    fn shape(&self) -> Shape {
        self.problem.grade.into()
    }

    fn is_failure(&self) -> bool {
        self.problem.grade == Grade::Failed
    }

    /// The parts of its place, as the record has them or as the row does.
    fn place(&self) -> Vec<String> {
        if let Some(finding) = self.finding {
            return problem::place(finding);
        }
        let slot = self.problem.slot.as_deref().map(problem::slot);
        let subject = Some(self.problem.subject.clone()).filter(|subject| subject != "host");
        let serial = self.problem.serial.as_ref().map(|serial| format!("serial {serial}"));
        [slot, subject, serial].into_iter().flatten().collect()
    }
}

/// What was not judged is no problem of its own; what keeps it from being read is.
fn told(node: &Node) -> impl Iterator<Item = &Problem> {
    node.problems.iter().filter(|problem| problem.code != problem::NOT_JUDGED)
}

fn not_judged(node: &Node) -> Vec<(String, Vec<&str>)> {
    let mut list: Vec<(String, Vec<&str>)> = Vec::new();
    for problem in node.problems.iter().filter(|problem| problem.code == problem::NOT_JUDGED) {
        let place = problem.slot.as_deref().map_or_else(|| problem.subject.clone(), problem::slot);
        match list.iter_mut().find(|(known, _)| *known == place) {
            Some((_, steps)) => steps.push(&problem.step),
            None => list.push((place, vec![&problem.step])),
        }
    }
    list
}

/// `PCIe link narrow, slot 8`: the worst of a run of the history.
fn problems_of(view: &NodeView<'_>, record: &Record) -> Vec<String> {
    let Some((_, details)) = view.history.iter().find(|(payload, _)| *payload == record.payload) else {
        return Vec::new();
    };
    let problems = problem::problems(details);
    let serious = problems.iter().filter(|problem| problem.finding.grade > Grade::Warned).take(MOST_TOLD);
    let words = serious.map(|problem| {
        let places: Vec<&str> = problem.places.iter().filter_map(|place| place.first()).map(String::as_str).collect();
        format!("{}{}{}", problem.finding.title, if places.is_empty() { "" } else { ", " }, places.join(", "))
    });
    words.collect()
}

fn runs<'a>(view: &NodeView<'a>) -> Vec<Run<'a>> {
    let older = view.records.iter().skip(1).map(Some).chain([None]);
    let run = |(record, older): (&'a Record, Option<&'a Record>)| Run {
        record,
        verdict: verdict(record, standing(record, view.policy, view.now)),
        received: Moment::of(record.received_at, view.now),
        href: record_address(&record.payload),
        problems: problems_of(view, record),
        diff: older
            .filter(|older| older.kept && record.kept)
            .map(|older| diff_address(&older.payload, &record.payload)),
    };
    view.records.iter().zip(older).map(run).collect()
}

impl Page<'_> {
    fn href(&self) -> String {
        record_address(&self.record.payload)
    }

    fn tier_meaning(&self, tier: &Tier) -> &'static str {
        tier_meaning(*tier)
    }

    fn weak(&self, tier: &Tier) -> bool {
        is_weak(*tier)
    }

    fn exact(&self, time: &Timestamp) -> String {
        exact(*time)
    }

    fn recent_days(&self) -> u32 {
        self.view.policy.recent_days
    }

    /// The newest run and the last accepted one before it.
    fn since_accepted(&self) -> Option<String> {
        let mut older = self.view.records.iter().skip_while(|record| record.payload != self.record.payload).skip(1);
        let accepted = older.find(|record| {
            record.kept && verdict(record, standing(record, self.view.policy, self.view.now)).shape == Shape::Good
        })?;
        Some(diff_address(&accepted.payload, &self.record.payload))
    }

    fn trend_shape(&self, trend: &Trend) -> Option<Shape> {
        use crate::report::html::measured::Held;
        match trend.held() {
            Held::Within => None,
            Held::Warned => Some(Shape::Warn),
            Held::Broken => Some(Shape::Bad),
        }
    }
}
