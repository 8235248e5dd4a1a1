//! A collector's desk: a real store, and hosts that come to enrol.

#![allow(dead_code, reason = "each test crate uses its own part")]

use jiff::Timestamp;
use nodegate::collector::enrol::{Outcome, Settings, enrol};
use nodegate::collector::model::{Key, KeyState, Refusal};
use nodegate::collector::store::{self, JoinToken as KnownToken, Store};
use nodegate::facts::HostFacts;
use nodegate::ident::Digest;
use nodegate::reading::Reading;
use nodegate::record::dsse::Envelope;
use nodegate::record::enrolment::{Enrolment, FORMAT, JoinToken, Proof, Request};
use nodegate::record::identity::host_document;
use nodegate::record::{HostDocument, HostKey, NewKey};

pub const SERIAL: &str = "S452393X4309021";
pub const OTHER_SERIAL: &str = "S452393X4309022";
pub const HOSTNAME: &str = "gpu-r12-u07";

pub struct Desk {
    pub store: Store,
    pub settings: Settings,
    _folder: tempfile::TempDir,
}

/// A host with a key, as it enrols.
pub struct Applicant {
    pub key: HostKey,
    pub host: HostDocument,
    pub hostname: String,
}

impl Desk {
    pub fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let store = Store::attend(&url, store::Settings::default()).unwrap();
        Desk { store, settings: Settings::default(), _folder: folder }
    }

    pub fn nonce(&self, key: &HostKey) -> String {
        self.store.challenge(&key.public_key().keyid(), Timestamp::now()).0
    }

    pub fn send(&self, enrolment: &Envelope, proof: Proof) -> Result<Outcome, Refusal> {
        self.send_at(enrolment, proof, Timestamp::now())
    }

    pub fn send_at(&self, enrolment: &Envelope, proof: Proof, now: Timestamp) -> Result<Outcome, Refusal> {
        let request = Request { enrolment: enrolment.clone(), proof };
        enrol(&serde_json::to_vec(&request).unwrap(), &self.store, &self.settings, now)
    }

    /// Comes with a fresh nonce and this proof.
    pub fn come(&self, applicant: &Applicant, proof: impl FnOnce(&Envelope) -> Proof) -> Result<(Key, bool), Refusal> {
        let envelope = applicant.enrolment(&self.nonce(&applicant.key));
        let proof = proof(&envelope);
        self.send(&envelope, proof).map(enrolled)
    }

    pub fn first_use(&self, applicant: &Applicant) -> Result<(Key, bool), Refusal> {
        self.come(applicant, |_| Proof::FirstUse {})
    }

    /// A join token for this serial number that is good until this time.
    pub fn token(&self, serial: &str, expires_at: Timestamp) -> Proof {
        let token = JoinToken::generate().unwrap();
        self.store
            .put_join_token(KnownToken {
                digest: token.digest(),
                serial: serial.to_owned(),
                created_by: "kim".to_owned(),
                created_at: Timestamp::now(),
                expires_at,
                used_at: None,
                used_by: None,
            })
            .unwrap();
        Proof::Token { id: token.id, secret: token.secret }
    }

    pub fn state(&self, key: &HostKey) -> Option<KeyState> {
        self.store.key(&key.public_key().keyid()).unwrap().map(|key| key.state)
    }
}

impl Applicant {
    pub fn new() -> Applicant {
        Applicant::with(HostKey::generate(nodegate::record::Algorithm::Ed25519))
    }

    pub fn with(key: HostKey) -> Applicant {
        Applicant { key, host: host(SERIAL), hostname: HOSTNAME.to_owned() }
    }

    pub fn made(new: &NewKey) -> Applicant {
        Applicant::with(new.make().unwrap())
    }

    pub fn statement(&self, challenge: &str) -> Enrolment {
        Enrolment {
            format: FORMAT,
            public_key: self.key.public_key().to_pem(),
            host: self.host.clone(),
            hostname: self.hostname.clone(),
            at: Timestamp::now(),
            challenge: challenge.to_owned(),
            simulated: false,
            replaces: None,
        }
    }

    pub fn enrolment(&self, challenge: &str) -> Envelope {
        self.key.enrol(self.statement(challenge)).unwrap()
    }

    /// The enrolment of this key in the place of another, signed by both.
    pub fn succession(&self, old: &HostKey, challenge: &str) -> Envelope {
        let replaces = Some(old.public_key().keyid());
        let envelope = self.key.enrol(Enrolment { replaces, ..self.statement(challenge) }).unwrap();
        old.endorse(envelope).unwrap()
    }
}

pub fn host(serial: &str) -> HostDocument {
    let mut facts = HostFacts::default();
    facts.dmi.board_serial = Reading::Value(serial.to_owned());
    host_document(&facts)
}

pub fn enrolled(outcome: Outcome) -> (Key, bool) {
    match outcome {
        Outcome::Enrolled { key, created } => (*key, created),
        Outcome::Challenge(_) => panic!("a TPM is asked"),
    }
}

/// The text of a refusal with its status.
pub fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>) -> (u16, String) {
    let refusal = result.unwrap_err();
    (refusal.status().0, refusal.to_string())
}

pub fn in_an_hour() -> Timestamp {
    Timestamp::now() + jiff::SignedDuration::from_hours(1)
}

pub fn payload(envelope: &Envelope) -> Vec<u8> {
    nodegate::record::dsse::decode_base64(&envelope.payload).unwrap()
}

pub fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}
