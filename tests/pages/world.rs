//! A fleet as a collector has it: what recorded hosts gave when they were run here, signed by keys of
//! hosts, taken in by a real store.

use std::collections::HashMap;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use nodegate::collector::model::{Fleet, FleetQuery, Key, KeyState, Node, Record};
use nodegate::collector::page::{self, Compared, NodeView, RecordView};
use nodegate::collector::policy::Policy;
use nodegate::collector::store::{Settings, Store};
use nodegate::ident::Digest;
use nodegate::predicate::Details;
use nodegate::record::standing::Tier;
use nodegate::record::{
    Algorithm, CollectorKey, Documents, EphemeralKey, HostKey, PublicKey, Unsigned, Verified, verify,
};
use tempfile::TempDir;

use crate::sample;
use crate::support::run_fixture;

/// What a recorded host's run gave, as `--format json` prints it.
pub fn ran(fixture: &str) -> Details {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hosts").join(fixture);
    serde_json::from_value(run_fixture(&path, &[]).details()).unwrap()
}

/// Several of them at once.
pub fn runs_of(fixtures: &[&str]) -> HashMap<String, Details> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = fixtures.iter().map(|name| scope.spawn(|| ((*name).to_owned(), ran(name)))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    })
}

/// A host with its key and the head of its chain.
pub struct Host {
    key: HostKey,
    documents: Documents,
    name: String,
    seq: u64,
    prev: Option<Digest>,
}

/// A store with what was put into it.
pub struct World {
    pub store: Store,
    pub now: Timestamp,
    _folder: TempDir,
}

/// The policy of the tests: what is accepted counts for a week.
pub fn policy() -> Policy {
    Policy { expiry: Some(std::time::Duration::from_secs(7 * 86_400)), ..Policy::default() }
}

impl World {
    pub fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.sqlite").display());
        let settings = Settings { policy: Some(policy()), accept_simulated: true, ..Settings::default() };
        let store = Store::open(&url, CollectorKey::generate(), settings).unwrap();
        World { store, now: Timestamp::now(), _folder: folder }
    }

    /// A host whose key is known in this way.
    pub fn host(&self, name: &str, tier: Tier, state: KeyState) -> Host {
        let documents = Documents::of(&sample::snapshot(&format!("S{name}4309021"), &sample::GPUS));
        let host =
            Host { key: HostKey::generate(Algorithm::Ed25519), documents, name: name.to_owned(), seq: 0, prev: None };
        self.store.put_key(host.enrolled(tier, state)).unwrap();
        host
    }

    /// Takes in the host's next record.
    pub fn send(&self, host: &mut Host, run: &Details, change: impl FnOnce(&mut Details)) -> Digest {
        host.seq += 1;
        let mut details = run.clone();
        live(&mut details, &host.name);
        (details.seq, details.prev) = (host.seq, host.prev);
        change(&mut details);
        let unsigned = Unsigned::new(details, &host.documents).unwrap();
        let payload = Digest::of(unsigned.payload());
        let Unsigned::Live(signed) = unsigned else { panic!("of a machine") };
        let raw = host.key.sign(&signed).unwrap().to_json();
        self.store.take_and_wait(self.store.verify(raw).unwrap()).unwrap();
        host.prev = Some(payload);
        payload
    }

    /// Takes in the record of a run on a recording, signed by its throw-away key.
    pub fn send_simulated(&self, name: &str, run: &Details) -> Digest {
        let documents = Documents::of(&sample::snapshot(&format!("S{name}4309021"), &sample::GPUS));
        let key = EphemeralKey::generate();
        let mut details = run.clone();
        details.host.hostname = name.to_owned();
        details.seq = 1;
        let unsigned = Unsigned::new(details, &documents).unwrap();
        let payload = Digest::of(unsigned.payload());
        let Unsigned::Simulated(signed) = unsigned else { panic!("of a recording") };
        let host =
            Host { key: HostKey::generate(Algorithm::Ed25519), documents, name: name.to_owned(), seq: 0, prev: None };
        let public = key.public_key();
        let known = Key {
            keyid: public.keyid(),
            public_key: public.to_pem(),
            ..host.enrolled(Tier::Simulated, KeyState::Approved)
        };
        self.store.put_key(known).unwrap();
        let raw = key.sign(&signed).to_json();
        self.store.take_and_wait(self.store.verify(raw).unwrap()).unwrap();
        payload
    }

    pub fn fleet(&self, query: &FleetQuery) -> String {
        let offenders = self.store.offenders(self.now, 20).unwrap();
        page::fleet(&self.rows(query), query, &offenders, self.now)
    }

    pub fn rows(&self, query: &FleetQuery) -> Fleet {
        self.store.fleet(query, self.now).unwrap()
    }

    pub fn find(&self, name: &str) -> Node {
        self.store.find_node(name, self.now).unwrap().unwrap_or_else(|| panic!("{name}"))
    }

    pub fn node(&self, name: &str) -> String {
        let node = self.find(name);
        let records = self.store.records_of(&node.record.host, None, 50).unwrap();
        let history: Vec<(Digest, Details)> = records
            .iter()
            .filter_map(|record| Some((record.payload, self.verified(&record.payload)?.details)))
            .collect();
        let key = self.store.key(&node.record.keyid).unwrap();
        page::node(&NodeView {
            node: &node,
            records: &records,
            history: &history,
            key: key.as_ref(),
            policy: self.store.policy(),
            older: None,
            now: self.now,
        })
    }

    pub fn record(&self, payload: &Digest) -> String {
        let kept = self.store.record(payload).unwrap().unwrap();
        let key = self.store.key(&kept.record.keyid).unwrap();
        let verified = self.verified(payload);
        let records = self.store.records_of(&kept.record.host, Some(kept.record.ledger.index), 1).unwrap();
        page::record(&RecordView {
            kept: &kept,
            verified: verified.as_ref(),
            key: key.as_ref(),
            policy: self.store.policy(),
            before: records.first().map(|record| &record.payload),
            now: self.now,
        })
    }

    pub fn difference(&self, before: &Digest, after: &Digest) -> String {
        let (before, after) = (self.side(before), self.side(after));
        let side = |(record, details)| Compared { record, details };
        page::difference(side((&before.0, &before.1)), side((&after.0, &after.1)), self.store.policy(), self.now)
    }

    fn side(&self, payload: &Digest) -> (Record, Details) {
        (self.store.record(payload).unwrap().unwrap().record, self.verified(payload).unwrap().details)
    }

    pub fn verified(&self, payload: &Digest) -> Option<Verified> {
        let kept = self.store.record(payload).unwrap()?;
        let key = self.store.key(&kept.record.keyid).unwrap()?;
        verify(&kept.raw?, &[PublicKey::parse(&key.public_key).unwrap()]).ok()
    }

    /// The collector's clock, this much later.
    pub fn later(&mut self, days: i64) {
        self.now = self.now.checked_add(SignedDuration::from_hours(24 * days)).unwrap();
    }
}

impl Host {
    fn enrolled(&self, tier: Tier, state: KeyState) -> Key {
        Key {
            keyid: self.key.public_key().keyid(),
            public_key: self.key.public_key().to_pem(),
            tier,
            state,
            host: self.documents.host.digest(),
            hostname: self.name.clone(),
            serial: Some(format!("S{}4309021", self.name)),
            replaces: None,
            replaced_by: None,
            enrolled_at: Timestamp::now(),
            decided_at: None,
            decided_by: Some("kim".to_owned()).filter(|_| state == KeyState::Approved),
            reason: Some("racked in r12".to_owned()),
            seq: 0,
            head: None,
        }
    }

    pub fn keyid(&self) -> String {
        self.key.public_key().keyid()
    }

    /// Loses the record that would have come next.
    pub fn skip(&mut self) {
        self.seq += 1;
        self.prev = Some(Digest::of(b"lost on the way"));
    }
}

/// The run as a machine of this name would have had it.
fn live(details: &mut Details, name: &str) {
    details.simulated = false;
    details.run_id = uuid::Uuid::now_v7().to_string();
    name.clone_into(&mut details.host.hostname);
    details.host.serial = Some(format!("S{name}4309021"));
    details.notices.retain(|notice| !notice.contains("recorded host"));
    details.finished_at = Timestamp::now().to_string();
    details.operator.name = Some("ada".to_owned());
}

/// Every measurement of this name, changed by its position.
pub fn measured(details: &mut Details, name: &str, change: impl Fn(usize, f64) -> f64) {
    for step in &mut details.steps {
        let of_name = step.outcome.measurements.iter_mut().filter(|measurement| measurement.name == name);
        for (position, measurement) in of_name.enumerate() {
            measurement.value = change(position, measurement.value);
        }
    }
}

/// A small fleet in which every standing stands, and a host with a history.
pub fn small() -> World {
    let runs = runs_of(&["hgx-h100-8", "h100-link-narrow", "h100-gpu-not-in-driver", "l40s"]);
    let (good, narrow, hidden) = (&runs["hgx-h100-8"], &runs["h100-link-narrow"], &runs["h100-gpu-not-in-driver"]);
    let mut world = World::new();
    let mut old = world.host("gpu-r09-u01", Tier::X509, KeyState::Approved);
    world.send(&mut old, good, |_| ());
    let mut first = world.host("gpu-r12-u07", Tier::Tpm, KeyState::Approved);
    for warmer in 0..6 {
        world.send(&mut first, good, |details| {
            measured(details, "temperature", |gpu, value| value + f64::from(warmer) * 1.5 + (gpu % 3) as f64);
            measured(details, "power-draw", |gpu, value| value + f64::from(warmer % 3) * 2.0 + gpu as f64);
        });
    }
    world.send(&mut first, narrow, |_| ());
    world.send(&mut first, good, |details| measured(details, "temperature", |_, value| value + 9.0));
    world.send(&mut first, narrow, |details| details.inventory.driver = Some("580.95.05".to_owned()));
    let mut second = world.host("gpu-r12-u08", Tier::SshHostKey, KeyState::Approved);
    world.send(&mut second, good, |_| ());
    let mut third = world.host("gpu-r12-u09", Tier::FirstUse, KeyState::Pending);
    world.send(&mut third, &runs["l40s"], |_| ());
    let mut fourth = world.host("gpu-r12-u10", Tier::Token, KeyState::Approved);
    world.send(&mut fourth, hidden, |_| ());
    let mut gap = world.host("gpu-r12-u11", Tier::X509, KeyState::Approved);
    world.send(&mut gap, good, |_| ());
    gap.skip();
    world.send(&mut gap, good, |_| ());
    let mut revoked = world.host("gpu-r12-u12", Tier::Tpm, KeyState::Approved);
    world.send(&mut revoked, good, |_| ());
    world.store.revoke(&revoked.keyid(), "kim", "board went back to the vendor").unwrap();
    world.send_simulated("recorded-h100", good);
    world.now = Timestamp::now();
    world
}

/// Many hosts, of which every seventh has a problem.
pub fn large(hosts: usize) -> World {
    let good = ["hgx-h100-8", "l40s"];
    let bad = ["h100-link-narrow", "h100-too-hot", "h100-permission-denied"];
    let runs = runs_of(&[&good[..], &bad].concat());
    let mut world = World::new();
    for number in 0..hosts {
        let name = format!("gpu-r{:02}-u{:02}", 1 + number / 18, 1 + number % 18);
        let tier = [Tier::Tpm, Tier::X509, Tier::Token, Tier::FirstUse][number % 4];
        let state = if number % 8 == 7 { KeyState::Pending } else { KeyState::Approved };
        let mut host = world.host(&name, tier, state);
        let fixture = if number % 7 == 3 { bad[number / 7 % bad.len()] } else { good[number % good.len()] };
        world.send(&mut host, &runs[fixture], |_| ());
    }
    world.now = Timestamp::now();
    world
}
