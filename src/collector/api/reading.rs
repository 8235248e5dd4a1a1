//! Questions to the store: asked on a thread that may wait, answered within a number.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{App, Problem};
use crate::collector::model::Refusal;
use crate::collector::store::{Store, StoreError};

/// Seconds after which it is worth asking a store again that did not answer.
const PAUSE: u64 = 5;

/// Asks the store something. Why it did not answer is for the log, not for who asked.
pub async fn ask<T: Send + 'static>(
    app: &Arc<App>,
    question: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    let store = app.store.clone();
    let _turn = app.questions.acquire().await;
    let asked = tokio::task::spawn_blocking(move || question(&store)).await.map_err(|_| Problem::broken())?;
    asked.map_err(|error| {
        app.metrics.store_error();
        app.log.refuse(format!("the store failed: {}", chain(&error)));
        Refusal::Busy(PAUSE).into()
    })
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        // Some errors tell their cause themselves.
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        source = cause.source();
    }
    text
}

pub fn json(value: &impl Serialize) -> Result<Response, Problem> {
    let bytes = serde_json::to_vec(value).map_err(|_| Problem::broken())?;
    Ok(typed(StatusCode::OK, "application/json", bytes))
}

pub fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// What a query asks, what is left empty in a form aside.
pub fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let filled: Vec<&str> =
        uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty() && !pair.ends_with('=')).collect();
    let malformed = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "malformed", detail);
    let rebuilt: Uri =
        format!("/?{}", filled.join("&")).parse().map_err(|_| malformed("query: not a URI".to_owned()))?;
    let read = axum::extract::Query::<T>::try_from_uri(&rebuilt);
    read.map(|axum::extract::Query(read)| read).map_err(|error| malformed(format!("query: {}", chain(&error))))
}

/// A part of the path, with its percent signs undone.
pub struct Named(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named, Problem> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        let malformed = |_| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "malformed",
                "the path is not UTF-8, or has a percent sign that means nothing",
            )
        };
        named.map(|Path(name)| Named(name)).map_err(malformed)
    }
}

/// The body, and room that it takes until it is sent or given up. It is handed out in slices: what is
/// handed out counts as sent, though it only lies in a connection's buffer.
pub fn held(body: Body, room: impl Send + Unpin + 'static) -> Body {
    Body::new(Held { body, rest: Bytes::new(), _room: room })
}

/// Bytes of a slice.
const SLICE: usize = 32 * 1024;

struct Held<R> {
    body: Body,
    rest: Bytes,
    _room: R,
}

impl<R: Unpin> hyper::body::Body for Held<R> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let length = self.rest.len().min(SLICE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        match self.body.size_hint().exact() {
            Some(length) => SizeHint::with_exact(length + rest),
            None => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::model::{FleetQuery, Sort};

    fn read(query: &str) -> Result<FleetQuery, Problem> {
        super::query(&format!("/v1/nodes?{query}").parse().unwrap())
    }

    #[test]
    fn what_a_form_leaves_empty_is_not_asked() {
        assert_eq!(read("").unwrap(), FleetQuery::default());
        assert_eq!(read("q=&standing=&class=&tier=&finding=&sort=&page=").unwrap(), FleetQuery::default());
        let asked = read("q=r12%20u07&sort=newest&page=2").unwrap();
        assert_eq!((asked.text.as_str(), asked.sort, asked.page), ("r12 u07", Sort::Newest, 2));
    }

    #[test]
    fn a_question_that_means_nothing_is_refused() {
        for text in ["standing=perhaps", "page=-1", "page=99999999999", "sort=1"] {
            let problem = read(text).unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.code), (400, "malformed"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_held_body_is_whole_comes_in_slices_and_gives_its_room_back_at_its_end() {
        use http_body_util::BodyExt as _;
        let room = Arc::new(());
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        let mut body = held(Body::from(sent.clone()), room.clone());
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(100_000));
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= SLICE);
            received.extend_from_slice(&data);
            let rest = hyper::body::Body::size_hint(&body).exact();
            assert_eq!(rest, Some((100_000 - received.len()) as u64));
            assert_eq!(Arc::strong_count(&room), 2, "the room was given back too early");
        }
        assert_eq!(received, sent);
        drop(body);
        assert_eq!(Arc::strong_count(&room), 1);
    }
}
