//! Verification: bytes and keys in, a verified record out. Nothing is read and nothing is asked.

use std::collections::BTreeSet;

use serde_json::Value;

use super::bundle::{self, Bundle};
use super::dsse::{self, Envelope};
use super::public_key::PublicKey;
use super::statement::{PREDICATE_TYPE, Statement, TYPE, TestResult};
use super::strict;
use crate::decision::Decision;
use crate::ident::{Digest, printable};
use crate::predicate::{Details, SCHEMA};

/// More signatures than anyone has countersigners; each costs us a verification per key.
const MAXIMUM_SIGNATURES: usize = 16;

/// A record whose signature verified. Everything in it comes from the signed bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    pub details: Details,
    /// The fingerprint of the key that verified, not the envelope's claim.
    pub keyid: String,
    /// SHA-256 of the payload: the record's name towards others, and the next record's `prev`.
    pub payload: Digest,
    /// SHA-256 of the subjects `host.json` and `node.json`.
    pub host: Digest,
    pub node: Digest,
}

/// Why bytes are not a record that these keys verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("{bytes} bytes: a record has at most {}", dsse::MAXIMUM_BYTES)]
    TooLarge { bytes: usize },
    #[error("{what} is not plain JSON")]
    Json {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("neither a DSSE envelope nor a Sigstore bundle: {0}")]
    Shape(String),
    #[error("payload type `{found}`, expected `{expected}`")]
    PayloadType { found: String, expected: &'static str },
    #[error("{field} is not base64")]
    Base64 {
        field: &'static str,
        #[source]
        source: base64::DecodeError,
    },
    #[error("no signature")]
    Unsigned,
    #[error("{found} signatures: at most {MAXIMUM_SIGNATURES} are looked at")]
    TooManySignatures { found: usize },
    #[error("no key to verify with")]
    NoKeys,
    #[error("signed by {signers}, which is none of the given keys")]
    UnknownSigner { signers: String },
    #[error("the signature of {keyid} does not fit the payload: one of them was changed")]
    BadSignature { keyid: String },
    #[error("the signed payload is not a record: {0}")]
    NotARecord(String),
    #[error("record of schema {found}: this nodegate reads up to {SCHEMA}, use a newer one")]
    NewerSchema { found: u64 },
}

impl VerifyError {
    /// Whether the bytes are well formed and only the signature speaks against them.
    pub fn is_about_the_signature(&self) -> bool {
        matches!(self, VerifyError::Unsigned | VerifyError::UnknownSigner { .. } | VerifyError::BadSignature { .. })
    }
}

/// Verifies a DSSE envelope or a Sigstore bundle with any of these keys.
pub fn verify(bytes: &[u8], keys: &[PublicKey]) -> Result<Verified, VerifyError> {
    open(bytes)?.verify(keys)
}

/// A record's envelope, read and not yet verified.
pub struct Opened(Envelope);

/// Reads the envelope of a record, to find a key by what it names.
pub fn open(bytes: &[u8]) -> Result<Opened, VerifyError> {
    read_envelope(bytes, dsse::PAYLOAD_TYPE).map(Opened)
}

impl Opened {
    /// The key ids that its signatures name: hints to find a key by, and nothing to decide by.
    pub fn hints(&self) -> impl Iterator<Item = &str> {
        self.0.signatures.iter().map(|signature| signature.keyid.as_str())
    }

    /// The record, if one of these keys signed it.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<Verified, VerifyError> {
        let signed = Signed::of(&self.0)?;
        let key = signer(&self.0, &signed, keys)?;
        understood(signed.payload(), key.keyid())
    }
}

fn understood(payload: &[u8], keyid: String) -> Result<Verified, VerifyError> {
    let statement = read_statement(payload)?;
    let subject = |name: &str| {
        let digest = statement.subject_digest(name);
        digest.ok_or_else(|| VerifyError::NotARecord(format!("no subject `{name}` with a sha256 digest")))
    };
    Ok(Verified {
        keyid,
        payload: Digest::of(payload),
        host: subject("host.json")?,
        node: subject("node.json")?,
        details: statement.predicate.nodegate,
    })
}

/// What an envelope says of itself, by whomever it is signed: for who carries a record and does not
/// judge it. `keyid` is the envelope's claim.
pub(super) fn read_unverified(bytes: &[u8]) -> Result<Verified, VerifyError> {
    let envelope = read_envelope(bytes, dsse::PAYLOAD_TYPE)?;
    let keyid = envelope.signatures.first().map_or_else(String::new, |signature| printable(&signature.keyid, 80));
    understood(&decode("payload", &envelope.payload)?, keyid)
}

/// The payload of an envelope of exactly this type, and the key of these that signed it. What
/// the payload means is the caller's.
pub(super) fn verify_payload<'a>(
    bytes: &[u8],
    payload_type: &'static str,
    keys: &'a [PublicKey],
) -> Result<(Vec<u8>, &'a PublicKey), VerifyError> {
    let envelope = read_envelope(bytes, payload_type)?;
    let signed = Signed::of(&envelope)?;
    let key = signer(&envelope, &signed, keys)?;
    Ok((signed.payload().to_vec(), key))
}

/// What the signatures of an envelope are over, with the payload at its end.
struct Signed {
    encoding: Vec<u8>,
    begin: usize,
}

impl Signed {
    fn of(envelope: &Envelope) -> Result<Signed, VerifyError> {
        let encoded = dsse::encode_for_verification(&envelope.payload_type, &envelope.payload);
        let (encoding, begin) = encoded.map_err(|source| VerifyError::Base64 { field: "payload", source })?;
        Ok(Signed { encoding, begin })
    }

    fn payload(&self) -> &[u8] {
        self.encoding.get(self.begin..).unwrap_or_default()
    }
}

/// The envelope in these bytes, be it alone or in a bundle. Nothing is verified.
fn read_envelope(bytes: &[u8], payload_type: &'static str) -> Result<Envelope, VerifyError> {
    if bytes.len() > dsse::MAXIMUM_BYTES {
        return Err(VerifyError::TooLarge { bytes: bytes.len() });
    }
    let names = strict::check(bytes).map_err(|source| VerifyError::Json { what: "the envelope", source })?;
    let envelope: Envelope = if names.iter().any(|name| name == "dsseEnvelope" || name == "mediaType") {
        from_bundle(serde_json::from_slice(bytes).map_err(unread)?)?
    } else {
        serde_json::from_slice(bytes).map_err(unread)?
    };
    if envelope.payload_type != payload_type {
        let found = printable(&envelope.payload_type, 80);
        return Err(VerifyError::PayloadType { found, expected: payload_type });
    }
    Ok(envelope)
}

fn from_bundle(value: Value) -> Result<Envelope, VerifyError> {
    if value.pointer("/verificationMaterial/certificate").is_some() {
        return Err(VerifyError::Shape("the bundle is signed with a certificate, not with a key".to_owned()));
    }
    let bundle: Bundle = serde_json::from_value(value).map_err(|error| shape(&error))?;
    if bundle.media_type != bundle::MEDIA_TYPE {
        let found = printable(&bundle.media_type, 80);
        return Err(VerifyError::Shape(format!("bundle of type `{found}`, expected `{}`", bundle::MEDIA_TYPE)));
    }
    if bundle.dsse_envelope.signatures.len() > 1 {
        return Err(VerifyError::Shape("a bundle has exactly one signature".to_owned()));
    }
    let hint = &bundle.verification_material.public_key.hint;
    if bundle.dsse_envelope.signatures.iter().any(|signature| signature.keyid != *hint) {
        return Err(VerifyError::Shape("the bundle's key hint and the envelope's key id differ".to_owned()));
    }
    Ok(bundle.dsse_envelope)
}

/// The key that one of the signatures verifies with. The key id only chooses the words of the
/// error: DSSE forbids to decide by it.
fn signer<'a>(envelope: &Envelope, signed: &Signed, keys: &'a [PublicKey]) -> Result<&'a PublicKey, VerifyError> {
    let signatures = &envelope.signatures;
    match signatures.len() {
        0 => return Err(VerifyError::Unsigned),
        found if found > MAXIMUM_SIGNATURES => return Err(VerifyError::TooManySignatures { found }),
        _ if keys.is_empty() => return Err(VerifyError::NoKeys),
        _ => {}
    }
    for signature in signatures {
        let bytes = decode("signature", &signature.sig)?;
        if let Some(key) = keys.iter().find(|key| key.verifies(&signed.encoding, &bytes)) {
            return Ok(key);
        }
    }
    let known = |keyid: &str| keys.iter().any(|key| key.keyid() == keyid);
    match signatures.iter().find(|signature| known(&signature.keyid)) {
        Some(signature) => Err(VerifyError::BadSignature { keyid: printable(&signature.keyid, 80) }),
        None => {
            let names = signatures.iter().take(3).map(|signature| match signature.keyid.as_str() {
                "" => "an unnamed key".to_owned(),
                keyid => printable(keyid, 80),
            });
            Err(VerifyError::UnknownSigner { signers: names.collect::<Vec<_>>().join(", ") })
        }
    }
}

/// Reads what was verified, the very bytes.
fn read_statement(payload: &[u8]) -> Result<Statement, VerifyError> {
    let not_a_record = |why: String| VerifyError::NotARecord(printable(&why, 300));
    strict::check(payload).map_err(|source| VerifyError::Json { what: "the signed payload", source })?;
    let statement: Result<Statement, serde_json::Error> = serde_json::from_slice(payload);
    let statement = match statement {
        Ok(statement) if is_of_this_type(&statement) => statement,
        Ok(_) => return Err(what_else(payload).unwrap_or_else(|| not_a_record("of another type".to_owned()))),
        Err(source) if is_no_json(&source) => return Err(VerifyError::Json { what: "the signed payload", source }),
        Err(error) => return Err(what_else(payload).unwrap_or_else(|| not_a_record(error.to_string()))),
    };
    let mut names = BTreeSet::new();
    if let Some(twice) = statement.subject.iter().find(|subject| !names.insert(subject.name.as_str())) {
        return Err(not_a_record(format!("subject `{}` twice", printable(&twice.name, 60))));
    }
    let accepted = statement.predicate.nodegate.decision == Decision::Accepted;
    if accepted == (statement.predicate.result == TestResult::Failed) {
        return Err(not_a_record("its result and its decision contradict each other".to_owned()));
    }
    Ok(statement)
}

fn is_of_this_type(statement: &Statement) -> bool {
    statement.kind == TYPE
        && statement.predicate_type == PREDICATE_TYPE
        && statement.predicate.nodegate.schema <= SCHEMA
}

/// What a payload says of itself that is not a record of ours: a newer one may not even read as one.
fn what_else(payload: &[u8]) -> Option<VerifyError> {
    let value: Value = serde_json::from_slice(payload).ok()?;
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("nothing").to_owned();
    for (pointer, expected) in [("/_type", TYPE), ("/predicateType", PREDICATE_TYPE)] {
        if text(pointer) != expected {
            let why = format!("{} is `{}`, expected `{expected}`", &pointer[1..], text(pointer));
            return Some(VerifyError::NotARecord(printable(&why, 300)));
        }
    }
    let schema = value.pointer("/predicate/nodegate/schema").and_then(Value::as_u64);
    schema.filter(|found| *found > u64::from(SCHEMA)).map(|found| VerifyError::NewerSchema { found })
}

fn decode(field: &'static str, text: &str) -> Result<Vec<u8>, VerifyError> {
    dsse::decode_base64(text).map_err(|source| VerifyError::Base64 { field, source })
}

/// Why the bytes are no envelope: no JSON, or another shape.
fn unread(source: serde_json::Error) -> VerifyError {
    if is_no_json(&source) { VerifyError::Json { what: "the envelope", source } } else { shape(&source) }
}

fn is_no_json(error: &serde_json::Error) -> bool {
    error.is_syntax() || error.is_eof()
}

fn shape(error: &serde_json::Error) -> VerifyError {
    VerifyError::Shape(printable(&error.to_string(), 200))
}
