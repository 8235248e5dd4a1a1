//! Access tokens: what they look like, and what is kept of them.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use crate::ident::Digest;

/// Scanners that look for secrets in published files know a token by it.
const PREFIX: &str = "nodegate-";
/// Random bytes of a token: not to be guessed, so that a plain SHA-256 of it can be kept.
const BYTES: usize = 32;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Sees the fleet: pages, records, export, metrics.
    Reader,
    /// Sends records, enrols hosts, asks for challenges.
    Writer,
    /// Both.
    Admin,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Reader, Role::Writer, Role::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Writer => "writer",
            Role::Admin => "admin",
        }
    }

    pub fn may_read(self) -> bool {
        self != Role::Writer
    }

    pub fn may_write(self) -> bool {
        self != Role::Reader
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that is no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no role: reader, writer or admin")]
pub struct NoRole(String);

impl FromStr for Role {
    type Err = NoRole;

    fn from_str(text: &str) -> Result<Role, NoRole> {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| NoRole(crate::ident::printable(text, 40)))
    }
}

/// A token itself. It is printed once, to whoever made it.
pub struct Token(String);

impl Token {
    pub fn random() -> Token {
        let mut bytes = [0; BYTES];
        SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
        Token(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// What somebody says is one.
    pub fn given(text: &str) -> Token {
        Token(text.to_owned())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// SHA-256, which is kept.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a token that was made gives to whoever has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub digest: Digest,
    pub role: Role,
    pub expires_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_alike_and_none_is_printed() {
        let (one, other) = (Token::random(), Token::random());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(Token::given(one.reveal()).digest(), one.digest());
        assert!(one.reveal().len() > 40 && !format!("{one:?}").contains(one.reveal()));
    }

    #[test]
    fn a_role_reads_back_and_no_other_word_is_one() {
        assert!(Role::ALL.into_iter().all(|role| role.as_str().parse() == Ok(role)));
        assert!("root".parse::<Role>().is_err());
    }
}
