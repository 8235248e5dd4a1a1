//! A request as it is remembered while it is answered: in what form, and how a refusal is told.

use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use super::{Peer, Problem, pages, records};
use crate::collector::page;
use crate::ident::printable;

/// What is remembered of a request while it is answered.
pub struct Asked {
    pub method: Method,
    uri: Uri,
    peer: Peer,
    accept: Option<HeaderValue>,
    run: Option<HeaderValue>,
    /// Whatever a proxy before us made of it, nothing can hide behind this request.
    pub is_last: bool,
}

impl Asked {
    pub fn of(parts: &Parts, peer: Peer) -> Asked {
        Asked {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            peer,
            accept: parts.headers.get(ACCEPT).cloned(),
            run: parts.headers.get(records::IDEMPOTENCY_KEY).cloned(),
            is_last: parts.headers.contains_key(TRANSFER_ENCODING),
        }
    }

    /// The response, or that it is not in a form that was asked for. What a POST brought about is
    /// told in any case.
    pub fn acceptable(&self, response: Response) -> Response {
        let (Some(accept), Some(given)) = (&self.accept, response.headers().get(CONTENT_TYPE)) else { return response };
        let (Ok(accept), Ok(given)) = (accept.to_str(), given.to_str()) else { return response };
        if !self.is_reading() || !response.status().is_success() || accepts(accept, given) {
            return response;
        }
        let detail = format!("this is to be had as {given}");
        Problem::new(StatusCode::NOT_ACCEPTABLE, "not-acceptable", detail).into_response()
    }

    /// A problem as a page, where a browser asked.
    pub fn as_page(&self, response: Response) -> Response {
        let (Some(problem), Some(accept)) = (response.extensions().get::<Problem>(), &self.accept) else {
            return response;
        };
        if !self.is_reading() || !accept.to_str().is_ok_and(|accept| accept.contains("text/html")) {
            return response;
        }
        let text = page::failure(problem.status.as_u16(), &problem.detail);
        let mut response = response.map(|_| text.into());
        // The router has counted the problem.
        response.headers_mut().remove(CONTENT_LENGTH);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(pages::HTML));
        response
    }

    fn is_reading(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    /// A refusal, for the log: one line, without query, headers or body.
    pub fn refused(&self, problem: &Problem) -> String {
        let run = self.run.as_ref().map_or_else(String::new, |run| {
            format!(" run={}", printable(&String::from_utf8_lossy(run.as_bytes()), 40))
        });
        let (method, path) = (printable(self.method.as_str(), 20), printable(self.uri.path(), 100));
        let Problem { status, code, detail, .. } = problem;
        format!("refused {} {code} peer={} {method} {path}{run}: {detail}", status.as_u16(), self.peer.address)
    }
}

/// Whether one of the ranges of `Accept` takes this media type.
fn accepts(accept: &str, given: &str) -> bool {
    let given = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let kind = given.split('/').next().unwrap_or_default();
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let wanted = parts.next().unwrap_or_default().to_ascii_lowercase();
        let refused = parts.any(|part| part.strip_prefix("q=").and_then(|q| q.trim().parse().ok()) == Some(0.0_f32));
        !refused && (wanted == "*/*" || wanted == given || wanted.strip_suffix("/*") == Some(kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_follows_the_ranges() {
        for accept in ["*/*", "application/*", "text/html, application/json;q=0.5", "Application/JSON"] {
            assert!(accepts(accept, "application/json"), "{accept}");
        }
        for accept in ["text/html", "application/xml, text/*", "application/json;q=0", "application/json; q=0.0", ""] {
            assert!(!accepts(accept, "application/json"), "{accept}");
        }
        assert!(accepts("text/html", "text/html; charset=utf-8"));
    }
}
