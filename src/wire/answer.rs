//! What a peer answered, cut down to what is of use: hostile text, bounded and without our secret.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Secret;
use crate::ident::printable;

/// No peer can make us wait longer than a day: by then somebody may have mended it.
pub const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Characters of a problem's code and of its detail.
const LONGEST_CODE: usize = 60;
const LONGEST_DETAIL: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub status: u16,
    /// Of a success. What else a peer says is read as a [`Problem`] or not at all.
    pub body: String,
    /// `Retry-After`: how long the peer asks us to stay away, at most [`LONGEST_WAIT`].
    pub retry_after: Option<Duration>,
    pub problem: Option<Problem>,
}

/// What a refusal says of itself (RFC 9457, `application/problem+json`); safe to print.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Of our collector: `unknown-key`, `revoked-key` …
    pub code: String,
    pub detail: String,
}

impl Problem {
    /// The problem in a body, if it is one. A secret that the peer gives back is taken out before
    /// anything is cut, so that no part of it stays.
    pub(super) fn read(bytes: &[u8], secret: Option<&Secret>) -> Option<Problem> {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str, limit: usize| {
            let text = value.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
            printable(&secret.map_or_else(|| text.to_owned(), |secret| secret.redact(text)), limit)
        };
        let problem = Problem { code: text("code", LONGEST_CODE), detail: text("detail", LONGEST_DETAIL) };
        (problem != Problem::default()).then_some(problem)
    }
}

/// `Retry-After` by RFC 9110: seconds, or a date by the wall clock. What is neither says nothing.
pub(super) fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // What does not fit is longer than anything that we would wait.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let at = Timestamp::try_from(httpdate::parse_http_date(value).ok()?).ok()?;
        Duration::try_from(at.duration_since(now)).unwrap_or_default()
    };
    Some(wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_never_more_than_a_day() {
        let now = "2026-11-30T20:41:07Z".parse().unwrap();
        let wait = |text: &str| retry_after(text, now).map(|wait| wait.as_secs());
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait(" 0 "), Some(0));
        assert_eq!(wait("99999999999999999999999999"), Some(86_400));
        assert_eq!(wait("Mon, 30 Nov 2026 20:42:07 GMT"), Some(60));
        assert_eq!(wait("Mon, 30 Nov 2026 20:40:07 GMT"), Some(0));
        assert_eq!(wait("Mon, 30 Nov 2099 20:40:07 GMT"), Some(86_400));
        for text in ["", "-1", "1.5", "soon", "2026-11-30T20:42:07Z", "1e3"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }

    #[test]
    fn a_problem_is_bounded_printable_and_without_our_secret() {
        let secret = Secret::new("hunter2").unwrap();
        let said = br#"{"code":"revoked-key","detail":"\u001b[2J it was \u0068unter2, hunter2"}"#;
        let problem = Problem::read(said, Some(&secret)).unwrap();
        assert_eq!(problem.code, "revoked-key");
        assert_eq!(problem.detail, "\\u{1b}[2J it was …, …");
        let long = format!("{{\"detail\":\"{}hunter2\"}}", "x".repeat(295));
        let problem = Problem::read(long.as_bytes(), Some(&secret)).unwrap();
        assert!(!problem.detail.contains("hunt") && problem.detail.chars().count() <= 301, "{}", problem.detail);
        for text in ["", "[]", "{}", "{\"code\":7}", "<html>", "{\"code\":"] {
            assert_eq!(Problem::read(text.as_bytes(), None), None, "{text}");
        }
    }
}
