//! The endorsement key in the forms in which an operator has it: a certificate out of the TPM's NV
//! memory or its maker's list, a PEM key, tpm2-tools' own file, or the digest alone.

use super::super::public_key::{from_pem, to_pem};
use super::tpm_public::EndorsementArea;
use crate::ident::Digest;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// SHA-256 of the SubjectPublicKeyInfo in this file; none where there is none.
pub fn digest_of(bytes: &[u8]) -> Option<Digest> {
    if let Ok(area) = EndorsementArea::parse(bytes) {
        return Some(area.digest());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some(spki) = from_pem(text, "PUBLIC KEY") {
            return is_spki(&spki).then(|| Digest::of(&spki));
        }
        if let Some(certificate) = from_pem(text, "CERTIFICATE") {
            return spki_of(&certificate).map(Digest::of);
        }
        return text.trim().parse().ok();
    }
    spki_of(bytes).map(Digest::of)
}

/// The key as PEM, for an operator's list.
pub fn pem(area: &EndorsementArea) -> String {
    format!("endorsement key {}\n{}", area.digest(), to_pem(&area.spki, "PUBLIC KEY"))
}

/// The SubjectPublicKeyInfo of a certificate (RFC 5280 §4.1): the sixth part of what is signed, after
/// an optional version.
fn spki_of(certificate: &[u8]) -> Option<&[u8]> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(content(certificate)?)? else { return None };
    rest = content(rest)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _serial_algorithm_issuer_validity_subject in 0..5 {
        rest = element(rest)?.2;
    }
    let (SEQUENCE, spki, _) = element(rest)? else { return None };
    is_spki(spki).then_some(spki)
}

fn is_spki(der: &[u8]) -> bool {
    matches!(element(der), Some((SEQUENCE, whole, [])) if content(whole).and_then(element).is_some_and(|(tag, ..)| tag == SEQUENCE))
}

/// The first element: its tag, all of it, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, length) = head(der)?;
    let (whole, rest) = der.split_at_checked(head.checked_add(length)?)?;
    Some((der[0], whole, rest))
}

fn content(element: &[u8]) -> Option<&[u8]> {
    element.get(head(element)?.0..)
}

/// Bytes of tag and length, and the length of the content.
fn head(der: &[u8]) -> Option<(usize, usize)> {
    match *der.get(1)? {
        short @ 0..=0x7f => Some((2, usize::from(short))),
        long @ 0x81..=0x83 => {
            let count = usize::from(long & 0x7f);
            let length = der.get(2..2 + count)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            Some((2 + count, length))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tpm_public::tests::endorsement_area;
    use super::*;

    #[test]
    fn every_form_of_one_key_has_one_digest() {
        let bytes = endorsement_area(&[0xc1; 256]);
        let area = EndorsementArea::parse(&bytes).unwrap();
        let digest = area.digest();
        for form in [&bytes[..], pem(&area).as_bytes(), format!(" {digest}\n").as_bytes()] {
            assert_eq!(digest_of(form), Some(digest));
        }
    }

    #[test]
    fn a_certificate_gives_its_key_and_what_is_cut_gives_none() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["ek".to_owned()]).unwrap().self_signed(&key).unwrap();
        let spki = Digest::of(&rcgen::PublicKeyData::subject_public_key_info(&key));
        assert_eq!(digest_of(certificate.der()), Some(spki));
        assert_eq!(digest_of(certificate.pem().as_bytes()), Some(spki));
        let der = certificate.der();
        for length in 0..der.len() - 1 {
            let found = digest_of(&der[..length]);
            assert!(found.is_none(), "{length}");
        }
        assert_eq!(digest_of(b"sha256:abc"), None);
        assert_eq!(digest_of(b""), None);
    }
}
