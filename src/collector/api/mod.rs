//! The collector's HTTP: what is asked goes through one door, and what is answered too.
//!
//! Before the router: how often, how many at once, who may. After it: one form of refusal, a line in
//! the log, and the headers that keep a browser from doing anything but showing.

mod alerts;
mod archivista;
mod asked;
mod body;
mod enroll;
pub mod export;
mod fleet;
mod keys;
mod pages;
mod problem;
mod proxy;
mod reading;
mod records;
mod watch;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, HOST, REFERRER_POLICY, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

pub use body::unpack;
pub use keys::listed;
pub use problem::Problem;
pub use reading::chain;

use super::access::{self, Access, Need};
use super::crew::Crew;
use super::enrol;
use super::limits::{BodyMemory, Counted, Gate, Limits, Peers, Permit, Rates, neighbourhood};
use super::log::Log;
use super::metrics::Metrics;
use super::model::Refusal;
use super::page;
use super::store::Store;
use asked::Asked;

/// Said with every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// What every request has at hand.
pub struct App {
    pub store: Store,
    pub access: Access,
    pub limits: Limits,
    pub bodies: BodyMemory,
    pub writes: Gate,
    pub reads: Gate,
    pub readers: Peers,
    pub exports: Gate,
    /// Questions that the store is asked at once; the next one waits for its turn.
    pub questions: Semaphore,
    pub connections: Gate,
    pub peer_rates: Option<Rates>,
    pub key_rates: Option<Rates>,
    pub crew: Crew,
    pub metrics: Metrics,
    pub log: Log,
    pub behind_proxy: bool,
    pub health: watch::Health,
    pub enrolment: enrol::Settings,
}

/// The router with what it works on.
pub struct Api {
    pub app: Arc<App>,
    router: Router,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: IpAddr,
    /// It showed a client certificate of the authority that we ask for.
    pub certified: bool,
}

impl Api {
    pub fn new(app: App) -> Api {
        let app = Arc::new(app);
        let router = Router::new()
            .route("/healthz", get(watch::health))
            .route(METRICS, get(watch::metrics))
            .route("/v1/records", post(records::take))
            .route("/v1/challenges", post(records::challenge))
            .route("/v1/enroll", post(enroll::take))
            .route("/v1/receipt-keys", get(keys::receipt_keys))
            .route("/v1/ledger/head", get(keys::head))
            .route("/v1/nodes", get(fleet::fleet))
            .route("/v1/nodes/{host}", get(fleet::node))
            .route("/v1/nodes/{host}/records", get(fleet::records))
            .route("/v1/records/{payload}", get(fleet::record))
            .route("/v1/records/{payload}/receipt", get(fleet::receipt))
            .route("/v1/export", get(export::stream))
            .route("/v1/alert-sink", post(alerts::take))
            .route("/v1/alert-sink/{run}", get(alerts::of_run))
            .route("/upload", post(archivista::upload))
            .route("/v1/upload", post(archivista::upload))
            .route("/download/{gitoid}", get(archivista::download))
            .route("/", get(pages::fleet))
            .route("/nodes/{host}", get(pages::node))
            .route("/records/{payload}", get(pages::record))
            .route("/diff", get(pages::difference))
            .route("/nodes.csv", get(pages::table))
            .route("/export.intoto.jsonl", get(export::stream))
            .route("/static/{file}", get(pages::asset))
            .with_state(app.clone());
        Api { app, router }
    }
}

/// Answers one request. It never fails: what goes wrong is an answer as well.
pub async fn answer(api: &Api, peer: Peer, request: Request<Incoming>) -> Response {
    let app = &api.app;
    app.metrics.request();
    let (parts, incoming) = request.into_parts();
    let peer = if app.behind_proxy { proxy::behind(peer, &parts.headers) } else { peer };
    let asked = Asked::of(&parts, peer);
    let (response, room) = match admit(app, peer, &parts) {
        Ok(room) => {
            let request = Request::from_parts(parts, Body::new(incoming));
            let routed = api.router.clone().oneshot(request).await;
            let response = routed.unwrap_or_else(|never| match never {});
            (problem::unified(asked.acceptable(response)), room)
        }
        Err(problem) => (problem.into_response(), None),
    };
    finish(app, &asked, response, room)
}

/// Whether it may be answered now, and the room that its answer takes.
fn admit(app: &App, peer: Peer, parts: &Parts) -> Result<Option<Room>, Problem> {
    check_form(parts)?;
    if let Some(rates) = &app.peer_rates {
        rates
            .take(&neighbourhood(peer.address))
            .map_err(|seconds| Problem::from(Refusal::TooMany(seconds)).closing())?;
    }
    let path = parts.uri.path();
    let need = access::need(&parts.method, path);
    let now = jiff::Timestamp::now();
    app.access.check(need, &parts.headers, peer.certified, now).map_err(|refusal| Problem::from(refusal).closing())?;
    let room = match parts.method {
        // Small, and asked for when all is full.
        _ if need == Need::Nothing || path == METRICS => return Ok(None),
        Method::POST => app.writes.enter().map(|_permit| Room::Write { _permit }),
        _ => {
            let counted = app.readers.enter(peer.address, app.limits.reads_of_a_peer);
            counted.and_then(|_counted| Some(Room::Read { _permit: app.reads.enter()?, _counted }))
        }
    };
    room.map(Some).ok_or_else(|| Problem::from(Refusal::Busy(1)).closing())
}

/// What an answer takes of what there is; given back when it is sent.
enum Room {
    Write { _permit: Permit },
    Read { _permit: Permit, _counted: Counted },
}

const METRICS: &str = "/metrics";

/// What HTTP asks for and hyper does not look at. Two parties that read a head differently can be
/// played against each other.
fn check_form(parts: &Parts) -> Result<(), Problem> {
    let hosts = parts.headers.get_all(HOST).iter().count();
    let malformed = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, "malformed", detail).closing();
    if hosts > 1 || (hosts == 0 && parts.version == Version::HTTP_11) {
        return Err(malformed("exactly one Host is needed"));
    }
    let mut encodings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if encodings.next().is_some_and(|value| !chunked(value)) || encodings.next().is_some() {
        return Err(malformed("Transfer-Encoding: chunked, or none"));
    }
    Ok(())
}

fn finish(app: &App, asked: &Asked, mut response: Response, room: Option<Room>) -> Response {
    if let Some(problem) = response.extensions().get::<Problem>() {
        app.metrics.refusal(problem.code);
        app.log.refuse(asked.refused(problem));
        response = asked.as_page(response);
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    cache_nothing_by_default(headers);
    if asked.is_last {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    match room {
        Some(room @ Room::Read { .. }) => response.map(|body| reading::held(body, room)),
        // What a POST answers is small.
        Some(Room::Write { .. }) | None => response,
    }
}

fn cache_nothing_by_default(headers: &mut HeaderMap) {
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
