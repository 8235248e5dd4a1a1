//! `GET /v1/export`: every record since a place of the ledger, one envelope a line.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_DISPOSITION;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use hyper::body::Frame;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::reading::{ask, held, query, typed};
use super::{App, Problem};
use crate::collector::model::Refusal;

/// The in-toto bundle: `.intoto.jsonl`.
const MEDIA_TYPE: &str = "application/vnd.in-toto.bundle";
/// Seconds after which one of the others may be through.
pub const PAUSE: u64 = 10;
/// Records that are read at once.
const PAGE: u32 = 16;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    since: u64,
    limit: Option<u64>,
}

pub async fn stream(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    let part: Part = query(&uri)?;
    let room = app.exports.enter().ok_or(Refusal::Busy(PAUSE))?;
    let first = page(&app, part.since, part.limit).await?;
    let (sender, pages) = mpsc::channel(1);
    tokio::spawn(send(app, first, part.limit, sender));
    let mut response = typed(StatusCode::OK, MEDIA_TYPE, held(Body::new(Lines(pages)), room));
    let name = HeaderValue::from_static("attachment; filename=\"nodegate.intoto.jsonl\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(response)
}

/// Sends page after page until there is none, or nobody reads them any more.
async fn send(app: Arc<App>, first: Page, limit: Option<u64>, sender: mpsc::Sender<Result<Bytes, axum::Error>>) {
    let (mut page_now, mut left) = (first, limit);
    while let Page { lines, records, last: Some(last) } = page_now {
        left = left.map(|left| left.saturating_sub(records));
        if sender.send(Ok(lines)).await.is_err() {
            return;
        }
        page_now = match page(&app, last, left).await {
            Ok(next) => next,
            // What was sent is not whole: the connection breaks off, and the reader knows.
            Err(_) => return drop(sender.send(Err(axum::Error::new("the store failed"))).await),
        };
    }
}

#[derive(Debug, Default)]
struct Page {
    lines: Bytes,
    /// How many records it is of, those of which only the digest is kept too.
    records: u64,
    /// The last one's place.
    last: Option<u64>,
}

async fn page(app: &Arc<App>, since: u64, left: Option<u64>) -> Result<Page, Problem> {
    let limit = u32::try_from(left.unwrap_or(u64::from(PAGE))).unwrap_or(PAGE).min(PAGE);
    if limit == 0 {
        return Ok(Page::default());
    }
    ask(app, move |store| {
        let kept = store.export(since, limit)?;
        let lines: Vec<Vec<u8>> = kept.iter().filter_map(|kept| line(kept.raw.as_deref()?)).collect();
        let last = kept.last().map(|kept| kept.record.ledger.index);
        Ok(Page { lines: lines.concat().into(), records: kept.len() as u64, last })
    })
    .await
}

/// The envelope of a record, or of the bundle around it, as one line. The signature is over the
/// payload, so that white space between does not matter to it.
pub fn line(raw: &[u8]) -> Option<Vec<u8>> {
    if is_line(raw) {
        return Some(raw.to_vec());
    }
    let mut value: Value = serde_json::from_slice(raw).ok()?;
    let envelope = value.get_mut("dsseEnvelope").map(Value::take).unwrap_or(value);
    let mut line = serde_json::to_vec(&envelope).ok()?;
    line.push(b'\n');
    Some(line)
}

/// As our own agents send it: an envelope on one line.
fn is_line(raw: &[u8]) -> bool {
    let body = raw.strip_suffix(b"\n");
    body.is_some_and(|body| body.starts_with(b"{\"payload\"") && !body.contains(&b'\n') && !body.contains(&b'\r'))
}

/// A body that is made while it is sent.
pub struct Lines(pub mpsc::Receiver<Result<Bytes, axum::Error>>);

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.0.poll_recv(context).map(|page| page.map(|page| page.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_one_line_however_it_came() {
        let bare = br#"{"payload":"AA==","payloadType":"t","signatures":[{"keyid":"k","sig":"AA=="}]}"#;
        let spread = br#"{ "payload": "AA==",
            "payloadType": "t",
            "signatures": [ {"keyid":"k","sig":"AA=="} ] }"#;
        let ended = [bare.as_slice(), b"\n"].concat();
        let bundle = [br#"{"mediaType":"m","dsseEnvelope":"#.as_slice(), bare, b"}\n"].concat();
        let one = line(bare).unwrap();
        assert_eq!(one.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(line(&ended).unwrap(), one);
        assert_eq!(line(spread).unwrap(), one);
        assert_eq!(line(&bundle).unwrap(), one);
        assert!(line(b"{").is_none());
    }
}
