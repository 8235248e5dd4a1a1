//! TLS with rustls' client: whose certificate counts, and what a client certificate opens.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

use crate::client::{Answer, Request, connect};
use crate::server::{Collector, eventually, write};

type Authority = CertifiedIssuer<'static, KeyPair>;

struct Identity {
    certificate: String,
    key: String,
}

fn authority() -> Authority {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

fn identity(authority: &Authority, usage: ExtendedKeyUsagePurpose) -> Identity {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.extended_key_usages = vec![usage];
    let certificate = parameters.signed_by(&key, authority).unwrap();
    Identity { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn server(authority: &Authority) -> Identity {
    identity(authority, ExtendedKeyUsagePurpose::ServerAuth)
}

/// The files of an identity, and the options that name them.
fn files(folder: &Path, identity: &Identity) -> Vec<String> {
    let certificate = write(folder, "cert.pem", &identity.certificate, 0o644);
    let key = write(folder, "key.pem", &identity.key, 0o600);
    ["--tls-cert".to_owned(), certificate.display().to_string(), "--tls-key".to_owned(), key.display().to_string()]
        .into()
}

fn start(folder: &TempDir, identity: &Identity, more: &[&str]) -> Collector {
    let options = files(folder.path(), identity);
    Collector::start(&[&options.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat())
}

/// Asks over TLS; an error in words where there is no answer.
fn ask(
    collector: &Collector,
    trusted: &Authority,
    client: Option<&Identity>,
    request: &Request,
) -> Result<Answer, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let configuration = match client {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(configuration), name).unwrap();
    let mut stream = StreamOwned::new(connection, connect(&collector.address()).unwrap());
    stream.write_all(&request.bytes()).map_err(|error| error.to_string())?;
    Answer::read(&mut stream).ok_or_else(|| "no answer".to_owned())
}

fn question() -> Request {
    Request::json("/v1/challenges", &json!({ "keyid": "not one" }))
}

#[test]
fn a_client_that_trusts_the_authority_is_served_and_no_other() {
    let (ours, other) = (authority(), authority());
    let folder = tempfile::tempdir().unwrap();
    let collector = start(&folder, &server(&ours), &[]);
    assert_eq!(ask(&collector, &ours, None, &Request::get("/healthz")).unwrap().status, 200);
    let error = ask(&collector, &other, None, &Request::get("/healthz")).unwrap_err();
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
    // Plain HTTP on the port of TLS.
    assert!(Request::get("/healthz").try_send(&collector.address()).is_none());
    collector.assert_said(&["no-tls peer=127.0.0.1"]);
    assert_eq!(ask(&collector, &ours, None, &Request::get("/healthz")).unwrap().status, 200);
}

#[test]
fn a_certificate_of_the_fleet_may_write_and_a_strangers_is_refused() {
    let (ours, fleet, stranger) = (authority(), authority(), authority());
    let folder = tempfile::tempdir().unwrap();
    let clients = write(folder.path(), "clients.pem", &fleet.pem(), 0o644).display().to_string();
    let tls = files(folder.path(), &server(&ours));
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let state = Arc::new(tempfile::tempdir().unwrap());
    let made = crate::server::nodegate()
        .args(["collector", "token", "new", "--role", "admin", "--name", "admin", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    let token = String::from_utf8(made.stdout).unwrap();
    let collector = Collector::again(state, &[&tls[..], &["--client-ca", &clients]].concat());
    let client = |authority: &Authority| identity(authority, ExtendedKeyUsagePurpose::ClientAuth);

    let asked = |client: Option<&Identity>, request: &Request| ask(&collector, &ours, client, request);
    asked(None, &question()).unwrap().assert_problem(401, "unauthorised");
    asked(Some(&client(&fleet)), &question()).unwrap().assert_problem(400, "malformed");
    asked(Some(&client(&fleet)), &Request::get("/v1/nodes")).unwrap().assert_problem(401, "unauthorised");
    let reader = Request::get("/v1/nodes").with("Authorization", &format!("Bearer {}", token.trim()));
    assert_eq!(asked(None, &reader).unwrap().status, 200);
    assert!(asked(Some(&client(&stranger)), &question()).is_err());
    collector.assert_said(&["no-tls peer=127.0.0.1"]);
}

#[test]
fn a_new_certificate_is_taken_up_and_a_wrong_one_is_not() {
    let (old, new) = (authority(), authority());
    let folder = tempfile::tempdir().unwrap();
    let collector = start(&folder, &server(&old), &[]);
    let trusts = |authority: &Authority| ask(&collector, authority, None, &Request::get("/healthz")).is_ok();
    assert!(trusts(&old) && !trusts(&new));
    files(folder.path(), &server(&new));
    assert!(trusts(&old), "files are read when the operator says so");
    collector.signal(Signal::HUP);
    assert!(eventually(|| trusts(&new)));
    write(folder.path(), "cert.pem", "not a certificate", 0o644);
    collector.signal(Signal::HUP);
    collector.assert_said(&["stays the one of before", "no certificate"]);
    assert!(trusts(&new) && !trusts(&old));
}
