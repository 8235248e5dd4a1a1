//! The enrolment of a key: a statement signed by the key itself, and a proof beside it.
//!
//! The statement says whose key it is and is signed with it (proof of possession); where it replaces
//! another key of the host, that key signs too. The proof says why it should be believed. Reading and
//! verifying are pure; what a collector makes of it is decided there.

pub mod certificate;
pub mod credential;
pub mod endorsement;
pub mod proof;
pub mod sshsig;
pub mod tpm_public;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use credential::Credential;
pub use proof::{JoinToken, NotAToken, Proof, TokenSecret};

use super::dsse::{self, Envelope, Signature};
use super::identity::HostDocument;
use super::public_key::{PublicKey, PublicKeyError};
use super::standing::Tier;
use super::strict;
use crate::ident::{Digest, printable};

/// The payload type of an enrolment's envelope.
pub const PAYLOAD_TYPE: &str = "application/vnd.nodegate.enrolment+json";
/// The version of the statement.
pub const FORMAT: u32 = 1;
/// Bytes of a request. A certificate chain makes it large.
pub const MAXIMUM_BYTES: usize = 64 * 1024;
/// What an enrolment says where the collector was not asked for a nonce.
pub const NO_CHALLENGE: &str = "none";
/// Characters of a host name, an identifier, a nonce.
const LONGEST: usize = 253;

/// What a key says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enrolment {
    pub format: u32,
    /// SPKI PEM.
    pub public_key: String,
    pub host: HostDocument,
    pub hostname: String,
    /// By the host's clock.
    pub at: Timestamp,
    /// The collector's nonce, or [`NO_CHALLENGE`].
    pub challenge: String,
    /// A throw-away key of a recorded host.
    pub simulated: bool,
    /// Fingerprint of the key that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// The body of `POST /v1/enroll`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub enrolment: Envelope,
    pub proof: Proof,
}

/// The answer to it, but for the first round of a TPM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enrolled {
    pub keyid: String,
    pub tier: Tier,
    /// `pending`, `approved`, or what else has become of the key.
    pub state: String,
    /// Oldest first.
    #[serde(default)]
    pub receipt_keys: Vec<ReceiptKey>,
}

/// A key of the collector, as far as an enrolment looks at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptKey {
    pub keyid: String,
    pub public_key: String,
}

/// An enrolment that its own key signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub enrolment: Enrolment,
    pub key: PublicKey,
    pub keyid: String,
    /// The signed bytes.
    pub payload: Vec<u8>,
    pub proof: Proof,
    /// The signatures that are not by the key itself.
    others: Vec<Vec<u8>>,
}

/// Why bytes are no enrolment.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    #[error("{bytes} bytes: an enrolment has at most {MAXIMUM_BYTES}")]
    TooLarge { bytes: usize },
    #[error("{what} is not plain JSON")]
    Json {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("not an enrolment: {0}")]
    Shape(String),
    #[error("payload type `{found}`, expected `{PAYLOAD_TYPE}`")]
    PayloadType { found: String },
    #[error("{field} is not base64")]
    Base64 {
        field: &'static str,
        #[source]
        source: base64::DecodeError,
    },
    #[error("enrolment of format {found}: this nodegate reads up to {FORMAT}, use a newer one")]
    NewerFormat { found: u64 },
    #[error("its public key cannot be used")]
    Key(#[from] PublicKeyError),
    #[error("{found} signatures, expected {expected}")]
    Signatures { found: usize, expected: usize },
    #[error("it is not signed by the key that it names: possession is not proven")]
    Possession,
    #[error("a key cannot replace itself")]
    ReplacesItself,
    #[error("{field} is empty, too long or not printable")]
    Text { field: &'static str },
    #[error("only a throw-away key of a recording may say that it is one, and it must")]
    Simulated,
}

/// Reads a request and verifies that the key signed its own enrolment.
pub fn read(bytes: &[u8]) -> Result<Claim, EnrolmentError> {
    if bytes.len() > MAXIMUM_BYTES {
        return Err(EnrolmentError::TooLarge { bytes: bytes.len() });
    }
    let json = |what| move |source| EnrolmentError::Json { what, source };
    let value = strict::parse(bytes).map_err(json("the request"))?;
    // What serde says of a proof may quote it, a token too.
    let Request { enrolment: envelope, proof } = serde_json::from_value(value)
        .map_err(|_| EnrolmentError::Shape("expected an enrolment envelope and a proof of a known tier".to_owned()))?;
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(EnrolmentError::PayloadType { found: printable(&envelope.payload_type, 80) });
    }
    let payload = decode("payload", &envelope.payload)?;
    let enrolment = read_statement(&payload)?;
    let key = PublicKey::parse(&enrolment.public_key)?;
    let keyid = key.keyid();
    if enrolment.replaces.as_ref() == Some(&keyid) {
        return Err(EnrolmentError::ReplacesItself);
    }
    if enrolment.simulated != (proof.tier() == Tier::Simulated) {
        return Err(EnrolmentError::Simulated);
    }
    let others = possession(&envelope, &payload, &key, 1 + usize::from(enrolment.replaces.is_some()))?;
    Ok(Claim { enrolment, key, keyid, payload, proof, others })
}

impl Claim {
    /// Whether this key, the one to be replaced, signed too.
    pub fn is_signed_by(&self, old: &PublicKey) -> bool {
        let message = self.signed_bytes();
        self.others.iter().any(|signature| old.verifies(&message, signature))
    }

    /// What the signatures of the envelope are over; a certificate's key signs the same.
    pub fn signed_bytes(&self) -> Vec<u8> {
        dsse::pre_authentication_encoding(PAYLOAD_TYPE, &self.payload)
    }

    /// The enrolment's name.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.payload)
    }
}

impl Enrolment {
    /// Serial numbers as enrolled; a join token is for one of them.
    pub fn serials(&self) -> impl Iterator<Item = &str> {
        let HostDocument { product_serial, board_serial, chassis_serial, .. } = &self.host;
        [product_serial, board_serial, chassis_serial].into_iter().filter_map(|serial| serial.as_deref())
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an enrolment of strings and numbers is JSON")
    }
}

/// Some signature is the key's own; what the others are is given back.
fn possession(
    envelope: &Envelope,
    payload: &[u8],
    key: &PublicKey,
    expected: usize,
) -> Result<Vec<Vec<u8>>, EnrolmentError> {
    let found = envelope.signatures.len();
    if found != expected {
        return Err(EnrolmentError::Signatures { found, expected });
    }
    let message = dsse::pre_authentication_encoding(PAYLOAD_TYPE, payload);
    let signatures = envelope.signatures.iter().map(|Signature { sig, .. }| decode("signature", sig));
    let mut signatures = signatures.collect::<Result<Vec<_>, _>>()?;
    let own = signatures.iter().position(|signature| key.verifies(&message, signature));
    signatures.remove(own.ok_or(EnrolmentError::Possession)?);
    Ok(signatures)
}

fn read_statement(payload: &[u8]) -> Result<Enrolment, EnrolmentError> {
    let what = "the signed payload";
    let value = strict::parse(payload).map_err(|source| EnrolmentError::Json { what, source })?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    if let Some(found) = format.filter(|found| *found > u64::from(FORMAT)) {
        return Err(EnrolmentError::NewerFormat { found });
    }
    let shape = |error: serde_json::Error| EnrolmentError::Shape(printable(&error.to_string(), 200));
    let enrolment: Enrolment = serde_json::from_value(value).map_err(shape)?;
    let is_text = |text: &str| !text.is_empty() && text.len() <= LONGEST && printable(text, LONGEST) == text;
    let HostDocument { board_serial, chassis_serial, product_serial, product_uuid, unread, .. } = &enrolment.host;
    let serials = [board_serial, chassis_serial, product_serial, product_uuid].into_iter().flatten();
    let field = if !is_text(&enrolment.hostname) {
        "hostname"
    } else if !is_text(&enrolment.challenge) {
        "challenge"
    } else if !serials.chain(unread).all(|text| is_text(text)) || unread.len() > 8 {
        "host"
    } else if enrolment.replaces.as_ref().is_some_and(|keyid| !is_text(keyid)) {
        "replaces"
    } else {
        return Ok(enrolment);
    };
    Err(EnrolmentError::Text { field })
}

fn decode(field: &'static str, text: &str) -> Result<Vec<u8>, EnrolmentError> {
    dsse::decode_base64(text).map_err(|source| EnrolmentError::Base64 { field, source })
}
