//! The fleet: how it stands, and each node in a line.

use askama::Template;
use jiff::Timestamp;

use super::link::{fleet_address, node_address, sort_word, with_query};
use super::standing::{is_weak, of_node, standing_shape, standing_words, tier_meaning};
use super::{Frame, written};
use crate::collector::model::{Fleet, FleetQuery, Node, Problem, Sort, Standing};
use crate::collector::store::{Offender, Offenders};
use crate::record::standing::Tier;
use crate::report::html::age::Moment;
use crate::report::html::{Shape, Verdict};
use crate::report::problem;

/// Findings and offenders that are shown before one asks for the rest.
const SHOWN: usize = 8;

/// The fleet, as this question has it. `now` is the collector's clock.
pub fn fleet(fleet: &Fleet, query: &FleetQuery, offenders: &Offenders, now: Timestamp) -> String {
    written(&Page {
        frame: Frame::new("Fleet", "fleet"),
        fleet,
        query,
        offenders,
        now,
        tiles: Standing::ALL.map(|standing| tile(fleet, query, standing)),
        rows: fleet.nodes.iter().map(|node| Row::new(node, now)).collect(),
    })
}

#[derive(Template)]
#[template(path = "fleet.html")]
struct Page<'a> {
    frame: Frame,
    fleet: &'a Fleet,
    query: &'a FleetQuery,
    offenders: &'a Offenders,
    now: Timestamp,
    tiles: [Tile; 5],
    rows: Vec<Row<'a>>,
}

/// A count that is a link to what it counts.
struct Tile {
    count: u64,
    word: &'static str,
    shape: Shape,
    href: String,
    current: bool,
}

struct Row<'a> {
    node: &'a Node,
    verdict: Verdict,
    href: String,
    received: Moment,
    problem: Option<&'a Problem>,
}

/// An entry of a select.
struct Choice {
    value: String,
    text: String,
    chosen: bool,
}

impl<'a> Row<'a> {
    fn new(node: &'a Node, now: Timestamp) -> Row<'a> {
        Row {
            node,
            verdict: of_node(node),
            href: node_address(&node.record.host),
            received: Moment::of(node.record.received_at, now),
            problem: told(node).next(),
        }
    }

    fn more(&self) -> usize {
        told(self.node).count().saturating_sub(1)
    }

    fn tier_meaning(&self) -> &'static str {
        tier_meaning(self.node.record.tier)
    }

    fn weak(&self) -> bool {
        is_weak(self.node.record.tier)
    }

    fn slot(&self, slot: &str) -> String {
        problem::slot(slot)
    }
}

/// What was not judged is no problem of its own; what keeps it from being read is.
fn told(node: &Node) -> impl Iterator<Item = &Problem> {
    node.problems.iter().filter(|problem| problem.code != problem::NOT_JUDGED)
}

/// A count keeps the rest of the question; the one that is chosen takes it back.
fn tile(fleet: &Fleet, query: &FleetQuery, standing: Standing) -> Tile {
    let current = query.standing == Some(standing);
    let asked = FleetQuery { standing: (!current).then_some(standing), page: 1, ..query.clone() };
    Tile {
        count: fleet.standings.get(&standing).copied().unwrap_or(0),
        word: standing_words(standing),
        shape: standing_shape(standing),
        href: fleet_address(&asked),
        current,
    }
}

impl Page<'_> {
    /// Whether anything narrows the fleet.
    fn narrowed(&self) -> bool {
        let FleetQuery { text, standing, class, tier, finding, .. } = self.query;
        !text.trim().is_empty() || standing.is_some() || class.is_some() || tier.is_some() || finding.is_some()
    }

    /// Whether anything is chosen besides the text.
    fn chosen(&self) -> bool {
        let FleetQuery { standing, class, tier, finding, sort, .. } = self.query;
        standing.is_some() || class.is_some() || tier.is_some() || finding.is_some() || *sort != Sort::default()
    }

    fn csv(&self) -> String {
        with_query("/nodes.csv", &FleetQuery { page: 0, ..self.query.clone() })
    }

    fn chips(&self) -> Vec<(&str, u64, String, bool)> {
        let findings = self.fleet.findings.iter().filter(|(code, _)| code != problem::NOT_JUDGED);
        let chips = findings.map(|(code, count)| {
            let current = self.query.finding.as_ref() == Some(code);
            let finding = (!current).then(|| code.clone());
            let asked = FleetQuery { finding, page: 1, ..self.query.clone() };
            (code.as_str(), *count, fleet_address(&asked), current)
        });
        chips.collect()
    }

    fn first_chips(&self) -> Vec<(&str, u64, String, bool)> {
        self.chips()
            .into_iter()
            .enumerate()
            .filter(|(place, chip)| *place < SHOWN || chip.3)
            .map(|(_, chip)| chip)
            .collect()
    }

    fn other_chips(&self) -> Vec<(&str, u64, String, bool)> {
        self.chips().into_iter().skip(SHOWN).filter(|chip| !chip.3).collect()
    }

    fn standings(&self) -> Vec<Choice> {
        Standing::ALL
            .map(|it| choice(it.as_str(), standing_words(it).to_owned(), self.query.standing == Some(it)))
            .into()
    }

    /// What there is, and what is asked for though there is none of it.
    fn classes(&self) -> Vec<Choice> {
        listed(&self.fleet.classes, self.query.class.as_ref())
    }

    fn findings(&self) -> Vec<Choice> {
        listed(&self.fleet.findings, self.query.finding.as_ref())
    }

    fn tiers(&self) -> Vec<Choice> {
        Tier::ALL.map(|tier| choice(tier.as_str(), tier.to_string(), self.query.tier == Some(tier))).into()
    }

    fn sorts(&self) -> Vec<Choice> {
        let words = [
            (Sort::Worst, "worst first"),
            (Sort::Name, "by name"),
            (Sort::Newest, "newest first"),
            (Sort::Oldest, "oldest first"),
        ];
        words.map(|(sort, text)| choice(sort_word(sort), text.to_owned(), self.query.sort == sort)).into()
    }

    fn page(&self, number: u32) -> String {
        fleet_address(&FleetQuery { page: number, ..self.query.clone() })
    }

    fn previous(&self) -> Option<String> {
        (self.fleet.page > 1).then(|| self.page(self.fleet.page - 1))
    }

    fn next(&self) -> Option<String> {
        (self.fleet.page < self.fleet.pages).then(|| self.page(self.fleet.page + 1))
    }

    fn ago(&self, offender: &Offender) -> Moment {
        Moment::of(offender.last, self.now)
    }

    fn offender_href(&self, offender: &Offender) -> String {
        node_address(&offender.host)
    }

    fn offending_hosts(&self) -> &[Offender] {
        &self.offenders.hosts[..self.offenders.hosts.len().min(SHOWN)]
    }

    fn offending_gpus(&self) -> &[Offender] {
        &self.offenders.gpus[..self.offenders.gpus.len().min(SHOWN)]
    }
}

fn choice(value: &str, text: String, chosen: bool) -> Choice {
    Choice { value: value.to_owned(), text, chosen }
}

fn listed(names: &[(String, u64)], asked: Option<&String>) -> Vec<Choice> {
    let text = |(name, count): &(String, u64)| choice(name, format!("{name} ({count})"), asked == Some(name));
    let mut choices: Vec<Choice> = names.iter().map(text).collect();
    if let Some(asked) = asked.filter(|asked| names.iter().all(|(name, _)| name != *asked)) {
        choices.push(choice(asked, format!("{asked} (0)"), true));
    }
    choices
}
