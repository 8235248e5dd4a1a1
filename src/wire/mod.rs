//! The doorway to the network: one HTTP exchange in a child with a deadline.
//!
//! A resolver, a proxy or a peer may hang for ever, so that nothing of the network is touched in
//! the parent. The child follows no redirect and always verifies TLS, against the certificates
//! that this system trusts or against those of one authority alone. Loopback knows no proxy.

mod address;
mod answer;
mod job;
mod proxy;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use address::{Address, AddressError};
pub use answer::{Answer, LONGEST_WAIT, Problem};
pub use job::serve_exchange_job;
pub use proxy::{Proxy, ProxyError};

use crate::isolate;

/// What is read of an answer, bytes. Nothing that we ask for is larger.
pub const MAXIMUM_ANSWER: usize = 64 * 1024;

/// How much longer than the exchange itself its child may take to start and to leave.
const MARGIN: Duration = Duration::from_secs(2);

/// One request, and how it gets there.
#[derive(Debug, Serialize, Deserialize)]
pub struct Exchange {
    pub method: Method,
    pub address: Address,
    /// From the root, e.g. `/v1/records`.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub token: Option<Secret>,
    /// Sent compressed where that makes it smaller.
    pub body: Option<String>,
    /// For everything from looking up the name to the last byte of the answer.
    pub patience: Duration,
    pub transport: Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    Get,
    Post,
}

/// Whom to trust, as whom to come, and by which way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transport {
    /// Certificates of the fleet's authority, PEM: with them, no other is trusted.
    pub authority: Option<String>,
    pub identity: Option<Identity>,
    pub proxy: Option<Proxy>,
}

/// A client certificate with its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub certificate: String,
    pub key: Secret,
}

/// A bearer token or a private key. It goes to the child through its standard input and nowhere
/// else; it is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A token. None where the text cannot stand in a header: only visible ASCII can.
    pub fn new(text: &str) -> Option<Secret> {
        let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        visible.then(|| Secret(text.to_owned()))
    }

    /// A private key, PEM. It is looked at where it is used.
    pub fn of_key(pem: &str) -> Secret {
        Secret(pem.to_owned())
    }

    /// The text without the secret, should a peer have given it back.
    pub fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "…")
    }

    fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Transport {
    /// What is wrong with the certificates and the key, before anything is sent.
    ///
    /// # Errors
    ///
    /// In one line, with nothing of what is in them.
    pub fn check(&self) -> Result<(), &'static str> {
        job::check(self)
    }
}

/// Asks in a child. An error says in one line why there is no answer.
pub fn exchange(exchange: &Exchange) -> Result<Answer, String> {
    let began = Instant::now();
    let answer: Result<Result<Answer, String>, _> =
        isolate::call("exchange", exchange, exchange.patience.saturating_add(MARGIN));
    let answer = answer.unwrap_or_else(|broken| Err(broken.to_string()));
    let took = began.elapsed();
    let Exchange { method, address: to, path, .. } = exchange;
    match &answer {
        Ok(Answer { status, body, .. }) => {
            tracing::debug!(?method, %to, path, status, bytes = body.len(), ?took, "exchanged");
        }
        Err(why) => tracing::debug!(?method, %to, path, ?took, why, "not exchanged"),
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed_and_cannot_break_a_header() {
        let secret = Secret::new("hunter2").unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert_eq!(secret.redact("it says hunter2"), "it says …");
        for text in ["", "two words", "line\r\nX-Other: 1", "ö"] {
            assert!(Secret::new(text).is_none(), "{text}");
        }
    }

    #[test]
    fn certificates_and_keys_that_are_none_are_told_apart_and_not_shown() {
        let key = Secret::of_key("hunter2");
        let identity = |certificate: &str| Some(Identity { certificate: certificate.to_owned(), key: key.clone() });
        let with = |authority: Option<&str>, identity| {
            let transport = Transport { authority: authority.map(str::to_owned), identity, proxy: None };
            transport.check()
        };
        assert_eq!(with(None, None), Ok(()));
        assert!(with(Some("hunter2"), None).unwrap_err().contains("authority"));
        assert!(with(None, identity("hunter2")).unwrap_err().contains("certificate"));
    }
}
