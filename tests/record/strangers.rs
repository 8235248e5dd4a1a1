//! The record verifies with tools that we did not write, and fails in each after one changed byte.

use std::path::{Path, PathBuf};
use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate::record::{Algorithm, HostKey, Store, Stored, bundle::Bundle, dsse};
use serde_json::{Value, json};

use super::{sample, tools};

/// A kept record with its public key, as files for other tools.
struct Case {
    folder: tempfile::TempDir,
    stored: Stored,
}

impl Case {
    fn new(algorithm: Algorithm) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let documents = sample::documents();
        let store = Store::for_host_with(&folder.path().join("state"), &documents.host, algorithm).unwrap();
        let stored = store.commit(sample::details(), &documents).unwrap();
        Case { folder, stored }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn public_key(&self) -> String {
        self.file("key.pub", self.stored.public_key.to_pem().as_bytes())
    }

    fn envelope(&self) -> Value {
        serde_json::from_slice(&self.stored.envelope).unwrap()
    }

    /// The envelope with one byte of its payload changed, the first of `Ubuntu`.
    fn forged(&self) -> Value {
        let mut envelope = self.envelope();
        let payload = String::from_utf8(STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap()).unwrap();
        let forged = payload.replacen("Ubuntu", "Vbuntu", 1);
        assert_ne!(payload, forged);
        envelope["payload"] = json!(STANDARD.encode(forged));
        envelope
    }
}

fn openssl_verify(case: &Case, algorithm: Algorithm, envelope: &Value) -> Output {
    let text = |pointer: &str| STANDARD.decode(envelope.pointer(pointer).unwrap().as_str().unwrap()).unwrap();
    let encoding = dsse::pre_authentication_encoding(dsse::PAYLOAD_TYPE, &text("/payload"));
    let (key, pae) = (case.public_key(), case.file("pae.bin", &encoding));
    let signature = case.file("record.sig", &text("/signatures/0/sig"));
    let arguments: &[&str] = match algorithm {
        Algorithm::Ed25519 => {
            &["pkeyutl", "-verify", "-pubin", "-inkey", &key, "-rawin", "-in", &pae, "-sigfile", &signature]
        }
        Algorithm::P256 => &["dgst", "-sha256", "-verify", &key, "-signature", &signature, &pae],
    };
    tools::run(Path::new("openssl"), arguments)
}

#[test]
fn openssl_verifies_the_record_and_refuses_a_changed_byte() {
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let case = Case::new(algorithm);
        let good = openssl_verify(&case, algorithm, &case.envelope());
        assert!(good.status.success(), "{algorithm}: {}", tools::words(&good));
        assert!(!openssl_verify(&case, algorithm, &case.forged()).status.success(), "{algorithm}");
    }
}

#[test]
fn the_shell_recipe_of_the_manual_makes_the_bytes_that_are_signed() {
    let case = Case::new(Algorithm::Ed25519);
    let record = case.file("record.json", &case.stored.envelope);
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/records.md")).unwrap();
    let (_, rest) = manual.split_once("```sh\n# pae.sh\n").expect("docs/records.md has the recipe");
    let (recipe, _) = rest.split_once("```").unwrap();
    let output = case.folder.path().join("recipe.bin");
    let script = format!("set -- '{record}' '{}'\n{recipe}", output.display());
    tools::succeeds("bash", &["-euc", &script]);
    let payload = STANDARD.decode(case.envelope()["payload"].as_str().unwrap()).unwrap();
    let expected = dsse::pre_authentication_encoding(dsse::PAYLOAD_TYPE, &payload);
    assert_eq!(std::fs::read(output).unwrap(), expected);
}

#[test]
fn securesystemslib_verifies_the_record_and_refuses_a_changed_byte() {
    let python = tools::python();
    let script = tools::script("securesystemslib_verify.py");
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let case = Case::new(algorithm);
        let key = case.public_key();
        let verify = |envelope: &Value| {
            let record = case.file("record.json", envelope.to_string().as_bytes());
            tools::run(python, &[script.to_str().unwrap(), &record, &key, &case.stored.keyid])
        };
        let good = verify(&case.envelope());
        assert!(good.status.success(), "{algorithm}: {}", tools::words(&good));
        assert!(tools::words(&good).contains("PASSED"));
        let bad = tools::words(&verify(&case.forged()));
        assert!(bad.contains("VerificationError"), "{algorithm}: {bad}");
    }
}

#[test]
fn sigstore_verifies_the_bundle_and_refuses_a_changed_byte() {
    let folder = tools::node_folder().to_str().unwrap();
    let script = tools::script("sigstore_verify.mjs");
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let case = Case::new(algorithm);
        let key = case.public_key();
        let verify = |bundle: &[u8]| {
            let record = case.file("record.sigstore.json", bundle);
            tools::run(Path::new("node"), &[script.to_str().unwrap(), folder, &record, &key])
        };
        let good = verify(&case.stored.bundle);
        assert!(good.status.success(), "{algorithm}: {}", tools::words(&good));
        assert!(tools::words(&good).contains(&case.stored.keyid));
        let forged = Bundle::of(&serde_json::from_value(case.forged()).unwrap());
        let bad = tools::words(&verify(&forged.to_json()));
        assert!(bad.contains("VerificationError"), "{algorithm}: {bad}");
    }
}

#[test]
fn openssl_reads_our_private_keys_and_derives_the_same_public_key() {
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let folder = tempfile::tempdir().unwrap();
        let key = HostKey::generate(algorithm);
        let path = folder.path().join("key.pem");
        std::fs::write(&path, key.to_pem()).unwrap();
        let derived = tools::succeeds("openssl", &["pkey", "-in", path.to_str().unwrap(), "-pubout"]);
        assert_eq!(derived, key.public_key().to_pem(), "{algorithm}");
    }
}

#[test]
fn a_key_that_openssl_made_is_read_by_us() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    let out = path.to_str().unwrap();
    for arguments in [
        &["genpkey", "-algorithm", "ed25519", "-out", out][..],
        &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", out],
    ] {
        tools::succeeds("openssl", arguments);
        let key = HostKey::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(tools::succeeds("openssl", &["pkey", "-in", out, "-pubout"]), key.public_key().to_pem());
    }
    tools::succeeds("openssl", &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", out]);
    assert!(HostKey::parse(&std::fs::read_to_string(&path).unwrap()).is_err());
}

#[test]
fn the_key_id_is_what_ssh_keygen_prints() {
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let folder = tempfile::tempdir().unwrap();
        let key = HostKey::generate(algorithm);
        let path: PathBuf = folder.path().join("key.pub");
        std::fs::write(&path, key.public_key().to_openssh("gpu-r12-u07") + "\n").unwrap();
        let printed = tools::succeeds("ssh-keygen", &["-lf", path.to_str().unwrap()]);
        assert!(printed.contains(&key.public_key().keyid()), "{printed}");
    }
}
