//! A host's key that we do not hold: a TPM or a signer program has it, and signs what it is given.
//!
//! What the state folder keeps of it is a reference: the public half, and how to reach the private
//! one. Whatever comes back is verified with the public half before it is used as a signature.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::public_key::{PublicKey, from_pem, to_pem};
use super::tpm::{self, TpmKey};
use crate::isolate::{ProgramError, Step, Work, run_programs};

/// The version of a reference.
const FORMAT: u32 = 1;
const PEM_LABEL: &str = "NODEGATE KEY REFERENCE";
/// How long a signer may take. One that asks a person or a slow network is too slow for a gate.
const PATIENCE: Duration = Duration::from_secs(15);

/// A key that another holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideKey {
    pub(super) public: PublicKey,
    holder: Holder,
}

/// Who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Holder {
    /// A program: bytes to sign on its standard input, the signature on its standard output.
    Command(Vec<String>),
    Tpm(TpmKey),
}

/// The text of a reference, in a PEM block so that the key file stays one.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    format: u32,
    public_key: String,
    holder: Holder,
}

/// Why there is no signature.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("{holder} gave no signature")]
    NoAnswer { holder: String, source: ProgramError },
    #[error("what {holder} gave is no signature of key {keyid}")]
    Wrong { holder: String, keyid: String },
}

impl OutsideKey {
    /// A key that a signer program holds.
    pub(super) fn of_command(command: Vec<String>, public: PublicKey) -> OutsideKey {
        OutsideKey { public, holder: Holder::Command(command) }
    }

    /// A key in a TPM.
    pub(super) fn of_tpm(key: TpmKey) -> Option<OutsideKey> {
        let public = key.public_key()?;
        Some(OutsideKey { public, holder: Holder::Tpm(key) })
    }

    pub fn tpm(&self) -> Option<&TpmKey> {
        match &self.holder {
            Holder::Tpm(key) => Some(key),
            Holder::Command(_) => None,
        }
    }

    /// Reads a reference; none where the text has none or a damaged one.
    pub(super) fn parse(text: &str) -> Option<OutsideKey> {
        let reference: Reference = serde_json::from_slice(&from_pem(text, PEM_LABEL)?).ok()?;
        let public = PublicKey::parse(&reference.public_key).ok()?;
        match &reference.holder {
            _ if reference.format > FORMAT => None,
            Holder::Command(command) if command.is_empty() => None,
            Holder::Tpm(key) if key.public_key().as_ref() != Some(&public) => None,
            _ => Some(OutsideKey { public, holder: reference.holder }),
        }
    }

    /// Whether a text is meant to be a reference.
    pub(super) fn is_reference(text: &str) -> bool {
        text.contains(&format!("-----BEGIN {PEM_LABEL}-----"))
    }

    pub(super) fn to_text(&self) -> String {
        let reference = Reference { format: FORMAT, public_key: self.public.to_pem(), holder: self.holder.clone() };
        let json = serde_json::to_vec(&reference).expect("a reference of strings is JSON");
        format!("This host's private key is held by {self}.\n{}", to_pem(&json, PEM_LABEL))
    }

    /// The signature over these bytes, verified.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let no_answer = |source| SignError::NoAnswer { holder: self.to_string(), source };
        let signature = match &self.holder {
            Holder::Command(command) => printed(command, message),
            Holder::Tpm(key) => tpm::sign(key, message),
        }
        .map_err(no_answer)?;
        if self.public.verifies(message, &signature) {
            return Ok(signature);
        }
        Err(SignError::Wrong { holder: self.to_string(), keyid: self.public.keyid() })
    }
}

impl fmt::Display for OutsideKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Holder::Command(command) => {
                let program = command.first().map_or("", String::as_str);
                write!(f, "signer {}", crate::ident::printable(program, 120))
            }
            Holder::Tpm(key) => write!(f, "the TPM at {}", crate::ident::printable(key.tcti(), 120)),
        }
    }
}

fn printed(command: &[String], message: &[u8]) -> Result<Vec<u8>, ProgramError> {
    let (program, arguments) = command.split_first().expect("a reference without a program does not parse");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let steps = vec![Step::new(program, &arguments).reading(message)];
    let mut done = run_programs(Work { files: Vec::new(), steps, results: Vec::new(), patience: PATIENCE })?;
    Ok(done.printed.pop().unwrap_or_default().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Algorithm, HostKey};

    fn signer(command: &[&str], public: &PublicKey) -> OutsideKey {
        OutsideKey::of_command(command.iter().map(|word| (*word).to_owned()).collect(), public.clone())
    }

    #[test]
    fn a_reference_reads_back_and_a_changed_one_is_none() {
        let public = HostKey::generate(Algorithm::P256).public_key().clone();
        let key = signer(&["/usr/local/bin/hsm-sign", "--slot", "3"], &public);
        let text = key.to_text();
        assert_eq!(OutsideKey::parse(&text), Some(key));
        assert!(text.starts_with("This host's private key is held by signer /usr/local/bin/hsm-sign.\n"));
        let block = |json: &str| to_pem(json.as_bytes(), PEM_LABEL);
        let pem = serde_json::to_string(&public.to_pem()).unwrap();
        for holder in [r#"{"command":[]}"#, r#"{"tpm":{"tcti":"x","public":"AA==","private":"AA=="}}"#, "3"] {
            let json = format!(r#"{{"format":1,"publicKey":{pem},"holder":{holder}}}"#);
            assert_eq!(OutsideKey::parse(&block(&json)), None, "{holder}");
        }
    }
}
