//! How to verify a record oneself: the files, and the commands with this record's names filled in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::ident::Digest;

/// What signed the record and what it is called. All of it comes from the verification, not from
/// the record's own words.
#[derive(Clone, Debug)]
pub struct Signed {
    /// `SHA256:…` of the key that verified.
    pub keyid: String,
    /// ECDSA P-256; otherwise Ed25519.
    pub p256: bool,
    /// SPKI PEM.
    pub public_key: Option<String>,
    /// SHA-256 of the payload, of `host.json` and of `node.json`.
    pub payload: Digest,
    pub host: Digest,
    pub node: Digest,
    /// The record came as a Sigstore bundle; otherwise as an envelope.
    pub bundle: bool,
    /// The files of the record that the reader can have from here.
    pub files: Vec<File>,
}

/// One file beside the record.
#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub what: &'static str,
    pub place: Where,
}

/// Where a file is to be had.
#[derive(Clone, Debug)]
pub enum Where {
    /// In the page itself.
    Here { media_type: &'static str, bytes: Vec<u8> },
    /// At an address of the same server.
    Link(String),
}

impl File {
    /// The link's address.
    pub fn href(&self) -> String {
        match &self.place {
            Where::Here { media_type, bytes } => format!("data:{media_type};base64,{}", STANDARD.encode(bytes)),
            Where::Link(address) => address.clone(),
        }
    }

    /// `12 kB`, of a file that is in the page.
    pub fn size(&self) -> Option<String> {
        match &self.place {
            Where::Here { bytes, .. } => Some(format!("{} kB", bytes.len().div_ceil(1000))),
            Where::Link(_) => None,
        }
    }
}

/// The names that the commands use. A run id is the host's word: into a command goes only one that
/// is a plain UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    pub record: String,
    pub bundle: String,
    pub key: String,
    /// The document that cosign wants, if the reader can have it from here.
    pub node: Option<String>,
    pub node_digest: String,
    pub payload_digest: String,
    pub p256: bool,
    /// The record is to be had as a bundle alone.
    pub from_bundle: bool,
    /// The bundle must be made from the record first.
    pub make_bundle: bool,
}

/// What stands for a run id that cannot stand in a command.
const PLACEHOLDER: &str = "RUN";

impl Commands {
    pub fn of(run_id: &str, simulated: bool, signed: &Signed) -> Commands {
        let run = stem(run_id);
        let has = |name: &str| signed.files.iter().any(|file| file.name == name);
        let (bundle, node) = (format!("{run}.sigstore.json"), format!("{run}.node.json"));
        Commands {
            record: format!("{run}.json"),
            key: if simulated { format!("{run}.pub") } else { "node.pub".to_owned() },
            node: has(&node).then_some(node),
            node_digest: signed.node.hex(),
            payload_digest: signed.payload.hex(),
            p256: signed.p256,
            from_bundle: signed.bundle,
            make_bundle: !signed.bundle && !has(&bundle),
            bundle,
        }
    }
}

/// The beginning of a record's file names.
pub fn stem(run_id: &str) -> String {
    let plain = run_id.len() == 36 && uuid::Uuid::parse_str(run_id).is_ok();
    if plain { run_id.to_owned() } else { PLACEHOLDER.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_that_is_no_uuid_never_stands_in_a_command() {
        assert_eq!(stem("0193a5d0-0000-7000-8000-000000000001"), "0193a5d0-0000-7000-8000-000000000001");
        for hostile in ["$(reboot)", "", "{0193a5d0-0000-7000-8000-00000000000}", "../../etc/passwd", "a b"] {
            assert_eq!(stem(hostile), "RUN", "{hostile}");
        }
    }
}
