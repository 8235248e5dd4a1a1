//! Versions as drivers and CUDA write them: numbers between dots, compared as numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use crate::ident::printable;

/// `580.105.08`. The text is kept as written; `08` and `8` are equal.
#[derive(Clone, Debug)]
pub struct Version {
    text: String,
    parts: Vec<u32>,
}

/// A text that is not numbers between dots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version: write numbers between dots, e.g. \"580.105.08\"")]
pub struct VersionError(String);

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let parse = |part: &str| digits(part).then(|| part.parse().ok()).flatten();
        let parts: Option<Vec<u32>> = text.split('.').map(parse).collect();
        let parts = parts.ok_or_else(|| VersionError(printable(text, 40)))?;
        Ok(Version { text: text.to_owned(), parts })
    }
}

impl Version {
    /// CUDA's number for its version, 1000 × major + 10 × minor (`cuDriverGetVersion`).
    pub fn of_cuda(number: u32) -> Self {
        let parts = vec![number / 1000, number % 1000 / 10];
        Version { text: format!("{}.{}", parts[0], parts[1]), parts }
    }

    /// The version at the end of a file name, `libcuda.so.580.105.08`; `libcuda.so.1` has none.
    pub fn of_file(path: &str) -> Option<Self> {
        let version: Version = path.rsplit_once(".so.")?.1.parse().ok()?;
        (version.parts.len() > 1).then_some(version)
    }

    /// The driver's part of NVML's own version, `13.580.105.08`: CUDA's major number comes first.
    pub fn without_first(&self) -> Option<Self> {
        self.text.split_once('.').and_then(|(_, rest)| rest.parse().ok())
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts.cmp(&other.parts)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("580.95.05") < version("580.105.08"));
        assert!(version("535") < version("535.54"));
        assert_eq!(version("580.105.08"), version("580.105.8"));
        assert_eq!(Version::of_cuda(13_010).to_string(), "13.1");
        assert!(Version::of_cuda(12_080) >= version("12.8"));
    }

    #[test]
    fn only_a_full_version_is_read_from_a_file_name() {
        assert_eq!(Version::of_file("/usr/lib/libcuda.so.580.105.08"), Some(version("580.105.08")));
        for path in ["/usr/lib/libcuda.so.1", "/x/libnodegate_driver.so", "/x/libcuda.so.a.b"] {
            assert_eq!(Version::of_file(path), None, "{path}");
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", ".", "580.", "580.x", "+1.2", "580.99999999999"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
        assert_eq!(version("13.580.105.08").without_first(), Some(version("580.105.08")));
    }
}
