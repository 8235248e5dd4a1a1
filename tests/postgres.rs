//! The collector's store on a real PostgreSQL server: all that SQLite must do, several collectors at
//! once, and a server that goes away.

#[path = "store/host.rs"]
mod host;
#[path = "record/sample.rs"]
mod sample;
#[path = "store/server.rs"]
mod server;
#[path = "store/suite.rs"]
mod suite;
#[path = "store/writer.rs"]
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nodegate::collector::model::{Admission, Refusal};
use nodegate::collector::store::{BackupError, Settings, Store, StoreError};

use host::{Host, Signed};
use server::Server;
use suite::{Fresh, send};
use writer::Writer;

#[test]
fn a_collector_of_its_own() {
    writer::be_one();
}

#[test]
fn everything_that_a_store_must_do_holds_on_postgresql() {
    let server = Server::start();
    let failed: Vec<&str> = suite::ALL
        .iter()
        .enumerate()
        .filter(|(number, (_, test))| {
            let fresh = Fresh::new(server.database(&format!("suite{number}")), ());
            catch_unwind(AssertUnwindSafe(|| test(&fresh))).is_err()
        })
        .map(|(_, (name, _))| *name)
        .collect();
    assert!(failed.is_empty(), "failed on PostgreSQL: {failed:?}");
}

#[test]
fn two_collectors_on_one_database_lose_and_double_nothing_when_one_is_killed() {
    let server = Server::start();
    let fresh = Fresh::new(server.database("fleet"), ());
    let serves = Settings { serves: true, ..Settings::default() };
    let store = fresh.open_with(serves);
    let mut receipts = Vec::new();
    let mut goes_on = Writer::start(&fresh, "goes-on");
    for round in 0..3 {
        let mut killed = Writer::start(&fresh, &format!("killed{round}"));
        killed.gives(20 + round * 17);
        receipts.extend(killed.kill());
        goes_on.gives(goes_on.receipts.len() + 20);
        let mut host = Host::known_to(&format!("third{round}"), &store);
        receipts.push(sent_at_last(&store, &host.record(|_| ())).0);
    }
    receipts.extend(goes_on.kill());
    assert!(receipts.len() > 150, "{} receipts are no load", receipts.len());
    writer::nothing_is_lost(&store, &receipts);
}

#[test]
fn a_server_that_crashes_and_comes_back_costs_no_record() {
    let mut server = Server::start();
    let fresh = Fresh::new(server.database("fleet"), ());
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    let first = host.record(|_| ());
    send(&store, &first).unwrap();
    server.crash();
    let second = host.record(|_| ());
    assert!(matches!(send(&store, &second), Err(Refusal::Busy(_))));
    assert!(store.record(&first.payload).is_err(), "not knowing is no answer");
    server.go_on();
    let (payload, admission) = sent_at_last(&store, &second);
    assert!(admission.flags.is_empty());
    writer::nothing_is_lost(&store, &[first.payload, payload]);
}

#[test]
fn a_connection_that_the_server_ends_is_opened_again() {
    let server = Server::start();
    let fresh = Fresh::new(server.database("fleet"), ());
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    send(&store, &host.record(|_| ())).unwrap();
    // As the server does with a collector that stood still in a transaction for too long.
    let end = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'nodegate'";
    assert_ne!(server.sql("fleet", end).trim(), "0");
    let signed = host.record(|_| ());
    // A reader's question is asked again at once; what was being written is the sender's to try again.
    assert!(store.record(&signed.payload).unwrap().is_none());
    sent_at_last(&store, &signed);
    writer::nothing_is_lost(&store, &[signed.payload]);
}

#[test]
fn a_server_elsewhere_is_spoken_to_over_tls_with_its_certificate_verified() {
    let mut server = Server::start();
    server.database("fleet");
    server.sql("postgres", "CREATE USER collector PASSWORD 'hunter2'");
    server.sql("postgres", "ALTER DATABASE fleet OWNER TO collector");
    let authority = server.speak_tls();
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "hunter2\n").unwrap();
    let url = |host: &str, authority: &std::path::Path| {
        let (port, password, authority) = (server.port(), password.path().display(), authority.display());
        format!(
            "postgres://collector@{host}:{port}/fleet?sslmode=require&password-file={password}&sslrootcert={authority}&hostaddr=127.0.0.1"
        )
    };
    let fresh = Fresh::new(url("localhost", &authority), ());
    let store = fresh.open();
    let mut host = Host::known_to("a", &store);
    send(&store, &host.record(|_| ())).unwrap();

    let open = |url: &str| Store::open(url, fresh.key(), Settings::default()).map(|_| ()).unwrap_err();
    let stranger = tempfile::NamedTempFile::new().unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(stranger.path(), other.cert.pem()).unwrap();
    assert!(matches!(open(&url("localhost", stranger.path())), StoreError::Engine(_)), "another authority");
    assert!(matches!(open(&url("db.example", &authority)), StoreError::Engine(_)), "another host's certificate");
    let clear = url("localhost", &authority).replace("sslmode=require", "sslmode=disable");
    assert!(matches!(open(&clear), StoreError::Engine(_)), "the server wants TLS");
}

#[test]
fn a_backup_of_a_database_is_pg_dumps_to_make() {
    let server = Server::start();
    let fresh = Fresh::new(server.database("fleet"), ());
    let refused = fresh.open().backup(std::path::Path::new("/nonexistent/x")).unwrap_err();
    assert!(matches!(refused, BackupError::Server) && refused.to_string().contains("pg_dump"));
}

/// Sends as an agent does: again while the store is busy.
fn sent_at_last(store: &Store, signed: &Signed) -> (nodegate::ident::Digest, Admission) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match send(store, signed) {
            Ok(admission) => return (signed.payload, admission),
            Err(Refusal::Busy(_)) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
            Err(refusal) => panic!("{refusal}"),
        }
    }
}
