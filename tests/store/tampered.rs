//! A store that somebody changed who can write its file: the walk through the ledger must find it.

use std::path::Path;

use jiff::Timestamp;
use nodegate::collector::store::{Settings, Store};
use nodegate::decision::Decision;
use nodegate::outcome::Grade;

use crate::host::Host;
use crate::suite::{Fresh, send};
use crate::{file, fresh, sample};

pub fn sql(path: &Path, statement: &str) -> usize {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute(statement, []).unwrap_or_else(|error| panic!("{statement}: {error}"))
}

/// Two hosts with three records each, a rejection, a fork and a flag among them, and two of them pruned.
fn filled() -> Fresh {
    let fresh = fresh();
    let store = fresh.open();
    let mut hosts = [Host::known_to("a", &store), Host::known_to("b", &store)];
    for round in 0..3 {
        for host in &mut hosts {
            let nonce = store.challenge(&host.keyid(), Timestamp::now()).0;
            let signed = host.record(|details| {
                details.challenge = nonce;
                if round == 1 {
                    details.decision = Decision::Rejected;
                    details.steps.push(sample::step("pcie-link", sample::found(Grade::Failed)));
                }
            });
            send(&store, &signed).unwrap();
        }
    }
    fresh
}

/// What the walk says after this change; the position where it begins to be wrong.
fn broken_by(fresh: &Fresh, statement: &str) -> Option<u64> {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("copy.db");
    Store::attend(&fresh.url, Settings::default()).unwrap().backup(&path).unwrap();
    assert!(sql(&path, statement) > 0, "{statement} changed nothing");
    let store = Store::attend(&format!("sqlite:{}", path.display()), Settings::default()).unwrap();
    store.audit(Timestamp::now()).unwrap().err().map(|broken| broken.index)
}

fn columns(fresh: &Fresh, table: &str) -> Vec<String> {
    let connection = rusqlite::Connection::open(file(fresh)).unwrap();
    let mut statement = connection.prepare(&format!("PRAGMA table_info({table})")).unwrap();
    let names = statement.query_map([], |row| row.get(1)).unwrap();
    names.map(Result::unwrap).collect()
}

#[test]
fn every_column_of_the_ledger_is_covered_and_each_change_is_found_where_it_is() {
    let fresh = filled();
    assert_eq!(fresh.open().audit(Timestamp::now()).unwrap().unwrap().kept, 6);
    for column in columns(&fresh, "records") {
        // The value of another row, so that it reads well and is only wrong; or another number.
        let other = match column.as_str() {
            "position" => "100",
            "received_at" | "finished_at" | "seq" => &format!("{column} + 1"),
            "waived" | "kept" => &format!("1 - {column}"),
            // The third is a rejection.
            "decision" => "'accepted'",
            "stage" => "'service'",
            "level" => "'soak'",
            "tier" => "'tpm'",
            "class" | "hostname" => "'other'",
            "flags" => "'gap'",
            "run_id" => "'0193a5d0-0000-7000-8000-000000000001'",
            "keyid" => "(SELECT keyid FROM keys WHERE keyid <> records.keyid)",
            "challenge" => "'none of ours'",
            _ => "'sha256:1111111111111111111111111111111111111111111111111111111111111111'",
        };
        let found = broken_by(&fresh, &format!("UPDATE records SET {column} = {other} WHERE position = 3"));
        assert_eq!(found, Some(3), "{column}");
    }
}

#[test]
fn a_row_that_was_taken_out_or_put_in_is_found() {
    let fresh = filled();
    assert_eq!(broken_by(&fresh, "DELETE FROM records WHERE position = 3"), Some(3));
    assert_eq!(broken_by(&fresh, "DELETE FROM bodies WHERE position = 3"), Some(3));
    assert_eq!(broken_by(&fresh, "DELETE FROM keys WHERE seq > 0"), Some(1));
    assert_eq!(broken_by(&fresh, "DELETE FROM receipt_keys"), Some(1));
    let last = Some(6);
    assert_eq!(broken_by(&fresh, "INSERT INTO bodies VALUES (77, x'00', x'00')"), last);
    assert_eq!(broken_by(&fresh, "DELETE FROM nodes WHERE position = 5"), last);
    // The newest entry cut off: only who has its hash can tell, but chain heads and nodes tell too.
    assert_eq!(broken_by(&fresh, "DELETE FROM records WHERE position = 6"), Some(5));
}

#[test]
fn bytes_heads_and_nodes_that_were_changed_are_found() {
    let fresh = filled();
    for (statement, index) in [
        ("UPDATE bodies SET raw = (SELECT raw FROM bodies WHERE position = 1) WHERE position = 3", 3),
        ("UPDATE bodies SET raw = x'7b7d' WHERE position = 3", 3),
        ("UPDATE bodies SET receipt = (SELECT receipt FROM bodies WHERE position = 1) WHERE position = 3", 3),
        ("UPDATE receipt_keys SET public_key = (SELECT public_key FROM keys LIMIT 1)", 1),
        ("UPDATE keys SET public_key = (SELECT public_key FROM keys k WHERE k.keyid <> keys.keyid)", 1),
        ("UPDATE keys SET seq = 2", 6),
        ("UPDATE keys SET head = NULL", 6),
        ("UPDATE keys SET seq = 0", 6),
        ("UPDATE nodes SET standing = 0", 6),
        ("UPDATE nodes SET position = position - 2", 6),
        ("UPDATE nodes SET runs = runs + 1", 6),
        ("UPDATE nodes SET tier = 'tpm'", 6),
    ] {
        assert_eq!(broken_by(&fresh, statement), Some(index), "{statement}");
    }
}

#[test]
fn bytes_that_are_gone_are_retentions_doing_only_where_it_ran() {
    let fresh = filled();
    let store = fresh.open();
    store.prune(Timestamp::now() - jiff::SignedDuration::from_hours(1)).unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(file(&fresh)).unwrap();
    connection
        .execute_batch("DELETE FROM bodies WHERE position = 2; UPDATE records SET kept = 0 WHERE position = 2")
        .unwrap();
    let broken = fresh.open().audit(Timestamp::now()).unwrap().unwrap_err();
    assert_eq!(broken.index, 2);
    assert!(broken.why.contains("retention did not drop"), "{broken}");
}
