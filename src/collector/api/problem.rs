//! What is answered where something is refused: a problem by RFC 9457, and a line in the log.

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::super::model::Refusal;
use crate::ident::printable;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";
/// Characters of an explanation.
const LONGEST: usize = 400;

/// Why a request is not answered as it was asked.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable, for machines and for metrics.
    pub code: &'static str,
    /// For people; printable.
    pub detail: String,
    pub retry_after: Option<u64>,
    /// Whether the connection is of no more use: there is more body than we want to read.
    pub closes: bool,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl AsRef<str>) -> Problem {
        Problem { status, code, detail: printable(detail.as_ref(), LONGEST), retry_after: None, closes: false }
    }

    /// A mistake of ours; what it was stands in the log.
    pub fn broken() -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "broken", "the collector failed at this")
    }

    /// The same, and the end of the connection.
    pub fn closing(mut self) -> Problem {
        self.closes = true;
        self
    }

    /// Something that the router or an extractor of its own refused.
    pub fn of_status(status: StatusCode) -> Problem {
        let code = match status {
            StatusCode::NOT_FOUND => "not-found",
            StatusCode::METHOD_NOT_ALLOWED => "method-not-allowed",
            status if status.is_client_error() => "malformed",
            _ => "broken",
        };
        Problem::new(status, code, status.canonical_reason().unwrap_or("refused"))
    }

    fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Refused")
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let (status, code) = refusal.status();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem { retry_after: refusal.retry_after(), ..Problem::new(status, code, refusal.to_string()) }
    }
}

impl IntoResponse for Problem {
    /// The problem also stands in the response's extensions, from where it is logged and counted.
    fn into_response(self) -> Response {
        let body = serde_json::json!({
            "title": self.title(), "status": self.status.as_u16(), "detail": self.detail, "code": self.code,
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.code == "unauthorised" {
            // A browser asks for a password, and sends the token as such.
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"nodegate\""));
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"nodegate\", charset=\"UTF-8\""));
        }
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// The response as a problem, whoever made it: what the router refuses on its own has none yet.
pub fn unified(response: Response) -> Response {
    let status = response.status();
    let refused = status.is_client_error() || status.is_server_error();
    if !refused || response.extensions().get::<Problem>().is_some() {
        return response;
    }
    let allowed = response.headers().get(ALLOW).cloned();
    let mut unified = Problem::of_status(status).into_response();
    if let Some(allowed) = allowed {
        unified.headers_mut().insert(ALLOW, allowed);
    }
    unified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_its_status_its_code_and_when_to_come_again() {
        let response = Problem::from(Refusal::Busy(5)).into_response();
        assert_eq!((response.status().as_u16(), response.headers()[RETRY_AFTER].to_str().unwrap()), (503, "5"));
        let response = Problem::from(Refusal::Unauthorised("no".to_owned())).into_response();
        assert_eq!(response.headers().get_all(WWW_AUTHENTICATE).iter().count(), 2);
        let unknown = Problem::from(Refusal::UnknownKey("SHA256:x".to_owned())).into_response();
        assert!(unknown.headers().get(WWW_AUTHENTICATE).is_none(), "an agent is not asked for a password");
    }

    #[test]
    fn hostile_text_is_printable_and_bounded() {
        let problem = Problem::from(Refusal::Malformed(format!("\u{1b}[2J{}", "x".repeat(10_000))));
        assert!(problem.detail.chars().count() <= LONGEST + 10 && !problem.detail.contains('\u{1b}'));
    }
}
