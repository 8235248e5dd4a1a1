//! Public keys in the forms that other tools read: SPKI PEM, the OpenSSH line, the fingerprint.

use std::fmt;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::keys::Algorithm;
use crate::ident::{Digest, printable};

/// DER before the 32 bytes of an Ed25519 key (RFC 8410 §4).
const ED25519_SPKI: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// DER before the 65 bytes of an uncompressed P-256 point (RFC 5480 §2: id-ecPublicKey, secp256r1).
const P256_SPKI: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const PEM_LABEL: &str = "PUBLIC KEY";
/// Far more than any key of ours; a file that is larger is something else.
const MAXIMUM_TEXT: usize = 16 * 1024;

/// A key that can verify records.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    algorithm: Algorithm,
    /// 32 bytes (Ed25519) or the 65 bytes of an uncompressed point (P-256).
    point: Vec<u8>,
}

/// Why a text is not a public key that we can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    #[error("neither an SPKI PEM block (BEGIN PUBLIC KEY) nor an OpenSSH public key line")]
    Form,
    #[error("a private key: give the public one (`nodegate key show`)")]
    Private,
    #[error("key type `{0}` is not supported: use Ed25519 or ECDSA P-256")]
    Type(String),
    #[error("damaged key: the base64 or the structure inside is wrong")]
    Damaged,
}

impl PublicKey {
    pub(super) fn new(algorithm: Algorithm, point: &[u8]) -> Self {
        PublicKey { algorithm, point: point.to_vec() }
    }

    /// Reads an SPKI PEM block or an OpenSSH line, whichever the text is.
    pub fn parse(text: &str) -> Result<Self, PublicKeyError> {
        if text.len() > MAXIMUM_TEXT {
            return Err(PublicKeyError::Form);
        }
        if text.contains("PRIVATE KEY-----") {
            return Err(PublicKeyError::Private);
        }
        if text.contains("-----BEGIN") {
            return PublicKey::from_der(&from_pem(text, PEM_LABEL).ok_or(PublicKeyError::Form)?);
        }
        let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        PublicKey::from_openssh(line.ok_or(PublicKeyError::Form)?)
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The OpenSSH fingerprint, `SHA256:` and unpadded base64, as `ssh-keygen -lf` prints it.
    ///
    /// The usual hex digest of the SPKI would make every verifier on go-securesystemslib
    /// without a declared key id (cosign) refuse a valid signature.
    pub fn keyid(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Digest::of(&self.openssh_blob()).0))
    }

    pub fn to_pem(&self) -> String {
        to_pem(&[self.spki_prefix(), &self.point].concat(), PEM_LABEL)
    }

    /// `ssh-ed25519 AAAA… comment`.
    pub fn to_openssh(&self, comment: &str) -> String {
        let line = format!("{} {}", self.openssh_type(), STANDARD.encode(self.openssh_blob()));
        if comment.is_empty() { line } else { format!("{line} {}", printable(comment, 100)) }
    }

    /// Whether this signature over these bytes is by this key. ECDSA signatures are ASN.1 DER.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.algorithm {
            Algorithm::Ed25519 => UnparsedPublicKey::new(&ED25519, &self.point).verify(message, signature),
            Algorithm::P256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.point).verify(message, signature),
        }
        .is_ok()
    }

    fn from_der(der: &[u8]) -> Result<Self, PublicKeyError> {
        match (der.strip_prefix(ED25519_SPKI), der.strip_prefix(P256_SPKI)) {
            (Some(point), _) if point.len() == 32 => Ok(PublicKey::new(Algorithm::Ed25519, point)),
            (_, Some(point)) if point.len() == 65 && point[0] == 4 => Ok(PublicKey::new(Algorithm::P256, point)),
            (None, None) => Err(PublicKeyError::Type("of this PEM block".to_owned())),
            _ => Err(PublicKeyError::Damaged),
        }
    }

    fn from_openssh(line: &str) -> Result<Self, PublicKeyError> {
        let mut words = line.split_ascii_whitespace();
        let (Some(kind), Some(blob)) = (words.next(), words.next()) else { return Err(PublicKeyError::Form) };
        let looks_like_a_key = kind.starts_with("ssh-") || kind.starts_with("ecdsa-") || kind.starts_with("sk-");
        if !looks_like_a_key {
            return Err(PublicKeyError::Form);
        }
        let blob = STANDARD.decode(blob).map_err(|_| PublicKeyError::Damaged)?;
        let fields = openssh_fields(&blob).ok_or(PublicKeyError::Damaged)?;
        match (kind, PublicKey::from_openssh_blob(&blob)) {
            ("ssh-ed25519" | "ecdsa-sha2-nistp256", Some(key)) if fields[0] == kind.as_bytes() => Ok(key),
            ("ssh-ed25519" | "ecdsa-sha2-nistp256", _) => Err(PublicKeyError::Damaged),
            _ => Err(PublicKeyError::Type(printable(kind, 60))),
        }
    }

    /// Reads the binary form that stands in an OpenSSH line and in an SSH signature.
    pub(super) fn from_openssh_blob(blob: &[u8]) -> Option<Self> {
        match &openssh_fields(blob)?[..] {
            [b"ssh-ed25519", point] if point.len() == 32 => Some(PublicKey::new(Algorithm::Ed25519, point)),
            [b"ecdsa-sha2-nistp256", b"nistp256", point] if point.len() == 65 && point[0] == 4 => {
                Some(PublicKey::new(Algorithm::P256, point))
            }
            _ => None,
        }
    }

    /// The 32 bytes of an Ed25519 key, or the 65 of an uncompressed P-256 point.
    #[cfg(test)]
    pub(super) fn point(&self) -> &[u8] {
        &self.point
    }

    fn spki_prefix(&self) -> &'static [u8] {
        match self.algorithm {
            Algorithm::Ed25519 => ED25519_SPKI,
            Algorithm::P256 => P256_SPKI,
        }
    }

    fn openssh_type(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Ed25519 => "ssh-ed25519",
            Algorithm::P256 => "ecdsa-sha2-nistp256",
        }
    }

    /// RFC 4253 §6.6 and RFC 5656 §3.1: fields with their length in four bytes before them.
    fn openssh_blob(&self) -> Vec<u8> {
        let kind = self.openssh_type().as_bytes();
        let fields: &[&[u8]] = match self.algorithm {
            Algorithm::Ed25519 => &[kind, &self.point],
            Algorithm::P256 => &[kind, b"nistp256", &self.point],
        };
        let mut blob = Vec::new();
        for field in fields {
            let length = u32::try_from(field.len()).expect("a key field is shorter than 100 bytes");
            blob.extend_from_slice(&length.to_be_bytes());
            blob.extend_from_slice(field);
        }
        blob
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({} {})", self.algorithm, self.keyid())
    }
}

/// A PEM block with lines of 64 characters (RFC 7468).
pub(super) fn to_pem(der: &[u8], label: &str) -> String {
    let body = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

/// The bytes of the first block with this label; text around it is allowed.
pub(super) fn from_pem(text: &str, label: &str) -> Option<Vec<u8>> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let (_, rest) = text.split_once(&begin)?;
    let (body, _) = rest.split_once(&end)?;
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(body).ok()
}

/// Fields with their length in four bytes before them (RFC 4251 §5); none where they do not add up.
pub(super) fn openssh_fields(mut blob: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while !blob.is_empty() {
        let (length, rest) = blob.split_at_checked(4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?);
        let (field, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        fields.push(field);
        blob = rest;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::keys::HostKey;

    #[test]
    fn a_public_key_reads_back_in_both_forms() {
        for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
            let key = HostKey::generate(algorithm).public_key().clone();
            assert_eq!(PublicKey::parse(&key.to_pem()).unwrap(), key);
            assert_eq!(PublicKey::parse(&key.to_openssh("gpu-r12-u07")).unwrap(), key);
            assert_eq!(PublicKey::parse(&format!("# a host\n\n{}\n", key.to_openssh(""))).unwrap(), key);
        }
    }

    #[test]
    fn what_is_no_public_key_of_ours_is_refused_by_kind() {
        let parse = |text: &str| PublicKey::parse(text).unwrap_err();
        assert_eq!(parse(""), PublicKeyError::Form);
        assert_eq!(parse("hello world"), PublicKeyError::Form);
        assert_eq!(parse("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"), PublicKeyError::Form);
        assert_eq!(parse("ssh-rsa AAAAB3NzaC1yc2E x"), PublicKeyError::Damaged);
        assert_eq!(parse("ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB"), PublicKeyError::Type("ssh-rsa".to_owned()));
        assert_eq!(parse("ssh-ed25519 AAAA x"), PublicKeyError::Damaged);
        assert_eq!(parse(&HostKey::generate(Algorithm::P256).to_pem()), PublicKeyError::Private);
        assert_eq!(parse(&"x".repeat(100_000)), PublicKeyError::Form);
    }

    #[test]
    fn a_damaged_pem_block_is_refused() {
        let pem = HostKey::generate(Algorithm::Ed25519).public_key().to_pem();
        let mut lines: Vec<&str> = pem.lines().collect();
        lines[1] = &lines[1][4..];
        assert!(PublicKey::parse(&lines.join("\n")).is_err());
    }
}
