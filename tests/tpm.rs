//! Keys in a TPM and with a signer, and how residency is proven to a collector: with swtpm,
//! tpm2-tools and openssl as they come.

#[path = "collector/client.rs"]
mod client;
#[path = "enrolment/desk.rs"]
mod desk;
#[path = "record/sample.rs"]
mod sample;
#[path = "collector/server.rs"]
mod server;
#[path = "enrolment/swtpm.rs"]
mod swtpm;

use std::fs;
use std::path::Path;
use std::process::Command;

use desk::{Applicant, Desk, SERIAL, enrolled, refused};
use jiff::Timestamp;
use nodegate::collector::enrol::Outcome;
use nodegate::collector::model::{KeyState, Refusal};
use nodegate::collector::store::EndorsementKey;
use nodegate::isolate::Bytes;
use nodegate::record::dsse::{self, Envelope};
use nodegate::record::enrolment::tpm_public::{EndorsementArea, KeyArea};
use nodegate::record::enrolment::{Credential, Proof, credential};
use nodegate::record::standing::Tier;
use nodegate::record::store::own_key;
use nodegate::record::tpm::{self, TpmKey};
use nodegate::record::{Algorithm, HostKey, NewKey, Store, StoreError, verify};
use swtpm::Swtpm;

fn tpm_key(key: &HostKey) -> &TpmKey {
    key.outside().unwrap().tpm().unwrap()
}

fn in_tpm(swtpm: &Swtpm) -> Applicant {
    Applicant::made(&NewKey::Tpm { tcti: swtpm.tcti() })
}

fn endorsement(swtpm: &Swtpm) -> Vec<u8> {
    tpm::endorsement_key(&swtpm.tcti()).unwrap()
}

/// Puts the TPM's endorsement key on the collector's list.
fn approve(desk: &Desk, area: &[u8], name: &str) {
    let digest = EndorsementArea::parse(area).unwrap().digest();
    let key = EndorsementKey { digest, name: name.to_owned(), added_at: Timestamp::now(), added_by: "kim".to_owned() };
    desk.store.put_endorsement_key(key).unwrap();
}

fn proof(public: &[u8], endorsement: &[u8], secret: Option<Vec<u8>>) -> Proof {
    let bytes = |bytes: &[u8]| Bytes(bytes.to_vec());
    Proof::Tpm { public: bytes(public), endorsement_key: bytes(endorsement), secret: secret.map(Bytes) }
}

fn first_round(desk: &Desk, envelope: &Envelope, public: &[u8], endorsement: &[u8]) -> Result<Credential, Refusal> {
    match desk.send(envelope, proof(public, endorsement, None))? {
        Outcome::Challenge(credential) => Ok(credential),
        Outcome::Enrolled { key, .. } => panic!("enrolled without the TPM: {key:?}"),
    }
}

fn both_rounds(
    desk: &Desk,
    applicant: &Applicant,
    endorsement: &[u8],
) -> Result<(nodegate::collector::model::Key, bool), Refusal> {
    let (envelope, key) = (applicant.enrolment(&desk.nonce(&applicant.key)), tpm_key(&applicant.key));
    let credential = first_round(desk, &envelope, key.public_area(), endorsement)?;
    let secret = tpm::activate(key, &credential.credential_blob.0, &credential.encrypted_secret.0).unwrap();
    desk.send(&envelope, proof(key.public_area(), endorsement, Some(secret))).map(enrolled)
}

fn openssl_verifies(folder: &Path, envelope: &[u8], public: &str) -> bool {
    let envelope: Envelope = serde_json::from_slice(envelope).unwrap();
    let payload = desk::payload(&envelope);
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::write(path("pae"), dsse::pre_authentication_encoding(dsse::PAYLOAD_TYPE, &payload)).unwrap();
    fs::write(path("sig"), dsse::decode_base64(&envelope.signatures[0].sig).unwrap()).unwrap();
    fs::write(path("pub"), public).unwrap();
    let arguments = ["dgst", "-sha256", "-verify", &path("pub"), "-signature", &path("sig"), &path("pae")];
    Command::new("openssl").args(arguments).output().unwrap().status.success()
}

#[test]
fn records_that_a_tpm_signed_verify_with_openssl_and_with_us() {
    let (swtpm, folder) = (Swtpm::start(), tempfile::tempdir().unwrap());
    let (documents, state) = (sample::documents(), folder.path().join("state"));
    let new = NewKey::Tpm { tcti: swtpm.tcti() };
    let store = Store::for_host_with(&state, &documents.host, new).unwrap();
    drop(store);
    // The folder refers to the key: whoever opens it next signs with it again.
    let store = Store::for_host(&state, &documents.host).unwrap();
    let first = store.commit(sample::details(), &documents).unwrap();
    let second = store.commit(sample::details(), &documents).unwrap();
    assert_eq!((first.details.seq, second.details.prev), (1, Some(first.payload)));
    assert!(verify(&first.envelope, &[own_key(&state).unwrap()]).is_ok());
    let public = own_key(&state).unwrap().to_pem();
    assert!(openssl_verifies(folder.path(), &first.envelope, &public));
    let other = HostKey::generate(Algorithm::P256).public_key().to_pem();
    assert!(!openssl_verifies(folder.path(), &first.envelope, &other));
    let text = fs::read_to_string(state.join("key.pem")).unwrap();
    assert!(!text.contains("PRIVATE KEY-----") && text.contains("held by the TPM at swtpm:"), "{text}");
}

#[test]
fn a_tpm_that_is_gone_is_an_error_that_names_it_and_leaves_nothing_half_written() {
    let (swtpm, folder) = (Swtpm::start(), tempfile::tempdir().unwrap());
    let (documents, state) = (sample::documents(), folder.path().join("state"));
    let store = Store::for_host_with(&state, &documents.host, NewKey::Tpm { tcti: swtpm.tcti() }).unwrap();
    let tcti = swtpm.tcti();
    drop(swtpm);
    let error = store.commit(sample::details(), &documents).unwrap_err();
    let StoreError::Sign(cause) = &error else { panic!("{error:?}") };
    assert!(cause.to_string().contains(&tcti), "{cause}");
    assert_eq!(fs::read_dir(state.join("records")).unwrap().count(), 0);
}

#[test]
fn a_key_in_another_tpm_is_worth_nothing_there() {
    let (swtpm, other, folder) = (Swtpm::start(), Swtpm::start(), tempfile::tempdir().unwrap());
    let state = folder.path().join("state");
    let documents = sample::documents();
    drop(Store::for_host_with(&state, &documents.host, NewKey::Tpm { tcti: swtpm.tcti() }).unwrap());
    // As if the disk had been moved: the same blobs, another TPM behind the same name.
    let text = fs::read_to_string(state.join("key.pem")).unwrap();
    let key = HostKey::parse(&text).unwrap();
    let json = serde_json::to_string(tpm_key(&key)).unwrap().replace(&swtpm.tcti(), &other.tcti());
    let moved = HostKey::of_tpm(serde_json::from_str(&json).unwrap()).unwrap();
    let applicant = Applicant::with(moved);
    assert!(applicant.key.enrol(applicant.statement("none")).is_err());
}

#[test]
fn a_credential_of_ours_opens_in_the_tpm_for_the_key_that_it_names_and_for_no_other() {
    let swtpm = Swtpm::start();
    let (one, two) = (in_tpm(&swtpm), in_tpm(&swtpm));
    let area = EndorsementArea::parse(&endorsement(&swtpm)).unwrap();
    let name = KeyArea::parse(tpm_key(&one.key).public_area()).unwrap().name;
    let secret = [7; 32];
    let Credential { credential_blob, encrypted_secret } = credential::make(&area, &name, &secret).unwrap();
    let open = |applicant: &Applicant| tpm::activate(tpm_key(&applicant.key), &credential_blob.0, &encrypted_secret.0);
    assert_eq!(open(&one).unwrap(), secret);
    assert!(open(&two).is_err());
    let other = Swtpm::start();
    let elsewhere = EndorsementArea::parse(&endorsement(&other)).unwrap();
    let made = credential::make(&elsewhere, &name, &secret).unwrap();
    assert!(tpm::activate(tpm_key(&one.key), &made.credential_blob.0, &made.encrypted_secret.0).is_err());
}

#[test]
fn a_key_in_a_tpm_on_the_list_is_approved_and_the_same_sent_again_answers_the_same() {
    let (desk, swtpm) = (Desk::new(), Swtpm::start());
    let (applicant, endorsement) = (in_tpm(&swtpm), endorsement(&swtpm));
    approve(&desk, &endorsement, SERIAL);
    let (key, created) = both_rounds(&desk, &applicant, &endorsement).unwrap();
    assert_eq!((key.tier, key.state, created), (Tier::Tpm, KeyState::Approved, true));
    let envelope = applicant.enrolment(&desk.nonce(&applicant.key));
    let again = desk.send(&envelope, proof(tpm_key(&applicant.key).public_area(), &endorsement, None)).unwrap();
    assert_eq!(enrolled(again), (key, false));
}

#[test]
fn an_endorsement_key_that_is_not_on_the_list_or_is_another_hosts_proves_nothing() {
    let (desk, swtpm) = (Desk::new(), Swtpm::start());
    let (applicant, endorsement) = (in_tpm(&swtpm), endorsement(&swtpm));
    let come = || refused(both_rounds(&desk, &applicant, &endorsement));
    let (status, text) = come();
    assert!(status == 403 && text.contains("is not approved"), "{text}");
    approve(&desk, &endorsement, desk::OTHER_SERIAL);
    let (status, text) = come();
    assert!(status == 403 && text.contains("for another host"), "{text}");
    assert_eq!(desk.state(&applicant.key), None);
}

#[test]
fn a_key_that_does_not_live_in_the_tpm_cannot_open_the_credential() {
    let (desk, swtpm) = (Desk::new(), Swtpm::start());
    let resident = in_tpm(&swtpm);
    let endorsement = endorsement(&swtpm);
    approve(&desk, &endorsement, "");
    // A file key that passes a real key's public area for its own.
    let file_key = Applicant::with(HostKey::generate(Algorithm::P256));
    let envelope = file_key.enrolment(&desk.nonce(&file_key.key));
    let (status, text) = refused(first_round(&desk, &envelope, tpm_key(&resident.key).public_area(), &endorsement));
    assert!(status == 403 && text.contains("another than the enrolled one"), "{text}");
    // One that writes an area around itself: the TPM opens no credential for a key that it has not got.
    let mut area = tpm_key(&resident.key).public_area().to_vec();
    let point = point_of(&file_key.key);
    let length = area.len();
    area[length - 66..length - 34].copy_from_slice(&point[..32]);
    area[length - 32..].copy_from_slice(&point[32..]);
    let made = first_round(&desk, &envelope, &area, &endorsement).unwrap();
    let opened = tpm::activate(tpm_key(&resident.key), &made.credential_blob.0, &made.encrypted_secret.0);
    assert!(opened.is_err());
    for secret in [vec![], vec![0; 32], made.encrypted_secret.0] {
        let (status, text) = refused(desk.send(&envelope, proof(&area, &endorsement, Some(secret))));
        assert!(status == 403 && text.contains("did not open"), "{text}");
    }
    assert_eq!(desk.state(&file_key.key), None);
}

#[test]
fn a_secret_is_good_for_one_enrolment_alone() {
    let (desk, swtpm) = (Desk::new(), Swtpm::start());
    let endorsement = endorsement(&swtpm);
    approve(&desk, &endorsement, "");
    let applicant = in_tpm(&swtpm);
    let key = tpm_key(&applicant.key);
    let one = applicant.enrolment(&desk.nonce(&applicant.key));
    let made = first_round(&desk, &one, key.public_area(), &endorsement).unwrap();
    let secret = tpm::activate(key, &made.credential_blob.0, &made.encrypted_secret.0).unwrap();
    let two = applicant.enrolment(&desk.nonce(&applicant.key));
    let (status, _) = refused(desk.send(&two, proof(key.public_area(), &endorsement, Some(secret.clone()))));
    assert_eq!(status, 403);
    assert!(desk.send(&one, proof(key.public_area(), &endorsement, Some(secret))).is_ok());
}

#[test]
fn a_key_with_other_attributes_is_refused_by_its_own_public_area() {
    let (desk, swtpm, folder) = (Desk::new(), Swtpm::start(), tempfile::tempdir().unwrap());
    let endorsement = endorsement(&swtpm);
    approve(&desk, &endorsement, "");
    swtpm.tool(folder.path(), "tpm2_createprimary", &["-C", "o", "-G", "ecc256", "-c", "primary.ctx", "-Q"]);
    swtpm.flush(folder.path());
    // It may be moved to another TPM.
    let create = [
        "-C",
        "primary.ctx",
        "-G",
        "ecc256:ecdsa-sha256",
        "-g",
        "sha256",
        "-a",
        "sensitivedataorigin|userwithauth|sign",
        "-u",
        "movable.pub",
        "-r",
        "movable.priv",
        "-Q",
    ];
    swtpm.tool(folder.path(), "tpm2_create", &create);
    swtpm.flush(folder.path());
    let public = fs::read(folder.path().join("movable.pub")).unwrap();
    let applicant = Applicant::with(HostKey::generate(Algorithm::P256));
    let envelope = applicant.enrolment(&desk.nonce(&applicant.key));
    let (status, text) = refused(first_round(&desk, &envelope, &public, &endorsement));
    assert!(status == 403 && text.contains("could be moved"), "{text}");
}

#[test]
fn a_key_in_a_tpm_is_replaced_only_by_another_in_a_tpm() {
    let (desk, swtpm) = (Desk::new(), Swtpm::start());
    let endorsement = endorsement(&swtpm);
    approve(&desk, &endorsement, "");
    let (old, next) = (in_tpm(&swtpm), in_tpm(&swtpm));
    both_rounds(&desk, &old, &endorsement).unwrap();
    let in_file = Applicant::with(HostKey::generate(Algorithm::P256));
    let envelope = in_file.succession(&old.key, &desk.nonce(&in_file.key));
    let (status, text) = refused(desk.send(&envelope, Proof::FirstUse {}));
    assert!(status == 403 && text.contains("must be too"), "{text}");
    let envelope = next.succession(&old.key, &desk.nonce(&next.key));
    let key = tpm_key(&next.key);
    let made = first_round(&desk, &envelope, key.public_area(), &endorsement).unwrap();
    let secret = tpm::activate(key, &made.credential_blob.0, &made.encrypted_secret.0).unwrap();
    let (kept, _) = desk.send(&envelope, proof(key.public_area(), &endorsement, Some(secret))).map(enrolled).unwrap();
    assert_eq!((kept.tier, kept.state), (Tier::Tpm, KeyState::Approved));
    assert_eq!(desk.state(&old.key), Some(KeyState::Retired));
}

#[test]
fn a_host_with_a_tpm_enrols_rotates_and_signs_from_the_command_line() {
    let (swtpm, folder) = (Swtpm::start(), tempfile::tempdir().unwrap());
    let collector = server::Collector::start(&["--open-writing"]);
    let (state, url) = (folder.path().join("state"), format!("http://{}", collector.address()));
    let told = |command: &mut Command| {
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.code().unwrap(), text)
    };
    let agent = |arguments: &[&str]| told(server::nodegate().args(arguments).arg("--state").arg(&state));
    assert_eq!(agent(&["key", "new", "--type", "tpm", "--tcti", &swtpm.tcti()]).0, 0);
    assert!(agent(&["key", "show", "--format", "text"]).1.contains("held by  the TPM at swtpm:"));
    let (status, text) = agent(&["enroll", "--tpm", "--collector", &url]);
    assert_eq!(status, 1, "{text}");

    let (_, pem) = told(server::nodegate().args(["key", "endorsement", "--tcti", &swtpm.tcti()]));
    let file = folder.path().join("ek.pem");
    fs::write(&file, &pem).unwrap();
    let mut add = server::nodegate();
    add.args(["collector", "keys", "ek", "add", "--who", "kim", "--state"]).arg(collector.state.path()).arg(&file);
    assert_eq!(told(&mut add).0, 0, "{pem}");
    let (status, text) = agent(&["enroll", "--tpm", "--collector", &url]);
    assert!(status == 0 && text.contains("tier tpm  approved"), "{text}");
    assert_eq!(agent(&["key", "rotate", "--collector", &url]).0, 1, "a file key in place of one in a TPM");
    assert!(!state.join("next.pem").exists(), "a key that was refused is not tried again");
    let (status, text) = agent(&["key", "rotate", "--type", "tpm", "--tcti", &swtpm.tcti(), "--collector", &url]);
    assert!(status == 0 && text.contains("tier tpm  approved"), "{text}");
    let before = own_key(&state).unwrap();
    drop(swtpm);
    // The run is made, and that it cannot be signed is said as what it is.
    let (status, text) = agent(&["run", "--only", "driver"]);
    assert!(
        status == 70 && text.contains("the TPM at swtpm:") && text.contains("gave no signature"),
        "{status} {text}"
    );
    assert_eq!(own_key(&state).unwrap(), before);
}

#[test]
fn a_signer_of_the_operators_own_holds_the_key_and_what_it_gives_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let (held, other) = (HostKey::generate(Algorithm::P256), HostKey::generate(Algorithm::P256));
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("held.pem"), held.to_pem()).unwrap();
    let command = |arguments: &[&str]| arguments.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let sign = command(&["/usr/bin/openssl", "dgst", "-sha256", "-sign", &path("held.pem")]);
    let made = |command: Vec<String>, key: &HostKey| {
        let public = key.public_key().clone();
        NewKey::Signer { command, public }.make()
    };
    let key = made(sign.clone(), &held).unwrap();
    assert!(held.public_key() == key.public_key());
    // The wrong key, no program, no signature, a program that fails, and one that never ends.
    assert!(made(sign, &other).unwrap_err().to_string().contains("signed nothing"));
    for wrong in [&["/nonexistent"][..], &["/bin/cat"], &["/bin/false"], &["/bin/true"]] {
        assert!(made(command(wrong), &held).is_err(), "{wrong:?}");
    }
    let (documents, state) = (sample::documents(), folder.path().join("state"));
    let public = held.public_key().clone();
    let new = NewKey::Signer {
        command: command(&["/usr/bin/openssl", "dgst", "-sha256", "-sign", &path("held.pem")]),
        public,
    };
    let store = Store::for_host_with(&state, &documents.host, new).unwrap();
    let stored = store.commit(sample::details(), &documents).unwrap();
    assert!(openssl_verifies(folder.path(), &stored.envelope, &held.public_key().to_pem()));
}

fn point_of(key: &HostKey) -> Vec<u8> {
    let line = key.public_key().to_openssh("");
    let blob = dsse::decode_base64(line.split(' ').nth(1).unwrap()).unwrap();
    blob[blob.len() - 64..].to_vec()
}
