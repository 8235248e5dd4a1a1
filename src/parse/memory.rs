//! `MemTotal` of `/proc/meminfo` and of a NUMA node's `meminfo`.

/// Bytes of memory: `MemTotal: 2113513212 kB`, or `Node 0 MemTotal: …`.
pub fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("MemTotal:").map(|(_, rest)| rest))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_reads_for_a_host_and_for_a_node() {
        assert_eq!(total("MemTotal:       2113513212 kB\nMemFree: 1 kB\n"), Some(2_113_513_212 * 1024));
        assert_eq!(total("Node 1 MemTotal:       1056 kB\n"), Some(1056 * 1024));
    }

    #[test]
    fn a_total_that_is_cut_short_or_too_large_is_none() {
        for text in ["", "MemTotal:", "MemTotal: 12", "MemTotal: -1 kB", "MemTotal: 18446744073709551615 kB"] {
            assert_eq!(total(text), None, "{text}");
        }
    }
}
