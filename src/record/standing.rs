//! What a collector holds of a key and of a record: the words that agent, collector and page share.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a key came to be known to a collector. The later, the stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// A throw-away key of a recorded host; signs simulated records and no others.
    Simulated,
    /// It said so itself; counts once an operator has approved it.
    FirstUse,
    /// It showed a one-time join token that was made for this host's serial number.
    Token,
    /// The host's SSH key, known beforehand, signed the enrolment.
    SshHostKey,
    /// A certificate of the fleet's authority signed the enrolment.
    X509,
    /// It cannot leave a TPM whose endorsement key is on the collector's list.
    Tpm,
}

/// Why a record does not count as accepted at a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// The host was a recording.
    Simulated,
    /// `--nvml`, `--cuda` or `--root` said where to read.
    Overridden,
    /// Steps were left out.
    Partial,
    /// Its key waits for an operator's approval.
    PendingKey,
    /// Its key is revoked.
    RevokedKey,
    /// Records before it in its key's chain are not here.
    Gap,
    /// Another record stands at its place in the chain, or it follows one that is not the last before it.
    Fork,
    /// Its nonce was given out longer ago than a run takes.
    LateNonce,
    /// Its nonce is not one of this collector's for this key.
    UnknownNonce,
    /// Its nonce stands in another record too.
    ReusedNonce,
    /// It carries no nonce, and the policy asks for one.
    NoNonce,
    /// The acceptance policy asks for more.
    Policy,
}

/// A word that is none of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of {1}")]
pub struct UnknownWord(String, String);

impl Tier {
    pub const ALL: [Tier; 6] = [Tier::Simulated, Tier::FirstUse, Tier::Token, Tier::SshHostKey, Tier::X509, Tier::Tpm];

    pub const fn as_str(self) -> &'static str {
        match self {
            Tier::Simulated => "simulated",
            Tier::FirstUse => "first-use",
            Tier::Token => "token",
            Tier::SshHostKey => "ssh-host-key",
            Tier::X509 => "x509",
            Tier::Tpm => "tpm",
        }
    }
}

impl Flag {
    pub const ALL: [Flag; 12] = [
        Flag::Simulated,
        Flag::Overridden,
        Flag::Partial,
        Flag::PendingKey,
        Flag::RevokedKey,
        Flag::Gap,
        Flag::Fork,
        Flag::LateNonce,
        Flag::UnknownNonce,
        Flag::ReusedNonce,
        Flag::NoNonce,
        Flag::Policy,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Flag::Simulated => "simulated",
            Flag::Overridden => "overridden",
            Flag::Partial => "partial",
            Flag::PendingKey => "pending-key",
            Flag::RevokedKey => "revoked-key",
            Flag::Gap => "gap",
            Flag::Fork => "fork",
            Flag::LateNonce => "late-nonce",
            Flag::UnknownNonce => "unknown-nonce",
            Flag::ReusedNonce => "reused-nonce",
            Flag::NoNonce => "no-nonce",
            Flag::Policy => "policy",
        }
    }

    /// What it means, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Flag::Simulated => "a recorded host, not a machine",
            Flag::Overridden => "the run was told where to read",
            Flag::Partial => "steps were left out",
            Flag::PendingKey => "its key waits for approval",
            Flag::RevokedKey => "its key is revoked",
            Flag::Gap => "earlier records of its key are missing",
            Flag::Fork => "its key has another record at this place",
            Flag::LateNonce => "its nonce came too late",
            Flag::UnknownNonce => "its nonce is not ours",
            Flag::ReusedNonce => "its nonce was used before",
            Flag::NoNonce => "it has no nonce, and the policy wants one",
            Flag::Policy => "the acceptance policy asks for more",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Tier {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        find(&Tier::ALL, Tier::as_str, text)
    }
}

impl FromStr for Flag {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        find(&Flag::ALL, Flag::as_str, text)
    }
}

fn find<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, UnknownWord> {
    let names = || all.iter().map(|word| name(*word)).collect::<Vec<_>>().join(", ");
    let found = all.iter().copied().find(|word| name(*word) == text);
    found.ok_or_else(|| UnknownWord(crate::ident::printable(text, 60), names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_reads_back_and_is_written_the_same_in_json() {
        for tier in Tier::ALL {
            assert_eq!(tier.as_str().parse::<Tier>().unwrap(), tier);
            assert_eq!(serde_json::to_value(tier).unwrap(), tier.as_str());
        }
        for flag in Flag::ALL {
            assert_eq!(flag.as_str().parse::<Flag>().unwrap(), flag);
            assert_eq!(serde_json::to_value(flag).unwrap(), flag.as_str());
        }
        assert!("tmp".parse::<Tier>().unwrap_err().to_string().contains("tpm"));
    }
}
