//! Peers that want to hurt: each gets its status and a line in the log, the memory stays as it is,
//! and everybody else is answered meanwhile.

#[path = "collector/client.rs"]
mod client;
#[path = "store/host.rs"]
mod host;
#[path = "record/sample.rs"]
mod sample;
#[path = "collector/server.rs"]
mod server;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use client::{Answer, RECORD, Request, connect, raw};
use flate2::Compression;
use flate2::write::GzEncoder;
use host::Host;
use server::{Collector, eventually};

/// Kilobytes that the process may grow by: what its allocator holds on to, and far less than what is
/// sent here.
const GROWTH: u64 = 48 * 1024;

/// Does something to a collector, which answers others before, meanwhile (`during` calls what it is
/// given) and after, and does not grow.
fn unharmed(arguments: &[&str], during: impl FnOnce(&Collector, &dyn Fn())) -> Collector {
    let collector = Collector::start(arguments);
    let mut honest = Host::known_to("honest", &collector.store());
    let records: Vec<_> = (0..3).map(|_| honest.record(|_| ())).collect();
    assert_eq!(collector.post(&records[0].raw).status, 201);
    let before = collector.memory();
    let meanwhile = || {
        let sent = Request::record(&records[1].raw).with("Idempotency-Key", &records[1].run_id);
        let answer = sent.send(&collector.address());
        assert!([200, 201].contains(&answer.status), "others are not answered: {}", answer.text());
    };
    during(&collector, &meanwhile);
    assert_eq!(collector.post(&records[2].raw).status, 201, "{}", collector.said());
    let after = collector.memory();
    assert!(after < before + GROWTH, "grew from {before} to {after} kB");
    collector
}

fn head(more: &str) -> String {
    format!("POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: {RECORD}\r\n{more}\r\n")
}

#[test]
fn a_gigabyte_is_refused_by_its_length_or_at_the_byte_that_is_one_too_many() {
    let collector = unharmed(&[], |collector, meanwhile| {
        let mut declared = connect(&collector.address()).unwrap();
        declared.write_all(head("Content-Length: 1073741824\r\n").as_bytes()).unwrap();
        Answer::read(&mut declared).unwrap().assert_problem(413, "too-large");

        // Half a gigabyte each in another frame, as fast as it is taken.
        for chunked in [false, true] {
            let mut stream = connect(&collector.address()).unwrap();
            let how = if chunked { "Transfer-Encoding: chunked\r\n" } else { "Content-Length: 1073741824\r\n" };
            stream.write_all(head(how).as_bytes()).unwrap();
            let block = vec![b'x'; 64 * 1024];
            let mut sent = 0_usize;
            let broke_off = loop {
                let written = match chunked {
                    true => stream.write_all(&[b"10000\r\n", block.as_slice(), b"\r\n"].concat()),
                    false => stream.write_all(&block),
                };
                if written.is_err() || sent >= 1 << 30 {
                    break written.is_err();
                }
                sent += block.len();
                if sent == 4 << 20 {
                    meanwhile();
                }
            };
            let answer = Answer::read(&mut stream);
            assert!(answer.is_some() || broke_off, "neither an answer nor an end after {sent} bytes");
            if let Some(answer) = answer {
                answer.assert_problem(413, "too-large");
                assert_eq!(answer.header("connection"), Some("close"));
            }
        }
    });
    collector.assert_said(&["refused 413 too-large", "peer=127.0.0.1", "more than 1048576 bytes"]);
    // Who waits for 100 Continue is told before it sends anything.
    let answer = raw(&collector.address(), head("Expect: 100-continue\r\nContent-Length: 9999999\r\n").as_bytes());
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_decompression_bomb_is_cut_off_early() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
    // Members of a gzip stream follow each other: half a gigabyte.
    let bomb = encoder.finish().unwrap().repeat(512);
    assert!(bomb.len() < 1 << 20, "the bomb itself is too large: {}", bomb.len());
    let collector = unharmed(&[], |collector, meanwhile| {
        for _ in 0..20 {
            let answer = Request::record(&bomb).with("Content-Encoding", "gzip").send(&collector.address());
            answer.assert_problem(413, "too-large");
        }
        meanwhile();
    });
    collector.assert_said(&["refused 413 too-large", "unpacks to more than"]);
}

#[test]
fn slow_heads_and_bodies_end_and_hold_nobody() {
    let slow = ["--head-time", "2 s", "--body-time", "3 s"];
    let collector = unharmed(&slow, |collector, meanwhile| {
        let begin = |bytes: &str| {
            let mut stream = connect(&collector.address()).unwrap();
            stream.write_all(bytes.as_bytes()).unwrap();
            stream
        };
        let mut heads: Vec<TcpStream> = (0..100).map(|_| begin("POST /v1/records HTTP/1.1\r\nHost: x\r\nX-")).collect();
        let silent: Vec<TcpStream> = (0..20).map(|_| begin("")).collect();
        let mut bodies: Vec<TcpStream> = (0..50).map(|_| begin(&head("Content-Length: 1000\r\n"))).collect();
        meanwhile();
        // A byte now and then keeps none of them.
        let mut answered = 0;
        for round in 0..60 {
            heads.retain_mut(|stream| stream.write_all(b"a").is_ok());
            bodies.retain_mut(|stream| {
                let _gone = stream.write_all(b"a");
                stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                let mut answer = [0; 512];
                match stream.read(&mut answer) {
                    Ok(0) => false,
                    Ok(_) => {
                        assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
                        answered += 1;
                        false
                    }
                    Err(error) => {
                        !matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
                    }
                }
            });
            if heads.is_empty() && bodies.is_empty() {
                break;
            }
            if round % 10 == 0 {
                meanwhile();
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        assert!(heads.is_empty() && bodies.is_empty(), "{} heads and {} bodies still open", heads.len(), bodies.len());
        assert_eq!(answered, 50, "a slow body was not told");
        drop(silent);
        let connections = || collector.get("/metrics").text().contains("nodegate_collector_connections 1\n");
        assert!(eventually(connections), "connections are left over");
    });
    collector.assert_said(&["refused 408 too-slow", "POST /v1/records"]);
    collector.assert_said(&["head-too-slow peer=127.0.0.1"]);
}

#[test]
fn a_peer_that_does_not_read_its_answers_is_let_go() {
    let collector = Collector::start(&["--write-time", "10 s"]);
    let mut host = Host::known_to("a", &collector.store());
    // Together more than the system holds for a peer that does not read.
    let records: Vec<_> = (0..20).map(|_| host.record(|details| details.notices.push("x".repeat(600_000)))).collect();
    records.iter().for_each(|record| assert_eq!(collector.post(&record.raw).status, 201));
    let before = collector.memory();
    let ask = |asked: String| {
        let mut stream = connect(&collector.address()).unwrap();
        // The system reads for it no more than this.
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 64 * 1024).unwrap();
        stream.write_all(asked.as_bytes()).unwrap();
        stream
    };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut exports: Vec<TcpStream> = (0..8).map(|_| ask(get("/v1/export"))).collect();
    let begun = exports.iter_mut().filter(|stream| {
        let mut head = [0; 12];
        (&mut &**stream).read_exact(&mut head).unwrap();
        head == *b"HTTP/1.1 200"
    });
    assert_eq!(begun.count(), 4, "exports are without end");
    assert_eq!(collector.get("/v1/nodes").status, 200, "who asks little waits for who asks for all");
    let all: String = records.iter().map(|record| get(&format!("/v1/records/{}", record.payload.hex()))).collect();
    let readers: Vec<TcpStream> = (0..80).map(|_| ask(all.clone())).chain(exports).collect();
    assert!(eventually(|| collector.get("/v1/nodes").status == 503), "one peer may ask without end");
    assert_eq!(collector.post(&host.record(|_| ()).raw).status, 201, "who writes waits for who reads");
    assert_eq!(from_elsewhere(&collector, "/v1/alert-sink/0193a5d0-0000-7000-8000-000000000001"), "200");
    let alone = || collector.get("/metrics").text().contains("nodegate_collector_connections 1\n");
    assert!(eventually(alone), "who does not read is waited for");
    assert_eq!(collector.get("/v1/nodes").status, 200, "readers are shut out for good");
    drop(readers);
    let after = collector.memory();
    assert!(after < before + 200 * 1024, "grew from {before} to {after} kB");
}

/// The status that another address of this machine, and so another peer, is answered with.
fn from_elsewhere(collector: &Collector, path: &str) -> String {
    let output = std::process::Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--interface", "127.0.0.2", "--max-time", "20"])
        .arg(format!("http://{}{path}", collector.address()))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn too_many_connections_of_one_peer_leave_room_for_others() {
    let collector = unharmed(&["--max-connections-per-peer", "20", "--max-connections", "64"], |collector, _| {
        let mut held: Vec<TcpStream> = (0..40).map(|_| connect(&collector.address()).unwrap()).collect();
        // One of before may be on its way out still.
        for stream in &mut held[20..] {
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, *b"HTTP/1.1 503");
        }
        assert_eq!(from_elsewhere(collector, "/healthz"), "200", "another peer is shut out");
        drop(held);
        assert!(eventually(|| Request::get("/healthz")
            .try_send(&collector.address())
            .is_some_and(|answer| answer.status == 200)));
    });
    collector.assert_said(&["no-room peer=127.0.0.1"]);
}

#[test]
fn one_peer_is_told_when_it_asks_too_often() {
    let collector = Collector::start(&["--peer-rate", "1"]);
    let mut stream = connect(&collector.address()).unwrap();
    let asks = "GET /v1/receipt-keys HTTP/1.1\r\nHost: x\r\n\r\n".repeat(9000);
    let _refused = stream.write_all(asks.as_bytes());
    let mut answers = Vec::new();
    let _reset = stream.read_to_end(&mut answers);
    let answers = String::from_utf8_lossy(&answers);
    assert!(answers.contains("HTTP/1.1 429") && answers.contains("retry-after: "), "nothing was refused");
    collector.assert_said(&["refused 429 too-many"]);
}

#[test]
fn heads_that_are_too_large_or_no_http_are_refused() {
    let collector = unharmed(&[], |collector, meanwhile| {
        let long = "x".repeat(1 << 20);
        let many: String = (0..5000).map(|number| format!("X-{number}: y\r\n")).collect();
        for (bytes, expected) in [
            (format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {long}\r\n\r\n"), "431"),
            (format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"), "431"),
            (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), "4"),
            ("\u{1b}[2J\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/9.9\r\nHost: x\r\n\r\n".to_owned(), "400"),
            ("GET /\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n folded\r\n\r\n".to_owned(), "400"),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n".to_owned(), "400"),
            ("\x16\x03\x01\x02\x00\x01\x00\x01\u{7f}\x03\x03\r\n\r\n".to_owned(), "400"),
        ] {
            let answer = raw(&collector.address(), bytes.as_bytes());
            let answer = String::from_utf8_lossy(&answer);
            // Some are not worth an answer; none is one.
            assert!(
                answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {expected}")),
                "{}: {answer}",
                &bytes[..bytes.len().min(60)]
            );
            assert!(answer.matches("HTTP/1.").count() <= 1, "{answer}");
        }
        meanwhile();
    });
    collector.assert_said(&["not-http peer=127.0.0.1"]);
    assert!(!collector.said().contains('\u{1b}'));
}

#[test]
fn what_two_parties_could_read_differently_is_refused_or_ends_the_connection() {
    let smuggled = "GET /v1/receipt-keys HTTP/1.1\r\nHost: hidden\r\n\r\n";
    unharmed(&[], |collector, meanwhile| {
        let body = format!("0\r\n\r\n{smuggled}");
        for lines in [
            format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", body.len()),
            format!("Transfer-Encoding: chunked\r\nContent-Length: {}\r\n", body.len()),
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned(),
            "Transfer-Encoding: identity, chunked\r\n".to_owned(),
            "Transfer-Encoding: chunked, identity\r\n".to_owned(),
            "Transfer-Encoding: xchunked\r\n".to_owned(),
            "Transfer-Encoding : chunked\r\n".to_owned(),
            "Transfer-Encoding:\u{b}chunked\r\n".to_owned(),
            "Content-Length: 0\r\nContent-Length: 5\r\n".to_owned(),
            "Content-Length: 5, 5\r\n".to_owned(),
            "Content-Length: +5\r\n".to_owned(),
            "Content-Length: -1\r\n".to_owned(),
            "Content-Length: 0x5\r\n".to_owned(),
            "Content-Length: 99999999999999999999999\r\n".to_owned(),
        ] {
            let answer = raw(&collector.address(), format!("{}{body}", head(&lines)).as_bytes());
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{lines:?}: {answer}");
            assert!(!answer.contains("publicKey"), "{lines:?}: what was hidden in the body was answered: {answer}");
        }
        for chunks in [
            "5;x=\"\r\nabcde\r\n0\r\n\r\n",
            "-5\r\nabcde\r\n0\r\n\r\n",
            "FFFFFFFFFFFFFFFFF\r\nx",
            "5\nabcde\n0\n\n",
            "5\r\nabcdefgh\r\n0\r\n\r\n",
            "zz\r\n",
        ] {
            let bytes = format!("{}{chunks}{smuggled}", head("Transfer-Encoding: chunked\r\n"));
            let answer = raw(&collector.address(), bytes.as_bytes());
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains("publicKey"), "{chunks:?}: {answer}");
        }
        meanwhile();
    });
}

#[test]
fn no_path_leads_out_of_what_there_is() {
    unharmed(&[], |collector, _| {
        for path in [
            "/../../etc/passwd",
            "/static/../../etc/passwd",
            "/static/..%2f..%2fetc%2fpasswd",
            "/static/%2e%2e/%2e%2e/etc/passwd",
            "/static//etc/passwd",
            "/v1/records/..%2f..%2freceipt.pem",
            "/v1/nodes/%00",
            "/v1/nodes/%c0%ae%c0%ae",
            "/v1/nodes/%ff%fe",
            "/v1/nodes/%",
            "/v1/nodes/%f",
            "/v1/nodes/%%%",
            "/v1/nodes/'%20OR%20'1'='1",
            "/v1/nodes/%25",
            "/v1/nodes?q='%3B%20DROP%20TABLE%20nodes%3B--",
            "/v1/nodes?q=%",
            "/v1/nodes?class=%27&finding=%22&tier=%3c",
            "/download/..",
            "/v1/alert-sink/..%2f..",
        ] {
            let answer = collector.get(path);
            let told = answer.text();
            assert!([200, 400, 404].contains(&answer.status), "{path}: {} {told}", answer.status);
            assert!(!told.contains("root:") && !told.contains("PRIVATE"), "{path}: {told}");
            let searched =
                answer.status != 200 || answer.json()["found"].as_u64() == Some(0) || path == "/v1/nodes?q=%";
            assert!(searched, "{path}: {told}");
        }
        // An absolute form names the same thing, and never another server.
        let answer = raw(
            &collector.address(),
            b"GET http://elsewhere.example/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        );
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        let answer =
            raw(&collector.address(), b"CONNECT elsewhere.example:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    });
}

#[test]
fn a_flood_of_refusals_is_counted_and_does_not_fill_the_log() {
    let collector = unharmed(&["--peer-rate", "0"], |collector, meanwhile| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let name = "\u{1b}]0;x\u{7}".repeat(5);
                        let request = Request::record(b"{}")
                            .with("Idempotency-Key", &name.replace('\u{1b}', "e").replace('\u{7}', "b"));
                        assert_eq!(request.send(&collector.address()).status, 400);
                    }
                });
            }
        });
        meanwhile();
    });
    let lines = collector.said().lines().filter(|line| line.contains("refused 400")).count();
    assert!(lines < 1500, "{lines} lines of 4000 refusals");
    let metrics = collector.get("/metrics").text();
    assert!(metrics.contains("nodegate_collector_refusals_total{code=\"malformed\"} 4000"), "{metrics}");
    let (_, said) = collector.end();
    assert!(said.contains("more refusals, not written one by one"), "{said}");
}

#[test]
fn deep_and_wide_json_costs_no_more_than_its_bytes() {
    let megabyte = (1 << 20) - 64;
    unharmed(&[], |collector, meanwhile| {
        let payload = |inner: &str| {
            format!("{{\"payload\":{inner},\"payloadType\":\"application/vnd.in-toto+json\",\"signatures\":[]}}")
        };
        for body in [
            "[".repeat(megabyte),
            "{\"a\":".repeat(megabyte / 5),
            format!("[{}0]", "0,".repeat(megabyte / 2)),
            format!("[{}{{}}]", "{},".repeat(megabyte / 3)),
            format!("{{{}\"z\":0}}", (0..90_000).map(|number| format!("\"{number}\":0,")).collect::<String>()),
            payload(&format!("\"{}\"", "A".repeat(megabyte - 200))),
            format!("{{\"signatures\":[{}{{\"sig\":\"\"}}]}}", "{\"sig\":\"\"},".repeat(60_000)),
            "\"\\ud800\"".to_owned(),
            "1e999999".to_owned(),
            "9".repeat(megabyte),
        ] {
            let answer = collector.post(body.as_bytes());
            assert!([400, 401].contains(&answer.status), "{}: {}", &body[..20.min(body.len())], answer.text());
        }
        meanwhile();
    });
}
