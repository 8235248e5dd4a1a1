//! Private keys: the host's, the collector's, and the throw-away key of a simulated run.
//!
//! A [`HostKey`] signs only a [`Live`] statement and an [`EphemeralKey`] only a [`Simulated`]
//! one, and which of the two a statement is follows from its own details: a recording can
//! not be signed with a host's key, since there is no function that would.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::dsse::{self, Envelope, Signature};
use super::enrolment::{self, Enrolment};
use super::outside::{OutsideKey, SignError};
use super::public_key::{PublicKey, from_pem, to_pem};
use super::statement::{Live, Simulated};
use super::tpm::TpmKey;

const PEM_LABEL: &str = "PRIVATE KEY";

/// What a key signs with. A TPM has no Ed25519, hence P-256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Algorithm {
    #[default]
    Ed25519,
    P256,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Algorithm::Ed25519 => "ed25519",
            Algorithm::P256 => "p256",
        })
    }
}

/// Why a text is not a private key of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrivateKeyError {
    #[error("no PEM block `BEGIN PRIVATE KEY` (PKCS#8, not encrypted)")]
    Form,
    #[error("neither an Ed25519 nor an ECDSA P-256 key")]
    Type,
    #[error("a damaged reference to a key outside, or one that a newer nodegate wrote")]
    Reference,
}

/// The key of a host: kept in its state folder, or held by a TPM or signer that the folder refers
/// to. It signs what was measured on the host.
pub struct HostKey(Held);

/// A key that lives in memory for one simulated run. It cannot be written anywhere.
pub struct EphemeralKey(Pair);

/// The key of a collector: it signs receipts and ledger heads, and no record.
pub struct CollectorKey(Pair);

/// Who signs the records of a store.
pub enum Signing {
    Host(HostKey),
    Throwaway(EphemeralKey),
}

impl HostKey {
    pub fn generate(algorithm: Algorithm) -> Self {
        HostKey(Held::Here(Pair::generate(algorithm)))
    }

    /// A key that a signer program holds: bytes to sign on its standard input, the signature (ASN.1
    /// DER for P-256, 64 bytes for Ed25519) on its standard output.
    pub fn of_signer(command: Vec<String>, public: PublicKey) -> Self {
        HostKey(Held::Outside(OutsideKey::of_command(command, public)))
    }

    /// A key in a TPM; none where its public area is not that of a key that cannot leave it.
    pub fn of_tpm(key: TpmKey) -> Option<Self> {
        OutsideKey::of_tpm(key).map(|key| HostKey(Held::Outside(key)))
    }

    /// Reads a PKCS#8 PEM block, as `openssl genpkey` makes it too, or a reference to a key outside.
    pub fn parse(text: &str) -> Result<Self, PrivateKeyError> {
        if OutsideKey::is_reference(text) {
            return OutsideKey::parse(text).map(|key| HostKey(Held::Outside(key))).ok_or(PrivateKeyError::Reference);
        }
        let pair = Pair::from_der(&from_pem(text, PEM_LABEL).ok_or(PrivateKeyError::Form)?)?;
        Ok(HostKey(Held::Here(pair)))
    }

    /// PKCS#8 version 1, since OpenSSL 3.0 refuses version 2; of a key outside the reference to it.
    pub fn to_pem(&self) -> String {
        match &self.0 {
            Held::Here(pair) => to_pem(&pair.to_der(), PEM_LABEL),
            Held::Outside(key) => key.to_text(),
        }
    }

    pub fn public_key(&self) -> &PublicKey {
        match &self.0 {
            Held::Here(pair) => &pair.public,
            Held::Outside(key) => &key.public,
        }
    }

    /// The TPM or signer that holds the key, if it is not in the key file itself.
    pub fn outside(&self) -> Option<&OutsideKey> {
        match &self.0 {
            Held::Here(_) => None,
            Held::Outside(key) => Some(key),
        }
    }

    pub fn sign(&self, statement: &Live) -> Result<Envelope, SignError> {
        self.envelope(dsse::PAYLOAD_TYPE, statement.payload())
    }

    /// The statement that enrols this key, in an envelope that this key signed. What the statement
    /// says of the key follows from the key.
    pub fn enrol(&self, enrolment: Enrolment) -> Result<Envelope, SignError> {
        let enrolment = Enrolment { public_key: self.public_key().to_pem(), simulated: false, ..enrolment };
        self.envelope(enrolment::PAYLOAD_TYPE, &enrolment.to_json())
    }

    /// Adds this key's signature to the enrolment of the key that replaces it.
    pub fn endorse(&self, envelope: Envelope) -> Result<Envelope, SignError> {
        // An envelope of our own making is base64; an empty payload is endorsed in vain.
        let payload = dsse::decode_base64(&envelope.payload).unwrap_or_default();
        let mut endorsed = self.envelope(enrolment::PAYLOAD_TYPE, &payload)?;
        endorsed.signatures.splice(0..0, envelope.signatures);
        Ok(endorsed)
    }

    /// Signs what means nothing, to see whether the key can be reached.
    pub(super) fn try_out(&self) -> Result<(), SignError> {
        self.envelope("application/vnd.nodegate.trial", b"").map(drop)
    }

    fn envelope(&self, payload_type: &str, payload: &[u8]) -> Result<Envelope, SignError> {
        match &self.0 {
            Held::Here(pair) => Ok(pair.envelope(payload_type, payload)),
            Held::Outside(key) => {
                let signature = key.sign(&dsse::pre_authentication_encoding(payload_type, payload))?;
                Ok(enveloped(payload_type, payload, &key.public, &signature))
            }
        }
    }
}

impl EphemeralKey {
    pub fn generate() -> Self {
        EphemeralKey(Pair::generate(Algorithm::Ed25519))
    }

    pub fn public_key(&self) -> &PublicKey {
        &self.0.public
    }

    pub fn sign(&self, statement: &Simulated) -> Envelope {
        self.0.envelope(dsse::PAYLOAD_TYPE, statement.payload())
    }

    /// The statement that enrols this key as what it is.
    pub fn enrol(&self, enrolment: Enrolment) -> Envelope {
        let enrolment =
            Enrolment { public_key: self.public_key().to_pem(), simulated: true, replaces: None, ..enrolment };
        self.0.envelope(enrolment::PAYLOAD_TYPE, &enrolment.to_json())
    }
}

impl CollectorKey {
    pub fn generate() -> Self {
        CollectorKey(Pair::generate(Algorithm::Ed25519))
    }

    /// Reads a PKCS#8 PEM block.
    pub fn parse(text: &str) -> Result<Self, PrivateKeyError> {
        Pair::from_der(&from_pem(text, PEM_LABEL).ok_or(PrivateKeyError::Form)?).map(CollectorKey)
    }

    pub fn to_pem(&self) -> String {
        to_pem(&self.0.to_der(), PEM_LABEL)
    }

    pub fn public_key(&self) -> &PublicKey {
        &self.0.public
    }

    /// What a collector says. The payload type keeps it from being taken for anything else.
    pub(super) fn say(&self, payload_type: &str, payload: &[u8]) -> Envelope {
        self.0.envelope(payload_type, payload)
    }
}

impl Signing {
    pub fn public_key(&self) -> &PublicKey {
        match self {
            Signing::Host(key) => key.public_key(),
            Signing::Throwaway(key) => key.public_key(),
        }
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostKey({})", self.public_key().keyid())
    }
}

impl fmt::Debug for CollectorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CollectorKey({})", self.public_key().keyid())
    }
}

impl fmt::Debug for EphemeralKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EphemeralKey({})", self.public_key().keyid())
    }
}

enum Held {
    /// In memory, and in the key file.
    Here(Pair),
    Outside(OutsideKey),
}

enum Secret {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

struct Pair {
    secret: Secret,
    public: PublicKey,
}

/// Generation, signing and encoding in AWS-LC fail only when memory or the system's random
/// numbers are gone; nothing could be signed then, and the run ends as a failure of ours.
const LIBRARY: &str = "AWS-LC generates, encodes and signs with a key that it holds";

impl Pair {
    fn generate(algorithm: Algorithm) -> Self {
        Pair::new(match algorithm {
            Algorithm::Ed25519 => Secret::Ed25519(Ed25519KeyPair::generate().expect(LIBRARY)),
            Algorithm::P256 => Secret::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect(LIBRARY)),
        })
    }

    fn from_der(der: &[u8]) -> Result<Self, PrivateKeyError> {
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8(der) {
            return Ok(Pair::new(Secret::Ed25519(pair)));
        }
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der).map_err(|_| PrivateKeyError::Type)?;
        Ok(Pair::new(Secret::P256(pair)))
    }

    fn new(secret: Secret) -> Self {
        let public = match &secret {
            Secret::Ed25519(pair) => PublicKey::new(Algorithm::Ed25519, pair.public_key().as_ref()),
            Secret::P256(pair) => PublicKey::new(Algorithm::P256, pair.public_key().as_ref()),
        };
        Pair { secret, public }
    }

    fn to_der(&self) -> Vec<u8> {
        let document = match &self.secret {
            Secret::Ed25519(pair) => pair.to_pkcs8v1(),
            Secret::P256(pair) => pair.to_pkcs8v1(),
        };
        document.expect(LIBRARY).as_ref().to_vec()
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match &self.secret {
            Secret::Ed25519(pair) => pair.try_sign(message).expect(LIBRARY),
            Secret::P256(pair) => pair.sign(&SystemRandom::new(), message).expect(LIBRARY),
        }
        .as_ref()
        .to_vec()
    }

    fn envelope(&self, payload_type: &str, payload: &[u8]) -> Envelope {
        let signature = self.sign(&dsse::pre_authentication_encoding(payload_type, payload));
        enveloped(payload_type, payload, &self.public, &signature)
    }
}

fn enveloped(payload_type: &str, payload: &[u8], key: &PublicKey, signature: &[u8]) -> Envelope {
    Envelope {
        payload: STANDARD.encode(payload),
        payload_type: payload_type.to_owned(),
        signatures: vec![Signature { keyid: key.keyid(), sig: STANDARD.encode(signature) }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_reads_back_from_its_pem_block() {
        for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
            let key = HostKey::generate(algorithm);
            let again = HostKey::parse(&key.to_pem()).unwrap();
            assert_eq!(again.public_key(), key.public_key());
        }
    }

    #[test]
    fn what_is_no_private_key_is_refused_by_kind() {
        let public = HostKey::generate(Algorithm::Ed25519).public_key().to_pem();
        assert_eq!(HostKey::parse(&public).unwrap_err(), PrivateKeyError::Form);
        assert_eq!(HostKey::parse(&to_pem(b"abc", PEM_LABEL)).unwrap_err(), PrivateKeyError::Type);
    }

    #[test]
    fn a_key_never_prints_its_secret() {
        let key = HostKey::generate(Algorithm::Ed25519);
        assert_eq!(format!("{key:?}"), format!("HostKey({})", key.public_key().keyid()));
    }
}
