//! Archivista's shape (in-toto/archivista), so that tools which post there can post here.
//!
//! Unlike it, this verifies before it stores, and the name that it gives is the payload's SHA-256 and
//! not the envelope's: the same record has one name, however its envelope was written.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::reading::{Named, json};
use super::{App, Problem, fleet, records};

/// Archivista's client says what it sends as one or the other.
const TYPES: [&str; 3] = ["application/json", "application/octet-stream", records::ENVELOPE];

pub async fn upload(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let (_, payload) = records::intake(&app, &headers, body, &TYPES).await?;
    json(&serde_json::json!({ "gitoid": payload.hex() }))
}

pub async fn download(State(app): State<Arc<App>>, Named(gitoid): Named) -> Result<Response, Problem> {
    fleet::raw_of(fleet::kept(&app, &gitoid).await?)
}
