//! What is shown beside an enrolment, by tier.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::standing::Tier;
use crate::ident::Digest;
use crate::isolate::Bytes;

/// A proof. A secret in it goes to the collector and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tier", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Proof {
    /// Nothing.
    FirstUse {},
    /// A one-time token that was made for this host's serial number.
    Token { id: String, secret: TokenSecret },
    /// `ssh-keygen -Y sign` over the statement's bytes with the host's SSH key.
    SshHostKey { signature: String },
    /// A PEM chain, host first, and its key's signature over what DSSE signs.
    X509 { certificates: String, signature: Bytes },
    /// TPM2B_PUBLIC of signing key and endorsement key; the secret of the collector's credential once
    /// the TPM has opened it.
    #[serde(rename_all = "camelCase")]
    Tpm {
        public: Bytes,
        endorsement_key: Bytes,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Bytes>,
    },
    /// The throw-away key of a recording.
    Simulated {},
}

/// A token's secret half. It is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenSecret(String);

/// A join token as an operator hands it out: `nodegate-join.ID.SECRET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    pub id: String,
    pub secret: TokenSecret,
}

/// A text that is no join token. It is not shown: it may hold half of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a join token, which looks like {PREFIX}.ID.SECRET")]
pub struct NotAToken;

const PREFIX: &str = "nodegate-join";
/// Letters and digits of an id and of a secret: 48 and 192 bits in hexadecimal.
const ID: usize = 12;
const SECRET: usize = 48;

impl Proof {
    pub fn tier(&self) -> Tier {
        match self {
            Proof::FirstUse {} => Tier::FirstUse,
            Proof::Token { .. } => Tier::Token,
            Proof::SshHostKey { .. } => Tier::SshHostKey,
            Proof::X509 { .. } => Tier::X509,
            Proof::Tpm { .. } => Tier::Tpm,
            Proof::Simulated {} => Tier::Simulated,
        }
    }
}

impl JoinToken {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Where the system has no random numbers.
    pub fn generate() -> Result<JoinToken, aws_lc_rs::error::Unspecified> {
        let mut random = [0; (ID + SECRET) / 2];
        aws_lc_rs::rand::fill(&mut random)?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (id, secret) = hex.split_at(ID);
        Ok(JoinToken { id: id.to_owned(), secret: TokenSecret(secret.to_owned()) })
    }

    pub fn parse(text: &str) -> Result<JoinToken, NotAToken> {
        let mut parts = text.trim().split('.');
        let (Some(PREFIX), Some(id), Some(secret), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAToken);
        };
        let hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !hex(id, ID) || !hex(secret, SECRET) {
            return Err(NotAToken);
        }
        Ok(JoinToken { id: id.to_owned(), secret: TokenSecret(secret.to_owned()) })
    }

    /// By which the collector knows it again: it keeps this and not the token. With 192 random bits
    /// in it there is nothing to guess and nothing to compare but the digest.
    pub fn digest(&self) -> Digest {
        Digest::of(format!("nodegate join token 1\n{}\n{}\n", self.id, self.secret.0).as_bytes())
    }

    /// The text to hand out, once.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}.{}.{}", self.id, self.secret.0)
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_never_prints_its_secret() {
        let token = JoinToken::generate().unwrap();
        let text = token.reveal();
        assert_eq!(JoinToken::parse(&format!("{text}\n")).unwrap(), token);
        let secret = text.rsplit('.').next().unwrap();
        assert!(!format!("{token:?}").contains(secret));
        for wrong in ["", "nodegate-join", &text[1..], &format!("{text}.x"), &text[..text.len() - 1]] {
            assert!(JoinToken::parse(wrong).is_err(), "{wrong}");
            assert!(!NotAToken.to_string().contains(secret));
        }
        assert_ne!(token.digest(), JoinToken::generate().unwrap().digest());
    }

    #[test]
    fn a_proof_is_written_with_its_tier_and_nothing_unknown_is_read() {
        let json = |proof: &Proof| serde_json::to_value(proof).unwrap();
        assert_eq!(json(&Proof::FirstUse {}), serde_json::json!({"tier": "first-use"}));
        let tpm = Proof::Tpm { public: Bytes(vec![1]), endorsement_key: Bytes(vec![2]), secret: None };
        assert_eq!(json(&tpm), serde_json::json!({"tier": "tpm", "public": "AQ==", "endorsementKey": "Ag=="}));
        for wrong in [r#"{"tier":"first-use","x":1}"#, r#"{"tier":"none"}"#, "{}", r#"{"tier":"token","id":"a"}"#] {
            assert!(serde_json::from_str::<Proof>(wrong).is_err(), "{wrong}");
        }
        for proof in [Proof::FirstUse {}, Proof::Simulated {}, tpm] {
            assert_eq!(json(&proof)["tier"], proof.tier().as_str());
        }
    }
}
