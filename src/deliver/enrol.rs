//! Enrolment from the host's side: a nonce, the signed statement, the proof, and the answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Target;
use crate::host::clock;
use crate::ident::printable;
use crate::isolate::{Bytes, ProgramError, Step, Work, run_programs};
use crate::record::dsse::{self, Envelope};
use crate::record::enrolment::certificate::CertificateKey;
use crate::record::enrolment::{self, Credential, Enrolled, JoinToken, Proof, Request, sshsig};
use crate::record::store::rotation::{About, own_enrolment};
use crate::record::store::{self, StoreError};
use crate::record::tpm::{self, TpmKey};
use crate::record::{HostDocument, HostKey, Store, keyfile, plain};
use crate::wire::{Answer, Method};

/// For each exchange.
const PATIENCE: Duration = Duration::from_secs(10);
/// `ssh-keygen` signs in milliseconds.
const SSH_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a host document; ours have some 300.
const MAXIMUM_DOCUMENT: u64 = 64 << 10;

/// What this host can show beside its key.
pub enum Evidence {
    FirstUse,
    Token(JoinToken),
    /// The host's SSH key, a file that root can read.
    SshHostKey(PathBuf),
    Certificate {
        certificates: String,
        key: CertificateKey,
    },
    Tpm(TpmKey),
    Simulated,
}

/// Why a key was not enrolled. Nothing here holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum NotEnrolled {
    #[error("{collector} did not answer: {why}")]
    NoAnswer { collector: String, why: String },
    #[error("{collector} answered {status}, {meaning}{detail}")]
    Refused {
        collector: String,
        status: u16,
        meaning: &'static str,
        /// What the collector says of it, after a colon; or nothing.
        detail: String,
    },
    #[error("{collector} answered with something else than was asked for")]
    Garbled { collector: String },
    #[error("the enrolment cannot be signed")]
    Sign(#[from] StoreError),
    #[error("{what} gave no proof")]
    Proof { what: String, source: ProgramError },
    #[error("the certificate's key gave no signature")]
    CertificateKey,
    #[error("no record of this host yet, by which it could introduce itself: `nodegate enroll` does")]
    NoRecord,
}

impl NotEnrolled {
    /// Whether the collector has decided, and asking again will not help.
    pub fn is_final(&self) -> bool {
        matches!(self, NotEnrolled::Refused { status, .. } if [400, 403, 409, 413, 422].contains(status))
    }
}

/// Enrols the key of this fingerprint. `sign` makes the statement with the collector's nonce.
pub fn enrol(
    target: &Target,
    keyid: &str,
    sign: impl FnOnce(&str) -> Result<Envelope, StoreError>,
    evidence: &Evidence,
) -> Result<Enrolled, NotEnrolled> {
    let envelope = sign(&challenge(target, keyid)?)?;
    let proof = evidence.proof(&envelope)?;
    let answer = send(target, &Request { enrolment: envelope.clone(), proof: proof.clone() })?;
    let (Proof::Tpm { public, endorsement_key, .. }, Evidence::Tpm(key), 202) = (proof, evidence, answer.status) else {
        return read(target, &answer);
    };
    let credential: Credential = read(target, &answer)?;
    let opened = tpm::activate(key, &credential.credential_blob.0, &credential.encrypted_secret.0);
    let what = || format!("the TPM at {}", printable(key.tcti(), 120));
    let secret = opened.map_err(|source| NotEnrolled::Proof { what: what(), source })?;
    let proof = Proof::Tpm { public, endorsement_key, secret: Some(Bytes(secret)) };
    read(target, &send(target, &Request { enrolment: envelope, proof })?)
}

/// Introduces the key of an open store as what it is: the host's own for the first time, or a recording's
/// throw-away key.
pub fn introduce(store: &Store, host: &HostDocument, hostname: &str, target: &Target) -> Result<Enrolled, NotEnrolled> {
    let evidence = if store.host_key().is_some() { Evidence::FirstUse } else { Evidence::Simulated };
    let sign = |challenge: &str| store.enrolment(&About { host, hostname, at: clock::now(), challenge });
    enrol(target, &store.public_key().keyid(), sign, &evidence)
}

/// Introduces the key of this state folder by what its last record says of the host, for a delivery
/// that finds it unknown. The folder is looked at, and nothing in it changed.
pub fn first_use(folder: &Path, target: &Target) -> Result<Enrolled, NotEnrolled> {
    let key = own_key(folder)?;
    let (host, hostname) = introduction(folder, &key)?;
    let sign =
        |challenge: &str| own_enrolment(&key, &About { host: &host, hostname: &hostname, at: clock::now(), challenge });
    enrol(target, &key.public_key().keyid(), sign, &Evidence::FirstUse)
}

fn own_key(folder: &Path) -> Result<HostKey, StoreError> {
    Ok(keyfile::read_private(&folder.join(store::KEY))?)
}

/// Host document and name from the newest record that this key signed.
fn introduction(folder: &Path, key: &HostKey) -> Result<(HostDocument, String), NotEnrolled> {
    let shelf = store::verified(folder, &[key.public_key().clone()])?;
    shelf
        .into_iter()
        .find_map(|shelved| {
            let record = shelved.record.ok()?;
            let bytes = plain::read(&shelved.path.with_extension("host.json"), MAXIMUM_DOCUMENT).ok()?;
            let document: HostDocument = serde_json::from_slice(&bytes).ok()?;
            (document.digest() == record.host).then_some((document, record.details.host.hostname))
        })
        .ok_or(NotEnrolled::NoRecord)
}

impl Evidence {
    fn proof(&self, envelope: &Envelope) -> Result<Proof, NotEnrolled> {
        // An envelope of our own making is base64.
        let payload = dsse::decode_base64(&envelope.payload).unwrap_or_default();
        match self {
            Evidence::FirstUse => Ok(Proof::FirstUse {}),
            Evidence::Simulated => Ok(Proof::Simulated {}),
            Evidence::Token(token) => Ok(Proof::Token { id: token.id.clone(), secret: token.secret.clone() }),
            Evidence::SshHostKey(path) => Ok(Proof::SshHostKey { signature: ssh_signature(path, &payload)? }),
            Evidence::Certificate { certificates, key } => {
                let message = dsse::pre_authentication_encoding(enrolment::PAYLOAD_TYPE, &payload);
                let signature = key.sign(&message).map_err(|_| NotEnrolled::CertificateKey)?;
                Ok(Proof::X509 { certificates: certificates.clone(), signature: Bytes(signature) })
            }
            Evidence::Tpm(key) => {
                let what = || format!("the TPM at {}", printable(key.tcti(), 120));
                let endorsement_key = tpm::endorsement_key(key.tcti());
                let endorsement_key = endorsement_key.map_err(|source| NotEnrolled::Proof { what: what(), source })?;
                let public = Bytes(key.public_area().to_vec());
                Ok(Proof::Tpm { public, endorsement_key: Bytes(endorsement_key), secret: None })
            }
        }
    }
}

fn ssh_signature(path: &Path, payload: &[u8]) -> Result<String, NotEnrolled> {
    let file = path.to_string_lossy();
    let sign = Step::new("ssh-keygen", &["-Y", "sign", "-q", "-f", &file, "-n", sshsig::NAMESPACE]);
    let steps = vec![sign.reading(payload)];
    let done = run_programs(Work { files: Vec::new(), steps, results: Vec::new(), patience: SSH_PATIENCE });
    let what = || format!("SSH host key {}", printable(&file, 300));
    let mut done = done.map_err(|source| NotEnrolled::Proof { what: what(), source })?;
    Ok(String::from_utf8_lossy(&done.printed.pop().unwrap_or_default().0).into_owned())
}

#[derive(Deserialize)]
struct Challenge {
    challenge: String,
}

fn challenge(target: &Target, keyid: &str) -> Result<String, NotEnrolled> {
    let answer = ask(target, "/v1/challenges", serde_json::json!({ "keyid": keyid }).to_string())?;
    read(target, &answer).map(|Challenge { challenge }| challenge)
}

fn send(target: &Target, request: &Request) -> Result<Answer, NotEnrolled> {
    let body = serde_json::to_string(request).expect("a request of strings is JSON");
    ask(target, "/v1/enroll", body)
}

/// The answer, if it is a success.
fn ask(target: &Target, path: &str, body: String) -> Result<Answer, NotEnrolled> {
    let headers = [("content-type", "application/json")];
    let collector = target.address.authority();
    match target.ask((Method::Post, path), &headers, Some(body), PATIENCE) {
        Err(why) => Err(NotEnrolled::NoAnswer { collector, why }),
        Ok(answer) if (200..300).contains(&answer.status) => Ok(answer),
        Ok(Answer { status, problem, .. }) => {
            let detail = problem.map(|problem| problem.detail).filter(|detail| !detail.is_empty());
            let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
            Err(NotEnrolled::Refused { collector, status, meaning: meaning(status), detail })
        }
    }
}

fn read<T: DeserializeOwned>(target: &Target, answer: &Answer) -> Result<T, NotEnrolled> {
    serde_json::from_str(&answer.body).map_err(|_| NotEnrolled::Garbled { collector: target.address.authority() })
}

fn meaning(status: u16) -> &'static str {
    match status {
        300..=399 => "a redirect, which is not followed",
        401 => "it wants a token (the site's credential)",
        403 => "it does not accept this proof, or the key is revoked",
        404 => "it takes no enrolments",
        409 => "the key or the host is known to it otherwise",
        422 => "it takes no recorded hosts",
        429 => "it has too much to do",
        500..=599 => "it has failed",
        _ => "it does not take this enrolment",
    }
}
