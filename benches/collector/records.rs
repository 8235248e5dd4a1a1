//! Records by the thousand: one real record as a template, signed by many keys.

use std::path::Path;
use std::process::Command;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate::ident::Digest;
use nodegate::record::PublicKey;
use nodegate::record::dsse::{PAYLOAD_TYPE, pre_authentication_encoding};
use serde_json::{Value, json};

/// Bytes of a payload.
const SIZE: usize = 20_000;
const RUN: &str = "0197aaaa-0000-7000-8000-00000000aaaa";
const HOST: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const NAME: &str = "bench-host-name";
const PREVIOUS: &str = "2222222222222222222222222222222222222222222222222222222222222222";
const SEQUENCE: u64 = 9_007_199_254;

/// The payload of one record with holes.
pub struct Template {
    first: String,
    later: String,
}

/// One host with its key and its chain.
pub struct Member {
    number: usize,
    pair: Ed25519KeyPair,
    pub key: PublicKey,
    pub host: Digest,
    pub hostname: String,
    sent: u64,
    previous: Digest,
}

impl Template {
    /// From a run on the recorded 8-GPU host; measurements are dropped until it has the size.
    pub fn of_a_run(folder: &Path) -> Template {
        let ran = Command::new(env!("CARGO_BIN_EXE_nodegate"))
            .args(["run", "--fixture", "fixtures/hosts/hgx-h100-8", "--format", "json", "--state"])
            .arg(folder.join("template"))
            .arg("--record")
            .arg(folder.join("template.json"))
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let envelope: Value = serde_json::from_slice(&std::fs::read(folder.join("template.json")).unwrap()).unwrap();
        let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
        let mut statement: Value = serde_json::from_slice(&payload).unwrap();
        for tests in ["passedTests", "warnedTests"] {
            for test in statement["predicate"][tests].as_array_mut().unwrap() {
                *test = json!(test.as_str().unwrap().trim_start_matches("simulated:"));
            }
        }
        statement["subject"][0]["digest"]["sha256"] = json!(HOST);
        let details = &mut statement["predicate"]["nodegate"];
        details["simulated"] = json!(false);
        details["runId"] = json!(RUN);
        details["seq"] = json!(SEQUENCE);
        details["host"]["hostname"] = json!(NAME);
        trim(&mut statement);
        let first = statement.to_string();
        statement["predicate"]["nodegate"]["prev"] = json!(format!("sha256:{PREVIOUS}"));
        Template { first, later: statement.to_string() }
    }

    pub fn bytes(&self) -> usize {
        self.later.len()
    }
}

fn trim(statement: &mut Value) {
    let steps = statement["predicate"]["nodegate"]["steps"].as_array().unwrap().len();
    for step in (0..steps).cycle() {
        if statement.to_string().len() <= SIZE {
            return;
        }
        let measurements = statement["predicate"]["nodegate"]["steps"][step]["measurements"].as_array_mut();
        measurements.unwrap().pop();
    }
}

impl Member {
    pub fn new(number: usize) -> Member {
        let pair = Ed25519KeyPair::generate().unwrap();
        let spki =
            [&[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00], pair.public_key().as_ref()];
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(spki.concat()));
        Member {
            number,
            pair,
            key: PublicKey::parse(&pem).unwrap(),
            host: Digest::of(format!("host {number}").as_bytes()),
            hostname: format!("gpu-r{:03}-u{:02}", number / 40, number % 40),
            sent: 0,
            previous: Digest([0; 32]),
        }
    }

    /// The next record of this host's chain, and the digest of its payload.
    pub fn next(&mut self, template: &Template) -> (Vec<u8>, Digest) {
        self.sent += 1;
        let text = if self.sent == 1 { &template.first } else { &template.later };
        let run = format!("0197{:04x}-0000-7000-8000-{:012x}", self.sent, self.number);
        let payload = text
            .replacen(RUN, &run, 1)
            .replacen(HOST, &self.host.hex(), 1)
            .replacen(NAME, &self.hostname, 1)
            .replacen(PREVIOUS, &self.previous.hex(), 1)
            .replacen(&format!("\"seq\":{SEQUENCE}"), &format!("\"seq\":{}", self.sent), 1);
        let signature = self.pair.sign(&pre_authentication_encoding(PAYLOAD_TYPE, payload.as_bytes()));
        self.previous = Digest::of(payload.as_bytes());
        let envelope = format!(
            "{{\"payload\":\"{}\",\"payloadType\":\"{PAYLOAD_TYPE}\",\"signatures\":[{{\"keyid\":\"{}\",\"sig\":\"{}\"}}]}}\n",
            STANDARD.encode(payload.as_bytes()),
            self.key.keyid(),
            STANDARD.encode(signature)
        );
        (envelope.into_bytes(), self.previous)
    }
}
