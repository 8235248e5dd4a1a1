//! The way to a collector: whose certificate counts, what is shown to it, through which proxy, and by
//! which keys its receipts count after a change of keys.

#[path = "delivery/peer.rs"]
mod peer;
#[path = "transport/proxy.rs"]
mod proxy;
#[path = "record/sample.rs"]
mod sample;
#[path = "transport/server.rs"]
mod server;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use nodegate::record::dsse::Envelope;
use nodegate::record::receipt_keys::{FORMAT, ReceiptKey, ReceiptKeys, rotate};
use nodegate::record::{CollectorKey, Receipt, Store, receipt};
use peer::{Peer, Request, respond};
use proxy::Proxy;
use serde_json::Value;
use server::{Authority, Identity, Server, authority, client};
use tempfile::TempDir;

/// A name that no resolver knows: only a proxy gets there.
const AWAY: &str = "collector.invalid";

/// A host with one record that waits, and a folder for its site file.
struct Host {
    state: TempDir,
    place: TempDir,
    key: CollectorKey,
}

struct Delivered {
    exit: i32,
    said: String,
    stdout: String,
}

impl Host {
    fn new() -> Host {
        let (state, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let host = Host { state, place, key: CollectorKey::generate() };
        host.commit();
        host.write("collector.pub", &host.key.public_key().to_pem(), 0o644);
        host
    }

    fn commit(&self) {
        let documents = sample::documents();
        let store = Store::for_host(self.state.path(), &documents.host).unwrap();
        store.commit(sample::details(), &documents).unwrap();
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.place.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The site file: this collector with the pinned key, and these lines.
    fn site(&self, url: &str, more: &str) {
        let key = self.place.path().join("collector.pub");
        let text = format!("format = 1\n[collector]\nurl = \"{url}\"\nreceipt-key = \"{}\"\n{more}\n", key.display());
        self.write("site.toml", &text, 0o644);
    }

    /// The line that names a file in this place.
    fn line(&self, key: &str, name: &str, text: &str, mode: u32) -> String {
        format!("{key} = \"{}\"\n", self.write(name, text, mode).display())
    }

    fn trusting(&self, authority: &Authority) -> String {
        self.line("ca", "ca.pem", &authority.pem(), 0o644)
    }

    fn showing(&self, identity: &Identity) -> String {
        self.line("client-certificate", "host.pem", &identity.certificate, 0o644)
            + &self.line("client-key", "host.key", &identity.key, 0o600)
    }

    /// `nodegate deliver` with this environment and these arguments.
    fn deliver(&self, environment: &[(&str, &str)], more: &[&str]) -> Delivered {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("nodegate"));
        for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"] {
            command.env_remove(name);
        }
        command.args(["deliver", "--site"]).arg(self.place.path().join("site.toml"));
        command.arg("--state").arg(self.state.path()).args(more).stdin(Stdio::null());
        let output = command.envs(environment.iter().copied()).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let said = format!("{stdout}{}", String::from_utf8(output.stderr).unwrap());
        Delivered { exit: output.status.code().unwrap_or(-1), said, stdout }
    }

    /// A server that gives receipts by this host's pinned key.
    fn server(&self, name: &str, authority: &Authority, clients: Option<&Authority>) -> Server {
        let key = CollectorKey::parse(&self.key.to_pem()).unwrap();
        Server::start(name, authority, clients, move |request| receipt_by(&key, request).to_json())
    }

    fn waits(&self) -> bool {
        fs::read_dir(self.state.path().join("spool")).unwrap().count() > 0
    }

    #[track_caller]
    fn assert_sent(&self, delivered: &Delivered) {
        assert!(delivered.exit == 0 && !self.waits(), "{} {}", delivered.exit, delivered.said);
    }

    #[track_caller]
    fn assert_waits(&self, delivered: &Delivered, causes: &[&str]) {
        assert!(delivered.exit == 3 && self.waits(), "{} {}", delivered.exit, delivered.said);
        assert!(causes.iter().any(|cause| delivered.said.contains(cause)), "{causes:?}: {}", delivered.said);
    }
}

fn receipt_by(key: &CollectorKey, request: &Request) -> Envelope {
    let receipt = Receipt {
        payload: request.payload(),
        received_at: Timestamp::now(),
        run_id: request.run_id(),
        tier: None,
        flags: Vec::new(),
        ledger: None,
    };
    receipt::sign(&receipt, key)
}

#[test]
fn the_fleets_authority_is_trusted_and_no_other_one() {
    let (ours, other) = (authority(), authority());
    let host = Host::new();
    let server = host.server("localhost", &ours, None);
    let url = format!("https://localhost:{}", server.port);
    // Nobody on this system vouches for it.
    host.site(&url, "");
    host.assert_waits(&host.deliver(&[], &[]), &["UnknownIssuer"]);
    host.site(&url, &host.trusting(&other));
    host.assert_waits(&host.deliver(&[], &[]), &["UnknownIssuer", "BadSignature"]);
    assert_eq!(server.count(), 0, "a request went to a server that was not trusted");
    host.site(&url, &host.trusting(&ours));
    host.assert_sent(&host.deliver(&[], &[]));
    assert_eq!(server.count(), 1);
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let ours = authority();
    let host = Host::new();
    let server = host.server("other.example", &ours, None);
    host.site(&format!("https://localhost:{}", server.port), &host.trusting(&ours));
    host.assert_waits(&host.deliver(&[], &[]), &["not valid for name", "NotValidForName"]);
    assert_eq!(server.count(), 0);
}

#[test]
fn the_body_arrives_compressed_and_is_the_same_behind() {
    let ours = authority();
    let host = Host::new();
    let server = host.server("localhost", &ours, None);
    host.site(&format!("https://localhost:{}", server.port), &host.trusting(&ours));
    host.assert_sent(&host.deliver(&[], &[]));
    server.heard(|heard| {
        let request = &heard[0].request;
        let record = host.state.path().join("records").join(format!("{}.json", request.run_id()));
        assert_eq!(request.body, fs::read(record).unwrap());
        assert_eq!(request.header("content-encoding"), Some("gzip"));
        let sent: usize = request.header("content-length").unwrap().parse().unwrap();
        assert!(sent < request.body.len(), "{sent} bytes of {}", request.body.len());
    });
}

#[test]
fn a_client_certificate_is_shown_to_the_sites_collector_alone() {
    let (ours, fleet, stranger) = (authority(), authority(), authority());
    let host = Host::new();
    let server = host.server("localhost", &ours, Some(&fleet));
    let url = format!("https://localhost:{}", server.port);
    let refused = ["certificate", "Certificate", "UnknownCA", "UnknownCa", "alert"];
    host.site(&url, &host.trusting(&ours));
    host.assert_waits(&host.deliver(&[], &[]), &refused);
    host.site(&url, &(host.trusting(&ours) + &host.showing(&client(&stranger))));
    host.assert_waits(&host.deliver(&[], &[]), &refused);
    // The site's certificate is not for a collector that only the command line names.
    host.site("https://collector.example", &(host.trusting(&ours) + &host.showing(&client(&fleet))));
    host.assert_waits(&host.deliver(&[], &["--collector", &url]), &refused);
    assert_eq!(server.count(), 0);
    host.site(&url, &(host.trusting(&ours) + &host.showing(&client(&fleet))));
    host.assert_sent(&host.deliver(&[], &[]));
    assert!(server.heard(|heard| heard.len() == 1 && heard[0].showed_a_certificate));
}

#[test]
fn the_sites_proxy_is_the_way_and_sees_nothing_but_the_name() {
    let ours = authority();
    let host = Host::new();
    let server = host.server(AWAY, &ours, None);
    let proxy = Proxy::to(server.port);
    let elsewhere = Proxy::refusing("HTTP/1.1 502 Bad Gateway\r\n\r\n");
    host.site(&format!("https://{AWAY}:8443"), &format!("{}proxy = \"{}\"\n", host.trusting(&ours), proxy.url()));
    // The site's word stands above the caller's, which would send it elsewhere or nowhere.
    let environment = [("HTTPS_PROXY", elsewhere.url()), ("NO_PROXY", AWAY.to_owned())];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    host.assert_sent(&host.deliver(&environment, &[]));
    let [asked] = &proxy.asked()[..] else { panic!("{:?}", proxy.asked()) };
    assert!(asked.starts_with(&format!("CONNECT {AWAY}:8443 HTTP/1.1")), "{asked}");
    assert!(elsewhere.asked().is_empty());
    assert_eq!(server.count(), 1);
}

#[test]
fn a_proxy_cannot_stand_in_for_the_collector() {
    let (ours, other) = (authority(), authority());
    let host = Host::new();
    let impostor = host.server(AWAY, &other, None);
    let proxy = Proxy::to(impostor.port);
    host.site(&format!("https://{AWAY}"), &format!("{}proxy = \"{}\"\n", host.trusting(&ours), proxy.url()));
    host.assert_waits(&host.deliver(&[], &[]), &["UnknownIssuer", "BadSignature"]);
    assert_eq!((proxy.asked().len(), impostor.count()), (1, 0));
}

#[test]
fn the_callers_proxy_is_used_but_not_for_this_machine_or_where_it_says_so() {
    let ours = authority();
    let away = Host::new();
    let server = away.server(AWAY, &ours, None);
    let proxy = Proxy::to(server.port);
    let url = proxy.url();
    away.site(&format!("https://{AWAY}"), &away.trusting(&ours));
    let direct = away.deliver(&[("HTTPS_PROXY", &url), ("NO_PROXY", AWAY)], &[]);
    assert!(direct.exit == 3 && proxy.asked().is_empty(), "{}", direct.said);
    // The other spelling.
    away.assert_sent(&away.deliver(&[("https_proxy", &url)], &[]));
    assert_eq!((proxy.asked().len(), server.count()), (1, 1));

    for name in ["localhost", "127.0.0.1"] {
        let here = Host::new();
        let server = here.server(name, &ours, None);
        let proxy = Proxy::to(server.port);
        let more = here.trusting(&ours);
        here.site(&format!("https://{name}:{}", server.port), &more);
        here.assert_sent(&here.deliver(&[("HTTPS_PROXY", &proxy.url())], &[]));
        // Not even the site's own.
        here.commit();
        here.site(&format!("https://{name}:{}", server.port), &format!("{more}proxy = \"{}\"\n", proxy.url()));
        here.assert_sent(&here.deliver(&[], &[]));
        assert_eq!((proxy.asked().len(), server.count()), (0, 2), "{name}");
    }
}

#[test]
fn a_proxys_password_reaches_the_proxy_and_no_output() {
    let ours = authority();
    let host = Host::new();
    let server = host.server(AWAY, &ours, None);
    let through = Proxy::to(server.port);
    let refusing = Proxy::refusing("HTTP/1.1 407 hunter2-secret\r\nContent-Length: 0\r\n\r\n");
    host.site(&format!("https://{AWAY}"), &host.trusting(&ours));
    for (proxy, exit) in [(&refusing, 3), (&through, 0)] {
        let with_password = proxy.url().replace("http://", "http://ada:hunter2-secret@");
        let sent = host.deliver(&[("HTTPS_PROXY", &with_password)], &["-vv"]);
        assert_eq!(sent.exit, exit, "{}", sent.said);
        assert!(!sent.said.contains("hunter2-secret"), "{}", sent.said);
        // ada:hunter2-secret
        let asked = proxy.asked().join("\n").to_lowercase();
        assert!(asked.contains(&"proxy-authorization: Basic YWRhOmh1bnRlcjItc2VjcmV0".to_lowercase()), "{asked}");
    }
    let kept = Command::new("grep").args(["-r", "hunter2-secret"]).arg(host.state.path()).output().unwrap();
    assert_eq!(kept.status.code(), Some(1), "{}", String::from_utf8_lossy(&kept.stdout));
    // In a site file, which others read, it is refused.
    host.site("https://collector.example", "proxy = \"http://ada:hunter2-secret@127.0.0.1:9\"");
    let refused = host.deliver(&[], &[]);
    assert!(refused.exit == 64 && !refused.said.contains("hunter2-secret"), "{} {}", refused.exit, refused.said);
}

#[test]
fn a_wish_to_be_left_alone_until_a_date_is_heeded() {
    let host = Host::new();
    let until = SystemTime::now() + Duration::from_secs(2 * 3600);
    let header = format!("Retry-After: {}\r\n", httpdate::fmt_http_date(until));
    let peer = Peer::new(move |_, stream| respond(stream, "429 Too Many Requests", &header, b""));
    host.site(&peer.url, "");
    let sent = host.deliver(&[], &["--format", "json"]);
    host.assert_waits(&sent, &["answered 429"]);
    let told: Value = serde_json::from_str(&sent.stdout).unwrap();
    let not_before: Timestamp = told["notBefore"].as_str().unwrap().parse().unwrap();
    // The header has whole seconds, and what is kept is a wait from when it came.
    let off = not_before.as_second().abs_diff(Timestamp::try_from(until).unwrap().as_second());
    assert!(off <= 2, "{not_before} is {off} s off");
    host.assert_waits(&host.deliver(&[], &[]), &["not tried again before"]);
    assert_eq!(peer.heard().len(), 1);
}

fn listed(key: &CollectorKey, rotation: Option<Envelope>) -> ReceiptKey {
    let public = key.public_key();
    ReceiptKey { keyid: public.keyid(), public_key: public.to_pem(), rotation }
}

fn shown(keys: Vec<ReceiptKey>) -> Vec<u8> {
    serde_json::to_vec(&ReceiptKeys { format: FORMAT, keys }).unwrap()
}

/// A collector whose receipts are by this key, and that shows this list of keys.
fn showing(signer: &CollectorKey, list: Vec<u8>) -> Peer {
    let signer = CollectorKey::parse(&signer.to_pem()).unwrap();
    Peer::answering_all(move |request, stream| match request.line.as_str() {
        "GET /v1/receipt-keys HTTP/1.1" => respond(stream, "200 OK", "", &list),
        _ if request.is_a_record() => respond(stream, "201 Created", "", &receipt_by(&signer, request).to_json()),
        _ => respond(stream, "404 Not Found", "", b""),
    })
}

fn asked_for_keys(peer: &Peer) -> usize {
    peer.heard_at_all().iter().filter(|request| request.line.starts_with("GET /v1/receipt-keys ")).count()
}

#[test]
fn the_pinned_key_is_followed_to_the_one_that_took_its_place_and_asked_for_once() {
    let host = Host::new();
    let [second, third] = [(); 2].map(|()| CollectorKey::generate());
    let now = Timestamp::now();
    let list = shown(vec![
        listed(&host.key, None),
        listed(&second, Some(rotate(&host.key, &second, now))),
        listed(&third, Some(rotate(&second, &third, now))),
    ]);
    let peer = showing(&third, list);
    host.site(&peer.url, "");
    host.assert_sent(&host.deliver(&[], &[]));
    assert_eq!(asked_for_keys(&peer), 1);
    // What was learned holds for the next process.
    host.commit();
    host.assert_sent(&host.deliver(&[], &[]));
    assert_eq!((asked_for_keys(&peer), peer.heard().len()), (1, 2));
}

#[test]
fn a_key_that_no_chain_joins_to_the_pinned_one_is_never_trusted() {
    let host = Host::new();
    let [thief, other] = [(); 2].map(|()| CollectorKey::generate());
    let now = Timestamp::now();
    let mut named_alike = rotate(&other, &thief, now);
    named_alike.signatures[0].keyid = host.key.public_key().keyid();
    let mut pinned_alone = rotate(&host.key, &thief, now);
    pinned_alone.signatures.truncate(1);
    for rotation in [None, Some(rotate(&other, &thief, now)), Some(named_alike), Some(pinned_alone)] {
        let list = shown(vec![listed(&host.key, None), listed(&thief, rotation)]);
        let peer = showing(&thief, list.clone());
        host.site(&peer.url, "");
        host.assert_waits(&host.deliver(&[], &[]), &["none of the given keys"]);
        assert_eq!(asked_for_keys(&peer), 1);
        // Nor where somebody has put the list into the state folder.
        fs::write(host.state.path().join("receipt-keys.json"), &list).unwrap();
        host.assert_waits(&host.deliver(&[], &[]), &["none of the given keys"]);
        fs::remove_file(host.state.path().join("receipt-keys.json")).unwrap();
        assert!(receipts(host.state.path()).is_empty());
    }
}

fn receipts(state: &Path) -> Vec<String> {
    let names = fs::read_dir(state.join("records")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".receipt.json")).collect()
}
