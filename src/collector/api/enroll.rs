//! `POST /v1/enroll`: a host's key makes itself known.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;

use super::reading::{ask, typed};
use super::{App, Problem, body, keys};
use crate::collector::crew::Undone;
use crate::collector::enrol::{self, Outcome};
use crate::collector::model::{Key, Refusal};

pub async fn take(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let received = body::receive(&app, &headers, body, &["application/json"]).await?;
    let working = app.clone();
    let judged = app.crew.run(move || {
        let (bytes, _portion) = received.unpack(&working.bodies)?;
        enrol::enrol(&bytes, &working.store, &working.enrolment, jiff::Timestamp::now())
    });
    let outcome = judged.await.map_err(|undone| match undone {
        Undone::Full => Problem::from(Refusal::Busy(1)),
        Undone::Broken => Problem::broken(),
    })??;
    match outcome {
        Outcome::Enrolled { key, created } => enrolled(&app, &key, created).await,
        Outcome::Challenge(credential) => {
            let said = serde_json::to_vec(&credential).map_err(|_| Problem::broken())?;
            Ok(typed(StatusCode::ACCEPTED, "application/json", said))
        }
    }
}

/// What became of the key, and the keys that its receipts will be verified by.
async fn enrolled(app: &Arc<App>, key: &Key, created: bool) -> Result<Response, Problem> {
    let receipt_keys = keys::listed(ask(app, |store| store.receipt_keys()).await?);
    let said = json!({
        "keyid": key.keyid, "tier": key.tier, "state": key.state, "receiptKeys": receipt_keys.keys,
    });
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(typed(status, "application/json", said.to_string()))
}
