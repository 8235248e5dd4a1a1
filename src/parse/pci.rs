//! Attributes of PCI functions as sysfs writes them.

use crate::ident::PciModel;

/// `0x10de`, as `vendor`, `device` and their subsystem kin are written.
pub fn hexadecimal(text: &str) -> Option<u32> {
    let digits = text.trim().strip_prefix("0x")?;
    let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if valid { u32::from_str_radix(digits, 16).ok() } else { None }
}

/// Vendor and device from their two files.
pub fn model(vendor: &str, device: &str) -> Option<PciModel> {
    let number = |text| u16::try_from(hexadecimal(text)?).ok();
    Some(PciModel { vendor: number(vendor)?, device: number(device)? })
}

/// Vendor and device from a `modalias`: `pci:v000010DEd00002330sv…`.
pub fn modalias(text: &str) -> Option<PciModel> {
    let rest = text.trim().strip_prefix("pci:v")?;
    let number = |digits: &str| u16::try_from(u32::from_str_radix(digits, 16).ok()?).ok();
    let vendor = number(rest.get(..8)?)?;
    let device = number(rest.get(8..)?.strip_prefix('d')?.get(..8)?)?;
    Some(PciModel { vendor, device })
}

/// What `current_link_speed` or `current_link_width` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkText {
    Known(f64),
    /// The kernel itself says that it does not know: `Unknown`, `Unknown speed`, width 0 or 255.
    Unknown,
}

/// `32.0 GT/s PCIe`, `8 GT/s`, `Unknown`; none for anything else. GT/s.
pub fn link_speed(text: &str) -> Option<LinkText> {
    let text = text.trim();
    if text.starts_with("Unknown") {
        return Some(LinkText::Unknown);
    }
    let (number, unit) = text.split_once(' ')?;
    let speed: f64 = number.parse().ok()?;
    let valid = (unit == "GT/s" || unit == "GT/s PCIe") && speed.is_finite() && speed > 0.0;
    valid.then_some(LinkText::Known(speed))
}

/// Lanes. 0 and 255 are how a device that does not answer looks (all zeros, all ones); 63 is its six-bit field all ones.
pub fn link_width(text: &str) -> Option<LinkText> {
    match text.trim().parse::<u32>().ok()? {
        0 | 63 | 255 => Some(LinkText::Unknown),
        lanes @ (1 | 2 | 4 | 8 | 12 | 16 | 32) => Some(LinkText::Known(f64::from(lanes))),
        _ => None,
    }
}

/// The sum line of `aer_dev_correctable` and its kin: `TOTAL_ERR_COR 3`; without it, the sum of the lines.
pub fn aer_total(text: &str) -> Option<u64> {
    let counts: Option<Vec<(&str, u64)>> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.trim().rsplit_once(' ').and_then(|(name, count)| Some((name, count.parse().ok()?))))
        .collect();
    let counts = counts.filter(|counts| !counts.is_empty())?;
    let total = counts.iter().find(|(name, _)| name.starts_with("TOTAL_ERR_")).map(|(_, count)| *count);
    total.or_else(|| counts.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_with_their_prefix_or_not_at_all() {
        assert_eq!(hexadecimal("0x030200\n"), Some(0x03_0200));
        for text in ["", "0x", "10de", "0x+1", "0xzz", "0x1ffffffff"] {
            assert_eq!(hexadecimal(text), None, "{text}");
        }
        assert_eq!(model("0x10de\n", "0x2330\n").unwrap().to_string(), "10de:2330");
        assert_eq!(model("0x110de", "0x2330"), None);
        let alias = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00";
        assert_eq!(modalias(alias).unwrap().to_string(), "10de:2330");
        for end in 0..22 {
            assert_eq!(modalias(&alias[..end]), None);
        }
    }

    #[test]
    fn a_link_speed_is_known_said_to_be_unknown_or_unreadable() {
        assert_eq!(link_speed("32.0 GT/s PCIe\n"), Some(LinkText::Known(32.0)));
        assert_eq!(link_speed("8 GT/s"), Some(LinkText::Known(8.0)));
        assert_eq!(link_speed("Unknown speed"), Some(LinkText::Unknown));
        assert_eq!(link_speed("Unknown"), Some(LinkText::Unknown));
        for text in ["", "32.0", "inf GT/s", "-8 GT/s", "8 Gb/s", "NaN GT/s"] {
            assert_eq!(link_speed(text), None, "{text}");
        }
    }

    #[test]
    fn a_dead_device_has_no_width() {
        assert_eq!(link_width("16\n"), Some(LinkText::Known(16.0)));
        assert_eq!(link_width("63"), Some(LinkText::Unknown));
        assert_eq!(link_width("0"), Some(LinkText::Unknown));
        assert_eq!(link_width("255"), Some(LinkText::Unknown));
        assert_eq!(link_width("17"), None);
        assert_eq!(link_width("x16"), None);
    }

    #[test]
    fn error_counts_are_the_total_or_the_sum() {
        assert_eq!(aer_total("RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3\n"), Some(3));
        assert_eq!(aer_total("Undefined 0\nDLP 4\n"), Some(4));
        for text in ["", "\n", "RxErr", "RxErr -1", "RxErr 1\nBadTLP x"] {
            assert_eq!(aer_total(text), None, "{text}");
        }
    }
}
