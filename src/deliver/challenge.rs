//! The collector's nonce: a record that carries it cannot have been made before.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::pace::Note;
use super::target::Target;
use crate::host::clock;
use crate::record::Spool;
use crate::wire::Method;

const PATH: &str = "/v1/challenges";
/// A run goes on without a nonce; it is not worth more of a technician's time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Characters of a nonce; ours have about 80.
const LONGEST: usize = 256;

#[derive(Deserialize)]
struct Given {
    challenge: String,
}

/// Asks for a nonce for what this key will sign. An error says in one line why there is none: also
/// that the collector has asked this state folder to stay away for now.
pub fn challenge(target: &Target, keyid: &str, folder: &Path) -> Result<String, String> {
    if let Some(until) = Note::read(&Spool::of(folder), &target.address, clock::now()).not_before {
        return Err(format!("{} is not asked before {until:.0}, as it wished", target.address.authority()));
    }
    let body = serde_json::json!({ "keyid": keyid }).to_string();
    let headers = [("content-type", "application/json")];
    let answer = target.ask((Method::Post, PATH), &headers, Some(body), PATIENCE);
    let gave = match answer {
        Err(why) => Err(format!("did not answer: {why}")),
        Ok(answer) if !matches!(answer.status, 200 | 201) => Err(format!("answered {}", answer.status)),
        Ok(answer) => nonce(&answer.body).ok_or_else(|| "answered with something else".to_owned()),
    };
    gave.map_err(|why| format!("{} {why}", target.address.authority()))
}

/// The nonce in an answer: base64url, so that nothing else gets into a record by this way.
fn nonce(body: &str) -> Option<String> {
    let Given { challenge } = serde_json::from_str(body).ok()?;
    let plain = challenge.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'='));
    let is_one = plain && !challenge.is_empty() && challenge.len() <= LONGEST && challenge != "none";
    is_one.then_some(challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_base64_and_nothing_else_gets_in() {
        let said = |text: &str| nonce(&serde_json::json!({ "challenge": text, "expires": "x" }).to_string());
        assert_eq!(said("aGVsbG8-_w").as_deref(), Some("aGVsbG8-_w"));
        for text in ["", "none", "two words", "\u{1b}[2J", "ö", &"x".repeat(257)] {
            assert_eq!(said(text), None, "{text}");
        }
        for body in ["", "{}", "[]", "{\"challenge\":7}"] {
            assert_eq!(nonce(body), None, "{body}");
        }
    }
}
