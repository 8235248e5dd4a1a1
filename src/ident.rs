//! Names, parsed once at the edge and trusted inside.
//!
//! Everything that a host says of itself (driver strings, host names, kernel log)
//! is hostile input: [`printable`] is the one way from such bytes to text that may
//! reach a terminal, a record or a page.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a text is not a name of the kind that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a {kind}: {expected}")]
pub struct NameError {
    kind: &'static str,
    found: String,
    expected: &'static str,
}

impl NameError {
    fn new(kind: &'static str, found: &str, expected: &'static str) -> Self {
        NameError { kind, found: printable(found, 60), expected }
    }
}

/// Text that is safe to print: control characters (C0, C1, DEL), line and paragraph
/// separators, the bidirectional controls, what has no width, and what XML forbids become `\u{..}` escapes, and what is longer
/// than `limit` characters ends in `…`.
pub fn printable(text: &str, limit: usize) -> String {
    let mut safe = String::with_capacity(text.len().min(limit));
    for (count, c) in text.chars().enumerate() {
        if count == limit {
            safe.push('…');
            break;
        }
        let hostile = c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}');
        if hostile {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// [`printable`] over raw bytes; what is not UTF-8 becomes U+FFFD.
pub fn printable_bytes(bytes: &[u8], limit: usize) -> String {
    printable(&String::from_utf8_lossy(bytes), limit)
}

macro_rules! kebab {
    ($($(#[$doc:meta])* $name:ident $kind:literal)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let part = |part: &str| {
                    !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                };
                if text.len() <= 64 && text.split('-').all(part) {
                    Ok($name(text.to_owned()))
                } else {
                    Err(NameError::new($kind, text, "lower-case letters, digits and single hyphens, at most 64"))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )+};
}

kebab! {
    /// One use of a check in the suite.
    StepId "step name"
    /// A kind of test.
    CheckId "check name"
    /// A kind of host.
    ClassId "class name"
    /// A suite.
    SuiteId "suite name"
    /// The stable name of one kind of wrong thing.
    FindingCode "finding code"
}

/// A PCI function: domain, bus, device, function. Prints as the kernel does, `0000:1b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct BusId {
    pub domain: u32,
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

impl FromStr for BusId {
    type Err = NameError;

    /// Reads the kernel's form, NVML's (eight digits of domain) and the form without
    /// domain or without function that old kernel log lines use.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::new("PCI address", text, "write it as 0000:1b:00.0");
        let hex = |part: &str, digits: usize| {
            let valid = !part.is_empty() && part.len() <= digits && part.bytes().all(|b| b.is_ascii_hexdigit());
            if valid { u32::from_str_radix(part, 16).ok() } else { None }
        };
        let (address, function) = text.split_once('.').unwrap_or((text, "0"));
        let parts: Vec<&str> = address.split(':').collect();
        let (domain, bus, device) = match parts[..] {
            [domain, bus, device] => (domain, bus, device),
            [bus, device] => ("0", bus, device),
            _ => return Err(wrong()),
        };
        let (device, function) = (hex(device, 2).ok_or_else(wrong)?, hex(function, 1).ok_or_else(wrong)?);
        if device > 31 || function > 7 {
            return Err(wrong());
        }
        let bus = hex(bus, 2).ok_or_else(wrong)?;
        Ok(BusId {
            domain: hex(domain, 8).ok_or_else(wrong)?,
            bus: u8::try_from(bus).map_err(|_| wrong())?,
            device: u8::try_from(device).map_err(|_| wrong())?,
            function: u8::try_from(function).map_err(|_| wrong())?,
        })
    }
}

impl TryFrom<String> for BusId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<BusId> for String {
    fn from(bus_id: BusId) -> String {
        bus_id.to_string()
    }
}

impl fmt::Display for BusId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// A PCI vendor and device number, `10de:2330`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct PciModel {
    pub vendor: u16,
    pub device: u16,
}

impl FromStr for PciModel {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::new("PCI model", text, "write vendor and device as 10de:2330");
        let (vendor, device) = text.split_once(':').ok_or_else(wrong)?;
        if vendor.len() != 4 || device.len() != 4 {
            return Err(wrong());
        }
        Ok(PciModel {
            vendor: u16::from_str_radix(vendor, 16).map_err(|_| wrong())?,
            device: u16::from_str_radix(device, 16).map_err(|_| wrong())?,
        })
    }
}

impl TryFrom<String> for PciModel {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<PciModel> for String {
    fn from(model: PciModel) -> String {
        model.to_string()
    }
}

impl fmt::Display for PciModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

/// What an outcome is about: the thing that was expected, judged or found wrong.
///
/// The text is stable across runs of one host (a bus address, a UUID, a path, or
/// `host`), so that a waiver or a fixture can name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Subject(String);

impl Subject {
    /// The host as a whole.
    pub fn host() -> Self {
        Subject("host".to_owned())
    }

    /// The GPU at this address.
    pub fn gpu(bus_id: BusId) -> Self {
        Subject(bus_id.to_string())
    }

    /// Anything else with a stable name: a GPU that was expected and is not there (`gpu 8 of 8`), a path.
    pub fn named(name: &str) -> Self {
        Subject(printable(name, 200))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A SHA-256 digest, printed as `sha256:` and 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Digest::from_library(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes))
    }

    /// The digest of all that can be read, in pieces: an executable need not fit into memory twice.
    pub fn of_reader(mut reader: impl std::io::Read) -> std::io::Result<Self> {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        let mut piece = [0; 16 << 10];
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(Digest::from_library(context.finish())),
                count => context.update(&piece[..count]),
            }
        }
    }

    fn from_library(digest: aws_lc_rs::digest::Digest) -> Self {
        let mut copy = [0; 32];
        copy.copy_from_slice(digest.as_ref());
        Digest(copy)
    }

    /// The 64 hex digits alone, as in-toto's `digest.sha256` wants them.
    pub fn hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let pair = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        self.0.iter().flat_map(pair).map(char::from).collect()
    }
}

impl FromStr for Digest {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::new("digest", text, "write sha256: and 64 hex digits");
        let hex = text.strip_prefix("sha256:").ok_or_else(wrong)?;
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digit = |at: usize| pair.get(at).and_then(|digit| char::from(*digit).to_digit(16)).map(|it| it as u8);
            *byte = digit(0).zip(digit(1)).map(|(high, low)| high << 4 | low).ok_or_else(wrong)?;
        }
        Ok(Digest(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_reads_every_form_that_a_driver_or_kernel_writes() {
        for text in ["00000000:1B:00.0", "0000:1b:00.0", "1b:00.0", "0000:1b:00", "1b:00"] {
            assert_eq!(text.parse::<BusId>().unwrap().to_string(), "0000:1b:00.0", "{text}");
        }
        assert_eq!("00000018:01:00.0".parse::<BusId>().unwrap().to_string(), "0018:01:00.0");
        for text in ["", "1b", "0000:1b:20.0", "0000:1b:00.8", "0000:1b:00.0.0", "zz:00.0", "+1:00.0", "0000:1b:é0.0"]
        {
            assert!(text.parse::<BusId>().is_err(), "{text}");
        }
    }

    #[test]
    fn hostile_text_becomes_harmless() {
        assert_eq!(printable("a\x1b[31mb\nc", 99), "a\\u{1b}[31mb\\u{a}c");
        assert_eq!(printable("\u{202e}gpj", 99), "\\u{202e}gpj");
        for hidden in ['\u{61c}', '\u{200b}', '\u{2066}', '\u{206a}', '\u{ffff}', '\u{e0041}'] {
            assert_eq!(printable(&format!("a{hidden}"), 99), format!("a{}", hidden.escape_unicode()));
        }
        assert_eq!(printable("abcdef", 3), "abc…");
        assert_eq!(printable_bytes(b"a\xffb", 9), "a\u{fffd}b");
    }

    #[test]
    fn a_name_is_kebab_case_or_nothing() {
        assert!("pcie-link".parse::<StepId>().is_ok());
        for text in ["", "-", "Pcie", "a--b", "a_b", "a b", "ü"] {
            assert!(text.parse::<StepId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_digest_prints_as_it_reads() {
        let digest = Digest::of(b"");
        assert_eq!(digest.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        let long = vec![7; 100_000];
        assert_eq!(Digest::of_reader(long.as_slice()).unwrap(), Digest::of(&long));
    }
}
