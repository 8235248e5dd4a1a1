//! Times for people: how long ago in words, and exactly.

use jiff::Timestamp;

/// A moment as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `3 h ago`.
    pub ago: String,
    /// `2026-12-01 00:58:06 UTC`.
    pub exact: String,
    /// RFC 3339, for machines.
    pub machine: String,
}

/// Steps from unit to unit: seconds in one, and its name.
const UNITS: [(i64, &str); 5] = [(86_400 * 7, "weeks"), (86_400, "days"), (3600, "h"), (60, "min"), (1, "s")];

impl Moment {
    pub fn of(then: Timestamp, now: Timestamp) -> Moment {
        Moment { ago: ago(then, now), exact: exact(then), machine: then.to_string() }
    }
}

/// `just now`, `5 min ago`, `3 h ago`, `2 days ago`: the largest unit of which there are two or more.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second());
    if seconds < -60 {
        return "in the future".to_owned();
    }
    let unit = UNITS.iter().find(|(length, _)| seconds >= 2 * length && seconds >= 60);
    unit.map_or_else(|| "just now".to_owned(), |(length, name)| format!("{} {name} ago", seconds / length))
}

pub fn exact(then: Timestamp) -> String {
    then.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `2026-12-01 00:58:06 UTC` of an RFC 3339 text; another text as it is.
pub fn written(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_the_largest_unit_of_which_there_are_two() {
        let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| ago(Timestamp::from_second(now.as_second() - seconds).unwrap(), now);
        assert_eq!(ago(0), "just now");
        assert_eq!(ago(59), "just now");
        assert_eq!(ago(90), "90 s ago");
        assert_eq!(ago(120), "2 min ago");
        assert_eq!(ago(7199), "119 min ago");
        assert_eq!(ago(7200), "2 h ago");
        assert_eq!(ago(86_400 * 13), "13 days ago");
        assert_eq!(ago(86_400 * 14), "2 weeks ago");
        assert_eq!(ago(-30), "just now");
        assert_eq!(ago(-3600), "in the future");
    }

    #[test]
    fn a_text_that_is_no_time_stays_as_it_is() {
        assert_eq!(written("2026-12-01T00:58:06.449Z"), "2026-12-01 00:58:06 UTC");
        assert_eq!(written("yesterday"), "yesterday");
    }
}
