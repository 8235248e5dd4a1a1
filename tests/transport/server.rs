//! A collector that speaks TLS, with an authority of its own, as a script.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::peer::{Request, read};

pub type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key, PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

pub fn authority() -> Authority {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

fn identity(authority: &Authority, name: &str, usage: ExtendedKeyUsagePurpose) -> Identity {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.extended_key_usages = vec![usage];
    let certificate = parameters.signed_by(&key, authority).unwrap();
    Identity { certificate: certificate.pem(), key: key.serialize_pem() }
}

/// What a host shows.
pub fn client(authority: &Authority) -> Identity {
    identity(authority, "gpu-r12-u07", ExtendedKeyUsagePurpose::ClientAuth)
}

/// What a client showed of itself, and what it asked for.
pub struct Heard {
    pub request: Request,
    pub showed_a_certificate: bool,
}

pub struct Server {
    pub port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Server {
    /// A server of this name. It demands a certificate of `clients`, if there are any.
    pub fn start(
        name: &str,
        authority: &Authority,
        clients: Option<&Authority>,
        receipt: impl Fn(&Request) -> Vec<u8> + Send + 'static,
    ) -> Server {
        let configuration = Arc::new(configuration(name, authority, clients));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&configuration)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                // None where the handshake failed.
                let Some(request) = read(&mut stream) else { continue };
                let showed_a_certificate = stream.conn.peer_certificates().is_some();
                let body = receipt(&request);
                hears.lock().unwrap().push(Heard { request, showed_a_certificate });
                answer(&mut stream, &body);
                stream.conn.send_close_notify();
                let _gone = stream.flush();
            }
        });
        Server { port, heard }
    }

    pub fn heard<T>(&self, look: impl Fn(&[Heard]) -> T) -> T {
        look(&self.heard.lock().unwrap())
    }

    pub fn count(&self) -> usize {
        self.heard(<[Heard]>::len)
    }
}

fn configuration(name: &str, authority: &Authority, clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = match clients {
        None => builder.unwrap().with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(clients.pem().as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.unwrap().with_client_cert_verifier(verifier)
        }
    };
    let Identity { certificate, key } = identity(authority, name, ExtendedKeyUsagePurpose::ServerAuth);
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
}

fn answer(stream: &mut (impl Read + Write), body: &[u8]) {
    let head = format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _gone = stream.write_all(&[head.as_bytes(), body].concat());
}
