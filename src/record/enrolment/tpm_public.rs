//! Public areas of TPM keys (TPM 2.0 Library, Part 2, §12.2): what a key is, by its own name.
//!
//! A TPM computes the Name of an object from its public area, so a credential that is made for a Name
//! opens only where an object with these very attributes is loaded.

use super::super::keys::Algorithm;
use super::super::public_key::PublicKey;
use crate::ident::Digest;

const ALG_RSA: u16 = 0x0001;
const ALG_AES: u16 = 0x0006;
const ALG_SHA256: u16 = 0x000b;
const ALG_NULL: u16 = 0x0010;
const ALG_ECDSA: u16 = 0x0018;
const ALG_ECC: u16 = 0x0023;
const ALG_CFB: u16 = 0x0043;
const CURVE_P256: u16 = 0x0003;

/// fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, sign; nothing else, and so neither
/// restricted nor decrypt (TPMA_OBJECT, Part 2 §8.3).
pub const SIGNING_ATTRIBUTES: u32 = 0x0004_0072;
/// fixedTPM, fixedParent, sensitiveDataOrigin, restricted, decrypt: what an endorsement key must be.
const STORAGE_ATTRIBUTES: u32 = 0x0003_0032;
const ATTRIBUTE_SIGN: u32 = 0x0004_0000;

/// Bytes; an RSA 2048 area has 316.
const MAXIMUM_BYTES: usize = 1024;

/// DER of SPKI around an RSA 2048 key with exponent 65537, before and after the modulus.
const RSA_SPKI: &[u8] = &[
    0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
    0x03, 0x82, 0x01, 0x0f, 0x00, 0x30, 0x82, 0x01, 0x0a, 0x02, 0x82, 0x01, 0x01, 0x00,
];
const RSA_EXPONENT: &[u8] = &[0x02, 0x03, 0x01, 0x00, 0x01];

/// Why a public area is not that of a key we can trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TpmPublicError {
    #[error("the TPM's public area is damaged")]
    Damaged,
    #[error("the TPM key is not an ECDSA P-256 key named by SHA-256")]
    NotP256,
    #[error(
        "the TPM key has attributes {found:#010x}, expected {SIGNING_ATTRIBUTES:#010x}: it could be moved or was not made there"
    )]
    Attributes { found: u32 },
    #[error("the endorsement key is not an RSA 2048 storage key with AES-128-CFB and SHA-256")]
    NotAnEndorsementKey,
}

/// A signing key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyArea {
    pub public_key: PublicKey,
    /// The TPM's name for the object: algorithm and digest of the public area.
    pub name: Vec<u8>,
}

/// An endorsement key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndorsementArea {
    /// SubjectPublicKeyInfo, DER.
    pub spki: Vec<u8>,
}

impl KeyArea {
    /// Reads a TPM2B_PUBLIC.
    pub fn parse(bytes: &[u8]) -> Result<KeyArea, TpmPublicError> {
        let (area, header, mut rest) = opened(bytes)?;
        if (header.kind, header.name_algorithm) != (ALG_ECC, ALG_SHA256) {
            return Err(TpmPublicError::NotP256);
        }
        if header.attributes != SIGNING_ATTRIBUTES {
            return Err(TpmPublicError::Attributes { found: header.attributes });
        }
        let symmetric = number(&mut rest)?;
        let scheme_fits = match number(&mut rest)? {
            ALG_NULL => true,
            ALG_ECDSA => number(&mut rest)? == ALG_SHA256,
            _ => false,
        };
        let (curve, derivation) = (number(&mut rest)?, number(&mut rest)?);
        if symmetric != ALG_NULL || !scheme_fits || curve != CURVE_P256 || derivation != ALG_NULL {
            return Err(TpmPublicError::NotP256);
        }
        let (x, y) = (sized(&mut rest)?, sized(&mut rest)?);
        if x.len() > 32 || y.len() > 32 || !rest.is_empty() {
            return Err(TpmPublicError::Damaged);
        }
        // A coordinate may come without its leading zeros.
        let padded = |part: &[u8]| [&[0; 32][part.len()..], part].concat();
        let public_key = PublicKey::new(Algorithm::P256, &[&[4][..], &padded(x), &padded(y)].concat());
        let name = [&ALG_SHA256.to_be_bytes()[..], &Digest::of(area).0].concat();
        Ok(KeyArea { public_key, name })
    }
}

impl EndorsementArea {
    /// Reads a TPM2B_PUBLIC.
    pub fn parse(bytes: &[u8]) -> Result<EndorsementArea, TpmPublicError> {
        let (_, header, mut rest) = opened(bytes)?;
        let storage = header.attributes & (STORAGE_ATTRIBUTES | ATTRIBUTE_SIGN) == STORAGE_ATTRIBUTES;
        if (header.kind, header.name_algorithm) != (ALG_RSA, ALG_SHA256) || !storage {
            return Err(TpmPublicError::NotAnEndorsementKey);
        }
        let wanted = [ALG_AES, 128, ALG_CFB, ALG_NULL, 2048];
        for expected in wanted {
            if number(&mut rest)? != expected {
                return Err(TpmPublicError::NotAnEndorsementKey);
            }
        }
        let (exponent, after) = rest.split_at_checked(4).ok_or(TpmPublicError::Damaged)?;
        rest = after;
        let modulus = sized(&mut rest)?;
        // 0 stands for 65537. The highest bit of a 2048-bit modulus is set, hence the zero before it in DER.
        let usual = exponent == [0; 4] || exponent == [0, 1, 0, 1];
        if !usual || modulus.len() != 256 || modulus[0] < 0x80 || !rest.is_empty() {
            return Err(TpmPublicError::NotAnEndorsementKey);
        }
        Ok(EndorsementArea { spki: [RSA_SPKI, modulus, RSA_EXPONENT].concat() })
    }

    /// By which an operator approves it: SHA-256 of the SubjectPublicKeyInfo.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.spki)
    }
}

struct Header {
    kind: u16,
    name_algorithm: u16,
    attributes: u32,
}

/// The area inside a TPM2B_PUBLIC, its head, and what follows the authorisation policy.
fn opened(bytes: &[u8]) -> Result<(&[u8], Header, &[u8]), TpmPublicError> {
    let mut rest = bytes;
    let area = sized(&mut rest)?;
    if bytes.len() > MAXIMUM_BYTES || !rest.is_empty() {
        return Err(TpmPublicError::Damaged);
    }
    let mut rest = area;
    let (kind, name_algorithm) = (number(&mut rest)?, number(&mut rest)?);
    let (high, low) = (number(&mut rest)?, number(&mut rest)?);
    sized(&mut rest)?;
    Ok((area, Header { kind, name_algorithm, attributes: u32::from(high) << 16 | u32::from(low) }, rest))
}

fn number(rest: &mut &[u8]) -> Result<u16, TpmPublicError> {
    let (number, after) = rest.split_first_chunk::<2>().ok_or(TpmPublicError::Damaged)?;
    *rest = after;
    Ok(u16::from_be_bytes(*number))
}

fn sized<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], TpmPublicError> {
    let length = usize::from(number(rest)?);
    let (part, after) = rest.split_at_checked(length).ok_or(TpmPublicError::Damaged)?;
    *rest = after;
    Ok(part)
}

#[cfg(test)]
pub(in super::super) mod tests {
    use super::*;
    use crate::record::HostKey;

    /// The area that tpm2-tools make, for this point.
    pub fn key_area(attributes: u32, point: &[u8]) -> Vec<u8> {
        let mut area = vec![0x00, 0x23, 0x00, 0x0b];
        area.extend(attributes.to_be_bytes());
        area.extend([0, 0, 0x00, 0x10, 0x00, 0x18, 0x00, 0x0b, 0x00, 0x03, 0x00, 0x10]);
        for part in [&point[1..33], &point[33..]] {
            area.extend([0, 32]);
            area.extend(part);
        }
        [&u16::try_from(area.len()).unwrap().to_be_bytes()[..], &area].concat()
    }

    /// The default endorsement key's area around a modulus.
    pub fn endorsement_area(modulus: &[u8]) -> Vec<u8> {
        let mut area = vec![0, 1, 0, 0x0b, 0, 3, 0, 0xb2, 0, 32];
        area.extend([7; 32]);
        area.extend([0, 6, 0, 0x80, 0, 0x43, 0, 0x10, 8, 0, 0, 0, 0, 0, 1, 0]);
        area.extend(modulus);
        [&u16::try_from(area.len()).unwrap().to_be_bytes()[..], &area].concat()
    }

    fn point() -> Vec<u8> {
        HostKey::generate(Algorithm::P256).public_key().point().to_vec()
    }

    #[test]
    fn a_signing_key_that_cannot_leave_is_read_with_its_name() {
        let point = point();
        let bytes = key_area(SIGNING_ATTRIBUTES, &point);
        let area = KeyArea::parse(&bytes).unwrap();
        assert_eq!(area.public_key.point(), point);
        assert_eq!(area.name, [&[0, 0x0b][..], &Digest::of(&bytes[2..]).0].concat());
    }

    #[test]
    fn a_key_that_could_be_moved_imported_or_decrypt_is_refused() {
        let point = point();
        for bit in 0..32 {
            let attributes = SIGNING_ATTRIBUTES ^ (1 << bit);
            let error = KeyArea::parse(&key_area(attributes, &point)).unwrap_err();
            assert_eq!(error, TpmPublicError::Attributes { found: attributes });
        }
    }

    #[test]
    fn damaged_areas_are_refused_and_break_nothing() {
        let whole = key_area(SIGNING_ATTRIBUTES, &point());
        let endorsement = endorsement_area(&[0xc1; 256]);
        for length in 0..whole.len() {
            assert!(KeyArea::parse(&whole[..length]).is_err());
        }
        for length in 0..endorsement.len() {
            assert!(EndorsementArea::parse(&endorsement[..length]).is_err());
        }
        assert!(KeyArea::parse(&[&whole[..], &[0]].concat()).is_err());
        assert!(KeyArea::parse(&endorsement).is_err() && EndorsementArea::parse(&whole).is_err());
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 0x55;
            drop(KeyArea::parse(&other));
        }
    }

    #[test]
    fn an_endorsement_key_must_be_a_storage_key() {
        let bytes = endorsement_area(&[0xc1; 256]);
        let area = EndorsementArea::parse(&bytes).unwrap();
        assert_eq!(area.spki.len(), 294);
        for (at, bit) in [(7, 0x01), (7, 0x02), (9, 0x10), (9, 0x02)] {
            let mut other = bytes.clone();
            other[at] ^= bit;
            if other[6..10] != bytes[6..10] {
                let sign_or_less = EndorsementArea::parse(&other);
                assert!(sign_or_less.is_err() || other[7] & 0x04 == 0 && sign_or_less.is_ok(), "{at} {bit}");
            }
        }
    }
}
