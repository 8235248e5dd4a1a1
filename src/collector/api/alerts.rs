//! `/v1/alert-sink`: an Alertmanager that reaches it has proven that its receivers are reached.
//!
//! Source: prometheus/alertmanager, `docs/configuration.md`, `<webhook_config>`, version 4.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::reading::{Named, ask, json as as_json};
use super::{App, Problem, body};
use crate::collector::model::Refusal;
use crate::collector::store::Alert;
use crate::ident::printable;

/// The label that an alert names its run by.
const LABEL: &str = "run_id";
/// Alerts of one message that are looked at.
const MOST: usize = 1000;
/// Characters of a receiver's name.
const NAME: usize = 100;

#[derive(Deserialize)]
struct Message {
    version: String,
    #[serde(default)]
    receiver: String,
    #[serde(default)]
    alerts: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    #[serde(default)]
    status: String,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
}

/// Keeps which runs an alert named. Alerts of other things are none of ours, and no error: one
/// receiver may have both.
pub async fn take(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let received = body::receive(&app, &headers, body, &["application/json"]).await?;
    let alerts = read(&received.unpack_small()?)?;
    let kept = alerts.len();
    if kept > 0 {
        ask(&app, move |store| store.put_alerts(alerts)).await?;
    }
    let mut response = as_json(&json!({ "kept": kept }))?;
    *response.status_mut() = StatusCode::OK;
    Ok(response)
}

/// Which alerts named this run.
pub async fn of_run(State(app): State<Arc<App>>, Named(run): Named) -> Result<Response, Problem> {
    let run = uuid::Uuid::parse_str(&run).map_err(|_| Refusal::NotFound("a run is named by its UUID".to_owned()))?;
    let run_id = run.to_string();
    let asked = run_id.clone();
    let alerts = ask(&app, move |store| store.alerts_of(&asked)).await?;
    let alerts: Vec<_> = alerts
        .iter()
        .map(|alert| {
            let received_at = alert.received_at.to_string();
            json!({ "receiver": alert.receiver, "status": alert.status, "receivedAt": received_at })
        })
        .collect();
    as_json(&json!({ "runId": run_id, "alerts": alerts }))
}

fn read(bytes: &[u8]) -> Result<Vec<Alert>, Refusal> {
    let malformed = |why: String| Refusal::Malformed(format!("not a message of Alertmanager's webhook: {why}"));
    let message: Message = serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
    if message.version != "4" {
        return Err(malformed(format!("version {}, expected 4", printable(&message.version, 20))));
    }
    let received_at = jiff::Timestamp::now();
    let alerts = message.alerts.iter().take(MOST).filter_map(|one| {
        let run = uuid::Uuid::parse_str(one.labels.get(LABEL)?).ok()?;
        let status = if one.status == "resolved" { "resolved" } else { "firing" };
        let receiver = printable(&message.receiver, NAME);
        Some(Alert { run_id: run.to_string(), receiver, status: status.to_owned(), received_at })
    });
    Ok(alerts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_names_its_run_and_the_rest_is_none_of_ours() {
        let text = r#"{"version":"4","receiver":"ops\u001b","status":"firing","alerts":[
            {"status":"resolved","labels":{"run_id":"0193A5D0-0000-7000-8000-000000000001","alertname":"x"}},
            {"status":"firing","labels":{"run_id":"../../etc"}}, {"status":"firing","labels":{}}]}"#;
        let alerts = read(text.as_bytes()).unwrap();
        assert_eq!(alerts.len(), 1);
        assert_eq!(alerts[0].run_id, "0193a5d0-0000-7000-8000-000000000001");
        assert_eq!((alerts[0].status.as_str(), alerts[0].receiver.contains('\u{1b}')), ("resolved", false));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in ["", "[]", "{}", r#"{"version":"3"}"#, r#"{"version":4}"#, r#"{"version":"4","alerts":{}}"#] {
            assert!(matches!(read(text.as_bytes()), Err(Refusal::Malformed(_))), "{text}");
        }
    }
}
