//! What the collector has: nodes, their records, and a record's own bytes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::reading::{Named, ask, json, query, typed};
use super::{App, Problem, records};
use crate::collector::model::{FleetQuery, Kept, Node, Record, Refusal};
use crate::ident::{Digest, printable};
use crate::record::bundle;
use crate::report::html::stem;

/// Records of a node in one answer.
const USUAL: u32 = 50;
const MOST: u32 = 1000;

pub async fn fleet(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query: FleetQuery = query(&uri)?;
    json(&ask(&app, move |store| store.fleet(&query, jiff::Timestamp::now())).await?)
}

pub async fn node(State(app): State<Arc<App>>, Named(host): Named) -> Result<Response, Problem> {
    json(&find(&app, host).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    before: Option<u64>,
    limit: Option<u32>,
}

#[derive(Serialize)]
struct Records {
    host: Digest,
    records: Vec<Record>,
    /// What `before` asks for the records before these; none before the first.
    next: Option<u64>,
}

pub async fn records(State(app): State<Arc<App>>, Named(host): Named, uri: Uri) -> Result<Response, Problem> {
    let part: Part = query(&uri)?;
    let limit = part.limit.unwrap_or(USUAL).clamp(1, MOST);
    let host = find(&app, host).await?.record.host;
    let records = ask(&app, move |store| store.records_of(&host, part.before, limit)).await?;
    let is_full = records.len() >= limit as usize;
    let next = records.last().map(|last| last.ledger.index).filter(|_| is_full);
    json(&Records { host, records, next })
}

/// A record as it came, byte for byte.
pub async fn record(State(app): State<Arc<App>>, Named(payload): Named) -> Result<Response, Problem> {
    let kept = kept(&app, &payload).await?;
    raw_of(kept)
}

pub async fn receipt(State(app): State<Arc<App>>, Named(payload): Named) -> Result<Response, Problem> {
    let kept = kept(&app, &payload).await?;
    let receipt = kept.receipt.ok_or_else(|| gone(&kept.record.payload))?;
    Ok(file(typed(StatusCode::OK, "application/json", receipt), &kept.record.run_id, "receipt.json"))
}

/// A record's bytes as an answer.
pub fn raw_of(kept: Kept) -> Result<Response, Problem> {
    let raw = kept.raw.ok_or_else(|| gone(&kept.record.payload))?;
    let is_bundle = std::str::from_utf8(&raw).is_ok_and(|text| text.contains(MEDIA_TYPE_KEY));
    let (content_type, ending) =
        if is_bundle { (bundle::MEDIA_TYPE, "sigstore.json") } else { (records::ENVELOPE, "json") };
    Ok(file(typed(StatusCode::OK, content_type, raw), &kept.record.run_id, ending))
}

/// Stands in a bundle, and in no envelope: base64 has no quotation marks.
const MEDIA_TYPE_KEY: &str = "\"mediaType\"";

/// A record with this digest as its payload's, with or without `sha256:`.
pub async fn kept(app: &Arc<App>, payload: &str) -> Result<Kept, Problem> {
    let digest = digest(payload)?;
    let kept = ask(app, move |store| store.record(&digest)).await?;
    Ok(kept.ok_or_else(|| Refusal::NotFound(format!("no record {digest} here")))?)
}

pub async fn find(app: &Arc<App>, text: String) -> Result<Node, Problem> {
    let shown = printable(&text, 100);
    let found = ask(app, move |store| store.find_node(&text, jiff::Timestamp::now())).await?;
    Ok(found.ok_or_else(|| Refusal::NotFound(format!("no node `{shown}` here")))?)
}

fn digest(text: &str) -> Result<Digest, Problem> {
    let whole = if text.starts_with("sha256:") { text.to_owned() } else { format!("sha256:{text}") };
    whole
        .parse()
        .map_err(|_| Refusal::NotFound("a record is named by the SHA-256 of its payload, in hex".to_owned()).into())
}

fn gone(payload: &Digest) -> Problem {
    let detail = format!("of record {payload} only the digest is kept (retention)");
    Problem::new(StatusCode::GONE, "gone", detail)
}

/// What is signed and named by its digest does not change; a browser is to save it and not to show it.
fn file(mut response: Response, run_id: &str, ending: &str) -> Response {
    // The name that the commands of a record's page use.
    let name = format!("attachment; filename=\"{}.{ending}\"", stem(run_id));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    response
}
