//! Tests of the acceptance policy.

use super::*;
use crate::plan::Document;
use crate::record::receipt::LedgerPlace;

fn record() -> Record {
    let digest = Digest::of(b"x");
    let time: Timestamp = "2026-11-30T20:41:07Z".parse().unwrap();
    Record {
        payload: digest,
        run_id: "run".to_owned(),
        keyid: "SHA256:abc".to_owned(),
        tier: Tier::Token,
        key_state: KeyState::Approved,
        host: digest,
        node: digest,
        hostname: "gpu-1".to_owned(),
        class: "l4".to_owned(),
        class_digest: digest,
        suite_digest: digest,
        decision: Decision::Accepted,
        stage: Stage::Image,
        level: Level::Quick,
        waived: false,
        seq: 1,
        prev: None,
        challenged: false,
        finished_at: time,
        received_at: time,
        ledger: LedgerPlace { index: 1, entry: digest },
        flags: Vec::new(),
        policy: None,
        kept: true,
    }
}

fn now() -> Timestamp {
    "2026-12-01T20:41:07Z".parse().unwrap()
}

fn policy(text: &str) -> Policy {
    load(&Document::new("policy.toml", format!("format = 1\n{text}").as_bytes()).unwrap()).unwrap()
}

fn of(record: &Record, text: &str) -> Standing {
    standing(record, &policy(text), now())
}

#[test]
fn an_accepted_record_counts_under_the_usual_policy() {
    assert_eq!(of(&record(), ""), Standing::Accepted);
}

#[test]
fn each_demand_of_a_policy_keeps_a_record_from_counting_and_says_why() {
    let waived = Record { waived: true, ..record() };
    let digest = Digest::of(b"y");
    for (record, text, why) in [
        (&record(), "stage = \"service\"", "stage image is below service"),
        (&record(), "level = \"soak\"", "level quick is below soak"),
        (&record(), "tier = \"tpm\"", "tier token is below tpm"),
        (&record(), "[[class]]\nid = \"t4\"", "class l4 is not allowed"),
        (&record(), &format!("[[class]]\nid = \"l4\"\ndigest = \"{digest}\""), "class l4 is not allowed"),
        (&record(), &format!("suites = [\"{digest}\"]"), "is not allowed"),
        (&waived, "waivers = false", "findings are waived"),
    ] {
        assert_eq!(of(record, text), Standing::Uncounted, "{text}");
        let misses = policy(text).misses(record).unwrap();
        assert!(misses.contains(why), "{misses}");
        assert_eq!(policy(text).flags(record), [Flag::Policy]);
    }
    let ours = Digest::of(b"x");
    let text = format!("suites = [\"{ours}\"]\n[[class]]\nid = \"l4\"\ndigest = \"{ours}\"\n[[class]]\nid = \"t4\"\n");
    assert_eq!(of(&record(), &text), Standing::Accepted);
}

#[test]
fn a_flag_keeps_an_accepted_record_from_counting_and_excuses_no_other() {
    for flag in Flag::ALL {
        let flagged = |decision| Record { flags: vec![flag], decision, ..record() };
        // What depends on key and policy is judged anew, whatever was so at the time of receipt.
        let of_now = [Flag::PendingKey, Flag::RevokedKey, Flag::NoNonce, Flag::Policy].contains(&flag);
        let expected = if of_now { Standing::Accepted } else { Standing::Uncounted };
        assert_eq!(of(&flagged(Decision::Accepted), ""), expected, "{flag}");
        assert_eq!(of(&flagged(Decision::Rejected), ""), Standing::Rejected, "{flag}");
        assert_eq!(of(&flagged(Decision::Undecided), ""), Standing::Undecided, "{flag}");
    }
    for key_state in [KeyState::Pending, KeyState::Revoked] {
        assert_eq!(of(&Record { key_state, ..record() }, ""), Standing::Uncounted);
    }
    assert_eq!(of(&Record { key_state: KeyState::Retired, ..record() }, ""), Standing::Accepted);
}

#[test]
fn an_overridden_run_counts_where_the_policy_says_so_and_a_simulated_one_never() {
    let with = |flags: &[Flag]| Record { flags: flags.to_vec(), ..record() };
    assert_eq!(of(&with(&[Flag::Overridden]), "overridden = true"), Standing::Accepted);
    assert_eq!(of(&with(&[Flag::Overridden, Flag::Partial]), "overridden = true"), Standing::Uncounted);
    assert_eq!(of(&with(&[Flag::Simulated]), "overridden = true"), Standing::Uncounted);
}

#[test]
fn a_nonce_is_missed_only_where_it_is_asked_for() {
    assert_eq!(of(&record(), "require-challenge = true"), Standing::Uncounted);
    assert_eq!(of(&Record { challenged: true, ..record() }, "require-challenge = true"), Standing::Accepted);
}

#[test]
fn an_accepted_record_expires_to_the_second() {
    assert_eq!(of(&record(), "expiry = \"24 h\""), Standing::Expired);
    assert_eq!(of(&record(), "expiry = \"86401 s\""), Standing::Accepted);
    let rejected = Record { decision: Decision::Rejected, ..record() };
    assert_eq!(of(&rejected, "expiry = \"1 s\""), Standing::Rejected);
}

#[test]
fn all_problems_of_a_policy_come_together_with_their_lines() {
    let text = "format = 1\nstage = \"rock\"\nwaivers = \"no\"\nexpiry = \"5 days\"\nsuits = []\n\
                suites = [\"sha256:0\"]\ntier = \"simulated\"\nrecent-days = 0\n[[class]]\ndigest = \"x\"\n";
    let problems = load(&Document::new("policy.toml", text.as_bytes()).unwrap()).unwrap_err().to_string();
    for line in 2..=10 {
        assert!(problems.contains(&format!("policy.toml:{line}: ")), "line {line}:\n{problems}");
    }
    assert!(problems.contains("did you mean `suites`?") && problems.contains("did you mean `rack`?"), "{problems}");
}

#[test]
fn the_example_is_the_usual_policy_written_out() {
    let example = include_bytes!("../../../docs/collector-policy.toml");
    let example = load(&Document::new("collector-policy.toml", example).unwrap()).unwrap();
    assert_eq!(example, Policy::default());
}
