//! Signatures of `ssh-keygen -Y sign` (OpenSSH `PROTOCOL.sshsig`), by Ed25519 and ECDSA P-256 keys.

use super::super::keys::Algorithm;
use super::super::public_key::{PublicKey, from_pem, openssh_fields};
use crate::ident::printable;

/// What an enrolment is signed for. A signature for anything else is none.
pub const NAMESPACE: &str = "nodegate-enrol";

const LABEL: &str = "SSH SIGNATURE";
const MAGIC: &[u8] = b"SSHSIG";
const VERSION: &[u8] = &[0, 0, 0, 1];
/// Characters; a signature of ours has some 300.
const MAXIMUM: usize = 8 * 1024;

/// Why a text is no such signature of this key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshSignatureError {
    #[error("not an SSH signature (BEGIN SSH SIGNATURE)")]
    Form,
    #[error("the SSH signature is damaged")]
    Damaged,
    #[error("the SSH signature is for `{0}`, expected `{NAMESPACE}`")]
    Namespace(String),
    #[error("SSH signature of kind `{0}`: use an Ed25519 or ECDSA P-256 host key")]
    Kind(String),
    #[error("the SSH signature does not fit what was sent")]
    Wrong,
}

/// The key that signed this message for [`NAMESPACE`]. Whether it is to be trusted is the caller's.
pub fn signer(armour: &str, message: &[u8]) -> Result<PublicKey, SshSignatureError> {
    if armour.len() > MAXIMUM {
        return Err(SshSignatureError::Form);
    }
    let blob = from_pem(armour, LABEL).ok_or(SshSignatureError::Form)?;
    let rest = blob.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(VERSION));
    let fields = rest.and_then(openssh_fields).ok_or(SshSignatureError::Damaged)?;
    let [key, namespace, reserved, hash, signature] = fields[..] else { return Err(SshSignatureError::Damaged) };
    if namespace != NAMESPACE.as_bytes() {
        return Err(SshSignatureError::Namespace(text(namespace)));
    }
    let digest = match hash {
        b"sha256" => &aws_lc_rs::digest::SHA256,
        b"sha512" => &aws_lc_rs::digest::SHA512,
        other => return Err(SshSignatureError::Kind(text(other))),
    };
    let key = PublicKey::from_openssh_blob(key).ok_or_else(|| SshSignatureError::Kind(kind(key)))?;
    let mut signed = MAGIC.to_vec();
    for field in [namespace, reserved, hash, aws_lc_rs::digest::digest(digest, message).as_ref()] {
        signed.extend_from_slice(&u32::try_from(field.len()).map_err(|_| SshSignatureError::Damaged)?.to_be_bytes());
        signed.extend_from_slice(field);
    }
    let signature = plain(&key, signature).ok_or(SshSignatureError::Damaged)?;
    if key.verifies(&signed, &signature) { Ok(key) } else { Err(SshSignatureError::Wrong) }
}

/// The signature as [`PublicKey::verifies`] takes it.
fn plain(key: &PublicKey, signature: &[u8]) -> Option<Vec<u8>> {
    match (key.algorithm(), &openssh_fields(signature)?[..]) {
        (Algorithm::Ed25519, [b"ssh-ed25519", signature]) => Some(signature.to_vec()),
        (Algorithm::P256, [b"ecdsa-sha2-nistp256", pair]) => {
            let fields = openssh_fields(pair)?;
            let [r, s] = fields[..] else { return None };
            der(r, s)
        }
        _ => None,
    }
}

/// Two numbers as DER; SSH writes them as DER does, in as few bytes as hold them with their sign.
fn der(r: &[u8], s: &[u8]) -> Option<Vec<u8>> {
    let integer = |number: &[u8]| {
        let length = u8::try_from(number.len()).ok().filter(|length| (1..=33).contains(length))?;
        Some([&[0x02, length][..], number].concat())
    };
    let body = [integer(r)?, integer(s)?].concat();
    Some([&[0x30, u8::try_from(body.len()).ok()?][..], &body].concat())
}

fn kind(key: &[u8]) -> String {
    openssh_fields(key).and_then(|fields| fields.first().map(|kind| text(kind))).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes), 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by `ssh-keygen -Y sign -n nodegate-enrol` of OpenSSH 9.2 over the four bytes `abc\n`.
    const ED25519: &str = include_str!("../../../tests/enrolment/ed25519.sshsig");
    const P256: &str = include_str!("../../../tests/enrolment/p256.sshsig");
    const OTHER_NAMESPACE: &str = include_str!("../../../tests/enrolment/other.sshsig");

    #[test]
    fn signatures_of_openssh_give_their_key() {
        assert_eq!(signer(ED25519, b"abc\n").unwrap().algorithm(), Algorithm::Ed25519);
        assert_eq!(signer(P256, b"abc\n").unwrap().algorithm(), Algorithm::P256);
    }

    #[test]
    fn a_signature_over_anything_else_is_none() {
        assert_eq!(signer(ED25519, b"abd\n").unwrap_err(), SshSignatureError::Wrong);
        assert_eq!(signer(P256, b"").unwrap_err(), SshSignatureError::Wrong);
        assert_eq!(signer(OTHER_NAMESPACE, b"abc\n").unwrap_err(), SshSignatureError::Namespace("file".to_owned()));
        assert_eq!(signer("", b"abc\n").unwrap_err(), SshSignatureError::Form);
    }

    #[test]
    fn a_changed_or_cut_signature_is_refused_and_breaks_nothing() {
        for armour in [ED25519, P256] {
            let blob = from_pem(armour, LABEL).unwrap();
            for at in 0..blob.len() {
                let cut = super::super::super::public_key::to_pem(&blob[..at], LABEL);
                assert!(signer(&cut, b"abc\n").is_err(), "{at}");
                let mut changed = blob.clone();
                changed[at] ^= 1;
                let changed = super::super::super::public_key::to_pem(&changed, LABEL);
                assert!(signer(&changed, b"abc\n").is_err(), "{at}");
            }
        }
    }
}
