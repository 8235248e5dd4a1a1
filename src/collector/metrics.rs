//! What the collector counts, for Prometheus (`GET /metrics`). Labels have few values, all of them ours.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The content type of what [`Metrics::text`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "nodegate_collector";

type Labelled<L, M> = Family<L, M>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Code {
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Standing {
    standing: &'static str,
}

/// What happened since the start. Clones count together.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Counted>);

#[derive(Default)]
struct Counted {
    records: Labelled<Outcome, Counter>,
    refusals: Labelled<Code, Counter>,
    requests: Counter,
    unanswered: Labelled<Code, Counter>,
    intake: Times,
    store_errors: Counter,
}

/// How things are at the moment of a look.
#[derive(Clone, Debug, Default)]
pub struct Now {
    pub connections: usize,
    pub verifying: usize,
    pub committing: usize,
    /// None where the store does not answer.
    pub fleet: Option<FleetNow>,
}

#[derive(Clone, Debug, Default)]
pub struct FleetNow {
    pub standings: Vec<(&'static str, u64)>,
    pub repeat_offenders: u64,
    pub pending_keys: u64,
    pub ledger: u64,
}

/// Seconds, from a quarter of a millisecond to half a minute.
#[derive(Clone)]
struct Times(Histogram);

impl Default for Times {
    fn default() -> Times {
        Times(Histogram::new(exponential_buckets(0.000_25, 2.0, 18)))
    }
}

impl Metrics {
    /// A record was taken in, or was here already.
    pub fn record(&self, created: bool, seconds: f64) {
        let outcome = if created { "created" } else { "known" };
        self.0.records.get_or_create(&Outcome { outcome }).inc();
        self.0.intake.0.observe(seconds);
    }

    /// Something was refused, by the code that the sender was told.
    pub fn refusal(&self, code: &'static str) {
        self.0.refusals.get_or_create(&Code { code }).inc();
    }

    pub fn request(&self) {
        self.0.requests.inc();
    }

    /// A connection ended without an answer: too many, too slow, no HTTP.
    pub fn unanswered(&self, code: &'static str) {
        self.0.unanswered.get_or_create(&Code { code }).inc();
    }

    pub fn store_error(&self) {
        self.0.store_errors.inc();
    }

    /// Everything, as OpenMetrics text.
    pub fn text(&self, now: &Now) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        self.register(&mut registry);
        register_now(&mut registry, now);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _written = text::encode(&mut text, &registry);
        text
    }

    fn register(&self, registry: &mut Registry) {
        let Counted { records, refusals, requests, unanswered, intake, store_errors } = &*self.0;
        registry.register("records", "Records taken in, and records that were here already", records.clone());
        registry.register("refusals", "Requests refused, by the code in the answer", refusals.clone());
        registry.register("requests", "Requests of every kind", requests.clone());
        registry.register("unanswered", "Connections that ended before a request was whole", unanswered.clone());
        registry.register("intake_seconds", "From the head of a record's request to its receipt", intake.0.clone());
        registry.register("store_errors", "Questions and changes that the store failed at", store_errors.clone());
        registry.register("build", "This program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    }
}

fn register_now(registry: &mut Registry, now: &Now) {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let mut gauge = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge("connections", "Open connections", number(now.connections));
    gauge("verify_queue", "Bodies that wait for a thread that verifies", number(now.verifying));
    gauge("commit_queue", "Verified records that wait for their commit", number(now.committing));
    gauge("store_up", "Whether the store answers", u64::from(now.fleet.is_some()));
    let Some(fleet) = &now.fleet else { return };
    gauge("repeat_offenders", "Nodes rejected more than once within the policy's days", fleet.repeat_offenders);
    gauge("pending_keys", "Keys that wait for an operator", fleet.pending_keys);
    gauge("ledger_entries", "Entries of the ledger", fleet.ledger);
    let nodes = Family::<Standing, Gauge<u64, AtomicU64>>::default();
    for (standing, count) in &fleet.standings {
        nodes.get_or_create(&Standing { standing }).set(*count);
    }
    registry.register("nodes", "Nodes by what is thought of them now", nodes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told_by_name_and_label() {
        let metrics = Metrics::default();
        metrics.record(true, 0.003);
        metrics.record(false, 0.001);
        metrics.refusal("malformed");
        let fleet = FleetNow { standings: vec![("rejected", 3)], repeat_offenders: 2, ..FleetNow::default() };
        let text = metrics.text(&Now { connections: 5, fleet: Some(fleet), ..Now::default() });
        for line in [
            "nodegate_collector_records_total{outcome=\"created\"} 1",
            "nodegate_collector_records_total{outcome=\"known\"} 1",
            "nodegate_collector_refusals_total{code=\"malformed\"} 1",
            "nodegate_collector_intake_seconds_count 2",
            "nodegate_collector_connections 5",
            "nodegate_collector_nodes{standing=\"rejected\"} 3",
            "nodegate_collector_repeat_offenders 2",
            "nodegate_collector_store_up 1",
        ] {
            assert!(text.contains(line), "`{line}` is not in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(metrics.text(&Now::default()).contains("nodegate_collector_store_up 0"));
    }
}
