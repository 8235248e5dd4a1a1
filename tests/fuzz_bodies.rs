//! Whatever body is posted: the collector's readers answer, in words that can be printed, within the
//! bytes that they were given, and never panic.
//!
//! Bodies are of four kinds: pieces in disorder; a real record with some bytes changed; a payload of
//! any kind under a signature that holds; and gzip of all these, damaged or not.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "store/host.rs"]
mod host;
#[path = "record/sample.rs"]
mod sample;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use host::Host;
use nodegate::collector::api::unpack;
use nodegate::collector::intake::{self, Signer};
use nodegate::collector::model::{KeyState, Refusal};
use nodegate::record::dsse::{Envelope, PAYLOAD_TYPE, Signature, decode_base64, pre_authentication_encoding};
use nodegate::record::enrolment;
use nodegate::record::standing::Tier;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

const LIMIT: usize = 64 * 1024;

const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"payload\":",
    "\"payloadType\":\"application/vnd.in-toto+json\"",
    "\"signatures\":[{\"keyid\":\"k\",\"sig\":\"AA==\"}]",
    "\"dsseEnvelope\":",
    "\"mediaType\":\"application/vnd.dev.sigstore.bundle.v0.3+json\"",
    "\"enrolment\":",
    "\"proof\":{\"tier\":\"token\"}",
    "\"_type\":\"https://in-toto.io/Statement/v1\"",
    "\"subject\":[{\"name\":\"host.json\",\"digest\":{\"sha256\":\"00\"}}]",
    "\"nodegate\":{\"schema\":99999999999}",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "1e400",
    "-0",
    "9007199254740993",
    "null",
    "true",
    "\u{202e}",
    "\u{feff}",
    "\\",
];

/// A record of a known host, and its key as raw bytes can be signed with.
struct Known {
    signer: Signer,
    pair: Ed25519KeyPair,
    record: Vec<u8>,
    payload: Vec<u8>,
}

impl Known {
    fn new() -> Known {
        let mut host = Host::new("a");
        let record = host.record(|_| ()).raw;
        let pem: String = host.key.to_pem().lines().filter(|line| !line.starts_with("-----")).collect();
        let pair = Ed25519KeyPair::from_pkcs8(&STANDARD.decode(pem).unwrap()).unwrap();
        let envelope: Envelope = serde_json::from_slice(&record).unwrap();
        let key = host.key.public_key().clone();
        let signer = Signer { key, tier: Tier::Token, state: KeyState::Approved, reason: None, host: host.digest() };
        Known { signer, pair, payload: decode_base64(&envelope.payload).unwrap(), record }
    }

    /// An envelope around these bytes whose signature holds.
    fn sign(&self, payload: &[u8]) -> Vec<u8> {
        let sig = STANDARD.encode(self.pair.sign(&pre_authentication_encoding(PAYLOAD_TYPE, payload)));
        let signature = Signature { keyid: self.signer.key.keyid(), sig };
        let payload_type = PAYLOAD_TYPE.to_owned();
        Envelope { payload: STANDARD.encode(payload), payload_type, signatures: vec![signature] }.to_json()
    }

    /// What becomes of a body, as a word for the figures.
    fn judge(&self, body: &[u8]) -> Result<&'static str, TestCaseError> {
        let read = intake::read(body.to_vec(), false, |keyid| {
            Ok((keyid == self.signer.key.keyid()).then(|| self.signer.clone()))
        });
        let _enrolment = enrolment::read(body);
        match read {
            Ok(taken) => {
                prop_assert!(!taken.hostname.chars().any(char::is_control));
                prop_assert_eq!(taken.raw.as_slice(), body);
                Ok("taken")
            }
            Err(refusal) => {
                let text = refusal.to_string();
                prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
                prop_assert!(text.chars().count() < 2000, "{} characters", text.chars().count());
                Ok(refusal.status().1)
            }
        }
    }

    fn judge_packed(&self, packed: &[u8]) -> Result<&'static str, TestCaseError> {
        match unpack(packed, LIMIT) {
            Ok(body) => {
                prop_assert!(body.len() <= LIMIT);
                self.judge(&body)
            }
            Err(Refusal::TooLarge(_)) => Ok("too-large"),
            Err(refusal) => {
                prop_assert!(matches!(refusal, Refusal::Malformed(_)));
                Ok("not-gzip")
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Body {
    Pieces(Vec<u8>),
    /// A record, or a signed payload, with these changes.
    Changed {
        signed: bool,
        changes: Vec<Change>,
    },
    Packed(Box<Body>, Vec<Change>),
}

#[derive(Clone, Debug)]
enum Change {
    Flip(usize, u8),
    Cut(usize),
    Insert(usize, Vec<u8>),
    /// From, length, to: something is said again elsewhere.
    Repeat(usize, usize, usize),
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => proptest::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => any::<char>().prop_map(|c| c.to_string().into_bytes()),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, bits)| Change::Flip(at, bits)),
        any::<usize>().prop_map(Change::Cut),
        (any::<usize>(), pieces()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<usize>(), 0..200_usize, any::<usize>()).prop_map(|(from, length, to)| Change::Repeat(from, length, to)),
    ];
    proptest::collection::vec(change, 0..4)
}

fn bodies() -> impl Strategy<Value = Body> {
    let plain = prop_oneof![
        1 => pieces().prop_map(Body::Pieces),
        3 => (any::<bool>(), changes()).prop_map(|(signed, changes)| Body::Changed { signed, changes }),
    ];
    (plain, proptest::option::weighted(0.3, changes())).prop_map(|(body, packed)| match packed {
        Some(changes) => Body::Packed(Box::new(body), changes),
        None => body,
    })
}

fn change(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let at = |at: usize, bytes: &[u8]| if bytes.is_empty() { 0 } else { at % bytes.len() };
        match change {
            Change::Flip(place, bits) if !bytes.is_empty() => {
                let place = at(*place, &bytes);
                bytes[place] ^= bits;
            }
            Change::Flip(..) => {}
            Change::Cut(place) => bytes.truncate(at(*place, &bytes)),
            Change::Insert(place, more) => {
                let place = at(*place, &bytes);
                bytes.splice(place..place, more.iter().copied());
            }
            Change::Repeat(from, length, to) => {
                let (from, to) = (at(*from, &bytes), at(*to, &bytes));
                let again = bytes[from..(from + length).min(bytes.len())].to_vec();
                bytes.splice(to..to, again);
            }
        }
    }
    bytes
}

fn bytes_of(known: &Known, body: &Body) -> Vec<u8> {
    match body {
        Body::Pieces(bytes) => bytes.clone(),
        Body::Changed { signed: false, changes } => change(known.record.clone(), changes),
        Body::Changed { signed: true, changes } => known.sign(&change(known.payload.clone(), changes)),
        Body::Packed(body, changes) => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&bytes_of(known, body)).unwrap();
            change(encoder.finish().unwrap(), changes)
        }
    }
}

fn outcome(known: &Known, body: &Body) -> Result<&'static str, TestCaseError> {
    let bytes = bytes_of(known, body);
    match body {
        Body::Packed(..) => known.judge_packed(&bytes),
        _ => known.judge(&bytes),
    }
}

#[test]
fn whatever_is_posted_gets_an_answer() {
    let known = Known::new();
    assert_eq!(known.judge(&known.record).unwrap(), "taken");
    assert_eq!(known.judge(&known.sign(&known.payload)).unwrap(), "taken");
    TestRunner::default().run(&bodies(), |body| outcome(&known, &body).map(drop)).unwrap();
}

#[test]
#[ignore = "for tests/run --long"]
fn campaign() {
    let (known, mut runner) = (Known::new(), TestRunner::default());
    let (strategy, began) = (bodies(), Instant::now());
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    while began.elapsed() < Duration::from_secs(120) {
        let body = strategy.new_tree(&mut runner).unwrap().current();
        let outcome = outcome(&known, &body).unwrap_or_else(|error| panic!("{error}: {body:?}"));
        *outcomes.entry(outcome).or_default() += 1;
    }
    let bodies: u64 = outcomes.values().sum();
    println!("{bodies} bodies in {:.0} s, no panic: {outcomes:?}", began.elapsed().as_secs_f64());
    assert!(["taken", "malformed", "not-gzip"].iter().all(|outcome| outcomes.contains_key(outcome)), "{outcomes:?}");
}
