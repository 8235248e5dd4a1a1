//! The clocks that a run stamps with: the kernel log's own, and the one for people.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in microseconds: the clock of `/dev/kmsg`.
pub fn monotonic_microseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000
}

/// The wall clock in UTC by RFC 3339, to the millisecond: `2026-11-30T20:41:07.125Z`.
pub fn utc_now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// The wall clock.
pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The day in UTC, by which waivers end.
pub fn today() -> jiff::civil::Date {
    jiff::tz::TimeZone::UTC.to_datetime(now()).date()
}

/// Waits this long, less where the run is to end. False if it was cut short or would have passed
/// the deadline: then nothing was waited for.
pub fn pause(time: Duration, deadline: Instant) -> bool {
    let end = Instant::now() + time;
    if end >= deadline {
        return false;
    }
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || crate::isolate::interrupted() {
            return left.is_zero();
        }
        std::thread::sleep(left.min(GLANCE));
    }
}

/// How often a pause looks whether the run is to end.
const GLANCE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_people_reads_back_as_now() {
        let text = utc_now();
        let age = jiff::Timestamp::now().duration_since(text.parse().unwrap());
        assert!(text.ends_with('Z') && text.len() == "2026-11-30T20:41:07.125Z".len(), "{text}");
        assert!(age.as_secs().abs() < 60, "{text}");
    }

    #[test]
    fn the_kernel_log_clock_is_the_uptime_of_this_boot() {
        // In microseconds: seconds or nanoseconds would be off by a factor of a thousand.
        let uptime: f64 = std::fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(monotonic_microseconds() as f64 / 1e6 < uptime * 10.0 + 10.0);
        assert!(monotonic_microseconds() > 1_000_000);
    }
}
