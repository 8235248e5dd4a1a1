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
    let head = || {
        let key = store.key(&host.keyid()).unwrap().unwrap();
        (key.seq, key.head)
    };
    assert_eq!(flags(&store, &records[1]), [], "it fills the gap and joins both");
    assert_eq!(head(), (3, Some(records[2].payload)), "the head only moves forward");
    assert_eq!(standing_of(&store, &host), Standing::Uncounted, "the newest is still the third");
    assert_eq!(flags(&store, &records[3]), []);
    assert_eq!(standing_of(&store, &host), Standing::Accepted);
    let fork = host.sign(|details| (details.seq, details.prev) = (4, Some(records[2].payload)));
    assert_eq!(flags(&store, &fork), [Flag::Fork]);
    assert_eq!(head(), (4, Some(records[3].payload)), "a fork does not move it");
    assert_eq!(flags(&store, &records[4]), []);
    assert_eq!(head(), (5, Some(records[4].payload)));
    assert!(store.audit(Timestamp::now()).unwrap().is_ok());
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

pub fn what_retention_drops_is_still_known(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let records: Vec<Signed> = (0..3).map(|_| host.record(|_| ())).collect();
    let receipts: Vec<Admission> = records.iter().map(|signed| send(&store, signed).unwrap()).collect();
    assert_eq!(store.prune(Timestamp::now() - jiff::SignedDuration::from_hours(1)).unwrap().records, 0);
    let pruned = store.prune(Timestamp::now() + jiff::SignedDuration::from_hours(1)).unwrap();
    assert_eq!(pruned.records, 2, "the newest of a node stays");
    assert!(pruned.bytes > 2 * 1000, "{pruned:?}");
    let dropped = store.record(&records[0].payload).unwrap().unwrap();
    assert_eq!((dropped.raw, dropped.receipt, dropped.record.kept), (None, None, false));
    assert!(store.record(&records[2].payload).unwrap().unwrap().raw.is_some());
    let again = send(&store, &records[0]).unwrap();
    assert_eq!(again, Admission { created: false, ..receipts[0].clone() }, "its receipt is said again");
    assert_eq!(flags(&store, &host.record(|_| ())), [], "the chain goes on");
    assert_eq!(store.audit(Timestamp::now()).unwrap().unwrap().kept, 2);
    assert_eq!(store.records_of(&host.digest(), None, 10).unwrap().len(), 4);
}

pub fn a_policy_that_changes_judges_every_node_anew(fresh: &Fresh) {
    let mut host = {
        let store = fresh.open();
        let mut host = Host::known_to("a", &store);
        send(&store, &host.record(|_| ())).unwrap();
        assert_eq!(standing_of(&store, &host), Standing::Accepted);
        host
    };
    let standings = |store: &Store| store.fleet(&FleetQuery::default(), Timestamp::now()).unwrap().standings;
    let strict = Policy { stage: nodegate::decision::Stage::Service, ..Policy::default() };
    let store = fresh.under(strict);
    assert_eq!(standings(&store), [(Standing::Uncounted, 1)].into());
    let record = store.node(&host.digest(), Timestamp::now()).unwrap().unwrap().record;
    assert_eq!((record.flags, record.policy.as_deref()), (vec![Flag::Policy], Some("stage rack is below service")));
    assert_eq!(flags(&store, &host.record(|_| ())), [Flag::Policy]);
    assert_eq!(standings(&fresh.open()), [(Standing::Uncounted, 1)].into(), "the last policy holds");
    assert_eq!(standings(&fresh.under(Policy::default())), [(Standing::Accepted, 1)].into());
    assert!(fresh.open().audit(Timestamp::now()).unwrap().is_ok());
}

pub fn an_acceptance_expires(fresh: &Fresh) {
    let store = fresh.under(Policy { expiry: Some(std::time::Duration::from_secs(1)), ..Policy::default() });
    let mut host = Host::known_to("a", &store);
    send(&store, &host.record(|_| ())).unwrap();
    let later = Timestamp::now() + jiff::SignedDuration::from_secs(2);
    assert_eq!(store.node(&host.digest(), later).unwrap().unwrap().standing, Standing::Expired);
    // The summary follows as soon as the writer looks at the clock.
    let expired = FleetQuery { standing: Some(Standing::Expired), ..FleetQuery::default() };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while store.fleet(&expired, Timestamp::now()).unwrap().found == 0 {
        assert!(std::time::Instant::now() < deadline, "it never expired");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(store.audit(Timestamp::now()).unwrap().is_ok());
}

pub fn a_run_that_says_less_changes_no_standing(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    send(&store, &host.record(|_| ())).unwrap();
    assert_eq!(flags(&store, &host.record(|details| details.partial = true)), [Flag::Partial]);
    assert_eq!(flags(&store, &host.record(|details| details.overridden = true)), [Flag::Overridden]);
    assert_eq!(standing_of(&store, &host), Standing::Accepted);
    let rejected = host.record(|details| (details.partial, details.decision) = (true, Decision::Rejected));
    send(&store, &rejected).unwrap();
    assert_eq!(standing_of(&store, &host), Standing::Rejected);
    // A key that nobody approved cannot speak for the host.
    let mut imposter = Host { key: Host::new("a").key, documents: host.documents.clone(), ..Host::new("a") };
    store.put_key(imposter.enrolled(Tier::FirstUse, KeyState::Pending)).unwrap();
    send(&store, &imposter.record(|_| ())).unwrap();
    assert_eq!(standing_of(&store, &host), Standing::Rejected);
    store.revoke(&imposter.keyid(), "ada", "not ours").unwrap();
    assert_eq!(standing_of(&store, &host), Standing::Rejected);
    assert!(store.audit(Timestamp::now()).unwrap().is_ok());
    let mut second = Host { key: Host::new("a").key, documents: host.documents.clone(), ..Host::new("a") };
    store.put_key(second.enrolled(Tier::FirstUse, KeyState::Pending)).unwrap();
    send(&store, &second.record(|_| ())).unwrap();
    store.approve(&second.keyid(), "ada", "ours").unwrap();
    assert_eq!(standing_of(&store, &host), Standing::Accepted, "once approved, its record is the newest");
    assert!(store.audit(Timestamp::now()).unwrap().is_ok());
}

pub fn who_is_rejected_again_and_again_is_named(fresh: &Fresh) {
    let store = fresh.open();
    let now = Timestamp::now();
    let fail = |details: &mut nodegate::predicate::Details| {
        details.decision = Decision::Rejected;
        let mut outcome = sample::found(Grade::Failed);
        let place = nodegate::outcome::Place { serial: Some("1650523001234".to_owned()), ..Default::default() };
        outcome.findings[0].place = Some(place);
        details.steps.push(sample::step("pcie-link", outcome));
    };
    let (mut often, mut once) = (Host::known_to("often", &store), Host::known_to("once", &store));
    for _ in 0..3 {
        send(&store, &often.record(fail)).unwrap();
    }
    send(&store, &once.record(fail)).unwrap();
    let offenders = store.offenders(now, 10).unwrap();
    let hosts: Vec<_> = offenders.hosts.iter().map(|host| (host.name.as_str(), host.rejections)).collect();
    assert_eq!(hosts, [("often", 3)]);
    assert_eq!((offenders.gpus[0].name.as_str(), offenders.gpus[0].rejections), ("1650523001234", 4));
    let counts = store.counts(now).unwrap();
    assert_eq!((counts.records, counts.rejections_recent, counts.nodes[&Standing::Rejected]), (4, 4, 2));
    assert_eq!(store.node(&often.digest(), now).unwrap().unwrap().problems[0].repeated, 3);
}

pub fn a_key_enrols_once_and_a_token_lets_one_key_in(fresh: &Fresh) {
    use nodegate::collector::store::{Enrolled, JoinToken};
    let store = fresh.open();
    let now = Timestamp::now();
    let digest = |text: &str| nodegate::ident::Digest::of(text.as_bytes());
    let token = |name: &str, serial: &str, hours| JoinToken {
        digest: digest(name),
        serial: serial.to_owned(),
        created_by: "ada".to_owned(),
        created_at: now,
        expires_at: now + jiff::SignedDuration::from_hours(hours),
        used_at: None,
        used_by: None,
    };
    let (a, b) = (Host::new("a"), Host::new("b"));
    store.put_join_token(token("of a", "Sa4309021", 1)).unwrap();
    store.put_join_token(token("over", "Sa4309021", -1)).unwrap();
    let enrol =
        |host: &Host, name: &str| store.enrol(host.enrolled(Tier::Token, KeyState::Approved), Some(digest(name)));
    for (host, name) in [(&b, "of a"), (&a, "over"), (&a, "unknown")] {
        assert!(matches!(enrol(host, name), Err(Refusal::Forbidden(_))), "{name}");
        assert!(store.key(&host.keyid()).unwrap().is_none());
    }
    assert!(matches!(enrol(&a, "of a"), Ok(Enrolled::New(_))));
    assert!(matches!(enrol(&a, "of a"), Ok(Enrolled::Known(_))), "the same key again is no second use");
    assert_eq!(store.join_token(&digest("of a")).unwrap().unwrap().used_by, Some(a.keyid()));
    let another = Host { key: Host::new("a").key, ..Host::new("a") };
    assert!(matches!(enrol(&another, "of a"), Err(Refusal::Forbidden(_))));
    let mut next = another.enrolled(Tier::Token, KeyState::Approved);
    next.replaces = Some(a.keyid());
    store.enrol(next.clone(), None).unwrap();
    let old = store.key(&a.keyid()).unwrap().unwrap();
    assert_eq!((old.state, old.replaced_by), (KeyState::Retired, Some(next.keyid.clone())));
    let mut third = Host::new("a").enrolled(Tier::Token, KeyState::Approved);
    third.replaces = Some(a.keyid());
    assert!(matches!(store.enrol(third, None), Err(Refusal::Conflict(_))), "a retired key hands nothing over");
    let pages: Vec<_> = store.keys(&Default::default()).unwrap().into_iter().map(|key| key.keyid).collect();
    assert_eq!(pages.len(), 2);
}

pub fn tokens_keys_and_alerts_are_kept_listed_and_removed(fresh: &Fresh) {
    use nodegate::collector::store::{AccessToken, Alert, EndorsementKey, SshHostKey};
    let store = fresh.open();
    let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap();
    let digest = sample::digest("secret");
    let access = AccessToken {
        digest,
        name: "grafana".to_owned(),
        role: "reader".to_owned(),
        created_at: now,
        expires_at: None,
    };
    store.put_access_token(access.clone()).unwrap();
    assert_eq!(store.access_token(&digest).unwrap(), Some(access.clone()));
    assert_eq!(store.access_tokens().unwrap(), [access]);
    assert!(store.remove_access_token(&digest).unwrap() && !store.remove_access_token(&digest).unwrap());
    assert!(store.access_tokens().unwrap().is_empty());

    let ssh = SshHostKey {
        name: "gpu-1".to_owned(),
        line: "ssh-ed25519 AAAA".to_owned(),
        added_at: now,
        added_by: "ada".to_owned(),
    };
    store.put_ssh_host_key(ssh.clone()).unwrap();
    store.put_ssh_host_key(ssh.clone()).unwrap();
    assert_eq!(store.ssh_host_keys_of("gpu-1").unwrap(), std::slice::from_ref(&ssh));
    assert!(store.ssh_host_keys_of("gpu-2").unwrap().is_empty());
    assert_eq!(store.remove_ssh_host_keys("gpu-1").unwrap(), 1);

    let endorsement = EndorsementKey { digest, name: "gpu-1".to_owned(), added_at: now, added_by: "ada".to_owned() };
    store.put_endorsement_key(endorsement.clone()).unwrap();
    assert_eq!(store.endorsement_key(&digest).unwrap(), Some(endorsement.clone()));
    assert_eq!(store.endorsement_keys().unwrap(), [endorsement]);
    assert!(store.remove_endorsement_key(&digest).unwrap());

    let alert = |status: &str| Alert {
        run_id: "run".to_owned(),
        receiver: "pager".to_owned(),
        status: status.to_owned(),
        received_at: now,
    };
    store.put_alerts(vec![alert("firing"), Alert { run_id: "other".to_owned(), ..alert("firing") }]).unwrap();
    store.put_alerts(vec![alert("resolved")]).unwrap();
    assert_eq!(store.alerts_of("run").unwrap(), [alert("firing"), alert("resolved")]);
}

pub fn an_export_gives_every_record_once_in_the_ledgers_order(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let records: Vec<Signed> = (0..75).map(|_| host.record(|_| ())).collect();
    records.iter().for_each(|signed| drop(send(&store, signed).unwrap()));
    let (mut after, mut found) = (0, Vec::new());
    loop {
        let page = store.export(after, 40).unwrap();
        let Some(last) = page.last() else { break };
        after = last.record.ledger.index;
        found.extend(page);
    }
    let raw: Vec<_> = found.iter().map(|kept| kept.raw.clone().unwrap()).collect();
    assert_eq!(raw, records.iter().map(|signed| signed.raw.clone()).collect::<Vec<_>>());
    assert_eq!(store.records_of(&host.digest(), Some(10), 5).unwrap()[0].ledger.index, 9);
}

pub fn a_store_without_its_receipt_key_takes_nothing(fresh: &Fresh) {
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let other = Store::open(&fresh.url, CollectorKey::generate(), Settings::default());
    assert!(matches!(other.err(), Some(nodegate::collector::store::StoreError::OtherReceiptKey { .. })));
    let without = Store::attend(&fresh.url, Settings::default()).unwrap();
    let signed = host.record(|_| ());
    assert!(matches!(send(&without, &signed), Err(Refusal::Busy(_))));
    assert!(store.record(&signed.payload).unwrap().is_none());
    without.revoke(&host.keyid(), "ada", "by another process").unwrap();
    assert!(matches!(send(&store, &signed), Err(Refusal::Revoked { .. })));
}

pub fn many_senders_at_once_lose_and_double_nothing(fresh: &Fresh) {
    let store = fresh.open();
    let receipts: Vec<u64> = std::thread::scope(|scope| {
        let store = &store;
        let threads: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn(move || {
                    let mut host = Host::known_to(&format!("h{number}"), store);
                    let place = |signed: Signed| {
                        let admission = send(store, &signed).unwrap();
                        assert!(admission.created && admission.flags.is_empty());
                        store.record(&signed.payload).unwrap().unwrap().record.ledger.index
                    };
                    (0..25).map(|_| place(host.record(|_| ()))).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: std::collections::BTreeSet<_> = receipts.iter().collect();
    assert_eq!((distinct.len(), distinct.last()), (200, Some(&&200)));
    assert_eq!(store.audit(Timestamp::now()).unwrap().unwrap().kept, 200);
}

/// Every test that both engines must pass, by name.
macro_rules! tests {
    ($($name:ident)+) => {
        #[allow(dead_code, reason = "where one server serves them all")]
        pub const ALL: &[(&str, fn(&Fresh))] = &[$((stringify!($name), $name)),+];

        /// One test for each of them, over stores that `$fresh` makes.
        #[macro_export]
        macro_rules! suite {
            ($fresh:path) => {$(
                #[test]
                fn $name() {
                    $crate::suite::$name(&$fresh());
                }
            )+};
        }
    };
}

tests! {
    a_record_gets_a_receipt_and_is_kept_to_the_byte
    the_same_payload_again_gets_the_same_receipt
    a_run_has_one_record
    an_unknown_a_revoked_and_another_hosts_key_are_refused
    a_pending_keys_records_count_once_it_is_approved
    gaps_forks_and_records_out_of_order_are_flagged_as_they_are
    nonces_that_are_unknown_late_or_reused_are_flagged
    a_fleet_can_be_searched_filtered_sorted_and_counted
    what_retention_drops_is_still_known
    a_policy_that_changes_judges_every_node_anew
    an_acceptance_expires
    a_run_that_says_less_changes_no_standing
    who_is_rejected_again_and_again_is_named
    a_key_enrols_once_and_a_token_lets_one_key_in
    tokens_keys_and_alerts_are_kept_listed_and_removed
    an_export_gives_every_record_once_in_the_ledgers_order
    a_store_without_its_receipt_key_takes_nothing
    many_senders_at_once_lose_and_double_nothing
}
