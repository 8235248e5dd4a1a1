//! Quantities with their unit.
//!
//! A class writes `"83 C"` or `"32 GT/s"`, never a bare number: a value with the
//! wrong unit is refused where it is read, not compared where it is judged.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A unit with the spellings that a file may use and their factor to the base unit.
pub trait Unit: Copy + fmt::Debug + PartialEq + 'static {
    /// What is measured, in words, for messages.
    const QUANTITY: &'static str;
    /// Spelling and factor to the first spelling, which is the one that is printed.
    const SPELLINGS: &'static [(&'static str, f64)];
}

/// Longest time that is believed, seconds: a century. A clock plus such a time is still a clock.
const LONGEST: f64 = 100.0 * 366.0 * 86_400.0;

/// A number of the unit `U`, held in the unit's first spelling.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Quantity<U>(f64, PhantomData<U>);

macro_rules! unit {
    ($($(#[$doc:meta])* $name:ident $tag:ident $quantity:literal [$(($spelling:literal, $factor:expr)),+])+) => {$(
        #[doc = concat!("The unit of a ", $quantity, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
        pub struct $tag;
        impl Unit for $tag {
            const QUANTITY: &'static str = $quantity;
            const SPELLINGS: &'static [(&'static str, f64)] = &[$(($spelling, $factor)),+];
        }
        $(#[$doc])*
        pub type $name = Quantity<$tag>;
    )+};
}

unit! {
    /// Degrees Celsius, absolute or as a distance to a limit.
    Celsius CelsiusUnit "temperature" [("C", 1.0)]
    /// Watts.
    Watts WattUnit "power" [("W", 1.0), ("kW", 1e3), ("mW", 1e-3)]
    /// Bytes; `MiB` and `GiB` are powers of 1024, `MB` and `GB` powers of 1000.
    Bytes ByteUnit "size" [("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("TiB", 1_099_511_627_776.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)]
    /// Bytes a second, decimal.
    Bandwidth BandwidthUnit "bandwidth" [("B/s", 1.0), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12)]
    /// Transfers a second of one lane.
    TransferRate TransferRateUnit "transfer rate" [("GT/s", 1.0), ("MT/s", 1e-3)]
    /// Megahertz.
    Megahertz MegahertzUnit "clock" [("MHz", 1.0), ("GHz", 1e3)]
    /// Seconds.
    Seconds SecondUnit "time" [("s", 1.0), ("ms", 1e-3), ("min", 60.0), ("h", 3600.0)]
}

impl<U: Unit> Quantity<U> {
    /// The quantity of `number` of the unit's first spelling.
    pub const fn new(number: f64) -> Self {
        Quantity(number, PhantomData)
    }

    /// The number in the unit's first spelling.
    pub fn number(self) -> f64 {
        self.0
    }

    /// The unit's first spelling, e.g. `W`.
    pub fn unit(self) -> &'static str {
        U::SPELLINGS[0].0
    }
}

impl Seconds {
    /// The same time for the standard library. A negative or endless time is refused when parsed.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.number().clamp(0.0, LONGEST))
    }
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {quantity}: write a number and one of {spellings}, e.g. \"5 {example}\"")]
pub struct QuantityError {
    text: String,
    quantity: &'static str,
    spellings: String,
    example: &'static str,
}

impl<U: Unit> FromStr for Quantity<U> {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError {
            text: text.chars().take(40).collect(),
            quantity: U::QUANTITY,
            spellings: U::SPELLINGS.iter().map(|(s, _)| *s).collect::<Vec<_>>().join(", "),
            example: U::SPELLINGS[0].0,
        };
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).ok_or_else(wrong)?;
        let number: f64 = trimmed[..end].parse().map_err(|_| wrong())?;
        let spelling = trimmed[end..].trim_start();
        let (_, factor) = U::SPELLINGS.iter().find(|(s, _)| *s == spelling).ok_or_else(wrong)?;
        let number = number * factor;
        let no_time = U::QUANTITY == SecondUnit::QUANTITY && !(0.0..=LONGEST).contains(&number);
        if !number.is_finite() || no_time {
            return Err(wrong());
        }
        Ok(Quantity::new(number))
    }
}

impl<U: Unit> fmt::Display for Quantity<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.unit())
    }
}

impl<U: Unit> Serialize for Quantity<U> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, U: Unit> Deserialize<'de> for Quantity<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_reads_its_spellings_into_one_unit() {
        assert_eq!("1.2 kW".parse::<Watts>().unwrap().number(), 1200.0);
        assert_eq!("83C".parse::<Celsius>().unwrap().number(), 83.0);
        assert_eq!("2 min".parse::<Seconds>().unwrap().duration(), Duration::from_secs(120));
        assert_eq!("-8 C".parse::<Celsius>().unwrap().number(), -8.0);
    }

    #[test]
    fn a_wrong_unit_is_refused_by_name() {
        let error = "83 F".parse::<Celsius>().unwrap_err().to_string();
        assert!(error.contains("83 F") && error.contains("temperature"), "{error}");
        let digits = "9".repeat(308);
        for text in [format!("{digits} TB"), format!("{digits} TiB")] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for text in [&format!("{digits} h"), "3200000000 s", "99999999999999999999 s"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
        for text in ["", "5", "s", "-1 s", "1e9 s", "NaN s", "5 parsecs"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_that_no_machine_means_is_refused() {
        for text in ["9999999999 s", "99999999999999999999999999 h", &format!("{} s", "9".repeat(400))] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
        assert!(format!("{} TB", "9".repeat(300)).parse::<Bytes>().is_err());
        assert!("800000 h".parse::<Seconds>().is_ok());
        assert_eq!(Seconds::new(f64::INFINITY).duration(), Duration::from_secs_f64(LONGEST));
    }
}
