//! A host with its key and its chain, as the agent has them.

use jiff::Timestamp;
use nodegate::collector::model::{Key, KeyState};
use nodegate::collector::store::Store;
use nodegate::ident::Digest;
use nodegate::predicate::Details;
use nodegate::record::standing::Tier;
use nodegate::record::{Algorithm, Documents, HostKey, Unsigned};

use crate::sample;

pub struct Host {
    pub key: HostKey,
    pub documents: Documents,
    pub name: String,
    pub seq: u64,
    pub prev: Option<Digest>,
}

/// A record as it would be posted.
#[derive(Clone, Debug)]
pub struct Signed {
    pub raw: Vec<u8>,
    pub payload: Digest,
    pub run_id: String,
}

impl Host {
    pub fn new(name: &str) -> Host {
        let documents = Documents::of(&sample::snapshot(&format!("S{name}4309021"), &sample::GPUS));
        Host { key: HostKey::generate(Algorithm::Ed25519), documents, name: name.to_owned(), seq: 0, prev: None }
    }

    pub fn keyid(&self) -> String {
        self.key.public_key().keyid()
    }

    pub fn digest(&self) -> Digest {
        self.documents.host.digest()
    }

    /// The host's key as enrolled.
    pub fn enrolled(&self, tier: Tier, state: KeyState) -> Key {
        Key {
            keyid: self.keyid(),
            public_key: self.key.public_key().to_pem(),
            tier,
            state,
            host: self.digest(),
            hostname: self.name.clone(),
            serial: Some(format!("S{}4309021", self.name)),
            replaces: None,
            replaced_by: None,
            enrolled_at: Timestamp::now(),
            decided_at: None,
            decided_by: None,
            reason: None,
            seq: 0,
            head: None,
        }
    }

    /// A host whose key is approved in this store.
    pub fn known_to(name: &str, store: &Store) -> Host {
        let host = Host::new(name);
        store.put_key(host.enrolled(Tier::Token, KeyState::Approved)).unwrap();
        host
    }

    /// The next record of the chain.
    pub fn record(&mut self, change: impl FnOnce(&mut Details)) -> Signed {
        self.seq += 1;
        let (seq, prev) = (self.seq, self.prev);
        let signed = self.sign(|details| {
            (details.seq, details.prev) = (seq, prev);
            change(details);
        });
        self.prev = Some(signed.payload);
        signed
    }

    /// A record of any place in the chain.
    pub fn sign(&self, change: impl FnOnce(&mut Details)) -> Signed {
        let details = sample::details_with(|details| {
            details.host.hostname.clone_from(&self.name);
            details.host.serial = Some(format!("S{}4309021", self.name));
            change(details);
        });
        let run_id = details.run_id.clone();
        let unsigned = Unsigned::new(details, &self.documents).unwrap();
        let payload = Digest::of(unsigned.payload());
        let Unsigned::Live(live) = unsigned else { panic!("a recorded host's record has a key of its own") };
        Signed { raw: self.key.sign(&live).unwrap().to_json(), payload, run_id }
    }
}
