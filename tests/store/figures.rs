//! Figures, not tests: how long a page of a large fleet takes, and what a record costs.
//! `cargo test --release --test ledger -- --ignored --nocapture figures`

#![allow(clippy::print_stdout, reason = "figures are for reading")]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use nodegate::collector::model::{FleetQuery, Sort, Standing};
use nodegate::ident::Digest;
use nodegate::predicate::Details;

use crate::host::Host;
use crate::{file, fresh};

const NODES: u64 = 100_000;

fn timed<T>(what: &str, mut work: impl FnMut() -> T) -> T {
    let mut times: Vec<Duration> = Vec::new();
    let mut last = None;
    for _ in 0..7 {
        let began = processor();
        last = Some(work());
        times.push(processor() - began);
    }
    times.sort();
    println!("{what:40} CPU: median {:8.2} ms, worst {:8.2} ms", ms(times[3]), ms(times[6]));
    last.unwrap()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[test]
#[ignore = "figures: fills a store with 100,000 nodes"]
fn figures_of_a_large_fleet() {
    let fresh = fresh();
    let store = fresh.open();
    let began = Instant::now();
    fill(&file(&fresh));
    println!("{NODES} nodes filled in {:.1} s", began.elapsed().as_secs_f64());
    let now = Timestamp::now();
    let fleet = |query: FleetQuery| store.fleet(&query, now).unwrap();
    let all = timed("the first page", || fleet(FleetQuery::default()));
    assert_eq!((all.total, all.nodes.len()), (NODES, 50));
    let text = |text: &str| FleetQuery { text: text.to_owned(), ..FleetQuery::default() };
    assert_eq!(timed("by a whole name", || fleet(text("gpu-077123"))).found, 1);
    assert_eq!(timed("by a part that nothing has", || fleet(text("zebra"))).found, 0);
    assert_eq!(timed("by a part that all have", || fleet(text("gpu"))).found, NODES);
    let standing = FleetQuery { standing: Some(Standing::Rejected), ..FleetQuery::default() };
    assert_eq!(timed("rejected ones", || fleet(standing.clone())).found, NODES / 20);
    let finding = |code: &str| FleetQuery { finding: Some(code.to_owned()), ..FleetQuery::default() };
    assert_eq!(timed("by a finding that few have", || fleet(finding("link-narrow"))).found, NODES / 20);
    assert_eq!(timed("by a finding that all have", || fleet(finding("kernel-log-short"))).found, NODES);
    for sort in [Sort::Name, Sort::Newest, Sort::Oldest] {
        timed(&format!("first page by {sort:?}"), || fleet(FleetQuery { sort, ..FleetQuery::default() }));
    }
    timed("the last page", || fleet(FleetQuery { page: u32::MAX, ..FleetQuery::default() }));
    let narrow = FleetQuery { standing: Some(Standing::Rejected), sort: Sort::Name, ..finding("link-narrow") };
    timed("rejected, one finding, by name", || fleet(narrow.clone()));
    timed("one node by its name", || store.find_node("gpu-077123", now).unwrap().unwrap());
    timed("counts for metrics", || store.counts(now).unwrap());
    timed("repeat offenders", || store.offenders(now, 50).unwrap());
}

/// CPU time of this process, whatever else the machine does.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Straight into the tables: 100,000 signatures are not what is measured here.
fn fill(path: &std::path::Path) {
    let mut connection = rusqlite::Connection::open(path).unwrap();
    let fill = connection.transaction().unwrap();
    let now = Timestamp::now().as_microsecond();
    let digest = |kind: &str, number: u64| Digest::of(format!("{kind}{number}").as_bytes()).to_string();
    for number in 1..=NODES {
        let (name, host, keyid) = (format!("gpu-{number:06}"), digest("host", number), format!("SHA256:{number}"));
        let rejected = number % 20 == 0;
        let decision = if rejected { "rejected" } else { "accepted" };
        let put = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
            assert_eq!(fill.prepare_cached(sql).unwrap().execute(values).unwrap(), 1);
        };
        put(
            "INSERT INTO keys VALUES (?1, 'x', 'token', 'approved', ?2, ?3, NULL, NULL, NULL, ?4, NULL, NULL, NULL, 1, NULL)",
            &[&keyid, &host, &name, &now],
        );
        put(
            "INSERT INTO records VALUES (?1, ?2, ?3, ?4, ?5, ?2, ?6, ?7, ?7, ?8, 'hgx-h100-8', ?9, ?9, ?10, 'rack',
             'quick', 0, 1, NULL, NULL, ?4, '', 'token', 0)",
            &[
                &(number as i64),
                &digest("entry", number),
                &digest("payload", number),
                &now,
                &keyid,
                &uuid::Uuid::now_v7().to_string(),
                &host,
                &name,
                &digest("class", 1),
                &decision,
            ],
        );
        let problem = |grade: &str, code: &str| {
            format!(
                "{{\"grade\":\"{grade}\",\"step\":\"pcie-link\",\"code\":\"{code}\",\"title\":\"PCIe link narrow\",\"subject\":\"0000:1b:00.0\",\"slot\":null,\"serial\":null,\"action\":\"reseat\"}}"
            )
        };
        let mut problems = vec![problem("warned", "kernel-log-short")];
        let mut codes = vec!["kernel-log-short"];
        if rejected {
            problems.insert(0, problem("failed", "link-narrow"));
            codes.push("link-narrow");
            for back in 0..2_i64 {
                let (position, at) = ((number * 10) as i64 + back, now - back * 1_000_000);
                put("INSERT INTO rejections VALUES (?1, ?2, ?3)", &[&position, &host, &at]);
                put(
                    "INSERT INTO findings VALUES (?1, ?2, ?3, 'pcie-link', 'link-narrow', '0000:1b:00.0', ?4)",
                    &[&position, &host, &at, &format!("16505{number:08}")],
                );
            }
        }
        let serials: Vec<String> = (0..8).map(|gpu| format!("1{number:06}{gpu}0123")).collect();
        let search = format!("{name}\ns{number}4309021\n{}\n{}", &host[7..27], serials.join("\n"));
        put(
            "INSERT INTO nodes VALUES (?1, ?2, ?3, ?4, ?5, 'hgx-h100-8', 'token', ?6, ?7, 1, ?8)",
            &[
                &host,
                &(number as i64),
                &name,
                &format!("S{number}4309021"),
                &search,
                &(if rejected { 0 } else { 4 }),
                &Timestamp::MAX.as_microsecond(),
                &(if rejected { 2 } else { 0 }),
            ],
        );
        put(
            "INSERT INTO node_details VALUES (?1, '8 × NVIDIA H100 80GB HBM3', ?2)",
            &[&host, &format!("[{}]", problems.join(","))],
        );
        for code in codes {
            let standing = if rejected { 0 } else { 4 };
            put("INSERT INTO node_findings VALUES (?1, ?2, ?3, 'hgx-h100-8', 'token')", &[&host, &code, &standing]);
        }
    }
    fill.commit().unwrap();
}

/// About 20 kB, with what a record of eight GPUs has: many steps, many measurements.
fn realistic(details: &mut Details) {
    let step = &details.steps[1].clone();
    while serde_json::to_vec(&*details).unwrap().len() < 14_500 {
        let mut another = step.clone();
        another.id = format!("step-{}", details.steps.len()).parse().unwrap();
        let measurement = another.outcome.measurements[0].clone();
        another.outcome.measurements = vec![measurement; 6];
        details.steps.push(another);
    }
}

#[test]
#[ignore = "figures: what a record costs"]
fn figures_of_a_record() {
    let fresh = fresh();
    let store = fresh.open();
    let mut hosts: Vec<Host> = (0..100).map(|number| Host::known_to(&format!("gpu-{number}"), &store)).collect();
    let records: Vec<Vec<u8>> =
        (0..40).flat_map(|_| hosts.iter_mut().map(|host| host.record(realistic).raw).collect::<Vec<_>>()).collect();
    println!("a record has {} bytes", records[0].len());
    let each = |time: Duration, count: usize| time.as_secs_f64() * 1e6 / count as f64;
    let key = hosts[0].key.public_key();
    let began = processor();
    (0..1000).for_each(|_| assert!(!key.verifies(b"something short", &[7; 64])));
    println!(
        "one signature over a few bytes: {:.1} µs, the measure of this machine now",
        each(processor() - began, 1000)
    );
    let began = processor();
    records.iter().for_each(|raw| drop(store.verify(raw.clone()).unwrap()));
    println!("verified: {:.1} µs of CPU a record", each(processor() - began, records.len()));
    let taken: Vec<_> = records.iter().map(|raw| store.verify(raw.clone()).unwrap()).collect();
    let count = taken.len();
    let (began, cpu) = (Instant::now(), processor());
    let queue = std::sync::Mutex::new(taken.into_iter());
    // A closed loop of 64 senders.
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                loop {
                    let Some(record) = queue.lock().unwrap().next() else { return };
                    store.take_and_wait(record).unwrap();
                }
            });
        }
    });
    let (rate, cpu) = (count as f64 / began.elapsed().as_secs_f64(), each(processor() - cpu, count));
    println!("stored: {rate:.0} records/s, {cpu:.1} µs of CPU a record");
}
