//! The clocks that a run stamps with: the kernel log's own, and the one for people.

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
