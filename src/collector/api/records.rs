//! `POST /v1/records` and `/v1/challenges`: what a host sends.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use serde::Deserialize;

use super::reading::typed;
use super::{App, Problem, body};
use crate::collector::crew::Undone;
use crate::collector::intake::Taken;
use crate::collector::limits::Portion;
use crate::collector::model::{Admission, Refusal};
use crate::ident::printable;
use crate::record::bundle;

/// The run's id, as the sender has it.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub const ENVELOPE: &str = "application/vnd.in-toto.test-result+dsse";
const TYPES: [&str; 3] = [ENVELOPE, bundle::MEDIA_TYPE, "application/json"];

/// Takes a record in: 201 with its receipt, 200 with the receipt of then.
pub async fn take(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let Admission { created, receipt, .. } = intake(&app, &headers, body, &TYPES).await?.0;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(typed(status, "application/json", receipt))
}

/// Receives, verifies and stores a record. Gives what came of it and the payload's digest.
pub async fn intake(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
    types: &[&str],
) -> Result<(Admission, crate::ident::Digest), Problem> {
    let began = Instant::now();
    let received = body::receive(app, headers, body, types).await?;
    let (taken, _portion) = verify(app, received).await?;
    check_run(headers, &taken)?;
    if let Some(rates) = &app.key_rates {
        // Only now: whoever writes a key's name on a letter does not use up its owner's rate.
        rates.take(&taken.keyid).map_err(Refusal::TooMany)?;
    }
    let payload = taken.payload;
    let admission = app.store.take(taken).await?;
    app.metrics.record(admission.created, began.elapsed().as_secs_f64());
    Ok((admission, payload))
}

async fn verify(app: &Arc<App>, received: body::Received) -> Result<(Taken, Portion), Problem> {
    let working = app.clone();
    let verified = app.crew.run(move || {
        let (raw, portion) = received.unpack(&working.bodies)?;
        working.store.verify(raw).map(|taken| (taken, portion))
    });
    match verified.await {
        Ok(verified) => Ok(verified?),
        Err(Undone::Full) => Err(Refusal::Busy(1).into()),
        Err(Undone::Broken) => {
            app.log.say("a record could not be judged: a mistake of ours; please report it");
            Err(Problem::broken())
        }
    }
}

/// A sender that names another run than it sends mixes two records up.
fn check_run(headers: &HeaderMap, taken: &Taken) -> Result<(), Refusal> {
    match headers.get(IDEMPOTENCY_KEY) {
        Some(named) if named.as_bytes() != taken.run_id.as_bytes() => {
            let named = printable(&String::from_utf8_lossy(named.as_bytes()), 60);
            Err(Refusal::Malformed(format!("Idempotency-Key is {named}, and the record is of run {}", taken.run_id)))
        }
        Some(_) | None => Ok(()),
    }
}

#[derive(Deserialize)]
struct Ask {
    keyid: String,
}

/// Gives a nonce out, for one key. Nothing is kept of it.
pub async fn challenge(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let received = body::receive(&app, &headers, body, &["application/json"]).await?;
    let bytes = received.unpack_small()?;
    let ask: Ask = serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::Malformed(format!("not a question for a challenge: {error}")))?;
    if !is_keyid(&ask.keyid) {
        return Err(Refusal::Malformed("keyid: an OpenSSH fingerprint, SHA256:…".to_owned()).into());
    }
    let (challenge, expires) = app.store.challenge(&ask.keyid, jiff::Timestamp::now());
    let said = serde_json::json!({ "challenge": challenge, "expires": expires.to_string() });
    Ok(typed(StatusCode::CREATED, "application/json", said.to_string()))
}

/// `SHA256:` and 32 bytes in unpadded base64.
fn is_keyid(text: &str) -> bool {
    let fingerprint = text.strip_prefix("SHA256:").unwrap_or_default();
    fingerprint.len() == 43
        && fingerprint.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}
