//! Verification by our own code: what is accepted, and the right error for what is not.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use nodegate::record::{Algorithm, HostKey, PublicKey, Unsigned, VerifyError, bundle::Bundle, verify};
use serde_json::{Value, json};

use super::sample;

fn signed(algorithm: Algorithm) -> (Value, PublicKey) {
    let key = HostKey::generate(algorithm);
    let Unsigned::Live(live) = Unsigned::new(sample::details(), &sample::documents()).unwrap() else {
        panic!("the sample is a live run")
    };
    (serde_json::from_slice(&key.sign(&live).unwrap().to_json()).unwrap(), key.public_key().clone())
}

fn check(envelope: &Value, key: &PublicKey) -> Result<nodegate::record::Verified, VerifyError> {
    verify(envelope.to_string().as_bytes(), std::slice::from_ref(key))
}

fn changed(envelope: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut envelope = envelope.clone();
    change(&mut envelope);
    envelope
}

#[test]
fn a_record_verifies_as_envelope_and_as_bundle_with_either_kind_of_key() {
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let (envelope, key) = signed(algorithm);
        let verified = check(&envelope, &key).unwrap();
        assert_eq!(verified.keyid, key.keyid());
        assert_eq!(verified.host, sample::documents().host.digest());
        let bundle = Bundle::of(&serde_json::from_value(envelope).unwrap());
        assert_eq!(verify(&bundle.to_json(), &[key]).unwrap(), verified);
    }
}

#[test]
fn the_envelope_is_as_every_known_verifier_wants_it() {
    let (envelope, key) = signed(Algorithm::Ed25519);
    assert_eq!(envelope["payloadType"], "application/vnd.in-toto+json");
    assert_eq!(envelope["signatures"][0]["keyid"], key.keyid());
    assert!(key.keyid().starts_with("SHA256:") && !key.keyid().ends_with('='));
    for text in [&envelope["payload"], &envelope["signatures"][0]["sig"]] {
        let text = text.as_str().unwrap();
        assert_eq!(STANDARD.encode(STANDARD.decode(text).unwrap()), text);
    }
    let bundle: Value =
        serde_json::from_slice(&Bundle::of(&serde_json::from_value(envelope.clone()).unwrap()).to_json()).unwrap();
    assert_eq!(
        bundle,
        json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": key.keyid()}, "tlogEntries": []},
            "dsseEnvelope": envelope,
        })
    );
}

#[test]
fn the_key_id_is_one_that_no_go_verifier_computes_itself() {
    // Seen with go-securesystemslib 8b6ec9c, as cosign uses it: a key id that is the hex SHA-256 of
    // the SPKI is refused ("accepted signatures do not match threshold"), a fingerprint is not.
    let (envelope, _) = signed(Algorithm::P256);
    let keyid = envelope["signatures"][0]["keyid"].as_str().unwrap();
    assert!(!(keyid.len() == 64 && keyid.bytes().all(|byte| byte.is_ascii_hexdigit())), "{keyid}");
}

#[test]
fn an_ecdsa_signature_is_asn1_der() {
    let (envelope, _) = signed(Algorithm::P256);
    let signature = STANDARD.decode(envelope["signatures"][0]["sig"].as_str().unwrap()).unwrap();
    assert_eq!((signature[0], usize::from(signature[1])), (0x30, signature.len() - 2));
}

#[test]
fn url_safe_base64_is_accepted_on_input() {
    let (envelope, key) = signed(Algorithm::Ed25519);
    for engine in [URL_SAFE, URL_SAFE_NO_PAD] {
        let recoded = changed(&envelope, |envelope| {
            let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
            envelope["payload"] = json!(engine.encode(payload));
        });
        assert!(check(&recoded, &key).is_ok());
    }
}

#[test]
fn any_changed_byte_of_the_payload_is_found() {
    let (envelope, key) = signed(Algorithm::Ed25519);
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    for at in (0..payload.len()).step_by(97) {
        let mut payload = payload.clone();
        payload[at] ^= 1;
        let forged = changed(&envelope, |envelope| envelope["payload"] = json!(STANDARD.encode(&payload)));
        assert!(matches!(check(&forged, &key), Err(VerifyError::BadSignature { .. })), "byte {at}");
    }
}

#[test]
fn another_key_is_not_the_signer_even_under_the_same_name() {
    let (envelope, _) = signed(Algorithm::Ed25519);
    let (_, other) = signed(Algorithm::Ed25519);
    assert!(matches!(check(&envelope, &other), Err(VerifyError::UnknownSigner { .. })));
    let renamed = changed(&envelope, |envelope| envelope["signatures"][0]["keyid"] = json!(other.keyid()));
    assert!(matches!(check(&renamed, &other), Err(VerifyError::BadSignature { .. })));
}

#[test]
fn the_key_id_is_a_hint_and_decides_nothing() {
    let (envelope, key) = signed(Algorithm::Ed25519);
    for keyid in [json!(""), json!("somebody"), json!(signed(Algorithm::P256).1.keyid())] {
        let renamed = changed(&envelope, |envelope| envelope["signatures"][0]["keyid"] = keyid);
        assert_eq!(check(&renamed, &key).unwrap().keyid, key.keyid());
    }
    let without = changed(&envelope, |envelope| {
        envelope["signatures"][0].as_object_mut().unwrap().remove("keyid");
    });
    assert!(check(&without, &key).is_ok());
}

#[test]
fn one_known_signature_among_others_is_enough_and_a_flood_of_them_is_refused() {
    let (envelope, key) = signed(Algorithm::Ed25519);
    let (foreign, _) = signed(Algorithm::P256);
    let countersigned = changed(&envelope, |envelope| {
        envelope["signatures"].as_array_mut().unwrap().insert(0, foreign["signatures"][0].clone());
    });
    assert_eq!(check(&countersigned, &key).unwrap().keyid, key.keyid());
    let flood = changed(&envelope, |envelope| {
        envelope["signatures"] = json!(vec![envelope["signatures"][0].clone(); 1000]);
    });
    assert!(matches!(check(&flood, &key), Err(VerifyError::TooManySignatures { found: 1000 })));
    let unsigned = changed(&envelope, |envelope| envelope["signatures"] = json!([]));
    assert!(matches!(check(&unsigned, &key), Err(VerifyError::Unsigned)));
    assert!(matches!(verify(envelope.to_string().as_bytes(), &[]), Err(VerifyError::NoKeys)));
}

#[test]
fn malformed_input_gets_the_error_that_names_what_is_wrong() {
    let (envelope, key) = signed(Algorithm::Ed25519);
    let text = envelope.to_string();
    let fails = |bytes: &[u8]| verify(bytes, std::slice::from_ref(&key)).unwrap_err();

    assert!(matches!(fails(&text.as_bytes()[..text.len() / 2]), VerifyError::Json { .. }));
    assert!(matches!(fails(b"not json"), VerifyError::Json { .. }));
    assert!(matches!(fails(b"{}"), VerifyError::Shape(_)));
    assert!(matches!(fails(b"[]"), VerifyError::Shape(_)));
    assert!(matches!(fails(&vec![b' '; 1024 * 1024 + 1]), VerifyError::TooLarge { bytes: 1_048_577 }));
    let twice = text.replacen('{', r#"{"payload":"AAAA","#, 1);
    assert!(matches!(fails(twice.as_bytes()), VerifyError::Json { .. }));

    let field = |pointer: &str, value: Value| {
        check(&changed(&envelope, |envelope| *envelope.pointer_mut(pointer).unwrap() = value), &key).unwrap_err()
    };
    assert!(matches!(field("/payload", json!("%%%")), VerifyError::Base64 { field: "payload", .. }));
    assert!(matches!(field("/signatures/0/sig", json!("A")), VerifyError::Base64 { field: "signature", .. }));
    assert!(matches!(field("/payload", json!(7)), VerifyError::Shape(_)));
    let hostile = field("/payloadType", json!("text/plain\u{1b}[31m"));
    assert!(matches!(&hostile, VerifyError::PayloadType { .. }));
    assert!(!hostile.to_string().contains('\u{1b}'));
}

#[test]
fn a_bundle_of_another_kind_is_refused_by_what_it_is() {
    let (envelope, key) = signed(Algorithm::Ed25519);
    let bundle: Value =
        serde_json::from_slice(&Bundle::of(&serde_json::from_value(envelope).unwrap()).to_json()).unwrap();
    let refused = |change: &dyn Fn(&mut Value)| match check(&changed(&bundle, change), &key) {
        Err(VerifyError::Shape(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(
        refused(&|it| it["mediaType"] = json!("application/vnd.dev.sigstore.bundle+json;version=0.2")).contains("0.2")
    );
    assert!(
        refused(&|it| it["verificationMaterial"] = json!({"certificate": {"rawBytes": "AA=="}}))
            .contains("certificate")
    );
    assert!(refused(&|it| it["verificationMaterial"]["publicKey"]["hint"] = json!("x")).contains("hint"));
    assert!(
        refused(&|it| {
            let signature = it["dsseEnvelope"]["signatures"][0].clone();
            it["dsseEnvelope"]["signatures"].as_array_mut().unwrap().push(signature);
        })
        .contains("exactly one")
    );
}
