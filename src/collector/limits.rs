//! What one collector lets happen at once, so that no peer can take it from the others.
//!
//! Every number has a default that fits a fleet of ten thousand hosts on a small machine, and an
//! option of `nodegate collector serve`. Memory is bounded by them and not by what is sent.

mod rate;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use rate::Rates;

/// Bytes that one permit of the body memory stands for.
const PORTION: usize = 16 * 1024;

/// The limits of one collector.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections of all peers, and of one.
    pub connections: usize,
    pub connections_of_a_peer: usize,
    /// Requests that are being answered: those that write, and those that read.
    pub writes_in_flight: usize,
    pub reads_in_flight: usize,
    /// Of those that read, how many may be one peer's.
    pub reads_of_a_peer: usize,
    /// Exports that are being sent, of all peers: each holds some megabytes.
    pub exports: usize,
    /// Bytes of a body as it is sent, and of what it unpacks to.
    pub body: usize,
    /// Bytes of all bodies that are being received or judged.
    pub bodies: usize,
    /// Bytes and lines of a request's head.
    pub head: usize,
    pub head_lines: usize,
    /// For a TLS handshake, for a whole head, and between two requests of a connection.
    pub head_time: Duration,
    /// For a whole body, and between two pieces of it.
    pub body_time: Duration,
    pub body_pause: Duration,
    /// Bytes a second, over the whole of a body that takes longer than `body_pause`.
    pub body_rate: usize,
    /// Without progress of an answer that the peer does not read.
    pub write_pause: Duration,
    /// A connection is closed after this time or this many requests, between two of them.
    pub connection_time: Duration,
    pub connection_requests: usize,
    /// Requests a second of one peer, and how many at once after silence.
    pub peer_rate: f64,
    pub peer_burst: f64,
    /// Verified records a second of one key, and how many at once after silence.
    pub key_rate: f64,
    pub key_burst: f64,
    /// Bodies that wait for a thread that verifies them.
    pub queue: usize,
    /// For what is in flight once the collector is told to end.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 2048,
            connections_of_a_peer: 512,
            writes_in_flight: 512,
            reads_in_flight: 64,
            reads_of_a_peer: 16,
            exports: 4,
            body: 1024 * 1024,
            bodies: 64 * 1024 * 1024,
            head: 16 * 1024,
            head_lines: 64,
            head_time: Duration::from_secs(15),
            body_time: Duration::from_secs(60),
            body_pause: Duration::from_secs(5),
            body_rate: 4 * 1024,
            write_pause: Duration::from_secs(20),
            connection_time: Duration::from_secs(600),
            connection_requests: 10_000,
            peer_rate: 2000.0,
            peer_burst: 8000.0,
            key_rate: 10.0,
            key_burst: 200.0,
            queue: 1024,
            farewell: Duration::from_secs(10),
        }
    }
}

/// Whoever holds one may work; dropping it makes room for the next.
pub type Permit = OwnedSemaphorePermit;

/// A fixed number of permits, and no waiting for one.
#[derive(Clone, Debug)]
pub struct Gate {
    permits: Arc<Semaphore>,
    size: usize,
}

impl Gate {
    pub fn new(size: usize) -> Gate {
        let size = size.clamp(1, Semaphore::MAX_PERMITS);
        Gate { permits: Arc::new(Semaphore::new(size)), size }
    }

    /// None where as many are out as there may be.
    pub fn enter(&self) -> Option<Permit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    pub fn inside(&self) -> usize {
        self.size.saturating_sub(self.permits.available_permits())
    }

    /// Until everybody is out.
    pub async fn empty(&self) {
        let all = u32::try_from(self.size).unwrap_or(u32::MAX);
        let _closed = self.permits.acquire_many(all).await;
    }
}

/// The memory that all bodies together may take.
#[derive(Clone, Debug)]
pub struct BodyMemory(Arc<Semaphore>);

/// A part of it, held as long as the body is.
#[derive(Debug, Default)]
pub struct Portion(Option<Permit>);

impl BodyMemory {
    pub fn new(bytes: usize) -> BodyMemory {
        BodyMemory(Arc::new(Semaphore::new((bytes / PORTION).clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Makes the portion large enough for this many bytes. False where there is no more to be had.
    pub fn cover(&self, portion: &mut Portion, bytes: usize) -> bool {
        let held = portion.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(PORTION).saturating_sub(held);
        if more == 0 {
            return true;
        }
        let Ok(more) = u32::try_from(more) else { return false };
        match (Arc::clone(&self.0).try_acquire_many_owned(more), &mut portion.0) {
            (Ok(permit), Some(held)) => held.merge(permit),
            (Ok(permit), none) => *none = Some(permit),
            (Err(_), _) => return false,
        }
        true
    }
}

/// How many of something each peer has, connections or questions. It holds those with at least one,
/// and so no more than there are in all.
#[derive(Clone, Debug, Default)]
pub struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One of a peer's.
#[derive(Debug)]
pub struct Counted {
    peers: Peers,
    address: IpAddr,
}

impl Peers {
    /// None where this peer has as many as one may have.
    pub fn enter(&self, address: IpAddr, limit: usize) -> Option<Counted> {
        let address = neighbourhood(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(Counted { peers: self.clone(), address })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Who is counted as one peer: an IPv4 address, or the /64 that one IPv6 host has to itself.
pub fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_out_once_and_comes_back() {
        let memory = BodyMemory::new(3 * PORTION);
        let (mut one, mut two) = (Portion::default(), Portion::default());
        assert!(memory.cover(&mut one, 1) && memory.cover(&mut one, PORTION) && memory.cover(&mut one, PORTION + 1));
        assert!(memory.cover(&mut two, PORTION));
        assert!(!memory.cover(&mut two, PORTION + 1));
        drop(one);
        assert!(memory.cover(&mut two, 3 * PORTION));
        assert!(!memory.cover(&mut two, usize::MAX));
    }

    #[test]
    fn a_peer_has_its_number_of_connections_and_the_table_forgets_it() {
        let peers = Peers::default();
        let here: IpAddr = "192.0.2.1".parse().unwrap();
        let held: Vec<_> = (0..3).map(|_| peers.enter(here, 3).unwrap()).collect();
        assert!(peers.enter("::ffff:192.0.2.1".parse().unwrap(), 3).is_none());
        assert!(peers.enter("192.0.2.2".parse().unwrap(), 3).is_some());
        drop(held);
        assert!(peers.0.lock().unwrap().is_empty());
        let one = peers.enter("2001:db8::1".parse().unwrap(), 1);
        assert!(one.is_some() && peers.enter("2001:db8::2".parse().unwrap(), 1).is_none());
    }
}
