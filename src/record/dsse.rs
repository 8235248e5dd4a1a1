//! The DSSE envelope, version 1.0.2 (secure-systems-lab/dsse): the one form that we sign.
//!
//! The signature covers the raw payload bytes, so nothing here depends on how JSON is
//! written; what was verified is parsed, never a second reading of it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

/// The only payload type that Go's and Sigstore's in-toto readers take.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// An envelope or bundle larger than this is refused before it is parsed.
pub const MAXIMUM_BYTES: usize = 1024 * 1024;

/// An envelope. Values are standard padded base64 when we write them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    pub payload: String,
    pub payload_type: String,
    pub signatures: Vec<Signature>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// A hint, not authenticated: no decision may rest on it.
    #[serde(default)]
    pub keyid: String,
    pub sig: String,
}

impl Envelope {
    /// The envelope as a file holds it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).expect("an envelope of strings is JSON");
        json.push(b'\n');
        json
    }
}

/// The bytes that are signed: `DSSEv1 LEN type LEN body`.
pub fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    [preamble(payload_type, payload.len()).as_bytes(), payload].concat()
}

/// The same of a payload in base64, decoded in its place, and where in it the payload begins.
pub fn encode_for_verification(payload_type: &str, base64: &str) -> Result<(Vec<u8>, usize), base64::DecodeError> {
    let digits = base64.trim_end_matches('=').len();
    let before = preamble(payload_type, digits * 3 / 4);
    let mut encoding = Vec::with_capacity(before.len() + digits * 3 / 4 + 3);
    encoding.extend_from_slice(before.as_bytes());
    if STANDARD.decode_vec(base64, &mut encoding).is_ok() && encoding.len() == before.len() + digits * 3 / 4 {
        return Ok((encoding, before.len()));
    }
    let payload = decode_base64(base64)?;
    let before = preamble(payload_type, payload.len());
    Ok(([before.as_bytes(), &payload].concat(), before.len()))
}

fn preamble(payload_type: &str, length: usize) -> String {
    format!("DSSEv1 {} {payload_type} {length} ", payload_type.len())
}

const TOLERANT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, TOLERANT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, TOLERANT);

/// Standard or URL-safe base64, padded or not, as DSSE asks of a verifier. One text keeps to
/// one alphabet.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    match STANDARD.decode(text) {
        Err(_) if text.contains(['-', '_']) => URL_SAFE.decode(text),
        decoded => decoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_the_one_of_the_specification() {
        // The example of secure-systems-lab/dsse, protocol.md.
        let encoding = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world");
        assert_eq!(encoding, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }

    #[test]
    fn a_payload_is_decoded_into_its_encoding_as_if_it_were_decoded_first() {
        for text in ["", "aGVsbG8gd29ybGQ=", "aGVsbG8gd29ybGQ", "+/8=", "-_8=", "-_8", "aGVsbG8"] {
            let (encoding, begin) = encode_for_verification("t", text).unwrap();
            let payload = decode_base64(text).unwrap();
            assert_eq!((&encoding[begin..], &encoding), (&payload[..], &pre_authentication_encoding("t", &payload)));
        }
        for text in ["+_8=", "a", "a===", "aGVsbG8=\n", "é"] {
            assert!(encode_for_verification("t", text).is_err(), "{text}");
        }
    }

    #[test]
    fn base64_reads_both_alphabets_with_and_without_padding_and_never_a_mixture() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(decode_base64(text).unwrap(), [0xfb, 0xff], "{text}");
        }
        for text in ["+_8=", "+/8==", "+", "+/9=", "+/ 8=", "+/8=\n", "é"] {
            assert!(decode_base64(text).is_err(), "{text}");
        }
    }
}
