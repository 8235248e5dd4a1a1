//! What every store must do, whatever it stands on: each test gets a fresh one.

use jiff::Timestamp;
use nodegate::collector::model::{Admission, FleetQuery, KeyState, Refusal, Standing};
use nodegate::collector::policy::Policy;
use nodegate::collector::store::{Settings, Store};
use nodegate::decision::Decision;
use nodegate::outcome::Grade;
use nodegate::record::receipt;
use nodegate::record::standing::{Flag, Tier};
use nodegate::record::{CollectorKey, Receipt};

use crate::host::{Host, Signed};
use crate::sample;

/// A place for one store, and the key that signs its receipts.
pub struct Fresh {
    pub url: String,
    pub key: String,
    /// What must live as long as the store.
    pub _keep: Box<dyn std::any::Any>,
}

impl Fresh {
    pub fn new(url: String, keep: impl std::any::Any) -> Fresh {
        Fresh { url, key: CollectorKey::generate().to_pem(), _keep: Box::new(keep) }
    }

    pub fn key(&self) -> CollectorKey {
        CollectorKey::parse(&self.key).unwrap()
    }

    pub fn open(&self) -> Store {
        self.open_with(Settings::default())
    }

    pub fn open_with(&self, settings: Settings) -> Store {
        Store::open(&self.url, self.key(), settings).unwrap()
    }

    pub fn under(&self, policy: Policy) -> Store {
        self.open_with(Settings { policy: Some(policy), ..Settings::default() })
    }

    /// What the receipt says, if it is this store's and for this record.
    pub fn receipt(&self, admission: &Admission, signed: &Signed) -> Receipt {
        receipt::verify(&admission.receipt, self.key().public_key(), signed.payload, &signed.run_id).unwrap()
    }
}

pub fn send(store: &Store, signed: &Signed) -> Result<Admission, Refusal> {
    store.take_and_wait(store.verify(signed.raw.clone())?)
}

/// The flags of a record's receipt.
pub fn flags(store: &Store, signed: &Signed) -> Vec<Flag> {
    let admission = send(store, signed).unwrap();
    assert!(admission.created, "it was here already");
    admission.flags
}

fn standing_of(store: &Store, host: &Host) -> Standing {
    store.node(&host.digest(), Timestamp::now()).unwrap().expect("a node of this host").standing
}

pub fn a_record_gets_a_receipt_and_is_kept_to_the_byte(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let signed = host.record(|_| ());
    let admission = send(&store, &signed).unwrap();
    let receipt = fresh.receipt(&admission, &signed);
    assert!(admission.created && admission.flags.is_empty());
    assert_eq!((receipt.tier, receipt.ledger.unwrap().index), (Some(Tier::Token), 1));
    let kept = store.record(&signed.payload).unwrap().unwrap();
    assert_eq!((kept.raw.as_deref(), kept.receipt.as_ref()), (Some(&signed.raw[..]), Some(&admission.receipt)));
    assert_eq!(kept.record.received_at, receipt.received_at);
    assert_eq!(kept.record.ledger, receipt.ledger.unwrap());
    assert_eq!(standing_of(&store, &host), Standing::Accepted);
}

pub fn the_same_payload_again_gets_the_same_receipt(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let signed = host.record(|_| ());
    let first = send(&store, &signed).unwrap();
    let again = send(&store, &signed).unwrap();
    assert_eq!(again, Admission { created: false, ..first.clone() });
    let reopened = fresh.open();
    assert_eq!(send(&reopened, &signed).unwrap(), again);
    assert_eq!(store.head(Timestamp::now()).unwrap().index, 1);
}

pub fn a_run_has_one_record(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let signed = host.record(|_| ());
    send(&store, &signed).unwrap();
    let other = host.record(|details| details.run_id.clone_from(&signed.run_id));
    assert!(matches!(send(&store, &other), Err(Refusal::Conflict(_))));
    // Another host may not keep it from its run id.
    let mut stranger = Host::known_to("b", &store);
    let theirs = stranger.record(|details| details.run_id.clone_from(&signed.run_id));
    assert_eq!(flags(&store, &theirs), []);
}

pub fn an_unknown_a_revoked_and_another_hosts_key_are_refused(fresh: &Fresh) {
    let store = fresh.open();
    let mut stranger = Host::new("x");
    assert!(
        matches!(send(&store, &stranger.record(|_| ())), Err(Refusal::UnknownKey(keyid)) if keyid == stranger.keyid())
    );

    let mut host = Host::known_to("a", &store);
    send(&store, &host.record(|_| ())).unwrap();
    let verified_before = store.verify(host.record(|_| ()).raw).unwrap();
    store.revoke(&host.keyid(), "ada", "stolen").unwrap().unwrap();
    assert!(matches!(send(&store, &host.record(|_| ())), Err(Refusal::Revoked { reason, .. }) if reason == "stolen"));
    assert!(matches!(store.take_and_wait(verified_before), Err(Refusal::Revoked { .. })));
    assert_eq!(standing_of(&store, &host), Standing::Uncounted, "what a revoked key signed counts no more");

    let mut other = Host::known_to("b", &store);
    other.documents = Host::new("c").documents;
    assert!(matches!(send(&store, &other.record(|_| ())), Err(Refusal::Unprocessable(_))));
}

pub fn a_pending_keys_records_count_once_it_is_approved(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::new("a");
    store.put_key(host.enrolled(Tier::FirstUse, KeyState::Pending)).unwrap();
    assert_eq!(flags(&store, &host.record(|_| ())), [Flag::PendingKey]);
    assert_eq!(standing_of(&store, &host), Standing::Uncounted);
    let key = store.approve(&host.keyid(), "ada", "seen in the rack").unwrap().unwrap();
    assert_eq!((key.state, key.decided_by.as_deref()), (KeyState::Approved, Some("ada")));
    assert_eq!(standing_of(&store, &host), Standing::Accepted);
    assert_eq!(flags(&store, &host.record(|_| ())), []);
    assert!(store.approve("SHA256:none", "ada", "").unwrap().is_none());
}

pub fn gaps_forks_and_records_out_of_order_are_flagged_as_they_are(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let records: Vec<Signed> = (0..5).map(|_| host.record(|_| ())).collect();
    assert_eq!(flags(&store, &records[0]), []);
    assert_eq!(flags(&store, &records[2]), [Flag::Gap]);
    assert_eq!(standing_of(&store, &host), Standing::Uncounted);
    assert_eq!(flags(&store, &records[1]), [], "it fills the gap and joins both");
    assert_eq!(standing_of(&store, &host), Standing::Uncounted, "the newest is still the third");
    assert_eq!(flags(&store, &records[3]), []);
    assert_eq!(standing_of(&store, &host), Standing::Accepted);
    let fork = host.sign(|details| (details.seq, details.prev) = (4, Some(records[2].payload)));
    assert_eq!(flags(&store, &fork), [Flag::Fork]);
    assert_eq!(flags(&store, &records[4]), []);
    let key = store.key(&host.keyid()).unwrap().unwrap();
    assert_eq!((key.seq, key.head), (5, Some(records[4].payload)));
}

pub fn nonces_that_are_unknown_late_or_reused_are_flagged(fresh: &Fresh) {
    let store = fresh.under(Policy { require_challenge: true, ..Policy::default() });
    let mut host = Host::known_to("a", &store);
    let now = Timestamp::now();
    let nonce = store.challenge(&host.keyid(), now).0;
    let late = store.challenge(&host.keyid(), now - jiff::SignedDuration::from_hours(25)).0;
    let others = store.challenge("SHA256:another", now).0;
    let mut with = |nonce: &str| host.record(|details| details.challenge = nonce.to_owned());
    for (nonce, expected) in [
        (nonce.as_str(), vec![]),
        (&nonce, vec![Flag::ReusedNonce]),
        (&late, vec![Flag::LateNonce]),
        (&others, vec![Flag::UnknownNonce]),
        ("made up", vec![Flag::UnknownNonce]),
        ("none", vec![Flag::NoNonce]),
    ] {
        assert_eq!(flags(&store, &with(nonce)), expected, "{nonce}");
    }
}

pub fn a_fleet_can_be_searched_filtered_sorted_and_counted(fresh: &Fresh) {
    let store = fresh.open();
    let now = Timestamp::now();
    for number in 0..60 {
        let mut host = Host::known_to(&format!("gpu-{number:02}"), &store);
        let wrong = number % 10 == 3;
        send(
            &store,
            &host.record(|details| {
                if wrong {
                    details.decision = Decision::Rejected;
                    details.steps.push(sample::step("pcie-link", sample::found(Grade::Failed)));
                }
            }),
        )
        .unwrap();
    }
    let all = store.fleet(&FleetQuery::default(), now).unwrap();
    assert_eq!((all.total, all.found, all.pages, all.nodes.len()), (60, 60, 2, 50));
    assert_eq!(all.standings[&Standing::Rejected], 6);
    assert_eq!(all.findings, [("link-narrow".to_owned(), 6)]);
    assert_eq!((all.tiers, all.classes), (vec![(Tier::Token, 60)], vec![("hgx-h100-8".to_owned(), 60)]));
    let names = |query: FleetQuery| -> Vec<String> {
        store.fleet(&query, now).unwrap().nodes.into_iter().map(|node| node.record.hostname).collect()
    };
    let worst = names(FleetQuery::default());
    assert_eq!(worst[..7], ["gpu-53", "gpu-43", "gpu-33", "gpu-23", "gpu-13", "gpu-03", "gpu-59"]);
    let text = |text: &str| {
        names(FleetQuery {
            text: text.to_owned(),
            sort: nodegate::collector::model::Sort::Name,
            ..FleetQuery::default()
        })
    };
    assert_eq!(text("PU-1")[..2], ["gpu-10", "gpu-11"]);
    assert_eq!(text(&Host::new("gpu-07").digest().to_string()), ["gpu-07"]);
    assert_eq!(text("Sgpu-074309"), ["gpu-07"]);
    assert!(text("%").is_empty() && text("_").is_empty() && text("'").is_empty() && text("\\").is_empty());
    let finding = FleetQuery { finding: Some("link-narrow".to_owned()), ..FleetQuery::default() };
    assert_eq!(names(finding.clone()).len(), 6);
    assert!(names(FleetQuery { standing: Some(Standing::Accepted), ..finding }).is_empty());
    assert_eq!(names(FleetQuery { page: 2, ..FleetQuery::default() }).len(), 10);
    assert_eq!(names(FleetQuery { page: 999, ..FleetQuery::default() }).len(), 10, "past the end is the end");
    let found = store.find_node("gpu-53", now).unwrap().unwrap();
    assert_eq!((found.rejections, found.recent_rejections, found.problems[0].repeated), (1, 1, 1));
}

/// One test for each function above, over stores that `$fresh` makes.
#[macro_export]
macro_rules! suite {
    ($fresh:path: $($name:ident)+) => {$(
        #[test]
        fn $name() {
            $crate::suite::$name(&$fresh());
        }
    )+};
    ($fresh:path) => {
        $crate::suite! { $fresh:
            a_record_gets_a_receipt_and_is_kept_to_the_byte
            the_same_payload_again_gets_the_same_receipt
            a_run_has_one_record
            an_unknown_a_revoked_and_another_hosts_key_are_refused
            a_pending_keys_records_count_once_it_is_approved
            gaps_forks_and_records_out_of_order_are_flagged_as_they_are
            nonces_that_are_unknown_late_or_reused_are_flagged
            a_fleet_can_be_searched_filtered_sorted_and_counted
        }
    };
}
