//! For those who watch the collector: `/healthz` and `/metrics`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;

use super::reading::{ask, typed};
use super::{App, Problem};
use crate::collector::metrics::{self, FleetNow, Now};
use crate::collector::model::{KeyState, Refusal};
use crate::collector::store::{Counts, Store, StoreError};

/// How long an answer of the store counts for the next who asks.
const FRESH: Duration = Duration::from_secs(1);
/// Offenders that are counted at most.
const OFFENDERS: u32 = 10_000;

/// When the store was last seen to answer, or not.
#[derive(Default)]
pub struct Health(Mutex<Option<(Instant, bool)>>);

impl Health {
    fn fresh(&self) -> Option<bool> {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.filter(|(at, _)| at.elapsed() < FRESH).map(|(_, well)| well)
    }

    fn note(&self, well: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), well));
    }
}

/// Whether the store answers.
pub async fn health(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let well = match app.health.fresh() {
        Some(well) => well,
        None => {
            let well = ask(&app, |store| store.head(Timestamp::now())).await.is_ok();
            app.health.note(well);
            well
        }
    };
    match well {
        true => Ok(typed(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")),
        false => Err(Refusal::Busy(FRESH.as_secs()).into()),
    }
}

pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let fleet = ask(&app, look).await.ok();
    let now = Now {
        connections: app.connections.inside(),
        verifying: app.crew.waiting(),
        committing: app.store.waiting(),
        fleet,
    };
    Ok(typed(StatusCode::OK, metrics::CONTENT_TYPE, app.metrics.text(&now)))
}

fn look(store: &Store) -> Result<FleetNow, StoreError> {
    let now = Timestamp::now();
    let Counts { nodes, keys, records, .. } = store.counts(now)?;
    let pending = keys.iter().find(|(state, _)| *state == KeyState::Pending).map_or(0, |(_, count)| *count);
    let offenders = store.offenders(now, OFFENDERS)?;
    Ok(FleetNow {
        standings: nodes.into_iter().map(|(standing, count)| (standing.as_str(), count)).collect(),
        repeat_offenders: offenders.hosts.len() as u64,
        pending_keys: pending,
        ledger: records,
    })
}
