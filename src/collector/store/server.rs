//! Where a PostgreSQL server is, and how it is spoken to: the URL and what it may ask for.
//!
//! A password may stand in a file that its owner alone can read (`password-file`); a URL that has one
//! in it must come from such a file itself, never from a command line. Off this machine the connection is always TLS with a verified
//! certificate: `sslmode` can ask for more than is usual, never for less.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postgres::Config;
use postgres::config::{Host, SslMode};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::collector::secret::{self, SecretError};
use crate::ident::printable;

const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may leave what we sent unacknowledged.
const SILENCE: Duration = Duration::from_secs(10);

/// A PostgreSQL server with what is needed to connect to it.
pub struct Server {
    pub config: Config,
    /// None on this machine, unless the URL asks for it.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Why a URL does not lead to a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the store's URL is not one of PostgreSQL")]
    Url(#[from] postgres::Error),
    #[error(
        "`sslmode` {0} would send a password or records in the clear over the network: leave it out, or write `require`"
    )]
    Clear(&'static str),
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the password cannot be read")]
    Secret(#[from] SecretError),
    #[error("{path} holds no password: one line of text")]
    Form { path: PathBuf },
    #[error("{path} holds no certificate that can be trusted")]
    Certificates { path: PathBuf },
    #[error("this system trusts no certificates: name the server's authority with `?sslrootcert=FILE`")]
    NoRoots,
}

impl Server {
    /// Reads `postgres://USER@HOST/DATABASE?password-file=FILE&sslrootcert=FILE&…`, the rest as
    /// libpq knows it.
    pub fn parse(url: &str) -> Result<Server, ServerError> {
        let (url, ours) = take_ours(url);
        let mut config: Config = url.parse()?;
        if let Some(path) = &ours.password {
            config.password(read_password(path)?);
        }
        config.application_name("nodegate");
        config.connect_timeout(CONNECT).tcp_user_timeout(SILENCE).keepalives_idle(SILENCE);
        let asked = url.contains("sslmode=").then(|| config.get_ssl_mode());
        let mode = match (is_local(&config), asked) {
            (true, None) => SslMode::Disable,
            (true, Some(mode)) => mode,
            (false, None | Some(SslMode::Require)) => SslMode::Require,
            (false, Some(SslMode::Disable)) => return Err(ServerError::Clear("disable")),
            (false, Some(_)) => return Err(ServerError::Clear("prefer")),
        };
        config.ssl_mode(mode);
        let tls = if mode == SslMode::Disable { None } else { Some(trust(ours.roots.as_deref())?) };
        Ok(Server { config, tls })
    }
}

/// What the URL says to us and not to PostgreSQL.
#[derive(Default)]
struct Ours {
    password: Option<PathBuf>,
    roots: Option<PathBuf>,
}

fn take_ours(url: &str) -> (String, Ours) {
    let mut ours = Ours::default();
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), ours) };
    let mut rest = Vec::new();
    for part in query.split('&') {
        match part.split_once('=') {
            Some(("password-file", path)) => ours.password = Some(PathBuf::from(path)),
            Some(("sslrootcert", path)) => ours.roots = Some(PathBuf::from(path)),
            _ => rest.push(part),
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    (url, ours)
}

/// Whether every way to the server stays on this machine.
fn is_local(config: &Config) -> bool {
    let host = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
    };
    let addresses = config.get_hostaddrs();
    let local = config.get_hosts().iter().all(host) && addresses.iter().all(|address| address.is_loopback());
    local && !(config.get_hosts().is_empty() && addresses.is_empty())
}

fn trust(path: Option<&Path>) -> Result<Arc<ClientConfig>, ServerError> {
    let mut roots = RootCertStore::empty();
    match path {
        Some(path) => {
            let bytes = std::fs::read(path).map_err(|source| ServerError::Read { path: path.to_owned(), source })?;
            let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok).collect();
            if roots.add_parsable_certificates(certificates).0 == 0 {
                return Err(ServerError::Certificates { path: path.to_owned() });
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(ServerError::NoRoots);
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.expect("the provider knows TLS 1.2 and 1.3");
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn read_password(path: &Path) -> Result<String, ServerError> {
    let text = secret::read(path)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.contains(['\n', '\0']) {
        return Err(ServerError::Form { path: path.to_owned() });
    }
    Ok(password.to_owned())
}

impl std::fmt::Debug for Server {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", printable(self.config.get_dbname().unwrap_or_default(), 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(url: &str) -> Result<SslMode, String> {
        Server::parse(url).map(|server| server.config.get_ssl_mode()).map_err(|error| error.to_string())
    }

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn nothing_goes_over_a_network_in_the_clear() {
        for local in ["127.0.0.1", "localhost", "%2Frun%2Fpostgresql", "[::1]"] {
            assert_eq!(mode(&format!("postgres://ada@{local}/fleet")), Ok(SslMode::Disable), "{local}");
        }
        let authority = rcgen::generate_simple_self_signed(["db".to_owned()]).unwrap().cert.pem();
        let authority = file(&authority, 0o644);
        let roots = format!("sslrootcert={}", authority.path().display());
        for remote in ["db", "10.0.0.7", "db,localhost"] {
            assert_eq!(mode(&format!("postgres://ada@{remote}/fleet?{roots}")), Ok(SslMode::Require), "{remote}");
            for clear in ["disable", "prefer"] {
                let url = format!("postgres://ada@{remote}/fleet?{roots}&sslmode={clear}");
                assert!(mode(&url).unwrap_err().contains("in the clear"), "{url}");
            }
        }
        assert_eq!(mode(&format!("postgres://ada@localhost/fleet?sslmode=require&{roots}")), Ok(SslMode::Require));
        let elsewhere = format!("postgres://ada@localhost/fleet?hostaddr=10.0.0.7&sslmode=disable&{roots}");
        assert!(mode(&elsewhere).unwrap_err().contains("in the clear"));
    }

    #[test]
    fn a_password_comes_from_a_file_of_its_owner_alone() {
        let with = |file: &tempfile::NamedTempFile| {
            let url = format!("postgres://ada@localhost/fleet?password-file={}", file.path().display());
            Server::parse(&url).map(|server| server.config.get_password().map(<[u8]>::to_vec))
        };
        assert_eq!(with(&file("hunter2\n", 0o600)).unwrap().unwrap(), b"hunter2");
        assert!(matches!(with(&file("hunter2\n", 0o640)), Err(ServerError::Secret(SecretError::Open { .. }))));
        for text in ["", "\n", "two\nlines\n"] {
            assert!(matches!(with(&file(text, 0o600)), Err(ServerError::Form { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_server_prints_no_password() {
        let secret = file("hunter2", 0o600);
        let url = format!("postgres://ada@localhost/fleet?password-file={}", secret.path().display());
        for url in [url.as_str(), "postgres://ada:hunter2@localhost/fleet"] {
            assert!(!format!("{:?}", Server::parse(url).unwrap()).contains("hunter2"));
        }
        let wrong = Server::parse("postgres://ada:hunter2@localhost:port/fleet").unwrap_err();
        assert!(!format!("{wrong:?}").contains("hunter2"));
    }
}
