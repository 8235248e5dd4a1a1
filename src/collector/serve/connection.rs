//! One connection: its requests one after the other, within their times, and a decent end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::stream::Guarded;
use crate::collector::api::{self, Api, App, Peer};

/// How long what a peer still sends is thrown away, so that it reads our answer before the connection
/// is reset under it (RFC 9112 §9.6); and how long it may be silent meanwhile.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_SILENCE: Duration = Duration::from_secs(1);
/// Of hyper, the buffer of a connection: a usual record comes in one read.
const BUFFER: usize = 64 * 1024;

/// Serves a connection until either side has had enough, or the collector ends.
pub async fn serve<S>(api: Arc<Api>, peer: Peer, stream: S, mut ending: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &api.app.limits;
    let answered = Arc::new(AtomicUsize::new(0));
    let service = service_fn({
        let (api, answered) = (api.clone(), answered.clone());
        move |request: hyper::Request<Incoming>| {
            let (api, answered) = (api.clone(), answered.clone());
            Box::pin(async move {
                let mut response = api::answer(&api, peer, request).await;
                if answered.fetch_add(1, Ordering::Relaxed) + 1 >= api.app.limits.connection_requests {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            })
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(limits.head_lines)
        .max_header_size(limits.head)
        .max_buf_size(BUFFER.max(limits.head))
        .serve_connection(TokioIo::new(Guarded::new(stream, limits.write_pause)), service);

    let mut lifetime = Box::pin(sleep(limits.connection_time));
    let mut is_last = false;
    let ended = loop {
        tokio::select! {
            ended = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => break ended,
            _ = ending.wait_for(|ending| *ending), if !is_last => is_last = true,
            () = &mut lifetime, if !is_last => is_last = true,
        }
        if is_last {
            Pin::new(&mut connection).graceful_shutdown();
        }
    };
    let stream = connection.into_parts().io.into_inner();
    match ended {
        Ok(()) => linger(stream).await,
        Err(error) => {
            report(&api.app, peer, &error);
            if error.is_parse() || error.is_timeout() {
                linger(stream).await;
            }
        }
    }
}

/// Says that nothing more will come, and lets the peer finish for a moment.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if !matches!(timeout(LINGER_SILENCE, stream.shutdown()).await, Ok(Ok(()))) {
        return;
    }
    let drain = async {
        let mut waste = vec![0; 8 * 1024];
        while matches!(timeout(LINGER_SILENCE, stream.read(&mut waste)).await, Ok(Ok(1..))) {}
    };
    let _enough = timeout(LINGER, drain).await;
}

/// What hyper answered on its own, or could not answer: no request of ours came of it.
fn report(app: &App, peer: Peer, error: &hyper::Error) {
    let (code, refused) = match error {
        _ if error.is_parse_too_large() => ("head-too-large", true),
        _ if error.is_parse() => ("not-http", true),
        // Also how every idle connection ends.
        _ if error.is_timeout() => ("head-too-slow", false),
        _ => ("broken-off", false),
    };
    app.metrics.unanswered(code);
    if refused || error.is_timeout() {
        app.log.refuse(format!("{code} peer={} {error}", peer.address));
    }
}
