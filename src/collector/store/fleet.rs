//! Questions about the fleet: a page of it, one node, who is rejected again and again.

mod choice;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use choice::choose;

use super::engine::{Engine, EngineError, Row, Value};
use super::records::{COLUMNS, WIDTH, record};
use super::{Store, StoreError};
use crate::collector::model::{Fleet, FleetQuery, KeyState, Node, Problem, Standing};
use crate::collector::policy::{Policy, standing};
use crate::ident::Digest;
use crate::record::standing::Tier;

/// Nodes of one page.
pub const PAGE: u64 = 50;
/// Names in a list of counts.
const LISTED: usize = 100;

const FROM: &str = "FROM nodes n JOIN node_details d ON d.host = n.host JOIN records r ON r.position = n.position \
     JOIN keys k ON k.keyid = r.keyid";

/// What metrics count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub nodes: BTreeMap<Standing, u64>,
    pub tiers: Vec<(Tier, u64)>,
    pub keys: Vec<(KeyState, u64)>,
    /// Entries of the ledger.
    pub records: u64,
    pub rejections_recent: u64,
}

/// A host or a GPU by its rejections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    /// Host name, or serial number of a GPU.
    pub name: String,
    /// The host that it was last seen in.
    pub host: Digest,
    /// Rejected runs within the policy's recent days.
    pub rejections: u64,
    pub last: Timestamp,
}

/// Who is rejected again and again, worst first; at least twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offenders {
    pub hosts: Vec<Offender>,
    pub gpus: Vec<Offender>,
}

impl Store {
    /// One page of the fleet as it stands at this time.
    pub fn fleet(&self, query: &FleetQuery, now: Timestamp) -> Result<Fleet, StoreError> {
        self.ask(|engine, policy| {
            let groups = groups(engine)?;
            let total = groups.iter().map(|group| group.nodes).sum();
            let chosen = choose(engine, &groups, query)?;
            let nodes = read_page(engine, policy, &chosen.positions, now)?;
            Ok(Fleet {
                nodes,
                found: chosen.found,
                page: narrow(chosen.page),
                pages: narrow(chosen.pages),
                total,
                standings: summed(&groups, |group| group.standing).into_iter().collect(),
                findings: findings(engine)?,
                classes: most_first(summed(&groups, |group| group.class.clone())),
                tiers: most_first(summed(&groups, |group| group.tier)),
            })
        })
    }

    /// A node by the digest of its `host.json`.
    pub fn node(&self, host: &Digest, now: Timestamp) -> Result<Option<Node>, StoreError> {
        self.one_node("WHERE n.host = $1", &[Value::from(*host)], now)
    }

    /// The node of exactly this host name, serial number or host digest; of several the one that was
    /// heard of last.
    pub fn find_node(&self, text: &str, now: Timestamp) -> Result<Option<Node>, StoreError> {
        let digest = if text.starts_with("sha256:") { text.to_owned() } else { format!("sha256:{text}") };
        if let Ok(host) = digest.to_ascii_lowercase().parse() {
            return self.node(&host, now);
        }
        let order = "WHERE n.hostname = $1 OR n.serial = $2 ORDER BY n.position DESC LIMIT 1";
        self.one_node(order, &[text.into(), text.into()], now)
    }

    /// Hosts and GPUs with several rejected runs within the policy's recent days.
    pub fn offenders(&self, now: Timestamp, limit: u32) -> Result<Offenders, StoreError> {
        const HOSTS: &str = "SELECT COALESCE(MAX(n.hostname), x.host), x.host, COUNT(*), MAX(x.received_at)
            FROM rejections x LEFT JOIN nodes n ON n.host = x.host WHERE x.received_at >= $1
            GROUP BY x.host HAVING COUNT(*) > 1 ORDER BY 3 DESC, 4 DESC LIMIT $2";
        // A GPU that was moved counts in every host that it was rejected in.
        const GPUS: &str = "SELECT serial, MAX(host), COUNT(DISTINCT position), MAX(received_at) FROM findings
            WHERE received_at >= $1 AND serial IS NOT NULL
            GROUP BY serial HAVING COUNT(DISTINCT position) > 1 ORDER BY 3 DESC, 4 DESC LIMIT $2";
        self.ask(|engine, policy| {
            let parameters = [policy.recent(now).into(), u64::from(limit).into()];
            let mut list = |sql: &str| engine.query(sql, &parameters)?.iter().map(offender).collect::<Result<_, _>>();
            Ok(Offenders { hosts: list(HOSTS)?, gpus: list(GPUS)? })
        })
    }

    pub fn counts(&self, now: Timestamp) -> Result<Counts, StoreError> {
        const KEYS: &str = "SELECT state, COUNT(*) FROM keys GROUP BY state";
        self.ask(|engine, policy| {
            let groups = groups(engine)?;
            let keys = engine.query(KEYS, &[])?;
            let keys =
                keys.iter().map(|row| Ok((row.json_word(0)?, row.count(1)?))).collect::<Result<_, EngineError>>()?;
            let last = super::records::last(engine)?;
            let recent = "SELECT COUNT(*) FROM rejections WHERE received_at >= $1";
            Ok(Counts {
                nodes: summed(&groups, |group| group.standing).into_iter().collect(),
                tiers: most_first(summed(&groups, |group| group.tier)),
                keys,
                records: last.map_or(0, |(place, _)| place.index),
                rejections_recent: number(engine, recent, &[policy.recent(now).into()])?,
            })
        })
    }

    fn one_node(&self, condition: &str, parameters: &[Value], now: Timestamp) -> Result<Option<Node>, StoreError> {
        let sql = format!("SELECT {COLUMNS}, {SUMMARY} {FROM} {condition}");
        self.ask(|engine, policy| {
            let rows = engine.query(&sql, parameters)?;
            Ok(rows.first().map(|row| node(engine, row, policy, now)).transpose()?)
        })
    }
}

/// What [`node`] reads behind the record's own columns.
const SUMMARY: &str = "d.gpus, d.problems, n.runs, n.rejections";

/// Nodes that are alike in all that is counted; a fleet has a few dozen such groups.
struct Group {
    standing: Standing,
    class: String,
    tier: Tier,
    nodes: u64,
}

fn groups(engine: &mut dyn Engine) -> Result<Vec<Group>, EngineError> {
    const SQL: &str = "SELECT standing, class, tier, COUNT(*) FROM nodes GROUP BY standing, class, tier";
    let group = |row: &Row| {
        let place = usize::try_from(row.count(0)?).ok().and_then(|place| Standing::ALL.get(place).copied());
        let standing = place.ok_or_else(|| row.damage(0))?;
        Ok(Group { standing, class: row.text(1)?.to_owned(), tier: row.word(2)?, nodes: row.count(3)? })
    };
    engine.query(SQL, &[])?.iter().map(group).collect()
}

fn summed<K: std::hash::Hash + Eq>(groups: &[Group], key: impl Fn(&Group) -> K) -> HashMap<K, u64> {
    let mut sums = HashMap::new();
    groups.iter().for_each(|group| *sums.entry(key(group)).or_default() += group.nodes);
    sums
}

fn most_first<K: Ord>(sums: HashMap<K, u64>) -> Vec<(K, u64)> {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums.truncate(LISTED);
    sums
}

fn findings(engine: &mut dyn Engine) -> Result<Vec<(String, u64)>, EngineError> {
    const SQL: &str = "SELECT code, COUNT(*) FROM node_findings GROUP BY code ORDER BY 2 DESC, 1 LIMIT 100";
    engine.query(SQL, &[])?.iter().map(|row| Ok((row.text(0)?.to_owned(), row.count(1)?))).collect()
}

/// The nodes at these positions, in this order.
fn read_page(
    engine: &mut dyn Engine,
    policy: &Policy,
    positions: &[u64],
    now: Timestamp,
) -> Result<Vec<Node>, EngineError> {
    // Always as many places as a page has, so that there is one statement to prepare; no entry is at 0.
    let places: Vec<String> = (1..=PAGE).map(|number| format!("${number}")).collect();
    let sql = format!("SELECT {COLUMNS}, {SUMMARY} {FROM} WHERE n.position IN ({})", places.join(", "));
    let mut parameters: Vec<Value> = positions.iter().map(|position| Value::from(*position)).collect();
    parameters.resize(places.len(), Value::from(0));
    let mut nodes = HashMap::new();
    for row in engine.query(&sql, &parameters)? {
        let node = node(engine, &row, policy, now)?;
        nodes.insert(node.record.ledger.index, node);
    }
    Ok(positions.iter().filter_map(|position| nodes.remove(position)).collect())
}

fn node(engine: &mut dyn Engine, row: &Row, policy: &Policy, now: Timestamp) -> Result<Node, EngineError> {
    const RECENT: &str = "SELECT COUNT(*) FROM rejections WHERE host = $1 AND received_at >= $2";
    let record = record(row, policy)?;
    let problems = row.text(WIDTH + 1)?;
    let mut problems: Vec<Problem> = serde_json::from_str(problems).map_err(|_| row.damage(WIDTH + 1))?;
    let since = policy.recent(now);
    let rejections = row.count(WIDTH + 3)?;
    let mut recent_rejections = 0;
    if rejections > 0 {
        recent_rejections = number(engine, RECENT, &[record.host.into(), since.into()])?;
        count_repeats(engine, &record.host, since, &mut problems)?;
    }
    Ok(Node {
        standing: standing(&record, policy, now),
        gpus: row.text(WIDTH)?.to_owned(),
        runs: row.count(WIDTH + 2)?,
        rejections,
        recent_rejections,
        problems,
        record,
    })
}

/// In how many rejected runs each finding stood on its subject.
fn count_repeats(
    engine: &mut dyn Engine,
    host: &Digest,
    since: Timestamp,
    problems: &mut [Problem],
) -> Result<(), EngineError> {
    const SQL: &str = "SELECT code, subject, COUNT(DISTINCT position) FROM findings
        WHERE host = $1 AND received_at >= $2 GROUP BY code, subject";
    for row in engine.query(SQL, &[(*host).into(), since.into()])? {
        let (code, subject, count) = (row.text(0)?, row.text(1)?, row.count(2)?);
        let same = |problem: &&mut Problem| problem.code == code && problem.subject == subject;
        problems.iter_mut().filter(same).for_each(|problem| problem.repeated = count);
    }
    Ok(())
}

fn offender(row: &Row) -> Result<Offender, EngineError> {
    Ok(Offender { name: row.text(0)?.to_owned(), host: row.digest(1)?, rejections: row.count(2)?, last: row.time(3)? })
}

fn number(engine: &mut dyn Engine, sql: &str, parameters: &[Value]) -> Result<u64, EngineError> {
    engine.query(sql, parameters)?.first().map_or(Ok(0), |row| row.count(0))
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
