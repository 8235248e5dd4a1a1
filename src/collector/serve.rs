//! `nodegate collector serve`: listen, let in whom there is room for, and end in good order.

mod connection;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::access::{Access, Granted, Open};
use super::api::{Api, App, Peer};
use super::crew::Crew;
use super::enrol;
use super::limits::{BodyMemory, Counted, Gate, Limits, Peers, Permit, Rates};
use super::log::{Log, Writer};
use super::metrics::Metrics;
use super::store::{Store, StoreError};
use super::tls::Tls;

/// How often tokens are read again: a revoked one opens nothing any more after this time.
const TOKENS_ANEW: Duration = Duration::from_secs(3);
/// After a failed accept (no more files): whoever is served has to end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Files that the process needs besides its connections: store, log, listener.
const OTHER_FILES: u64 = 128;
/// The store answers no sooner where it is asked more at once; each needs a connection to it.
const QUESTIONS: usize = 8;
/// Told to whom there is no room for, if it takes it at once.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// How a collector is served.
pub struct Settings {
    pub listen: SocketAddr,
    pub tls: Option<Tls>,
    pub open: Open,
    pub behind_proxy: bool,
    pub limits: Limits,
    pub enrolment: enrol::Settings,
}

/// Why it is not.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start to serve")]
    Start(#[source] io::Error),
    #[error("the store's access tokens cannot be read")]
    Tokens(#[source] StoreError),
}

/// A collector that listens, and does not answer yet.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    api: Arc<Api>,
    tls: Option<Arc<Tls>>,
    writer: Writer,
    stop: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

/// Ends a server from elsewhere, as SIGTERM does.
#[derive(Clone)]
pub struct Stop(mpsc::Sender<()>);

impl Stop {
    pub fn now(&self) {
        let _told_already = self.0.try_send(());
    }
}

impl Server {
    /// Listens. From here on connections wait for [`Server::run`].
    pub fn bind(store: Store, settings: Settings) -> Result<Server, ServeError> {
        let Settings { listen, tls, open, behind_proxy, mut limits, enrolment } = settings;
        let runtime = Builder::new_multi_thread().enable_all().build().map_err(ServeError::Start)?;
        let listener = runtime
            .block_on(TcpListener::bind(listen))
            .map_err(|source| ServeError::Listen { address: listen, source })?;
        let address = listener.local_addr().map_err(ServeError::Start)?;
        limits.connections = limits.connections.min(room_for_connections());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let is_local = address.ip().is_loopback() && !behind_proxy;
        let granted = tokens(&store).map_err(ServeError::Tokens)?;
        let (log, writer) = Log::to_standard_error();
        let app = App {
            access: Access::new(open, is_local, granted),
            bodies: BodyMemory::new(limits.bodies),
            writes: Gate::new(limits.writes_in_flight),
            reads: Gate::new(limits.reads_in_flight),
            readers: Peers::default(),
            exports: Gate::new(limits.exports),
            questions: Semaphore::new(QUESTIONS),
            connections: Gate::new(limits.connections),
            peer_rates: Rates::new(limits.peer_rate, limits.peer_burst),
            key_rates: Rates::new(limits.key_rate, limits.key_burst),
            crew: Crew::new(threads, limits.queue).map_err(ServeError::Start)?,
            metrics: Metrics::default(),
            health: Default::default(),
            store,
            limits,
            log,
            behind_proxy,
            enrolment,
        };
        let api = Arc::new(Api::new(app));
        let tls = tls.map(Arc::new);
        Ok(Server { runtime, listener, address, api, tls, writer, stop: mpsc::channel(1) })
    }

    /// Where it listens; the port too, where none was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn stop(&self) -> Stop {
        Stop(self.stop.0.clone())
    }

    /// What needs no token now.
    pub fn open(&self) -> Open {
        self.api.app.access.open()
    }

    /// Serves until it is told to end, by [`Stop`], SIGTERM or SIGINT. SIGHUP reads the certificate anew.
    pub fn run(self) -> Result<(), ServeError> {
        let Server { runtime, listener, api, tls, writer, stop: (_open, mut stop), .. } = self;
        let done = runtime.block_on(async {
            let mut signals = Signals::new().map_err(ServeError::Start)?;
            let (ending, is_ending) = watch::channel(false);
            let doorman = Doorman { api: api.clone(), tls, peers: Peers::default(), is_ending };
            let tokens = tokio::spawn(follow_tokens(api.clone()));
            loop {
                tokio::select! {
                    accepted = listener.accept() => doorman.meet(accepted).await,
                    _ = signals.reload.recv() => doorman.reload(),
                    _ = signals.terminate.recv() => break,
                    _ = signals.interrupt.recv() => break,
                    _ = stop.recv() => break,
                }
            }
            // From here on a new connection is refused by the system, and another collector is asked.
            drop(listener);
            tokens.abort();
            api.app.log.say("ending: what is in flight is answered first");
            let _nobody = ending.send(true);
            if timeout(api.app.limits.farewell, api.app.connections.empty()).await.is_err() {
                api.app.log.say("ending: some connections were still open and are cut off");
            }
            Ok(())
        });
        // What was cut off is dropped with the runtime, and then the store, which commits what it has.
        runtime.shutdown_timeout(Duration::from_secs(2));
        if let Ok(api) = Arc::try_unwrap(api) {
            api.app.log.say("ended");
            drop(api);
            writer.end();
        }
        done
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reload: signal(SignalKind::hangup())?,
        })
    }
}

/// Lets connections in, as far as there is room.
struct Doorman {
    api: Arc<Api>,
    tls: Option<Arc<Tls>>,
    peers: Peers,
    is_ending: watch::Receiver<bool>,
}

impl Doorman {
    async fn meet(&self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        let app = &self.api.app;
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                app.metrics.unanswered("not-accepted");
                app.log.refuse(format!("a connection could not be accepted: {error}"));
                return sleep(ACCEPT_PAUSE).await;
            }
        };
        let Some((permit, counted)) = self.room_for(address) else {
            app.metrics.unanswered("no-room");
            app.log.refuse(format!("no-room peer={}: as many connections are open as there may be", address.ip()));
            if self.tls.is_none() {
                let _not_taken = stream.try_write(NO_ROOM);
            }
            return;
        };
        let _without = stream.set_nodelay(true);
        tokio::spawn(serve(
            self.api.clone(),
            self.tls.clone(),
            stream,
            address,
            self.is_ending.clone(),
            permit,
            counted,
        ));
    }

    /// Behind a proxy all connections are the proxy's.
    fn room_for(&self, address: SocketAddr) -> Option<(Permit, Option<Counted>)> {
        let app = &self.api.app;
        let counted = match app.behind_proxy {
            true => None,
            false => Some(self.peers.enter(address.ip(), app.limits.connections_of_a_peer)?),
        };
        Some((app.connections.enter()?, counted))
    }

    fn reload(&self) {
        let Some(tls) = &self.tls else { return };
        match tls.reload() {
            Ok(()) => self.api.app.log.say("the certificate was read again"),
            Err(error) => {
                let causes = super::api::chain(&error);
                self.api.app.log.say(&format!("the certificate stays the one of before: {causes}"));
            }
        }
    }
}

async fn serve(
    api: Arc<Api>,
    tls: Option<Arc<Tls>>,
    stream: TcpStream,
    address: SocketAddr,
    is_ending: watch::Receiver<bool>,
    _permit: Permit,
    _counted: Option<Counted>,
) {
    let peer = Peer { address: address.ip(), certified: false };
    let Some(tls) = tls else { return connection::serve(api, peer, stream, is_ending).await };
    match timeout(api.app.limits.head_time, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => {
            let certified = tls.asks_for_clients() && stream.get_ref().1.peer_certificates().is_some();
            connection::serve(api, Peer { certified, ..peer }, stream, is_ending).await;
        }
        Ok(Err(error)) => {
            api.app.metrics.unanswered("no-tls");
            api.app.log.refuse(format!("no-tls peer={}: {error}", peer.address));
        }
        Err(_) => api.app.metrics.unanswered("tls-too-slow"),
    }
}

/// Tokens that were made or revoked elsewhere: on the command line, by another collector.
async fn follow_tokens(api: Arc<Api>) {
    loop {
        sleep(TOKENS_ANEW).await;
        let store = api.app.store.clone();
        match tokio::task::spawn_blocking(move || tokens(&store)).await {
            Ok(Ok(granted)) => api.app.access.replace(granted),
            Ok(Err(_)) | Err(_) => api.app.metrics.store_error(),
        }
    }
}

fn tokens(store: &Store) -> Result<Vec<Granted>, StoreError> {
    let granted = |token: super::store::AccessToken| {
        // A role of a newer nodegate opens nothing here.
        let role = token.role.parse().ok()?;
        Some(Granted { digest: token.digest, role, expires_at: token.expires_at })
    };
    Ok(store.access_tokens()?.into_iter().filter_map(granted).collect())
}

/// As many files as the system lets us have, and what is left of them for connections.
fn room_for_connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _as_before = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(OTHER_FILES).max(16)).unwrap_or(usize::MAX)
}
