//! The end: what is in flight is answered, and what got a receipt is kept.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nodegate::ident::Digest;
use nodegate::record::receipt;
use rustix::process::Signal;

use crate::client::Request;
use crate::host::Host;
use crate::server::{Collector, eventually, store_in};

#[test]
fn a_collector_that_ends_under_load_keeps_what_it_gave_a_receipt_for() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut collector = Collector::start(&["--key-rate", "0"]);
        let (address, key) = (collector.address(), collector.receipt_key());
        let hosts: Vec<Host> = (0..8).map(|number| Host::known_to(&format!("h{number}"), &collector.store())).collect();
        let receipts: Mutex<Vec<Digest>> = Mutex::default();
        let refused = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for mut host in hosts {
                let (address, key, receipts, refused) = (&address, &key, &receipts, &refused);
                scope.spawn(move || {
                    loop {
                        let record = host.record(|_| ());
                        let Some(answer) = Request::record(&record.raw).try_send(address) else {
                            refused.fetch_add(1, Ordering::Relaxed);
                            return;
                        };
                        assert_eq!(answer.status, 201, "{}", answer.text());
                        receipt::verify(&answer.body, key, record.payload, &record.run_id).unwrap();
                        receipts.lock().unwrap().push(record.payload);
                    }
                });
            }
            assert!(eventually(|| receipts.lock().unwrap().len() > 200));
            collector.signal(signal);
        });
        let status = collector.wait();
        assert_eq!(status.code(), Some(0), "{}", collector.said());
        collector.assert_said(&["ended"]);
        assert_eq!(refused.load(Ordering::Relaxed), 8, "each sender was told that it is over");
        let store = store_in(collector.state.path());
        let receipts = receipts.into_inner().unwrap();
        for payload in &receipts {
            assert!(store.record(payload).unwrap().is_some(), "{payload} got a receipt and is not kept");
        }
        assert!(store.head(jiff::Timestamp::now()).unwrap().index >= receipts.len() as u64);
    }
}

#[test]
fn an_idle_connection_does_not_hold_the_end_and_a_body_under_way_is_taken() {
    use std::io::Write as _;
    let collector = Collector::start(&[]);
    let idle = crate::client::connect(&collector.address()).unwrap();
    let record = Host::known_to("a", &collector.store()).record(|_| ());
    let bytes = Request::record(&record.raw).bytes();
    let mut busy = crate::client::connect(&collector.address()).unwrap();
    busy.write_all(&bytes[..bytes.len() - 10]).unwrap();
    assert!(eventually(|| collector.get("/metrics").text().contains("nodegate_collector_connections 3")));
    collector.signal(Signal::TERM);
    collector.assert_said(&["ending"]);
    busy.write_all(&bytes[bytes.len() - 10..]).unwrap();
    let answer = crate::client::Answer::read(&mut busy).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let (status, said) = collector.end();
    assert!(status.success() && !said.contains("cut off"), "{said}");
    drop(idle);
}
