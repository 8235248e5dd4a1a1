//! The closed loop: each connection sends its next record when the last one was answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nodegate::ident::Digest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::records::{Member, Template};

/// What came of it.
#[derive(Default)]
pub struct Outcome {
    /// Sorted.
    pub latencies: Vec<Duration>,
    pub statuses: BTreeMap<u16, usize>,
    /// Those that got a receipt.
    pub payloads: Vec<Digest>,
}

pub fn run(
    address: SocketAddr,
    template: &Arc<Template>,
    members: Vec<Member>,
    records: usize,
    connections: usize,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let left = Arc::new(AtomicUsize::new(records));
    let mut shares: Vec<Vec<Member>> = (0..connections).map(|_| Vec::new()).collect();
    for (index, member) in members.into_iter().enumerate() {
        shares[index % connections].push(member);
    }
    let loops: Vec<_> = shares
        .into_iter()
        .filter(|share| !share.is_empty())
        .map(|share| runtime.spawn(connection(address, Arc::clone(template), share, Arc::clone(&left))))
        .collect();
    runtime.block_on(async {
        let mut outcome = Outcome::default();
        for part in loops {
            let part = part.await.unwrap();
            outcome.latencies.extend(part.latencies);
            outcome.payloads.extend(part.payloads);
            part.statuses.into_iter().for_each(|(status, count)| *outcome.statuses.entry(status).or_default() += count);
        }
        outcome.latencies.sort();
        outcome
    })
}

async fn connection(
    address: SocketAddr,
    template: Arc<Template>,
    mut share: Vec<Member>,
    left: Arc<AtomicUsize>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut turn = 0;
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let members = share.len();
        let (body, payload) = share[turn % members].next(&template);
        turn += 1;
        let began = Instant::now();
        let status = exchange(&mut stream, &body).await;
        outcome.latencies.push(began.elapsed());
        *outcome.statuses.entry(status).or_default() += 1;
        if status == 201 {
            outcome.payloads.push(payload);
        }
    }
    outcome
}

/// One request on a connection that is kept; the answer's status.
async fn exchange(stream: &mut TcpStream, body: &[u8]) -> u16 {
    let head = format!(
        "POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.in-toto.test-result+dsse\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::with_capacity(2048);
    loop {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "closed: {}", String::from_utf8_lossy(&answer));
        let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        if answer.len() >= end + 4 + length {
            return head[9..12].parse().unwrap();
        }
    }
}
