//! The collector under load: records of 20 kB from many keys through many connections, closed loop.
//!
//! ```text
//! cargo build --release && cargo bench --bench collector -- [--records 100000] [--keys 10000] [--connections 256] [--store URL]
//! ```
//!
//! Generator and server share the machine. What the server costs is read from its own
//! `/proc/PID/stat`, so that the generator's part is not in it. Afterwards the ledger is verified, and
//! every payload that got a receipt is looked up in the store.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "collector/load.rs"]
mod load;
#[path = "collector/records.rs"]
mod records;
#[path = "collector/server.rs"]
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use load::Outcome;
use records::{Member, Template};
use server::Server;

struct Options {
    records: usize,
    keys: usize,
    connections: usize,
    store: Option<String>,
}

fn main() {
    let options = options();
    let folder = tempfile::tempdir_in(std::env::var_os("BENCH_DIR").unwrap_or_else(|| "target".into())).unwrap();
    let url = options.store.clone().unwrap_or_else(|| format!("sqlite:{}", folder.path().join("store").display()));
    let template = Arc::new(Template::of_a_run(folder.path()));
    let members: Vec<Member> = (0..options.keys).map(Member::new).collect();
    server::enrol(&url, folder.path(), &members);
    let server = Server::start(&url, folder.path());
    println!(
        "{} records of {} bytes (payload) from {} keys over {} connections, store {}",
        options.records,
        template.bytes(),
        options.keys,
        options.connections,
        url.split(':').next().unwrap_or_default()
    );
    let before = server.cpu();
    let began = Instant::now();
    let outcome = load::run(server.address, &template, members, options.records, options.connections);
    let took = began.elapsed();
    let cpu = server.cpu() - before;
    report(&outcome, took, cpu, server.peak_kib());
    server.stop();
    server::verify(&url, folder.path(), &outcome.payloads);
}

fn report(outcome: &Outcome, took: Duration, cpu: Duration, peak_kib: u64) {
    let sent = outcome.latencies.len();
    let quantile = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank"
        )]
        let rank = ((sent as f64 - 1.0) * share) as usize;
        outcome.latencies[rank].as_secs_f64() * 1e3
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of records")]
    let count = sent as f64;
    println!("answers        {:?}", outcome.statuses);
    println!("rate           {:.0} records/s ({:.1} s)", count / took.as_secs_f64(), took.as_secs_f64());
    println!("latency        p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", quantile(0.5), quantile(0.99), quantile(1.0));
    println!("server CPU     {:.0} us per record", cpu.as_secs_f64() * 1e6 / count);
    println!("server memory  {:.0} MiB at most", f64::from(u32::try_from(peak_kib).unwrap()) / 1024.0);
}

fn options() -> Options {
    let mut options = Options { records: 100_000, keys: 10_000, connections: 256, store: None };
    // `cargo bench` adds `--bench`.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} wants a value"));
        let number = || value.parse::<usize>().unwrap_or_else(|_| panic!("{word} wants a number, not {value}"));
        match word.as_str() {
            "--records" => options.records = number(),
            "--keys" => options.keys = number(),
            "--connections" => options.connections = number(),
            "--store" => options.store = Some(value),
            _ => panic!("no option {word}"),
        }
    }
    options
}
