//! TLS 1.2 and 1.3 by rustls: the collector's certificate, and whose client certificates count.
//!
//! The files are read again when the operator says so (SIGHUP), and a set that does not fit together
//! leaves the old one in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::secret::{self, SecretError};
use crate::record::plain;

/// Bytes; a chain of certificates has less.
const MAXIMUM_BYTES: u64 = 256 * 1024;

/// What TLS is made of.
#[derive(Clone, Debug)]
pub struct Files {
    /// The chain, PEM, our own certificate first.
    pub certificate: PathBuf,
    /// The private key, PEM, readable by its owner alone.
    pub key: PathBuf,
    /// Who shows a certificate of one of these authorities may write.
    pub client_authorities: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("the private key of TLS")]
    Secret(#[from] SecretError),
    #[error("{path} has no certificate in PEM form")]
    NoCertificate { path: PathBuf },
    #[error("{path} has no private key in PEM form")]
    NoKey { path: PathBuf },
    #[error("{path} cannot be used with its key")]
    Unfit { path: PathBuf, source: rustls::Error },
    #[error("{path} names no authority that clients could be verified by")]
    NoAuthority { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// What connections are accepted with now.
pub struct Tls {
    files: Files,
    now: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub fn load(files: Files) -> Result<Tls, TlsError> {
        let now = RwLock::new(configuration(&files)?);
        Ok(Tls { files, now })
    }

    /// Reads the files again. After an error everything is as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = configuration(&self.files)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.now.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    pub fn asks_for_clients(&self) -> bool {
        self.files.client_authorities.is_some()
    }
}

fn configuration(files: &Files) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(secret::read(&files.key)?.as_bytes())
        .map_err(|_| TlsError::NoKey { path: files.key.clone() })?;
    let unfit = |source| TlsError::Unfit { path: files.certificate.clone(), source };
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let no_authority = |source| TlsError::NoAuthority { path: path.clone(), source };
            let mut roots = rustls::RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| no_authority(error.into()))?;
            }
            // A browser that shows none is let in, and comes as far as its token does.
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(aws_lc_rs::default_provider()))
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| no_authority(error.into()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut configuration = builder.with_single_cert(chain, key).map_err(unfit)?;
    configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(configuration))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = plain::read(path, MAXIMUM_BYTES).map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| TlsError::NoCertificate { path: path.to_owned() })
}
