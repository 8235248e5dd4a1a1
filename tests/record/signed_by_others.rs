//! Records that were not made by us but are validly signed: by openssl, with a key of ours.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate::record::{Algorithm, HostKey, Unsigned, VerifyError, dsse, verify};
use serde_json::{Value, json};

use super::{sample, tools};

/// Signs this payload with openssl and gives what our verification says.
fn verdict(payload: &[u8]) -> Result<nodegate::record::Verified, VerifyError> {
    let folder = tempfile::tempdir().unwrap();
    let key = HostKey::generate(Algorithm::Ed25519);
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("key.pem"), key.to_pem()).unwrap();
    std::fs::write(path("pae"), dsse::pre_authentication_encoding(dsse::PAYLOAD_TYPE, payload)).unwrap();
    let arg = |path: &Path| path.to_str().unwrap().to_owned();
    let (key_path, pae, sig) = (arg(&path("key.pem")), arg(&path("pae")), arg(&path("sig")));
    tools::succeeds("openssl", &["pkeyutl", "-sign", "-rawin", "-inkey", &key_path, "-in", &pae, "-out", &sig]);
    let envelope = json!({
        "payload": STANDARD.encode(payload),
        "payloadType": dsse::PAYLOAD_TYPE,
        "signatures": [{"keyid": key.public_key().keyid(), "sig": STANDARD.encode(std::fs::read(sig).unwrap())}],
    });
    verify(envelope.to_string().as_bytes(), &[key.public_key().clone()])
}

fn payload() -> Value {
    let unsigned = Unsigned::new(sample::details(), &sample::documents()).unwrap();
    serde_json::from_slice(unsigned.payload()).unwrap()
}

fn verdict_on(pointer: &str, value: Value) -> VerifyError {
    let mut payload = payload();
    *payload.pointer_mut(pointer).unwrap() = value;
    verdict(payload.to_string().as_bytes()).unwrap_err()
}

#[test]
fn a_signature_by_openssl_verifies() {
    assert!(verdict(payload().to_string().as_bytes()).is_ok());
}

#[test]
fn a_valid_signature_does_not_make_a_record_of_something_else() {
    assert!(matches!(verdict(b"hello"), Err(VerifyError::Json { what: "the signed payload", .. })));
    let twice = payload().to_string().replacen('{', r#"{"_type":"x","#, 1);
    assert!(matches!(verdict(twice.as_bytes()), Err(VerifyError::Json { .. })));
    let other = verdict_on("/predicateType", json!("https://slsa.dev/provenance/v1"));
    assert!(other.to_string().contains("slsa.dev"), "{other}");
    assert!(matches!(verdict_on("/_type", json!("https://in-toto.io/Statement/v0.1")), VerifyError::NotARecord(_)));
    assert!(matches!(verdict_on("/subject", json!([])), VerifyError::NotARecord(_)));
    assert!(matches!(verdict_on("/predicate/nodegate/decision", json!("fine")), VerifyError::NotARecord(_)));
}

#[test]
fn a_subject_that_stands_there_twice_is_refused() {
    let mut payload = payload();
    let again = payload["subject"][0].clone();
    payload["subject"].as_array_mut().unwrap().push(again);
    let error = verdict(payload.to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("subject `host.json` twice"), "{error}");
}

#[test]
fn a_result_that_contradicts_the_decision_is_no_record() {
    let error = verdict_on("/predicate/nodegate/decision", json!("rejected"));
    assert!(error.to_string().contains("contradict"), "{error}");
    assert!(matches!(verdict_on("/predicate/result", json!("FAILED")), VerifyError::NotARecord(_)));
}

#[test]
fn a_newer_schema_is_refused_by_its_number() {
    let error = verdict_on("/predicate/nodegate/schema", json!(2));
    assert!(error.to_string().contains("schema 2"), "{error}");
}
