//! `nodegate collector serve`: settles everything that could be wrong, says what is open, and serves.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::super::Failure;
use super::at::At;
use super::{blame_key, blame_store};
use crate::collector::access::{Open, Role};
use crate::collector::enrol;
use crate::collector::limits::Limits;
use crate::collector::policy::{self, Policy};
use crate::collector::receipt_key;
use crate::collector::serve::{ServeError, Server, Settings};
use crate::collector::store::{self, Store, StoreError};
use crate::collector::tls::{Files, Tls};
use crate::plan::Document;
use crate::record::enrolment::certificate::FleetAuthority;
use crate::record::{CollectorKey, plain};
use crate::units::{Bytes, Seconds};

/// Bytes; a policy has less, and so has a file of authorities.
const MAXIMUM_FILE: u64 = 1024 * 1024;

const EXAMPLES: &str = "\
Examples:
  nodegate collector serve --listen 127.0.0.1:8080
  nodegate collector token new --role writer --name agents
  nodegate collector serve --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    door: Door,
    #[command(flatten)]
    judgement: Judgement,
    #[command(flatten)]
    bounds: Bounds,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Who may come in")]
struct Door {
    /// The collector's certificate with its chain, PEM; read again on SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM, readable by its owner alone
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Who shows a certificate of one of these authorities may write
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// A reverse proxy does TLS, and says in X-Forwarded-For who asks
    #[arg(long, conflicts_with = "tls_cert")]
    behind_proxy: bool,
    /// Everybody may see the fleet, without a token
    #[arg(long)]
    open_reading: bool,
    /// Everybody may send records and enrol, without a token
    #[arg(long)]
    open_writing: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What counts")]
struct Judgement {
    /// What an accepted record must show to count [default: the one of the last time]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Authorities whose certificates vouch for a host's key, PEM
    #[arg(long, value_name = "FILE")]
    fleet_ca: Option<PathBuf>,
    /// Take records of recorded hosts too; they never count
    #[arg(long)]
    accept_simulated: bool,
    /// Approve the first key of a host that nobody knows, without asking an operator
    #[arg(long)]
    approve_first_use: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct Bounds {
    /// Of a body, as it is sent and unpacked [default: 1 MiB]
    #[arg(long, value_name = "SIZE")]
    max_body: Option<Bytes>,
    /// Open connections [default: 2048, less where the system gives fewer files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    /// Open connections of one peer [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections_per_peer: Option<u32>,
    /// Requests that are answered at once [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_in_flight: Option<u32>,
    /// Requests a second of one peer; 0 for no limit [default: 2000]
    #[arg(long, value_name = "N")]
    peer_rate: Option<u32>,
    /// Records a second of one key; 0 for no limit [default: 10]
    #[arg(long, value_name = "N")]
    key_rate: Option<u32>,
    /// For a request's head, and between two requests [default: 15 s]
    #[arg(long, value_name = "TIME")]
    head_time: Option<Seconds>,
    /// For a whole body [default: 60 s]
    #[arg(long, value_name = "TIME")]
    body_time: Option<Seconds>,
    /// For a peer that does not take what it is sent [default: 20 s]
    #[arg(long, value_name = "TIME")]
    write_time: Option<Seconds>,
}

pub fn run(arguments: &Args) -> Result<(), Failure> {
    let Args { listen, at, door, judgement, bounds } = arguments;
    door.check(*listen)?;
    let (folder, url, limits) = (at.folder()?, at.url()?, bounds.limits()?);
    let tls = door.files().map(Tls::load).transpose().map_err(Failure::misused)?;
    let enrolment = judgement.enrolment()?;
    let settings =
        store::Settings { policy: judgement.policy()?, accept_simulated: judgement.accept_simulated, serves: true };
    let (store, keyid) = open(&folder, &url, &settings)?;
    door.check_tokens(*listen, &store)?;
    let has_tls = tls.is_some();
    let settings = Settings {
        listen: *listen,
        tls,
        open: Open { reading: door.open_reading, writing: door.open_writing },
        behind_proxy: door.behind_proxy,
        limits,
        enrolment,
    };
    let server = Server::bind(store, settings).map_err(blame)?;
    let scheme = if has_tls { "https" } else { "http" };
    say(&format!("listening on {scheme}://{}", server.address()));
    say(&format!("receipts are signed by {keyid}; public key {}", receipt_key::public_path(&folder).display()));
    say(&format!("store {}", at.shown()?));
    say(&openness(server.open(), door, judgement));
    server.run().map_err(blame)
}

/// The store with its receipt key. A rotation that was cut off is ended here.
fn open(folder: &Path, url: &str, settings: &store::Settings) -> Result<(Store, String), Failure> {
    let opened = |key: CollectorKey| {
        let keyid = key.public_key().keyid();
        Store::open(url, key, settings.clone()).map(|store| (store, keyid))
    };
    match opened(receipt_key::read_or_make(folder).map_err(blame_key)?) {
        Err(StoreError::OtherReceiptKey { stored, given }) => {
            match receipt_key::finish_rotation(folder, &stored).map_err(blame_key)? {
                Some(key) => opened(key).map_err(blame_store),
                None => Err(blame_store(StoreError::OtherReceiptKey { stored, given })),
            }
        }
        other => other.map_err(blame_store),
    }
}

impl Door {
    /// What is said in the clear on a network is not for a network.
    fn check(&self, listen: SocketAddr) -> Result<(), Failure> {
        if listen.ip().is_loopback() || self.behind_proxy || self.tls_cert.is_some() {
            return Ok(());
        }
        Err(Failure::misused(format!(
            "{listen} is reached by others, and tokens would go to it in the clear: give --tls-cert and --tls-key; \
             or listen on 127.0.0.1; or, if a reverse proxy does TLS, say --behind-proxy"
        )))
    }

    /// What others can reach is open to them only if somebody said so.
    fn check_tokens(&self, listen: SocketAddr, store: &Store) -> Result<(), Failure> {
        if listen.ip().is_loopback() && !self.behind_proxy {
            return Ok(());
        }
        let tokens = store.access_tokens().map_err(blame_store)?;
        let roles: Vec<Role> = tokens.iter().filter_map(|token| token.role.parse().ok()).collect();
        let demand = |what: &str, role: Role, option: &str| {
            Failure::misused(format!(
                "nobody could {what}: make a token with `nodegate collector token new --role {role} --name NAME`, \
                 or open it to everybody with {option}"
            ))
        };
        if !self.open_reading && !roles.iter().any(|role| role.may_read()) {
            return Err(demand("see the fleet", Role::Reader, "--open-reading"));
        }
        if !self.open_writing && self.client_ca.is_none() && !roles.iter().any(|role| role.may_write()) {
            return Err(demand(
                "send records",
                Role::Writer,
                "--open-writing, or with --client-ca to hosts of the fleet",
            ));
        }
        Ok(())
    }

    fn files(&self) -> Option<Files> {
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(Files { certificate, key, client_authorities: self.client_ca.clone() })
    }
}

impl Judgement {
    fn policy(&self) -> Result<Option<Policy>, Failure> {
        let Some(path) = &self.policy else { return Ok(None) };
        let bytes = read(path)?;
        let document = Document::new(&path.display().to_string(), &bytes).map_err(Failure::misused)?;
        policy::load(&document).map(Some).map_err(Failure::misused)
    }

    fn enrolment(&self) -> Result<enrol::Settings, Failure> {
        let fleet_authority = match &self.fleet_ca {
            None => FleetAuthority::default(),
            Some(path) => {
                let named = |error: String| Failure::misused(format!("--fleet-ca {}: {error}", path.display()));
                let text = String::from_utf8(read(path)?).map_err(|_| named("not text".to_owned()))?;
                FleetAuthority::parse(&text).map_err(|error| named(error.to_string()))?
            }
        };
        let Judgement { accept_simulated, approve_first_use, .. } = *self;
        Ok(enrol::Settings { accept_simulated, approve_first_use, fleet_authority })
    }
}

impl Bounds {
    fn limits(&self) -> Result<Limits, Failure> {
        let usual = Limits::default();
        let count = |given: Option<u32>, usual: usize| given.map_or(usual, |given| given as usize);
        let rate = |given: Option<u32>, usual: f64| given.map_or(usual, f64::from);
        let (peer_rate, key_rate) = (rate(self.peer_rate, usual.peer_rate), rate(self.key_rate, usual.key_rate));
        Ok(Limits {
            body: self.max_body.map_or(Ok(usual.body), body_size)?,
            connections: count(self.max_connections, usual.connections),
            connections_of_a_peer: count(self.max_connections_per_peer, usual.connections_of_a_peer),
            writes_in_flight: count(self.max_in_flight, usual.writes_in_flight),
            peer_burst: usual.peer_burst.max(peer_rate),
            key_burst: usual.key_burst.max(key_rate),
            peer_rate,
            key_rate,
            head_time: self.head_time.map_or(usual.head_time, Seconds::duration),
            body_time: self.body_time.map_or(usual.body_time, Seconds::duration),
            write_pause: self.write_time.map_or(usual.write_pause, Seconds::duration),
            ..usual
        })
    }
}

/// No record is larger than its own format lets it be.
fn body_size(size: Bytes) -> Result<usize, Failure> {
    let most = crate::record::dsse::MAXIMUM_BYTES;
    let bytes = size.number();
    if bytes < 1024.0 || bytes > most as f64 {
        return Err(Failure::misused(format!("--max-body {size}: from 1 KiB to {most} B, the largest record")));
    }
    Ok(bytes as usize)
}

fn openness(open: Open, door: &Door, judgement: &Judgement) -> String {
    let reading = if open.reading { "reading is open" } else { "reading needs a token" };
    let writing = match (open.writing, &door.client_ca) {
        (true, _) => "writing is open",
        (false, Some(_)) => "writing needs a token or a client certificate",
        (false, None) => "writing needs a token",
    };
    let simulated = if judgement.accept_simulated { "taken" } else { "refused" };
    let first = if judgement.approve_first_use { "is approved" } else { "waits for approval" };
    format!("{reading}, {writing}; records of recorded hosts are {simulated}; the first key of a host {first}")
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unread = |error| Failure::misused(format!("{} cannot be read: {error}", path.display()));
    plain::read(path, MAXIMUM_FILE).map_err(unread)
}

fn blame(error: ServeError) -> Failure {
    Failure::broken(error)
}

fn say(text: &str) {
    // Standard error may be closed; the collector serves all the same.
    let _closed = writeln!(std::io::stderr(), "nodegate collector: {}", crate::ident::printable(text, 1000));
}
