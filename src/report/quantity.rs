//! Numbers with their unit as people read them.

/// Sizes by 1024, largest first.
const SIZES: [(f64, &str); 4] =
    [(1_099_511_627_776.0, "TiB"), (1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")];

/// Rates and counts by 1000, largest first.
const THOUSANDS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];

/// `79.65 GiB`, `48.2 GB/s`, `29 °C`, `16 lanes`.
pub fn words(value: f64, unit: &str) -> String {
    let magnitude = value.abs();
    match unit {
        "B" => match SIZES.iter().find(|(size, _)| magnitude >= *size) {
            Some((size, name)) => format!("{} {name}", number(value / size)),
            None => format!("{} B", number(value)),
        },
        "B/s" => match THOUSANDS.iter().find(|(size, _)| magnitude >= *size) {
            Some((size, prefix)) => format!("{} {prefix}B/s", number(value / size)),
            None => format!("{} B/s", number(value)),
        },
        "C" => format!("{} °C", number(value)),
        "" => number(value),
        unit => format!("{} {unit}", number(value)),
    }
}

/// At most four digits that say something; whole numbers whole.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    let magnitude = value.abs();
    if magnitude >= 1e15 || (magnitude > 0.0 && magnitude < 1e-4) {
        return format!("{value:.3e}");
    }
    let places = match magnitude {
        m if m >= 1000.0 || value.fract() == 0.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        _ => 4,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    // What rounds to nothing has no sign.
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// `+12 %`, `−0.4 %`; none of a change from nothing.
pub fn relative(before: f64, after: f64) -> Option<f64> {
    (before != 0.0).then(|| (after - before) / before.abs()).filter(|change| change.is_finite())
}

/// The change in per cent with its sign.
pub fn percent(change: f64) -> String {
    let text = number((change.abs() * 1000.0).round() / 10.0);
    format!("{}{text} %", if change < 0.0 { '−' } else { '+' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_digits_that_say_something() {
        assert_eq!(words(85_520_809_984.0, "B"), "79.65 GiB");
        assert_eq!(words(0.0, "B"), "0 B");
        assert_eq!(words(48.25e9, "B/s"), "48.25 GB/s");
        assert_eq!(words(29.0, "C"), "29 °C");
        assert_eq!(words(68.61, "W"), "68.61 W");
        assert_eq!(words(16.0, "lanes"), "16 lanes");
        assert_eq!(words(18.0, ""), "18");
        assert_eq!(number(1234.56), "1235");
        assert_eq!(number(-0.000_01), "-1.000e-5");
        assert_eq!(number(1e300), "1.000e300");
        assert_eq!(number(f64::NAN), "not a number");
    }

    #[test]
    fn a_change_from_nothing_has_no_per_cent() {
        assert_eq!(relative(0.0, 5.0), None);
        assert_eq!(percent(relative(16.0, 8.0).unwrap()), "−50 %");
        assert_eq!(percent(relative(-2.0, -1.0).unwrap()), "+50 %");
    }
}
