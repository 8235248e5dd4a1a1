//! Enrolment from the command line, against a collector that serves.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nodegate::deliver::{Target, enrol};
use nodegate::record::enrolment::JoinToken;
use nodegate::record::standing::Tier;
use nodegate::record::{Store, keyfile};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::sample;
use super::server::{Collector, nodegate};

/// A host's state folder, and its commands.
struct Agent {
    folder: tempfile::TempDir,
}

impl Agent {
    fn new() -> Agent {
        Agent { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    fn key(&self) -> String {
        let shown = nodegate().args(["key", "show", "--format", "fingerprint", "--state"]).arg(self.state()).output();
        String::from_utf8(shown.unwrap().stdout).unwrap().trim().to_owned()
    }

    fn run(&self, command: &[&str], collector: &Collector, more: &[&str]) -> (i32, String, String) {
        let url = format!("http://{}", collector.address());
        let mut nodegate = nodegate();
        nodegate.args(command).args(["--collector", &url, "--state"]).arg(self.state()).args(more);
        told(&nodegate.output().unwrap())
    }

    fn enroll(&self, collector: &Collector, more: &[&str]) -> (i32, String, String) {
        self.run(&["enroll"], collector, more)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        keyfile::write_secret(&path, text).unwrap();
        path.display().to_string()
    }
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn keys(collector: &Collector, arguments: &[&str]) -> (i32, String, String) {
    let mut command = nodegate();
    command.args(["collector", "keys"]).args(arguments).arg("--state").arg(collector.state.path());
    told(&command.output().unwrap())
}

/// This machine's name, as it enrols.
fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn a_first_key_is_pending_until_an_operator_approves_it_and_the_receipt_key_is_pinned_on_request() {
    let (collector, agent) = (Collector::start(&["--open-writing"]), Agent::new());
    let pin = agent.path("collector.pub").display().to_string();
    let (status, said, _) = agent.enroll(&collector, &["--pin-receipt-key", &pin]);
    assert_eq!(status, 0, "{said}");
    let key = agent.key();
    assert!(said.contains(&format!("enrolled  {key}  tier first-use  pending")), "{said}");
    assert!(said.contains("an operator approves it") && said.contains(&format!("pinned in {pin}")), "{said}");
    assert_eq!(keyfile::read_public(Path::new(&pin)).unwrap(), collector.receipt_key());

    let (status, listed, _) = keys(&collector, &["list", "--only", "pending"]);
    assert!(status == 0 && listed.contains(&key) && listed.contains(&hostname()), "{listed}");
    let (_, json, _) = keys(&collector, &["list", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json[0]["tier"].as_str(), json[0]["state"].as_str()), (Some("first-use"), Some("pending")));
    assert_eq!(keys(&collector, &["approve", &key[..14], "--who", "kim"]).0, 64, "without a reason");
    let (status, said, _) = keys(&collector, &["approve", &key[..14], "--who", "kim", "--reason", "seen"]);
    assert!(status == 0 && said.contains("is approved"), "{said}");
    let (status, said, _) = agent.enroll(&collector, &[]);
    assert!(status == 0 && said.contains("first-use  approved") && said.contains("not pinned"), "{said}");

    let (status, _, _) = keys(&collector, &["revoke", &key, "--who", "kim", "--reason", "disk sold"]);
    assert_eq!(status, 0);
    let (_, shown, _) = keys(&collector, &["show", &key]);
    assert!(shown.contains("revoked") && shown.contains("disk sold"), "{shown}");
    let (status, _, error) = agent.enroll(&collector, &[]);
    assert!(status == 1 && error.contains("revoked"), "{error}");
    assert_eq!(keys(&collector, &["approve", &key, "--who", "kim", "--reason", "x"]).0, 64);
}

#[test]
fn a_pinned_receipt_key_is_never_overwritten() {
    let (collector, agent) = (Collector::start(&["--open-writing"]), Agent::new());
    let other = Collector::start(&["--open-writing"]);
    let pin = agent.path("collector.pub").display().to_string();
    assert_eq!(agent.enroll(&collector, &["--pin-receipt-key", &pin]).0, 0);
    assert_eq!(agent.enroll(&collector, &["--pin-receipt-key", &pin]).0, 0);
    let (status, _, error) = agent.enroll(&other, &["--pin-receipt-key", &pin]);
    assert!(status == 64 && error.contains("never overwritten"), "{error}");
    assert_eq!(keyfile::read_public(Path::new(&pin)).unwrap(), collector.receipt_key());
}

#[test]
fn a_token_that_does_not_fit_is_refused_without_being_shown() {
    let (collector, agent) = (Collector::start(&["--open-writing"]), Agent::new());
    let token = agent.path("token").display().to_string();
    let made = keys(&collector, &["token", "new", "--serial", "OTHER-1", "--out", &token, "--who", "kim"]);
    assert_eq!(made.0, 0, "{}", made.2);
    let text = std::fs::read_to_string(&token).unwrap();
    let secret = text.trim().rsplit('.').next().unwrap();
    assert!(JoinToken::parse(&text).is_ok() && !made.1.contains(secret));
    let (status, said, error) = agent.enroll(&collector, &["--token-file", &token]);
    assert_eq!(status, 1, "{said}{error}");
    assert!(!format!("{said}{error}{}", collector.said()).contains(secret));
    let (_, listed, _) = keys(&collector, &["token", "list"]);
    assert!(listed.contains("OTHER-1") && !listed.contains(secret), "{listed}");
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (status, _, error) = agent.enroll(&collector, &["--token-file", &token]);
    assert!(status == 64 && error.contains("chmod 600"), "{error}");
}

#[test]
fn the_hosts_ssh_key_signs_for_it_where_the_collector_knows_it() {
    let (collector, agent) = (Collector::start(&["--open-writing"]), Agent::new());
    let key = agent.path("ssh_host_ed25519_key").display().to_string();
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &key]).status();
    assert!(made.unwrap().success());
    assert_eq!(agent.enroll(&collector, &["--ssh-host-key", &key]).0, 1, "not known yet");
    let added = keys(&collector, &["ssh", "add", &format!("{key}.pub"), "--host", &hostname(), "--who", "kim"]);
    assert_eq!(added.0, 0, "{}", added.2);
    let (status, said, error) = agent.enroll(&collector, &["--ssh-host-key", &key]);
    assert!(status == 0 && said.contains("tier ssh-host-key  approved"), "{said}{error}");
    let (status, _, error) = agent.enroll(&collector, &["--ssh-host-key", "/nonexistent"]);
    assert!(status == 64 && error.contains("/nonexistent"), "{error}");
}

#[test]
fn a_certificate_of_the_fleet_signs_for_the_host() {
    let agent = Agent::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![hostname()]).unwrap().signed_by(&key, &authority).unwrap();
    let authority = agent.write("ca.pem", &authority.pem());
    let (certificate, key) =
        (agent.write("host.pem", &certificate.pem()), agent.write("host.key", &key.serialize_pem()));
    let collector = Collector::start(&["--open-writing", "--fleet-ca", &authority]);
    let (status, said, error) = agent.enroll(&collector, &["--certificate", &certificate, "--certificate-key", &key]);
    assert!(status == 0 && said.contains("tier x509  approved"), "{said}{error}");
    let stranger = Collector::start(&["--open-writing"]);
    assert_eq!(agent.enroll(&stranger, &["--certificate", &certificate, "--certificate-key", &key]).0, 1);
}

#[test]
fn a_rotation_switches_only_after_the_collectors_answer_and_goes_on_with_the_same_key() {
    let (collector, agent) = (Collector::start(&["--open-writing", "--approve-first-use"]), Agent::new());
    assert_eq!(agent.enroll(&collector, &[]).0, 0);
    let old = agent.key();
    let state = collector.state.clone();
    let address = collector.address();
    collector.end();
    let mut away = nodegate();
    away.args(["key", "rotate", "--collector", &format!("http://{address}"), "--state"]).arg(agent.state());
    let (status, _, error) = told(&away.output().unwrap());
    assert!(status == 2 && error.contains("did not answer"), "{error}");
    assert_eq!(agent.key(), old);
    let next = std::fs::read(agent.state().join("next.pem")).unwrap();

    let collector = Collector::again(state, &["--open-writing", "--approve-first-use"]);
    let (status, said, error) = agent.run(&["key", "rotate"], &collector, &["--type", "p256"]);
    assert!(status == 0 && said.contains("wants a new run"), "{said}{error}");
    assert_ne!(agent.key(), old);
    assert_eq!(std::fs::read(agent.state().join("key.pem")).unwrap(), next);
    let (_, listed, _) = keys(&collector, &["list"]);
    let line = |key: &str| listed.lines().find(|line| line.contains(key)).unwrap().to_owned();
    assert!(line(&old).starts_with("retired") && line(&agent.key()).starts_with("approved"), "{listed}");
    let shown = nodegate().args(["key", "show", "--format", "text", "--state"]).arg(agent.state()).output().unwrap();
    let (_, shown, _) = told(&shown);
    assert!(shown.contains(&format!("retired  {old}")) && shown.contains("held by  the key file"), "{shown}");
}

#[test]
fn a_rotation_that_was_killed_after_the_collectors_answer_is_finished_by_the_next_one() {
    let (collector, agent) = (Collector::start(&["--open-writing", "--approve-first-use"]), Agent::new());
    assert_eq!(agent.enroll(&collector, &[]).0, 0);
    let keep: Vec<(PathBuf, Vec<u8>)> = ["key.pem", "key.pub", "state.json"]
        .map(|name| agent.state().join(name))
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .to_vec();
    assert_eq!(agent.run(&["key", "rotate"], &collector, &[]).0, 0);
    let new = agent.key();
    // The folder as it was when the answer came and nothing was switched yet.
    std::fs::rename(agent.state().join("key.pem"), agent.state().join("next.pem")).unwrap();
    for (path, bytes) in &keep {
        std::fs::remove_file(path).ok();
        keyfile::write_secret(path, std::str::from_utf8(bytes).unwrap().trim_end()).unwrap();
    }
    assert_ne!(agent.key(), new);
    let (status, said, error) = agent.run(&["key", "rotate"], &collector, &[]);
    assert_eq!(status, 0, "{said}{error}");
    assert_eq!(agent.key(), new);
}

#[test]
fn the_sites_collector_and_its_credential_are_used_and_a_missing_one_is_said() {
    let (state, agent) = (std::sync::Arc::new(tempfile::tempdir().unwrap()), Agent::new());
    let mut new = nodegate();
    new.args(["collector", "token", "new", "--role", "writer", "--name", "agents", "--state"]).arg(state.path());
    let (status, token, error) = told(&new.output().unwrap());
    assert_eq!(status, 0, "{error}");
    let collector = Collector::again(state, &["--open-reading", "--behind-proxy"]);
    let credential = agent.write("token", token.lines().next().unwrap().trim());
    let url = format!("http://{}", collector.address());
    let site =
        agent.write("site.toml", &format!("format = 1\n[collector]\nurl = \"{url}\"\ncredential = \"{credential}\"\n"));
    let mut enroll = nodegate();
    enroll.args(["enroll", "--site", &site, "--state"]).arg(agent.state());
    let (status, said, error) = told(&enroll.output().unwrap());
    assert!(status == 0 && said.contains("first-use  pending"), "{said}{error}");
    let (status, _, error) = agent.enroll(&collector, &[]);
    assert!(status == 2 && error.contains("401"), "{error}");
}

#[test]
fn a_delivery_introduces_the_hosts_key_by_its_last_record_and_a_recording_its_throw_away_key() {
    let collector = Collector::start(&["--open-writing", "--accept-simulated"]);
    let target = Target::at(format!("http://{}", collector.address()).parse().unwrap());
    let (documents, folder) = (sample::documents(), tempfile::tempdir().unwrap());
    let store = Store::for_host(folder.path(), &documents.host).unwrap();
    assert!(matches!(enrol::first_use(folder.path(), &target), Err(enrol::NotEnrolled::NoRecord)));
    store.commit(sample::details(), &documents).unwrap();
    let enrolled = enrol::first_use(folder.path(), &target).unwrap();
    assert_eq!((enrolled.keyid, enrolled.state.as_str()), (store.public_key().keyid(), "pending"));
    let kept = collector.store().key(&store.public_key().keyid()).unwrap().unwrap();
    assert_eq!((kept.host, kept.serial.as_deref()), (documents.host.digest(), Some(sample::SERIAL)));
    let recording = Store::for_recording(folder.path()).unwrap();
    let enrolled = enrol::introduce(&recording, &documents.host, "gpu-r12-u07", &target).unwrap();
    assert_eq!((enrolled.tier, enrolled.state.as_str()), (Tier::Simulated, "approved"));
}

#[test]
fn what_is_no_proof_or_no_collector_is_a_usage_error() {
    let agent = Agent::new();
    let enroll = |arguments: &[&str]| {
        let mut command = nodegate();
        command.arg("enroll").args(arguments).arg("--state").arg(agent.state());
        told(&command.output().unwrap())
    };
    assert_eq!(enroll(&["--site", "/dev/null"]).0, 64);
    assert_eq!(enroll(&["--collector", "http://127.0.0.1:9", "--tpm", "--token-file", "x"]).0, 64);
    assert_eq!(enroll(&["--collector", "http://127.0.0.1:9", "--certificate", "x"]).0, 64);
    assert_eq!(enroll(&["--collector", "http://127.0.0.1:9", "--token-file", "/nonexistent"]).0, 64);
    let (status, _, error) = enroll(&["--collector", "http://127.0.0.1:9"]);
    assert!(status == 2 && error.contains("127.0.0.1:9 did not answer"), "{error}");
}
