//! Enrolment tier by tier: what lets a key in, and each way in which it might be forged.

#[path = "enrolment/certificates.rs"]
mod certificates;
#[path = "collector/client.rs"]
mod client;
#[path = "enrolment/commands.rs"]
mod commands;
#[path = "enrolment/desk.rs"]
mod desk;
#[path = "record/sample.rs"]
mod sample;
#[path = "collector/server.rs"]
mod server;

use std::process::{Command, Stdio};

use desk::{Applicant, Desk, HOSTNAME, OTHER_SERIAL, SERIAL, enrolled, host, in_an_hour, payload, refused};
use jiff::{SignedDuration, Timestamp};
use nodegate::collector::model::KeyState;
use nodegate::collector::store::SshHostKey;
use nodegate::record::dsse::{Envelope, Signature};
use nodegate::record::enrolment::{Enrolment, Proof};
use nodegate::record::standing::Tier;
use nodegate::record::{Algorithm, EphemeralKey, HostKey};

#[test]
fn a_first_key_waits_for_an_operator_and_counts_once_approved() {
    let (desk, one) = (Desk::new(), Applicant::new());
    let (key, created) = desk.first_use(&one).unwrap();
    assert_eq!((key.tier, key.state, created), (Tier::FirstUse, KeyState::Pending, true));
    assert_eq!((key.hostname.as_str(), key.serial.as_deref()), (HOSTNAME, Some(SERIAL)));
    desk.store.approve(&key.keyid, "kim", "seen at the rack").unwrap();
    let (again, created) = desk.first_use(&one).unwrap();
    assert_eq!((again.state, again.decided_by.as_deref(), created), (KeyState::Approved, Some("kim"), false));
}

#[test]
fn a_first_key_is_approved_by_itself_only_where_the_operator_said_so_and_never_for_a_known_host() {
    let mut desk = Desk::new();
    desk.settings.approve_first_use = true;
    assert_eq!(desk.first_use(&Applicant::new()).unwrap().0.state, KeyState::Approved);
    let (again, _) = desk.first_use(&Applicant::new()).unwrap();
    assert_eq!(again.state, KeyState::Pending);
    assert!(again.reason.unwrap().contains("re-enrolment of a known host"));
}

#[test]
fn what_is_sent_twice_is_answered_the_same() {
    let (desk, one) = (Desk::new(), Applicant::new());
    let envelope = one.enrolment(&desk.nonce(&one.key));
    let token = desk.token(SERIAL, in_an_hour());
    let first = enrolled(desk.send(&envelope, token.clone()).unwrap());
    let again = enrolled(desk.send(&envelope, token).unwrap());
    assert!(first.1 && !again.1);
    assert_eq!(first.0, again.0);
}

#[test]
fn an_enrolment_that_its_own_key_did_not_sign_proves_no_possession() {
    let (desk, one, thief) = (Desk::new(), Applicant::new(), HostKey::generate(Algorithm::Ed25519));
    let nonce = desk.nonce(&one.key);
    let by_another =
        Envelope { signatures: thief.enrol(one.statement(&nonce)).unwrap().signatures, ..one.enrolment(&nonce) };
    let (status, text) = refused(desk.send(&by_another, Proof::FirstUse {}));
    assert!(status == 403 && text.contains("possession"), "{text}");
    // The signature is whole, and the statement another.
    let other =
        Applicant { hostname: "gpu-r12-u08".to_owned(), ..Applicant::with(HostKey::parse(&one.key.to_pem()).unwrap()) };
    let swapped = Envelope { payload: other.enrolment(&nonce).payload, ..one.enrolment(&nonce) };
    assert_eq!(refused(desk.send(&swapped, Proof::FirstUse {})).0, 403);
    assert_eq!(desk.state(&one.key), None);
}

#[test]
fn signatures_too_many_and_too_few_are_refused() {
    let (desk, one) = (Desk::new(), Applicant::new());
    let envelope = one.enrolment(&desk.nonce(&one.key));
    let signature = envelope.signatures[0].clone();
    let wrong: [Vec<Signature>; 3] = [vec![], vec![signature.clone(); 2], vec![signature; 5000]];
    for signatures in wrong {
        let status = refused(desk.send(&Envelope { signatures, ..envelope.clone() }, Proof::FirstUse {})).0;
        assert!([400, 413].contains(&status), "{status}");
    }
}

#[test]
fn an_enrolment_without_a_fresh_nonce_of_ours_is_believed_nothing_beyond_first_use() {
    let (desk, one) = (Desk::new(), Applicant::new());
    let token = || desk.token(SERIAL, in_an_hour());
    for challenge in ["none", "made-up", &desk.nonce(&Applicant::new().key), &Desk::new().nonce(&one.key)] {
        let (status, text) = refused(desk.send(&one.enrolment(challenge), token()));
        assert!(status == 403 && text.contains("nonce"), "{challenge}: {text}");
    }
    let envelope = one.enrolment(&desk.nonce(&one.key));
    let later = Timestamp::now() + SignedDuration::from_mins(16);
    assert!(refused(desk.send_at(&envelope, token(), later)).1.contains("too old"));
    let waits = enrolled(desk.send(&one.enrolment("none"), Proof::FirstUse {}).unwrap()).0;
    assert_eq!(waits.state, KeyState::Pending);
}

#[test]
fn a_join_token_approves_the_host_whose_serial_number_it_names() {
    let (desk, one) = (Desk::new(), Applicant::new());
    let (key, created) = desk.come(&one, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    assert_eq!((key.tier, key.state, created), (Tier::Token, KeyState::Approved, true));
    let token = &desk.store.join_tokens().unwrap()[0];
    assert_eq!(token.used_by.as_ref(), Some(&key.keyid));
}

#[test]
fn a_join_token_used_twice_expired_unknown_or_for_another_serial_number_is_no_proof() {
    let desk = Desk::new();
    let used = desk.token(SERIAL, in_an_hour());
    desk.come(&Applicant::new(), |_| used.clone()).unwrap();
    let expired = desk.token(SERIAL, Timestamp::now() - SignedDuration::from_secs(1));
    let others = desk.token(OTHER_SERIAL, in_an_hour());
    let Proof::Token { id, .. } = desk.token(SERIAL, in_an_hour()) else { unreachable!() };
    let Proof::Token { secret, .. } = desk.token(SERIAL, in_an_hour()) else { unreachable!() };
    let mixed = Proof::Token { id, secret };
    for proof in [used, expired, others, mixed] {
        let applicant = Applicant::new();
        let (status, text) = refused(desk.come(&applicant, |_| proof.clone()));
        assert!(
            status == 403 && text == "the join token is unknown, used, expired or for another serial number",
            "{text}"
        );
        assert_eq!(desk.state(&applicant.key), None);
    }
}

#[test]
fn a_token_raises_a_key_that_waits_and_nothing_lowers_it_again() {
    let (desk, one) = (Desk::new(), Applicant::new());
    desk.first_use(&one).unwrap();
    let (key, created) = desk.come(&one, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    assert_eq!((key.tier, key.state, created), (Tier::Token, KeyState::Approved, false));
    let (after, _) = desk.first_use(&one).unwrap();
    assert_eq!((after.tier, after.state), (Tier::Token, KeyState::Approved));
}

#[test]
fn a_join_token_never_stands_in_what_is_logged_or_signed() {
    let (desk, one) = (Desk::new(), Applicant::new());
    let token = desk.token(SERIAL, in_an_hour());
    let secret = serde_json::to_value(&token).unwrap()["secret"].as_str().unwrap().to_owned();
    let envelope = one.enrolment(&desk.nonce(&one.key));
    assert!(!String::from_utf8(payload(&envelope)).unwrap().contains(&secret));
    assert!(!format!("{token:?}").contains(&secret));
    let bad = format!(r#"{{"enrolment":3,"proof":{{"tier":"token","id":"x","secret":"{secret}","extra":1}}}}"#);
    let refusal = nodegate::collector::enrol::enrol(bad.as_bytes(), &desk.store, &desk.settings, Timestamp::now());
    assert!(!refused(refusal).1.contains(&secret));
}

fn ssh_key(folder: &tempfile::TempDir, kind: &str) -> std::path::PathBuf {
    let path = folder.path().join(kind);
    let status = Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-f"]).arg(&path).status();
    assert!(status.unwrap().success());
    path
}

fn ssh_sign(key: &std::path::Path, namespace: &str, message: &[u8]) -> Proof {
    let mut command = Command::new("ssh-keygen");
    command.args(["-Y", "sign", "-q", "-n", namespace, "-f"]).arg(key);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), message).unwrap();
    Proof::SshHostKey { signature: String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap() }
}

fn know(desk: &Desk, name: &str, key: &std::path::Path) {
    let line = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    let line = nodegate::record::PublicKey::parse(&line).unwrap().to_openssh("");
    let key = SshHostKey { name: name.to_owned(), line, added_at: Timestamp::now(), added_by: "kim".to_owned() };
    desk.store.put_ssh_host_key(key).unwrap();
}

#[test]
fn a_host_key_of_ssh_that_is_known_for_the_host_approves_its_key() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, name) in [("ed25519", HOSTNAME), ("ecdsa", SERIAL)] {
        let (desk, one) = (Desk::new(), Applicant::new());
        let ssh = ssh_key(&folder, kind);
        know(&desk, name, &ssh);
        let (key, _) = desk.come(&one, |envelope| ssh_sign(&ssh, "nodegate-enrol", &payload(envelope))).unwrap();
        assert_eq!((key.tier, key.state), (Tier::SshHostKey, KeyState::Approved));
    }
}

#[test]
fn an_ssh_signature_by_another_hosts_key_over_another_statement_or_for_another_purpose_is_no_proof() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, one) = (Desk::new(), Applicant::new());
    let ours = ssh_key(&folder, "ed25519");
    let others = ssh_key(&folder, "ecdsa");
    know(&desk, HOSTNAME, &ours);
    know(&desk, "gpu-r12-u08", &others);
    let by_others = desk.come(&one, |envelope| ssh_sign(&others, "nodegate-enrol", &payload(envelope)));
    assert!(refused(by_others).1.contains("is not known for this host"));
    let over_another =
        desk.come(&one, |_| ssh_sign(&ours, "nodegate-enrol", &payload(&Applicant::new().enrolment("none"))));
    assert!(refused(over_another).1.contains("does not fit"));
    let of_a_file = desk.come(&one, |envelope| ssh_sign(&ours, "file", &payload(envelope)));
    assert!(refused(of_a_file).1.contains("is for `file`"));
    assert_eq!(desk.state(&one.key), None);
}

#[test]
fn another_key_of_a_known_host_waits_and_says_why() {
    let (desk, one, two) = (Desk::new(), Applicant::new(), Applicant::new());
    desk.come(&one, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    let (key, _) = desk.first_use(&two).unwrap();
    assert_eq!(key.state, KeyState::Pending);
    let reason = key.reason.unwrap();
    assert!(
        reason.contains("re-enrolment of a known host") && reason.contains(&one.key.public_key().keyid()),
        "{reason}"
    );
    assert_eq!(desk.state(&one.key), Some(KeyState::Approved));
    // Approved by an operator it takes the old one's place.
    desk.store.approve(&two.key.public_key().keyid(), "kim", "re-imaged").unwrap();
    assert_eq!((desk.state(&one.key), desk.state(&two.key)), (Some(KeyState::Retired), Some(KeyState::Approved)));
}

#[test]
fn a_proof_at_least_as_strong_and_about_this_very_host_takes_the_old_keys_place() {
    let (desk, one, two) = (Desk::new(), Applicant::new(), Applicant::new());
    desk.come(&one, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    let (key, _) = desk.come(&two, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    assert_eq!((key.state, key.replaces), (KeyState::Approved, Some(one.key.public_key().keyid())));
    assert_eq!(desk.state(&one.key), Some(KeyState::Retired));
}

#[test]
fn who_holds_one_hosts_ssh_key_cannot_take_another_hosts_place() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, victim) = (Desk::new(), Applicant::new());
    desk.come(&victim, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    let ssh = ssh_key(&folder, "ed25519");
    know(&desk, "gpu-evil", &ssh);
    // It says that it has the victim's serial number, under its own name.
    let thief = Applicant { hostname: "gpu-evil".to_owned(), ..Applicant::new() };
    let (key, _) = desk.come(&thief, |envelope| ssh_sign(&ssh, "nodegate-enrol", &payload(envelope))).unwrap();
    assert_eq!(key.state, KeyState::Pending);
    assert_eq!(desk.state(&victim.key), Some(KeyState::Approved));
}

#[test]
fn a_new_key_that_the_old_one_signed_takes_its_tier_and_its_place() {
    let (desk, old, new) = (Desk::new(), Applicant::new(), Applicant::new());
    desk.come(&old, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    let envelope = new.succession(&old.key, &desk.nonce(&new.key));
    let (key, created) = enrolled(desk.send(&envelope, Proof::FirstUse {}).unwrap());
    assert_eq!((key.tier, key.state, created), (Tier::Token, KeyState::Approved, true));
    let before = desk.store.key(&old.key.public_key().keyid()).unwrap().unwrap();
    assert_eq!((before.state, before.replaced_by), (KeyState::Retired, Some(key.keyid.clone())));
    // The answer was lost: asked again it is the same, and nothing moves.
    assert_eq!(enrolled(desk.send(&envelope, Proof::FirstUse {}).unwrap()), (key, false));
}

#[test]
fn a_rotation_that_the_old_key_did_not_sign_or_that_is_not_of_this_host_is_refused() {
    let (desk, old, new, thief) = (Desk::new(), Applicant::new(), Applicant::new(), Applicant::new());
    desk.come(&old, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    let replaces = Some(old.key.public_key().keyid());
    let statement = Enrolment { replaces, ..new.statement(&desk.nonce(&new.key)) };
    let forged = thief.key.endorse(new.key.enrol(statement).unwrap()).unwrap();
    let (status, text) = refused(desk.send(&forged, Proof::FirstUse {}));
    assert!(status == 403 && text.contains("did not sign"), "{text}");
    // Signed well, by a key of another host.
    let other = Applicant { host: host(OTHER_SERIAL), ..Applicant::new() };
    let (status, _) = refused(desk.send(&other.succession(&old.key, &desk.nonce(&other.key)), Proof::FirstUse {}));
    assert_eq!(status, 409);
    let unknown = new.succession(&thief.key, &desk.nonce(&new.key));
    assert_eq!(refused(desk.send(&unknown, Proof::FirstUse {})).0, 409);
    assert_eq!(refused(desk.send(&new.succession(&old.key, "none"), Proof::FirstUse {})).0, 403);
    assert_eq!((desk.state(&old.key), desk.state(&new.key)), (Some(KeyState::Approved), None));
}

#[test]
fn a_key_that_was_replaced_or_waits_cannot_be_replaced() {
    let (desk, old, new) = (Desk::new(), Applicant::new(), Applicant::new());
    desk.first_use(&old).unwrap();
    let succession = |desk: &Desk, new: &Applicant| new.succession(&old.key, &desk.nonce(&new.key));
    assert!(refused(desk.send(&succession(&desk, &new), Proof::FirstUse {})).1.contains("waits for approval itself"));
    desk.store.approve(&old.key.public_key().keyid(), "kim", "seen").unwrap();
    desk.send(&succession(&desk, &new), Proof::FirstUse {}).unwrap();
    let third = Applicant::new();
    assert!(refused(desk.send(&succession(&desk, &third), Proof::FirstUse {})).1.contains("was replaced before"));
}

#[test]
fn a_revoked_key_neither_enrols_nor_rotates_ever_again() {
    let (desk, one, new) = (Desk::new(), Applicant::new(), Applicant::new());
    desk.come(&one, |_| desk.token(SERIAL, in_an_hour())).unwrap();
    desk.store.revoke(&one.key.public_key().keyid(), "kim", "disk sold").unwrap();
    let (status, text) = refused(desk.come(&one, |_| desk.token(SERIAL, in_an_hour())));
    assert!(status == 403 && text.contains("disk sold"), "{text}");
    let rotation = new.succession(&one.key, &desk.nonce(&new.key));
    assert_eq!(refused(desk.send(&rotation, Proof::FirstUse {})).0, 403);
    assert_eq!(desk.state(&new.key), None);
    // The host itself comes back with another key.
    assert_eq!(desk.first_use(&new).unwrap().0.state, KeyState::Pending);
}

#[test]
fn a_key_of_one_host_is_not_enrolled_for_another() {
    let (desk, one) = (Desk::new(), Applicant::new());
    desk.first_use(&one).unwrap();
    let elsewhere = Applicant { host: host(OTHER_SERIAL), ..one };
    assert_eq!(refused(desk.first_use(&elsewhere)).0, 409);
}

#[test]
fn a_throw_away_key_is_taken_as_such_where_recordings_are_and_never_as_a_hosts() {
    let mut desk = Desk::new();
    let (key, host) = (EphemeralKey::generate(), Applicant::new());
    let envelope = key.enrol(host.statement("none"));
    assert_eq!(refused(desk.send(&envelope, Proof::Simulated {})).0, 422);
    desk.settings.accept_simulated = true;
    let (kept, _) = enrolled(desk.send(&envelope, Proof::Simulated {}).unwrap());
    assert_eq!((kept.tier, kept.state), (Tier::Simulated, KeyState::Approved));
    assert_eq!(refused(desk.send(&envelope, Proof::FirstUse {})).0, 400);
    assert_eq!(refused(desk.send(&host.enrolment("none"), Proof::Simulated {})).0, 400);
    // It is no key of the host: the host's own first key finds an unknown host.
    assert_eq!(desk.first_use(&host).unwrap().0.reason, None);
}

#[test]
fn hostile_bodies_are_refused_and_break_nothing() {
    let (desk, one) = (Desk::new(), Applicant::new());
    let send = |body: &[u8]| nodegate::collector::enrol::enrol(body, &desk.store, &desk.settings, Timestamp::now());
    let envelope = one.enrolment(&desk.nonce(&one.key));
    let whole =
        serde_json::to_vec(&serde_json::json!({"enrolment": envelope, "proof": {"tier": "first-use"}})).unwrap();
    for length in (0..whole.len()).step_by(7) {
        assert_eq!(refused(send(&whole[..length])).0, 400);
    }
    assert_eq!(refused(send(&vec![b' '; 70_000])).0, 413);
    let twice = String::from_utf8(whole.clone()).unwrap().replacen('{', "{\"proof\":{\"tier\":\"first-use\"},", 1);
    assert_eq!(refused(send(twice.as_bytes())).0, 400);
    let deep = format!("{{\"enrolment\":{}", "[".repeat(60_000));
    assert_eq!(refused(send(deep.as_bytes())).0, 400);
    let named = |hostname: &str| {
        let applicant = Applicant { hostname: hostname.to_owned(), ..Applicant::new() };
        refused(desk.first_use(&applicant)).0
    };
    for hostname in ["", "\u{1b}[2J", "a\nb", "\u{202e}x", &"x".repeat(300)] {
        assert_eq!(named(hostname), 400, "{hostname:?}");
    }
    assert!(send(&whole).is_ok());
}
