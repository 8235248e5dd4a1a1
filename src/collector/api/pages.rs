//! What people see: `/`, `/nodes/…`, `/records/…`, `/diff`, the table, and the files of a page.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::export::{Lines, PAUSE};
use super::fleet::{find, kept};
use super::reading::{Named, ask, held, query, typed};
use super::{App, Problem};
use crate::collector::model::{FleetQuery, Kept, Key, Refusal};
use crate::collector::page::{self, Compared, NodeView, RecordView};
use crate::collector::store::{Store, StoreError};
use crate::ident::Digest;
use crate::predicate::Details;
use crate::record::{PublicKey, Verified, verify};

pub const HTML: &str = "text/html; charset=utf-8";
/// Runs on a node's page.
const RUNS: u32 = 50;
/// Names in a list of repeat offenders.
const OFFENDERS: u32 = 20;
/// How long a browser may keep a stylesheet.
const KEEP: &str = "public, max-age=3600";

pub async fn fleet(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query: FleetQuery = query(&uri)?;
    let text = ask(&app, move |store| {
        let now = Timestamp::now();
        Ok(page::fleet(&store.fleet(&query, now)?, &query, &store.offenders(now, OFFENDERS)?, now))
    });
    Ok(html(text.await?))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    before: Option<u64>,
}

pub async fn node(State(app): State<Arc<App>>, Named(host): Named, uri: Uri) -> Result<Response, Problem> {
    let part: Part = query(&uri)?;
    let node = find(&app, host).await?;
    let text = ask(&app, move |store| {
        let (now, host) = (Timestamp::now(), node.record.host);
        let records = store.records_of(&host, part.before, RUNS)?;
        let is_full = records.len() >= RUNS as usize;
        let older = records.last().filter(|_| is_full);
        let older = older.map(|last| format!("{}?before={}", page::node_address(&host), last.ledger.index));
        let key = store.key(&node.record.keyid)?;
        let history = history(store, &records.iter().map(|record| record.payload).collect::<Vec<_>>())?;
        let (policy, older) = (store.policy(), older.as_deref());
        Ok(page::node(&NodeView {
            node: &node,
            records: &records,
            history: &history,
            key: key.as_ref(),
            policy,
            older,
            now,
        }))
    });
    Ok(html(text.await?))
}

pub async fn record(State(app): State<Arc<App>>, Named(payload): Named) -> Result<Response, Problem> {
    let kept = kept(&app, &payload).await?;
    let text = ask(&app, move |store| {
        let record = &kept.record;
        let key = store.key(&record.keyid)?;
        let verified = verified(&kept, key.as_ref());
        let before = store.records_of(&record.host, Some(record.ledger.index), 1)?;
        Ok(page::record(&RecordView {
            kept: &kept,
            verified: verified.as_ref(),
            key: key.as_ref(),
            policy: store.policy(),
            before: before.first().map(|before| &before.payload),
            now: Timestamp::now(),
        }))
    });
    Ok(html(text.await?))
}

#[derive(Deserialize)]
struct Two {
    a: String,
    b: String,
}

pub async fn difference(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let Two { a, b } = query(&uri)?;
    let (before, after) = (kept(&app, &a).await?, kept(&app, &b).await?);
    let text = ask(&app, move |store| {
        let details = |kept: &Kept| -> Result<Option<Details>, StoreError> {
            let key = store.key(&kept.record.keyid)?;
            Ok(verified(kept, key.as_ref()).map(|verified| verified.details))
        };
        let (Some(earlier), Some(later)) = (details(&before)?, details(&after)?) else { return Ok(None) };
        let before = Compared { record: &before.record, details: &earlier };
        let after = Compared { record: &after.record, details: &later };
        Ok(Some(page::difference(before, after, store.policy(), Timestamp::now())))
    });
    let gone = || Problem::new(StatusCode::GONE, "gone", "of one of them only the digest is kept (retention)");
    text.await?.map(html).ok_or_else(gone)
}

/// All nodes that the query fits, as a table. It is read page after page while it is sent.
pub async fn table(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let query: FleetQuery = query(&uri)?;
    let room = app.exports.enter().ok_or(Refusal::Busy(PAUSE))?;
    let first = rows(&app, &query, 1).await?;
    let (sender, pages) = mpsc::channel(1);
    tokio::spawn(send_rows(app, query, first, sender));
    let mut response = typed(StatusCode::OK, "text/csv; charset=utf-8", held(Body::new(Lines(pages)), room));
    let name = HeaderValue::from_static("attachment; filename=\"nodes.csv\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(response)
}

async fn send_rows(
    app: Arc<App>,
    query: FleetQuery,
    first: (String, u32),
    sender: mpsc::Sender<Result<Bytes, axum::Error>>,
) {
    let (mut text, mut pages) = first;
    let mut number = 1;
    loop {
        if sender.send(Ok(text.into())).await.is_err() || number >= pages {
            return;
        }
        number += 1;
        match rows(&app, &query, number).await {
            // The names of the columns stand once, at the top.
            Ok((next, last)) => (text, pages) = (next.split_once("\r\n").unwrap_or_default().1.to_owned(), last),
            Err(_) => return drop(sender.send(Err(axum::Error::new("the store failed"))).await),
        }
    }
}

async fn rows(app: &Arc<App>, query: &FleetQuery, number: u32) -> Result<(String, u32), Problem> {
    let query = FleetQuery { page: number, ..query.clone() };
    ask(app, move |store| {
        let fleet = store.fleet(&query, Timestamp::now())?;
        Ok((page::csv(&fleet.nodes), fleet.pages))
    })
    .await
}

pub async fn asset(Named(name): Named) -> Result<Response, Problem> {
    let missing = || Problem::from(Refusal::NotFound("no such file".to_owned()));
    let (media_type, bytes) = page::asset(&name).ok_or_else(missing)?;
    let mut response = typed(StatusCode::OK, media_type, bytes);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(KEEP));
    Ok(response)
}

/// What is in the records of these payloads that are still kept.
fn history(store: &Store, payloads: &[Digest]) -> Result<Vec<(Digest, Details)>, StoreError> {
    let mut history = Vec::new();
    let mut key: Option<Key> = None;
    for payload in payloads {
        let Some(kept) = store.record(payload)? else { continue };
        if key.as_ref().is_none_or(|key| key.keyid != kept.record.keyid) {
            key = store.key(&kept.record.keyid)?;
        }
        history.extend(verified(&kept, key.as_ref()).map(|verified| (*payload, verified.details)));
    }
    Ok(history)
}

/// What the bytes of a record say, by the key that the collector knows; whoever could write to the
/// store's files could not write this.
fn verified(kept: &Kept, key: Option<&Key>) -> Option<Verified> {
    let key = PublicKey::parse(&key?.public_key).ok()?;
    verify(kept.raw.as_deref()?, &[key]).ok()
}

fn html(text: String) -> Response {
    typed(StatusCode::OK, HTML, text)
}
