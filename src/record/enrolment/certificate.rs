//! Proof by an X.509 certificate of the fleet's own authority.
//!
//! What is asked of it: a path to the authority, validity now, a purpose of client or server
//! authentication where it names purposes, and a SAN dNSName that is the enrolled host's name, letter
//! by letter (a wildcard names no host). Revocation lists are not looked at.

use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::super::public_key::{from_pem, to_pem};
use crate::ident::printable;

const LABEL: &str = "CERTIFICATE";
/// Certificates in a chain; a fleet's authority has one or two below its root.
const MAXIMUM_CHAIN: usize = 8;

/// The authorities whose certificates count.
#[derive(Clone, Debug, Default)]
pub struct FleetAuthority(Vec<TrustAnchor<'static>>);

/// The private key of a host's certificate, read once to sign one enrolment.
pub struct CertificateKey(Private);

enum Private {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// Why a certificate proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("no PEM certificate, or more than {MAXIMUM_CHAIN}")]
    Form,
    #[error("the certificate cannot be read: {0}")]
    Damaged(webpki::Error),
    #[error("the certificate does not lead to the fleet's authority now: {0}")]
    Path(webpki::Error),
    #[error("the certificate is for {names}, not for `{expected}`")]
    Name { names: String, expected: String },
    #[error("the signature is not by the certificate's key over what was sent")]
    Signature,
    #[error("neither an Ed25519, an ECDSA P-256 or P-384, nor an RSA key as PKCS#8 PEM")]
    Key,
}

impl FleetAuthority {
    /// Reads one or more PEM certificates.
    pub fn parse(pem: &str) -> Result<FleetAuthority, CertificateError> {
        let anchor = |der: CertificateDer<'static>| {
            anchor_from_trusted_cert(&der).map(|anchor| anchor.to_owned()).map_err(CertificateError::Damaged)
        };
        chain(pem)?.into_iter().map(anchor).collect::<Result<_, _>>().map(FleetAuthority)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this chain's first certificate is this host's now, and signed this message.
    pub fn verify(
        &self,
        pem: &str,
        hostname: &str,
        message: &[u8],
        signature: &[u8],
        now: jiff::Timestamp,
    ) -> Result<(), CertificateError> {
        let certificates = chain(pem)?;
        let (first, between) = certificates.split_first().ok_or(CertificateError::Form)?;
        let certificate = EndEntityCert::try_from(first).map_err(CertificateError::Damaged)?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let path = |usage| {
            certificate.verify_for_usage(ALL_VERIFICATION_ALGS, &self.0, between, time, usage, None, None).map(drop)
        };
        path(KeyUsage::client_auth()).or_else(|_| path(KeyUsage::server_auth())).map_err(CertificateError::Path)?;
        if !certificate.valid_dns_names().any(|name| name.eq_ignore_ascii_case(hostname)) {
            let names: Vec<String> = certificate.valid_dns_names().take(4).map(|name| printable(name, 80)).collect();
            let names = if names.is_empty() { "no host".to_owned() } else { names.join(", ") };
            return Err(CertificateError::Name { names, expected: printable(hostname, 80) });
        }
        let verifies = |algorithm: &&dyn rustls_pki_types::SignatureVerificationAlgorithm| {
            certificate.verify_signature(*algorithm, message, signature).is_ok()
        };
        if ALL_VERIFICATION_ALGS.iter().any(verifies) { Ok(()) } else { Err(CertificateError::Signature) }
    }
}

impl CertificateKey {
    /// Reads a PKCS#8 PEM block.
    pub fn parse(text: &str) -> Result<CertificateKey, CertificateError> {
        let der = from_pem(text, "PRIVATE KEY").ok_or(CertificateError::Key)?;
        let ecdsa = [&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1_SIGNING];
        if let Ok(key) = Ed25519KeyPair::from_pkcs8(&der) {
            return Ok(CertificateKey(Private::Ed25519(key)));
        }
        if let Some(key) = ecdsa.into_iter().find_map(|algorithm| EcdsaKeyPair::from_pkcs8(algorithm, &der).ok()) {
            return Ok(CertificateKey(Private::Ecdsa(key)));
        }
        RsaKeyPair::from_pkcs8(&der).map(|key| CertificateKey(Private::Rsa(key))).map_err(|_| CertificateError::Key)
    }

    /// # Errors
    ///
    /// Where random numbers or memory are gone.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, aws_lc_rs::error::Unspecified> {
        let random = SystemRandom::new();
        match &self.0 {
            Private::Ed25519(key) => Ok(key.try_sign(message)?.as_ref().to_vec()),
            Private::Ecdsa(key) => Ok(key.sign(&random, message)?.as_ref().to_vec()),
            Private::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)?;
                Ok(signature)
            }
        }
    }
}

/// The certificates of a PEM text, in their order.
fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let end = format!("-----END {LABEL}-----");
    let blocks: Vec<&str> = pem.split_inclusive(&end).filter(|part| part.contains(&end)).collect();
    if blocks.is_empty() || blocks.len() > MAXIMUM_CHAIN {
        return Err(CertificateError::Form);
    }
    let der = |block: &&str| from_pem(block, LABEL).map(CertificateDer::from).ok_or(CertificateError::Form);
    blocks.iter().map(der).collect()
}

/// The certificates of a text alone, as they are sent: without keys or comments beside them.
pub fn certificates_only(pem: &str) -> Result<String, CertificateError> {
    Ok(chain(pem)?.iter().map(|der| to_pem(der, LABEL)).collect())
}
