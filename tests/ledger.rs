//! The collector's store on SQLite: what it must do, and what must be found when it was tampered with.

#[path = "store/commands.rs"]
mod commands;
#[path = "store/figures.rs"]
mod figures;
#[path = "store/host.rs"]
mod host;
#[path = "record/sample.rs"]
mod sample;
#[path = "store/suite.rs"]
mod suite;
#[path = "store/tampered.rs"]
mod tampered;
#[path = "store/writer.rs"]
mod writer;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use nodegate::collector::model::Refusal;
use nodegate::collector::store::{BackupError, Settings, Store, StoreError};
use nodegate::record::CollectorKey;

use host::Host;
use suite::{Fresh, send};
use writer::Writer;

fn fresh() -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    Fresh::new(format!("sqlite:{}", folder.path().join("store.db").display()), folder)
}

pub fn file(fresh: &Fresh) -> PathBuf {
    PathBuf::from(fresh.url.strip_prefix("sqlite:").unwrap())
}

suite!(fresh);

#[test]
fn a_collector_of_its_own() {
    writer::be_one();
}

#[test]
fn a_collector_that_is_killed_again_and_again_loses_nothing_that_got_a_receipt() {
    let fresh = fresh();
    let mut receipts = Vec::new();
    for round in 0..8_usize {
        let mut writer = Writer::start(&fresh, &format!("round{round}"));
        // Somewhere in a commit, each time elsewhere.
        writer.gives(1 + round * 13);
        receipts.extend(writer.kill());
    }
    assert!(receipts.len() > 8 * 40, "{} receipts are no load", receipts.len());
    writer::nothing_is_lost(&fresh.open(), &receipts);
}

#[test]
fn two_processes_may_write_one_store_and_two_collectors_may_not_serve_it() {
    let fresh = fresh();
    let serves = Settings { serves: true, ..Settings::default() };
    let serving = fresh.open_with(serves.clone());
    let second = Store::open(&fresh.url, fresh.key(), serves.clone());
    let Err(error @ StoreError::Served { .. }) = second.map(|_| ()) else { panic!("a second collector serves it") };
    assert!(error.to_string().contains("served by another collector"), "{error}");
    let mut writer = Writer::start(&fresh, "beside");
    writer.gives(20);
    let mut host = Host::known_to("a", &serving);
    for _ in 0..20 {
        // Beside a process that never pauses one may be told to come again, as an agent may.
        let signed = host.record(|_| ());
        assert!((0..20).any(|_| send(&serving, &signed).is_ok()), "never had its turn");
    }
    let receipts = writer.kill();
    writer::nothing_is_lost(&serving, &receipts);
    drop(serving);
    fresh.open_with(serves);
}

#[test]
fn an_entrys_hash_can_be_computed_by_the_shell_as_the_documentation_says() {
    let documentation = std::fs::read_to_string("docs/collector-store.md").unwrap();
    let recipe = documentation.split("```sh\n").find(|part| part.starts_with("sqlite3 -separator")).unwrap();
    let recipe = recipe.split("```").next().unwrap();
    let fresh = fresh();
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    (0..3).for_each(|_| drop(send(&store, &host.record(|_| ())).unwrap()));
    // Stands in for the sqlite3 program, which few machines have.
    let connection = rusqlite::Connection::open(file(&fresh)).unwrap();
    let columns = "position || ' ' || previous || ' ' || payload || ' ' || received_at || ' ' || keyid || ' ' || entry";
    let row: String = connection
        .query_row(&format!("SELECT {columns} FROM records WHERE position = 3"), [], |row| row.get(0))
        .unwrap();
    let script = format!("sqlite3() {{ echo '{row}'; }}\n{recipe}");
    let output = std::process::Command::new("bash").args(["-euc", &script]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = said.split_ascii_whitespace().collect();
    let entry = store.entry(3).unwrap().unwrap();
    assert_eq!(words, [entry.hex().as_str(), "-", &entry.hex(), "stored"], "{said}");
}

#[test]
fn a_store_is_its_owners_alone() {
    let fresh = fresh();
    let store = fresh.open();
    Host::known_to("a", &store);
    for entry in std::fs::read_dir(file(&fresh).parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.file_name());
    }
}

#[test]
fn a_store_of_a_newer_schema_is_refused_by_its_number() {
    let fresh = fresh();
    drop(fresh.open());
    tampered::sql(&file(&fresh), "UPDATE meta SET value = '99' WHERE name = 'schema'");
    let error = Store::open(&fresh.url, fresh.key(), Settings::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, StoreError::NewerSchema { found: 99 }) && error.to_string().contains("newer"), "{error}");
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "not a database, and longer than a header of one ".repeat(50)).unwrap();
    let before = std::fs::read(&path).unwrap();
    let key = || CollectorKey::generate();
    assert!(Store::open(&format!("sqlite:{}", path.display()), key(), Settings::default()).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    for url in ["", "sqlite:", "mysql://x", "/tmp/x.db", "sqlite:/nonexistent/x.db", "postgres://ada@localhost:port/x"]
    {
        assert!(Store::open(url, key(), Settings::default()).is_err(), "{url}");
    }
}

#[test]
fn a_backup_is_made_while_records_come_in_and_is_whole() {
    let fresh = fresh();
    let store = fresh.open();
    let mut writer = Writer::start(&fresh, "busy");
    writer.gives(50);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("backup.db");
    store.backup(&copy).unwrap();
    let before = writer.receipts.clone();
    writer.gives(before.len() + 50);
    drop(writer);
    assert!(matches!(store.backup(&copy), Err(BackupError::Exists { .. })));
    assert!(matches!(store.backup(&folder.path().join("no/such/folder")), Err(BackupError::Write { .. })));
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["backup.db"]);
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o077, 0);
    let restored = Store::open(&format!("sqlite:{}", copy.display()), fresh.key(), Settings::default()).unwrap();
    writer::nothing_is_lost(&restored, &before);
    assert!(restored.head(Timestamp::now()).unwrap().index < store.head(Timestamp::now()).unwrap().index);
}

#[test]
fn one_record_that_the_database_cannot_take_keeps_no_other_out() {
    let fresh = fresh();
    let store = fresh.open();
    let mut hosts: Vec<Host> = (0..20).map(|number| Host::known_to(&format!("h{number}"), &store)).collect();
    let poison = "CREATE TRIGGER poison BEFORE INSERT ON records WHEN NEW.hostname = 'h7'
        BEGIN SELECT RAISE(ABORT, 'cannot be stored'); END";
    tampered::sql(&file(&fresh), poison);
    let records: Vec<_> = hosts.iter_mut().map(|host| host.record(|_| ())).collect();
    // All of them wait while the writer is held up, and so come into one batch.
    let holder = rusqlite::Connection::open(file(&fresh)).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let waiting: Vec<_> = records
        .iter()
        .map(|signed| {
            let (store, taken) = (store.clone(), store.verify(signed.raw.clone()).unwrap());
            runtime.spawn(async move { store.take(taken).await })
        })
        .collect();
    while store.waiting() < records.len() {
        std::thread::yield_now();
    }
    holder.execute_batch("ROLLBACK").unwrap();
    for (number, answer) in waiting.into_iter().enumerate() {
        let answer = runtime.block_on(answer).unwrap();
        assert_eq!(answer.is_ok(), number != 7, "{number}: {answer:?}");
    }
    assert_eq!(store.audit(Timestamp::now()).unwrap().unwrap().kept, 19);
}

#[test]
fn a_clock_that_is_set_back_puts_no_record_before_another() {
    let fresh = fresh();
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    send(&store, &host.record(|_| ())).unwrap();
    let ahead = Timestamp::now() + jiff::SignedDuration::from_hours(5);
    tampered::sql(&file(&fresh), &format!("UPDATE records SET received_at = {}", ahead.as_microsecond()));
    let signed = host.record(|_| ());
    let receipt = fresh.receipt(&send(&store, &signed).unwrap(), &signed);
    assert_eq!(receipt.received_at.as_microsecond(), ahead.as_microsecond());
}

#[test]
fn a_transaction_that_fails_refuses_its_records_as_busy_and_loses_nothing() {
    let fresh = fresh();
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let (first, second) = (host.record(|_| ()), host.record(|_| ()));
    send(&store, &first).unwrap();
    // In the middle of the transaction, as a full disk is.
    let full = "CREATE TRIGGER full BEFORE INSERT ON bodies BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    tampered::sql(&file(&fresh), full);
    assert!(matches!(send(&store, &second), Err(Refusal::Busy(_))));
    assert!(store.record(&second.payload).unwrap().is_none());
    tampered::sql(&file(&fresh), "DROP TRIGGER full");
    assert!(send(&store, &second).unwrap().created);
    writer::nothing_is_lost(&store, &[first.payload, second.payload]);
}
