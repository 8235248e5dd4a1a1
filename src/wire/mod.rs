//! The doorway to the network: one HTTP request in a child with a deadline.
//!
//! A resolver, a proxy of the kernel or a peer may hang for ever, so that nothing of the
//! network is touched in the parent. The child knows no proxy, follows no redirect and always
//! verifies TLS, against the certificates that this system trusts.

mod address;
mod job;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use address::{Address, AddressError};
pub use job::serve_post_job;

use crate::isolate;

/// What is read of an answer, bytes. Nothing that we ask for is larger.
pub const MAXIMUM_ANSWER: usize = 64 * 1024;

/// How much longer than the request itself its child may take to start and to leave.
const MARGIN: Duration = Duration::from_secs(2);

/// A request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Post {
    pub address: Address,
    /// From the root, e.g. `/v1/records`.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub token: Option<Secret>,
    pub body: String,
    /// For everything from looking up the name to the last byte of the answer.
    pub patience: Duration,
}

/// What a peer answered.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub status: u16,
    /// Of a success. What else a peer says is not read: it could be our own secret.
    pub body: String,
}

/// A bearer token. It goes to the child through its standard input and nowhere else; it is
/// never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// None where the text cannot stand in a header: only visible ASCII can.
    pub fn new(text: &str) -> Option<Secret> {
        let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        visible.then(|| Secret(text.to_owned()))
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

/// Posts in a child. An error says in one line why there is no answer.
pub fn post(post: &Post) -> Result<Answer, String> {
    let began = Instant::now();
    let answer: Result<Result<Answer, String>, _> = isolate::call("post", post, post.patience + MARGIN);
    let answer = answer.unwrap_or_else(|broken| Err(broken.to_string()));
    let took = began.elapsed();
    match &answer {
        Ok(Answer { status, body }) => {
            tracing::debug!(to = %post.address, path = post.path, status, bytes = body.len(), ?took, "posted");
        }
        Err(why) => tracing::debug!(to = %post.address, path = post.path, ?took, why, "not posted"),
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
}
