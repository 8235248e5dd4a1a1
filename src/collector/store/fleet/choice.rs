//! Which nodes are on a page: from indices and the narrow summary alone, without a record read.
//!
//! A condition that few nodes fit is answered by finding those and sorting them here; one that many
//! fit by walking the fleet in the order of the page until it is full. Either way nothing is sorted
//! or joined that has the size of the fleet.

use std::fmt::Write as _;

use super::{Group, PAGE, number};
use crate::collector::model::{FleetQuery, Sort};
use crate::collector::store::engine::{Engine, EngineError, Row, Value};
use crate::collector::store::nodes::{SHORT_DIGEST, place};

/// Up to so many nodes are few.
const FEW: u64 = 2000;

/// A page of a query: the positions of its nodes' newest records.
pub struct Chosen {
    pub positions: Vec<u64>,
    pub found: u64,
    pub page: u64,
    pub pages: u64,
}

pub fn choose(engine: &mut dyn Engine, groups: &[Group], query: &FleetQuery) -> Result<Chosen, EngineError> {
    let condition = Condition::of(query, Way::Nodes);
    if query.text.trim().is_empty() {
        let found = match &query.finding {
            None => groups.iter().filter(|group| fits(group, query)).map(|group| group.nodes).sum(),
            Some(code) => count_finding(engine, query, code)?,
        };
        return match query.finding {
            Some(_) if found <= FEW => Ok(sorted(Condition::of(query, Way::Findings).few(engine)?, query)),
            _ => walked(engine, condition, query, found),
        };
    }
    let few = condition.few(engine)?;
    if few.len() as u64 <= FEW {
        return Ok(sorted(few, query));
    }
    let found = number(engine, &format!("SELECT COUNT(*) FROM nodes n{}", condition.sql), &condition.parameters)?;
    walked(engine, condition, query, found)
}

fn fits(group: &Group, query: &FleetQuery) -> bool {
    query.standing.is_none_or(|standing| standing == group.standing)
        && query.class.as_ref().is_none_or(|class| *class == group.class)
        && query.tier.is_none_or(|tier| tier == group.tier)
}

fn count_finding(engine: &mut dyn Engine, query: &FleetQuery, code: &str) -> Result<u64, EngineError> {
    let mut condition = Condition::default();
    condition.and("n.code =", code.into(), "");
    condition.narrow(query);
    number(engine, &format!("SELECT COUNT(*) FROM node_findings n{}", condition.sql), &condition.parameters)
}

/// The page's nodes by walking in its order.
fn walked(
    engine: &mut dyn Engine,
    condition: Condition,
    query: &FleetQuery,
    found: u64,
) -> Result<Chosen, EngineError> {
    let (page, pages) = place_of(query, found);
    let order = match query.sort {
        Sort::Worst => "n.standing, n.position DESC",
        Sort::Name => "n.hostname, n.host",
        Sort::Newest => "n.position DESC",
        Sort::Oldest => "n.position",
    };
    let Condition { sql, mut parameters, .. } = condition;
    parameters.extend([Value::from(PAGE), (PAGE * (page - 1)).into()]);
    let (limit, offset) = (parameters.len() - 1, parameters.len());
    let sql = format!("SELECT n.position FROM nodes n{sql} ORDER BY {order} LIMIT ${limit} OFFSET ${offset}");
    let rows = engine.query(&sql, &parameters)?;
    let positions = rows.iter().map(|row| row.count(0)).collect::<Result<_, _>>()?;
    Ok(Chosen { positions, found, page, pages })
}

/// A node with what pages are sorted by.
struct Found {
    position: u64,
    standing: i64,
    hostname: String,
    host: String,
}

fn sorted(mut nodes: Vec<Found>, query: &FleetQuery) -> Chosen {
    nodes.sort_by(|a, b| match query.sort {
        Sort::Worst => a.standing.cmp(&b.standing).then(b.position.cmp(&a.position)),
        Sort::Name => a.hostname.cmp(&b.hostname).then_with(|| a.host.cmp(&b.host)),
        Sort::Newest => b.position.cmp(&a.position),
        Sort::Oldest => a.position.cmp(&b.position),
    });
    let found = nodes.len() as u64;
    let (page, pages) = place_of(query, found);
    let page_of = nodes.chunks(PAGE as usize).nth(page as usize - 1).unwrap_or_default();
    Chosen { positions: page_of.iter().map(|node| node.position).collect(), found, page, pages }
}

/// The page that is asked for, or the last one, and how many there are.
fn place_of(query: &FleetQuery, found: u64) -> (u64, u64) {
    let pages = found.div_ceil(PAGE).max(1);
    (u64::from(query.page).clamp(1, pages), pages)
}

/// Where nodes are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// In the fleet.
    #[default]
    Nodes,
    /// From the findings of one code to their nodes. SQLite keeps the order of a CROSS JOIN.
    Findings,
}

/// A WHERE with its parameters.
#[derive(Default)]
struct Condition {
    way: Way,
    sql: String,
    parameters: Vec<Value>,
}

impl Condition {
    fn of(query: &FleetQuery, way: Way) -> Condition {
        let mut condition = Condition { way, ..Condition::default() };
        if let Some(finding) = &query.finding {
            let (before, after) = match way {
                Way::Nodes => ("EXISTS (SELECT 1 FROM node_findings f WHERE f.host = n.host AND f.code =", ")"),
                Way::Findings => ("n.host = f.host AND f.code =", ""),
            };
            condition.and(before, finding.as_str().into(), after);
        }
        condition.narrow(query);
        let text = query.text.trim().to_lowercase();
        let digest = text.strip_prefix("sha256:").unwrap_or(&text);
        let is_digest = digest.len() > SHORT_DIGEST && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_digest {
            condition.and("n.host LIKE", format!("sha256:{digest}%").into(), "");
        } else if !digest.is_empty() {
            condition.and("n.search LIKE", part(digest).into(), " ESCAPE '\\'");
        }
        condition
    }

    /// What `nodes` and `node_findings` both have.
    fn narrow(&mut self, query: &FleetQuery) {
        if let Some(standing) = query.standing {
            self.and("n.standing =", place(standing), "");
        }
        if let Some(class) = &query.class {
            self.and("n.class =", class.as_str().into(), "");
        }
        if let Some(tier) = query.tier {
            self.and("n.tier =", tier.as_str().into(), "");
        }
    }

    fn and(&mut self, before: &str, value: Value, after: &str) {
        self.parameters.push(value);
        let word = if self.sql.is_empty() { "WHERE" } else { "AND" };
        let _infallible = write!(self.sql, " {word} {before} ${}{after}", self.parameters.len());
    }

    /// The nodes that fit, in no order; one more than few where there are many.
    fn few(&self, engine: &mut dyn Engine) -> Result<Vec<Found>, EngineError> {
        let from = match self.way {
            Way::Nodes => "nodes n",
            Way::Findings => "node_findings f CROSS JOIN nodes n",
        };
        let mut parameters = self.parameters.clone();
        parameters.push((FEW + 1).into());
        let limit = parameters.len();
        let sql = format!("SELECT n.position, n.standing, n.hostname, n.host FROM {from}{} LIMIT ${limit}", self.sql);
        let found = |row: &Row| {
            let (hostname, host) = (row.text(2)?.to_owned(), row.text(3)?.to_owned());
            Ok(Found { position: row.count(0)?, standing: row.integer(1)?, hostname, host })
        };
        engine.query(&sql, &parameters)?.iter().map(found).collect()
    }
}

/// A pattern that finds this text anywhere, whatever is in it.
fn part(text: &str) -> String {
    let mut pattern = "%".to_owned();
    for c in text.chars().take(200) {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "%"
}
