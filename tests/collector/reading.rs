//! What can be asked: nodes, records byte for byte, ledger, export, alerts, metrics.

use nodegate::decision::Decision;
use nodegate::record::ledger;
use nodegate::record::receipt_keys;
use serde_json::json;

use crate::client::Request;
use crate::host::Host;
use crate::sample;
use crate::server::Collector;

fn two_hosts(collector: &Collector) -> (Vec<crate::host::Signed>, Host) {
    let store = collector.store();
    let (mut good, mut bad) = (Host::known_to("good", &store), Host::known_to("bad", &store));
    let mut records = vec![good.record(|_| ()), good.record(|_| ())];
    records.push(bad.record(|details| {
        details.decision = Decision::Rejected;
        details.steps.push(sample::step("pcie-link", sample::found(nodegate::outcome::Grade::Failed)));
    }));
    for record in &records {
        assert_eq!(collector.post(&record.raw).status, 201);
    }
    (records, bad)
}

#[test]
fn what_was_sent_can_be_read_byte_for_byte() {
    let collector = Collector::start(&[]);
    let (records, bad) = two_hosts(&collector);
    let fleet = collector.get("/v1/nodes").json();
    assert_eq!((&fleet["total"], &fleet["nodes"][0]["record"]["hostname"]), (&json!(2), &json!("bad")));
    assert_eq!(fleet["standings"], json!({ "accepted": 1, "rejected": 1 }));
    assert_eq!(collector.get("/v1/nodes?standing=accepted&q=&class=").json()["found"], 1);

    for name in ["bad", &bad.digest().hex(), &bad.digest().to_string(), "Sbad4309021"] {
        let node = collector.get(&format!("/v1/nodes/{name}")).json();
        assert_eq!(node["problems"][0]["code"], "link-narrow", "{name}");
    }
    let page = collector.get("/v1/nodes/good/records?limit=1").json();
    assert_eq!((page["records"][0]["seq"].as_u64(), page["next"].as_u64()), (Some(2), Some(2)));
    let before = collector.get("/v1/nodes/good/records?limit=1&before=2").json();
    assert_eq!(before["records"][0]["seq"], 1);

    for record in &records {
        let hex = record.payload.hex();
        for name in [hex.clone(), format!("sha256:{hex}"), hex.to_uppercase()] {
            let answer = collector.get(&format!("/v1/records/{name}"));
            assert_eq!((answer.status, &answer.body), (200, &record.raw), "{name}");
            assert_eq!(answer.header("content-type"), Some("application/vnd.in-toto.test-result+dsse"));
            assert!(answer.header("content-disposition").unwrap().starts_with("attachment; filename="));
        }
        let receipt = collector.get(&format!("/v1/records/{hex}/receipt")).body;
        assert_eq!(receipt, collector.post(&record.raw).body);
    }
}

#[test]
fn the_export_has_every_record_once_and_the_head_is_signed() {
    let collector = Collector::start(&[]);
    let (records, _) = two_hosts(&collector);
    let export = collector.get("/v1/export");
    assert_eq!(export.header("content-type"), Some("application/vnd.in-toto.bundle"));
    let sent: Vec<u8> = records.iter().flat_map(|record| record.raw.clone()).collect();
    assert_eq!(export.text(), String::from_utf8(sent).unwrap());
    assert_eq!(collector.get("/v1/export?since=2").text().lines().count(), 1);
    assert_eq!(collector.get("/v1/export?since=0&limit=2").text().lines().count(), 2);
    assert_eq!(collector.get("/v1/export?since=3").body, b"");
    let head = collector.get("/v1/ledger/head").body;
    let head = ledger::verify(&head, &[collector.receipt_key()]).unwrap();
    assert_eq!(head.index, 3);
}

#[test]
fn a_long_export_is_whole() {
    let collector = Collector::start(&["--key-rate", "0"]);
    let mut host = Host::known_to("a", &collector.store());
    let records: Vec<_> = (0..250).map(|_| host.record(|_| ())).collect();
    records.iter().for_each(|record| assert_eq!(collector.post(&record.raw).status, 201));
    let lines = collector.get("/v1/export").text();
    let expected: Vec<String> =
        records.iter().map(|record| String::from_utf8_lossy(&record.raw).trim().to_owned()).collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    assert_eq!(collector.get("/v1/export?limit=201").text().lines().count(), 201);
}

#[test]
fn receipt_keys_are_shown_with_how_they_follow_each_other() {
    let collector = Collector::start(&[]);
    let pinned = collector.receipt_key();
    let state = collector.state.clone();
    let rotated = crate::server::nodegate()
        .args(["collector", "receipt-key", "rotate", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    assert!(collector.end().0.success());
    let collector = Collector::again(state, &[]);
    let new = collector.receipt_key();
    assert_ne!(new, pinned);
    let shown = collector.get("/v1/receipt-keys").body;
    assert_eq!(receipt_keys::trusted(&pinned, &shown), [pinned, new.clone()]);
    let record = Host::known_to("a", &collector.store()).record(|_| ());
    let receipt = collector.post(&record.raw).body;
    assert!(nodegate::record::receipt::verify(&receipt, &new, record.payload, &record.run_id).is_ok());
}

#[test]
fn an_alert_that_names_a_run_can_be_asked_for() {
    let collector = Collector::start(&[]);
    let run = "0193a5d0-0000-7000-8000-000000000001";
    let message = json!({ "version": "4", "receiver": "ops", "status": "firing", "groupKey": "{}", "alerts": [
        { "status": "firing", "labels": { "run_id": run, "alertname": "Canary" }, "annotations": {} },
        { "status": "firing", "labels": { "alertname": "Other" } },
    ]});
    let of_run = || collector.get(&format!("/v1/alert-sink/{run}")).json()["alerts"].clone();
    assert_eq!(of_run(), json!([]));
    let answer = Request::json("/v1/alert-sink", &message).send(&collector.address());
    assert_eq!((answer.status, answer.json()), (200, json!({ "kept": 1 })));
    assert_eq!(of_run()[0]["receiver"], "ops");
    Request::json("/v1/alert-sink", &json!({ "version": "3" }))
        .send(&collector.address())
        .assert_problem(400, "malformed");
    collector.get("/v1/alert-sink/not-a-run").assert_problem(404, "not-found");
}

#[test]
fn metrics_count_what_happened() {
    let collector = Collector::start(&[]);
    let (records, _) = two_hosts(&collector);
    collector.post(&records[0].raw);
    collector.post(b"{}").assert_problem(400, "malformed");
    let text = collector.get("/metrics").text();
    for line in [
        "nodegate_collector_records_total{outcome=\"created\"} 3",
        "nodegate_collector_records_total{outcome=\"known\"} 1",
        "nodegate_collector_refusals_total{code=\"malformed\"} 1",
        "nodegate_collector_intake_seconds_count 4",
        "nodegate_collector_nodes{standing=\"rejected\"} 1",
        "nodegate_collector_nodes{standing=\"accepted\"} 1",
        "nodegate_collector_ledger_entries 3",
        "nodegate_collector_store_up 1",
        "nodegate_collector_connections 1",
    ] {
        assert!(text.contains(line), "`{line}` is not in:\n{text}");
    }
    assert_eq!((collector.get("/healthz").status, collector.get("/healthz").text().as_str()), (200, "ok\n"));
}

#[test]
fn what_is_not_there_or_not_asked_rightly_is_a_problem() {
    let collector = Collector::start(&[]);
    let hex = "0".repeat(64);
    for path in [
        "/nothing",
        "/v1/records/x",
        &format!("/v1/records/{hex}"),
        "/v1/nodes/nobody",
        "/v1/nodes/a/records",
        "/V1/nodes",
    ] {
        collector.get(path).assert_problem(404, "not-found");
    }
    for path in
        ["/v1/nodes?standing=perhaps", "/v1/nodes?page=-1", "/v1/export?since=x", "/v1/nodes/%ff", "/v1/nodes/%zz"]
    {
        let answer = collector.get(path);
        assert!([400, 404].contains(&answer.status), "{path}: {}", answer.status);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    for (method, path) in [
        ("GET", "/v1/records"),
        ("DELETE", "/v1/nodes"),
        ("PUT", "/v1/records"),
        ("POST", "/v1/export"),
        ("OPTIONS", "/"),
    ] {
        let answer = Request::new(method, path).send(&collector.address());
        let expected = if path == "/" { 404 } else { 405 };
        assert!(answer.status == expected || path == "/", "{method} {path}: {}", answer.status);
        assert!(answer.status != 405 || answer.header("allow").is_some());
    }
    let accept = |value: &str| Request::get("/v1/nodes").with("Accept", value).send(&collector.address());
    accept("application/xml").assert_problem(406, "not-acceptable");
    assert_eq!(accept("text/html").status, 406);
    assert_eq!(accept("text/html, */*;q=0.1").status, 200);
    let head = Request::new("HEAD", "/v1/nodes").send(&collector.address());
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn every_answer_keeps_a_browser_from_doing_more_than_showing() {
    let collector = Collector::start(&[]);
    for answer in
        [collector.get("/healthz"), collector.get("/nothing"), collector.post(b"{}"), collector.get("/v1/nodes")]
    {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("script") && !policy.contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}

#[test]
fn a_browser_sees_pages_and_is_told_in_a_page_what_is_not_there() {
    let collector = Collector::start(&[]);
    let (records, bad) = two_hosts(&collector);
    let browse = |path: &str| Request::get(path).with("Accept", "text/html,*/*;q=0.8").send(&collector.address());
    let record = format!("/records/{}", records[2].payload.hex());
    let difference = format!("/diff?a={}&b={}", records[0].payload.hex(), records[1].payload.hex());
    for (path, text) in [
        ("/", "bad"),
        ("/?standing=rejected&q=", "bad"),
        ("/nodes/bad", "PCIe link narrow"),
        (&format!("/nodes/{}", bad.digest().hex()), "PCIe link narrow"),
        (&record, "cosign"),
        (&difference, "good"),
    ] {
        let page = browse(path);
        assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")), "{path}");
        assert!(page.text().contains(text) && !page.text().contains("<script"), "{path}");
    }
    let table = browse("/nodes.csv");
    assert_eq!((table.status, table.text().lines().count()), (200, 3));
    assert_eq!(browse("/nodes.csv?standing=accepted").text().lines().count(), 2);
    assert_eq!(browse("/export.intoto.jsonl").text().lines().count(), 3);
    for (name, media_type) in [("nodegate.css", "text/css; charset=utf-8"), ("icon.svg", "image/svg+xml")] {
        let file = browse(&format!("/static/{name}"));
        assert_eq!((file.status, file.header("content-type")), (200, Some(media_type)));
    }
    for (path, status) in
        [("/nothing", 404), ("/nodes/nobody", 404), ("/records/x", 404), ("/diff?a=x", 400), ("/static/x", 404)]
    {
        let page = browse(path);
        assert_eq!((page.status, page.header("content-type")), (status, Some("text/html; charset=utf-8")), "{path}");
        collector.get(path).assert_problem(status, if status == 404 { "not-found" } else { "malformed" });
    }
}

#[test]
fn the_table_of_a_fleet_of_several_pages_is_whole() {
    let collector = Collector::start(&[]);
    let store = collector.store();
    for number in 0..120 {
        let record = Host::known_to(&format!("h{number}"), &store).record(|_| ());
        assert_eq!(collector.post(&record.raw).status, 201);
    }
    let table = collector.get("/nodes.csv?sort=name").text();
    let mut names: Vec<&str> = table.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names.len(), 120, "{names:?}");
    names.dedup();
    assert_eq!(names.len(), 120);
}
