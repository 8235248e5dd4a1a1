//! How often each of many may come, in a table whose size does not depend on how many come.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Places in a table, 8 bytes each. Two that share a place share a rate.
const PLACES: usize = 1 << 16;

/// Token buckets by the generic cell rate algorithm: of each place only the time is kept at which
/// its bucket will be full again. Which place somebody has is not to be guessed from outside.
pub struct Rates {
    places: Box<[AtomicU64]>,
    hasher: RandomState,
    began: Instant,
    /// Nanoseconds that one request takes from a bucket, and that a full one holds.
    cost: u64,
    full: u64,
}

impl Rates {
    /// None where there is no limit: a rate of nothing.
    pub fn new(per_second: f64, burst: f64) -> Option<Rates> {
        if !(per_second.is_finite() && per_second > 0.0) {
            return None;
        }
        let cost = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::from_secs(3600));
        let full = Duration::try_from_secs_f64(burst.max(1.0) / per_second).unwrap_or(Duration::from_secs(3600));
        Some(Rates {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            began: Instant::now(),
            cost: nanoseconds(cost).max(1),
            full: nanoseconds(full),
        })
    }

    /// Takes one, or says how many seconds it takes until there is one.
    pub fn take(&self, who: &impl Hash) -> Result<(), u64> {
        self.take_at(who, nanoseconds(self.began.elapsed()))
    }

    fn take_at(&self, who: &impl Hash, now: u64) -> Result<(), u64> {
        let hash = usize::try_from(self.hasher.hash_one(who) % PLACES as u64).unwrap_or_default();
        let place = &self.places[hash];
        let mut seen = place.load(Ordering::Relaxed);
        loop {
            let after = seen.max(now).saturating_add(self.cost);
            let debt = after - now;
            if debt > self.full {
                return Err((debt - self.full).div_ceil(1_000_000_000));
            }
            match place.compare_exchange_weak(seen, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_is_let_through_and_then_the_rate() {
        let rates = Rates::new(2.0, 5.0).unwrap();
        let taken = |now| (0..20).take_while(|_| rates.take_at(&"a", now).is_ok()).count();
        assert_eq!(taken(0), 5);
        assert_eq!(rates.take_at(&"a", 0), Err(1));
        assert_eq!(taken(SECOND), 2);
        assert_eq!(taken(100 * SECOND), 5);
    }

    #[test]
    fn one_does_not_use_up_what_is_anothers() {
        let rates = Rates::new(1.0, 1.0).unwrap();
        assert!(rates.take_at(&0, 0).is_ok());
        assert!((1..100).filter(|other| rates.take_at(other, 0).is_ok()).count() > 90);
    }

    #[test]
    fn a_rate_of_nothing_is_no_limit() {
        assert!(Rates::new(0.0, 1.0).is_none() && Rates::new(f64::NAN, 1.0).is_none());
    }
}
