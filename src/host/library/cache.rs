//! The loader's cache, `/etc/ld.so.cache`: where other programs find the driver's libraries.
//!
//! Format 1.1 (`glibc-ld.so.cache1.1`, glibc's `elf/dl-cache.c` and `sysdeps/generic/dl-cache.h`):
//! a header of 48 bytes with the number of entries at 20, then entries of 24 bytes (flags,
//! offset of the name, offset of the path, OS version, hardware capabilities). Caches for older
//! loaders begin with `ld.so-1.7.0` and entries of 12 bytes, and the newer format follows at
//! the next multiple of 8. Offsets count from the newer format's start.

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
const HEADER: usize = 48;
const ENTRY: usize = 24;
const OLD_ENTRY: usize = 12;
/// Longest name or path that is believed, bytes.
const LONGEST: usize = 4096;

/// Paths under this exact name, in the loader's order. A cache that is cut short or not of
/// this format gives what can be read of it, be it nothing.
pub(super) fn paths_of(cache: &[u8], name: &str) -> Vec<String> {
    let Some(cache) = newer_format(cache) else { return Vec::new() };
    let Some(count) = number(cache, MAGIC.len()) else { return Vec::new() };
    let entry = |index: usize| -> Option<String> {
        let start = HEADER + index * ENTRY;
        let found = text(cache, number(cache, start + 4)?)?;
        if found == name { text(cache, number(cache, start + 8)?).map(str::to_owned) } else { None }
    };
    let room = cache.len().saturating_sub(HEADER) / ENTRY;
    (0..count.min(room)).filter_map(entry).collect()
}

fn newer_format(cache: &[u8]) -> Option<&[u8]> {
    if cache.starts_with(MAGIC) {
        return Some(cache);
    }
    if !cache.starts_with(OLD_MAGIC) {
        return None;
    }
    let old_entries = number(cache, OLD_MAGIC.len())?.checked_mul(OLD_ENTRY)?;
    let start = (OLD_MAGIC.len() + 4).checked_add(old_entries)?.checked_next_multiple_of(8)?;
    cache.get(start..).filter(|rest| rest.starts_with(MAGIC))
}

fn number(cache: &[u8], at: usize) -> Option<usize> {
    let bytes = cache.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_ne_bytes(bytes.try_into().ok()?)).ok()
}

fn text(cache: &[u8], at: usize) -> Option<&str> {
    let rest = cache.get(at..)?;
    let end = rest.iter().take(LONGEST).position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut head = [MAGIC, &(entries.len() as u32).to_ne_bytes()].concat();
        head.resize(HEADER, 0);
        let mut strings = Vec::new();
        let first = HEADER + entries.len() * ENTRY;
        for (name, path) in entries {
            let mut put = |text: &str| {
                let at = (first + strings.len()) as u32;
                strings.extend_from_slice(text.as_bytes());
                strings.push(0);
                at.to_ne_bytes()
            };
            head.extend_from_slice(&0x303_u32.to_ne_bytes());
            head.extend_from_slice(&put(name));
            head.extend_from_slice(&put(path));
            head.extend_from_slice(&[0; 12]);
        }
        head.extend(strings);
        head
    }

    fn two() -> Vec<u8> {
        cache(&[("libcuda.so.1", "/a/libcuda.so.1"), ("libnvidia-ml.so.1", "/b/libnvidia-ml.so.1")])
    }

    #[test]
    fn a_name_is_found_with_its_path_and_nothing_like_it() {
        assert_eq!(paths_of(&two(), "libnvidia-ml.so.1"), ["/b/libnvidia-ml.so.1"]);
        assert!(paths_of(&two(), "libnvidia-ml.so").is_empty());
    }

    #[test]
    fn a_cache_for_older_loaders_holds_the_newer_format_behind() {
        let mut old = [OLD_MAGIC, &1_u32.to_ne_bytes(), &[0; 12][..]].concat();
        old.resize(32, 0);
        old.extend(two());
        assert_eq!(paths_of(&old, "libcuda.so.1"), ["/a/libcuda.so.1"]);
    }

    #[test]
    fn a_cache_cut_short_anywhere_is_read_without_harm() {
        let whole = two();
        for length in 0..whole.len() {
            paths_of(&whole[..length], "libcuda.so.1");
        }
        let mut lying = whole;
        lying[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(paths_of(&lying, "libcuda.so.1"), ["/a/libcuda.so.1"]);
        assert!(paths_of(&[OLD_MAGIC, &u32::MAX.to_ne_bytes()].concat(), "x").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn a_cache_of_any_bytes_is_read_without_harm(
            mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400), old: bool, count: u32,
        ) {
            let magic = if old { OLD_MAGIC } else { MAGIC };
            bytes.splice(0..0, [magic, &count.to_ne_bytes()].concat());
            paths_of(&bytes, "libcuda.so.1");
        }
    }

    #[test]
    fn the_cache_of_this_machine_reads_like_ldconfig_says() {
        let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else { return };
        let paths = paths_of(&bytes, "libc.so.6");
        assert!(paths.iter().all(|path| path.starts_with('/') && path.ends_with("/libc.so.6")), "{paths:?}");
        assert!(!paths.is_empty());
    }
}
