//! What the collector says of itself: its receipt keys, and where its ledger stands.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::reading::{ask, json, typed};
use super::{App, Problem};
use crate::collector::model::Refusal;
use crate::collector::store::ReceiptKey as Kept;
use crate::record::receipt_keys::{FORMAT, ReceiptKey, ReceiptKeys};

/// Public keys, oldest first, each with how it took the place of the one before.
pub async fn receipt_keys(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let keys = ask(&app, |store| store.receipt_keys()).await?;
    json(&listed(keys))
}

/// The store's keys as agents read them.
pub fn listed(keys: Vec<Kept>) -> ReceiptKeys {
    let key = |Kept { keyid, public_key, rotation, .. }: Kept| {
        let rotation = rotation.and_then(|rotation| serde_json::from_slice(&rotation).ok());
        ReceiptKey { keyid, public_key, rotation }
    };
    ReceiptKeys { format: FORMAT, keys: keys.into_iter().map(key).collect() }
}

pub async fn head(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let head = ask(&app, |store| store.signed_head(jiff::Timestamp::now())).await?;
    let head = head.ok_or_else(|| Refusal::NotFound("this collector has no key to sign with".to_owned()))?;
    Ok(typed(StatusCode::OK, "application/json", head))
}
