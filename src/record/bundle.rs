//! The same envelope inside a Sigstore bundle v0.3, for cosign and Sigstore's libraries.
//!
//! Source: sigstore/protobuf-specs, `sigstore_bundle.proto`. Nothing unknown may stand at the
//! top level (sigstore-go refuses it), and `tlogEntries` must be there, though empty
//! (sigstore-python asks for it).

use serde::{Deserialize, Serialize};

use super::dsse::Envelope;

pub const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    pub media_type: String,
    pub verification_material: Material,
    pub dsse_envelope: Envelope,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Material {
    pub public_key: Hint,
    #[serde(default)]
    pub tlog_entries: Vec<serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// The same text as the envelope's `keyid`.
    pub hint: String,
}

impl Bundle {
    /// The bundle of an envelope with exactly one signature, as ours have.
    pub fn of(envelope: &Envelope) -> Bundle {
        let hint = envelope.signatures.first().map_or_else(String::new, |signature| signature.keyid.clone());
        Bundle {
            media_type: MEDIA_TYPE.to_owned(),
            verification_material: Material { public_key: Hint { hint }, tlog_entries: Vec::new() },
            dsse_envelope: envelope.clone(),
        }
    }

    /// The bundle as a file holds it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).expect("a bundle of strings is JSON");
        json.push(b'\n');
        json
    }
}
