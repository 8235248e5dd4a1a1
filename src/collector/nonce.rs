//! The collector's nonce: given out before a run, carried by its record, judged when that comes in.
//!
//! Nothing is kept of a nonce that was given out: it says when that was and for which key, and an
//! HMAC with the store's secret says that it is ours. All collectors on one store share the secret.

use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use crate::record::standing::Flag;

/// Microseconds since 1970, big-endian.
const TIME: usize = 8;
const RANDOM: usize = 16;
/// HMAC-SHA-256.
const TAG: usize = 32;

/// The secret of a store that nonces are made and known with.
pub struct Secret(hmac::Key);

impl Secret {
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// A new secret, as a store keeps it.
    pub fn random() -> [u8; 32] {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
        bytes
    }

    /// A nonce for this key.
    pub fn make(&self, keyid: &str, now: Timestamp) -> String {
        let mut bytes = now.as_microsecond().to_be_bytes().to_vec();
        let mut random = [0; RANDOM];
        SystemRandom::new().fill(&mut random).expect("the system has random numbers");
        bytes.extend(random);
        let tag = hmac::sign(&self.0, &[bytes.as_slice(), keyid.as_bytes()].concat());
        bytes.extend(tag.as_ref());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// When this nonce was given out for this key; none if it never was.
    pub fn issued(&self, keyid: &str, nonce: &str) -> Option<Timestamp> {
        let bytes = URL_SAFE_NO_PAD.decode(nonce).ok().filter(|bytes| bytes.len() == TIME + RANDOM + TAG)?;
        let (said, tag) = bytes.split_at(TIME + RANDOM);
        hmac::verify(&self.0, &[said, keyid.as_bytes()].concat(), tag).ok()?;
        let time = said.first_chunk::<TIME>()?;
        Timestamp::from_microsecond(i64::from_be_bytes(*time)).ok()
    }

    /// What speaks against a nonce at this time. Whether it was used before is the store's to say.
    pub fn judge(&self, keyid: &str, nonce: &str, now: Timestamp, oldest: Duration) -> Option<Flag> {
        match self.issued(keyid, nonce) {
            None => Some(Flag::UnknownNonce),
            // Another collector's clock may be ahead of ours: a time to come is no age.
            Some(issued) if now.duration_since(issued).unsigned_abs() > oldest && issued < now => Some(Flag::LateNonce),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const KEY: &str = "SHA256:abc";

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_nonce_holds_for_its_key_and_its_day() {
        let secret = Secret::new(b"of the store");
        let given = time("2026-11-30T20:00:00Z");
        let nonce = secret.make(KEY, given);
        let judge = |keyid: &str, now: &str| secret.judge(keyid, &nonce, time(now), DAY);
        assert_eq!(judge(KEY, "2026-12-01T19:59:59Z"), None);
        assert_eq!(judge(KEY, "2026-12-01T20:00:01Z"), Some(Flag::LateNonce));
        assert_eq!(judge(KEY, "2026-11-28T20:00:01Z"), None, "given out by a clock that is ahead");
        assert_eq!(judge("SHA256:abd", "2026-11-30T20:00:01Z"), Some(Flag::UnknownNonce));
        assert_ne!(secret.make(KEY, given), nonce);
    }

    #[test]
    fn what_was_never_given_out_is_unknown() {
        let nonce = Secret::new(b"of another store").make(KEY, time("2026-11-30T20:00:00Z"));
        let secret = Secret::new(b"of the store");
        let ours = secret.make(KEY, time("2026-11-30T20:00:00Z"));
        let changed = format!("B{}", &ours[1..]);
        for text in ["", "x", "é", &nonce, &changed, &format!("{ours}A"), &ours[..ours.len() - 4]] {
            assert_eq!(secret.issued(KEY, text), None, "{text}");
        }
    }
}
