//! A credential that only one TPM can open, and only for one key in it (TPM2_MakeCredential; TPM 2.0
//! Library, Part 1 §24 and Annex B.10.4).
//!
//! The secret is encrypted to the endorsement key and bound to the Name of the signing key: the TPM
//! that holds the endorsement key gives it out only where an object of that Name is loaded.

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPublicEncryptingKey, PublicEncryptingKey};
use serde::{Deserialize, Serialize};

use super::tpm_public::EndorsementArea;
use crate::isolate::Bytes;

/// Bytes of the secret and of the seed: those of the endorsement key's name algorithm, SHA-256.
const SECRET: usize = 32;

/// What `tpm2_activatecredential` takes, and the first answer of an enrolment with a TPM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// TPM2B_ID_OBJECT.
    pub credential_blob: Bytes,
    /// TPM2B_ENCRYPTED_SECRET.
    pub encrypted_secret: Bytes,
}

/// Makes a credential for the key of this Name in the TPM of this endorsement key.
///
/// # Errors
///
/// Where the endorsement key is not an RSA key that can encrypt, or random numbers are gone.
pub fn make(endorsement: &EndorsementArea, name: &[u8], secret: &[u8; SECRET]) -> Result<Credential, Unspecified> {
    let mut seed = [0; SECRET];
    aws_lc_rs::rand::fill(&mut seed)?;
    let key = PublicEncryptingKey::from_der(&endorsement.spki).map_err(|_| Unspecified)?;
    let key = OaepPublicEncryptingKey::new(key)?;
    let mut encrypted_seed = vec![0; key.ciphertext_size()];
    key.encrypt(&OAEP_SHA256_MGF1SHA256, &seed, &mut encrypted_seed, Some(b"IDENTITY\0"))?;

    let mut identity = sized(secret);
    let cipher = UnboundCipherKey::new(&AES_128, &derive(&seed, b"STORAGE", name, 128)[..16])?;
    EncryptingKey::cfb128(cipher)?.less_safe_encrypt(&mut identity, EncryptionContext::Iv128((&[0; 16]).into()))?;

    let integrity = hmac::Key::new(hmac::HMAC_SHA256, &derive(&seed, b"INTEGRITY", &[], 256));
    let tag = hmac::sign(&integrity, &[&identity, name].concat());
    let blob = [sized(tag.as_ref()), identity].concat();
    Ok(Credential { credential_blob: Bytes(sized(&blob)), encrypted_secret: Bytes(sized(&encrypted_seed)) })
}

/// KDFa with SHA-256 (Part 1 §11.4.10.2), for at most one block. The second context is empty here.
fn derive(seed: &[u8], label: &[u8], context: &[u8], bits: u32) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, seed);
    let block = [&1u32.to_be_bytes()[..], label, &[0], context, &bits.to_be_bytes()].concat();
    hmac::sign(&key, &block).as_ref().to_vec()
}

/// A TPM2B: the bytes with their length before them.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a credential has some hundred bytes");
    [&length.to_be_bytes()[..], bytes].concat()
}
