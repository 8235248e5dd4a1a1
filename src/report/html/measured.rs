//! Measurements of a step, grouped so that eight GPUs are one line: what was measured, from lowest to
//! highest, held against its limits, with those that break one named by slot.

use std::collections::HashMap;

use super::strip;
use super::{Markup, Shape};
use crate::outcome::Measurement;
use crate::predicate::Details;
use crate::report::{problem, quantity};

/// What subjects are called on a page: `slot 8` for a GPU whose slot is known.
#[derive(Clone, Debug, Default)]
pub struct Names(HashMap<String, String>);

/// Measurements of one name that are held against the same limits.
#[derive(Debug)]
pub struct Group<'a> {
    pub name: &'a str,
    pub unit: &'a str,
    pub limits: Limits,
    /// Where the limits come from.
    pub source: &'a str,
    /// By subject, in the order of the record.
    pub values: Vec<(&'a str, f64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    pub floor: Option<f64>,
    pub warn: Option<f64>,
    pub ceiling: Option<f64>,
}

/// How a value stands to its limits, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    Within,
    /// Past the level at which it is worth knowing.
    Warned,
    /// Below the floor or above the ceiling.
    Broken,
}

/// Every value of a step by subject: a row each, a column for each name.
#[derive(Debug)]
pub struct Grid<'a> {
    pub names: Vec<&'a str>,
    pub rows: Vec<(String, Vec<String>)>,
}

impl Names {
    pub fn of(details: &Details) -> Names {
        let gpus = details.inventory.gpus.iter();
        Names(gpus.filter_map(|gpu| Some((gpu.bus_id.clone(), problem::slot(gpu.slot.as_deref()?)))).collect())
    }

    /// The subject's short name.
    pub fn short<'a>(&'a self, subject: &'a str) -> &'a str {
        self.0.get(subject).map_or(subject, String::as_str)
    }

    /// `slot 8 · 0000:86:00.0`.
    pub fn long(&self, subject: &str) -> String {
        self.0.get(subject).map_or_else(|| subject.to_owned(), |slot| format!("{slot} · {subject}"))
    }
}

impl Limits {
    pub fn of(measurement: &Measurement) -> Limits {
        Limits { floor: measurement.floor, warn: measurement.warn, ceiling: measurement.ceiling }
    }

    pub fn all(&self) -> impl Iterator<Item = f64> {
        [self.floor, self.warn, self.ceiling].into_iter().flatten().filter(|limit| limit.is_finite())
    }

    pub fn held(&self, value: f64) -> Held {
        let past = |limit: Option<f64>| limit.is_some_and(|limit| value > limit);
        if past(self.ceiling) || self.floor.is_some_and(|floor| value < floor) || value.is_nan() {
            Held::Broken
        } else if past(self.warn) {
            Held::Warned
        } else {
            Held::Within
        }
    }

    /// `at least 16 lanes`, `warns above 8`, in one line; empty without any.
    pub fn words(&self, unit: &str) -> String {
        let part =
            |word: &str, limit: Option<f64>| limit.map(|limit| format!("{word} {}", quantity::words(limit, unit)));
        let bounds = match (self.floor, self.ceiling) {
            (Some(floor), Some(ceiling)) if floor == ceiling => part("exactly", Some(floor)),
            (Some(_), Some(ceiling)) => {
                part("from", self.floor).map(|from| format!("{from} to {}", quantity::words(ceiling, unit)))
            }
            (Some(_), None) => part("at least", self.floor),
            (None, Some(_)) => part("at most", self.ceiling),
            (None, None) => None,
        };
        [bounds, part("warns above", self.warn)].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl<'a> Group<'a> {
    /// The groups of these measurements, in the order in which their names first come.
    pub fn all(measurements: &'a [Measurement]) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for measurement in measurements {
            let limits = Limits::of(measurement);
            let (name, unit, source) =
                (measurement.name.as_str(), measurement.unit.as_str(), measurement.source.as_str());
            let value = (measurement.subject.as_str(), measurement.value);
            match groups.iter_mut().find(|it| (it.name, it.unit, it.limits, it.source) == (name, unit, limits, source))
            {
                Some(group) => group.values.push(value),
                None => groups.push(Group { name, unit, limits, source, values: vec![value] }),
            }
        }
        groups
    }

    /// `29 °C to 33 °C`, or one value where all are the same.
    pub fn range(&self) -> String {
        let (lowest, highest) = self.extent();
        match (quantity::words(lowest, self.unit), quantity::words(highest, self.unit)) {
            (low, high) if low == high => low,
            (low, high) => format!("{low} to {high}"),
        }
    }

    /// Over how many the range goes, or which the only one is.
    pub fn count(&self, names: &Names) -> String {
        match self.values[..] {
            [(subject, _)] => names.short(subject).to_owned(),
            _ => format!("on {}", self.values.len()),
        }
    }

    pub fn held(&self) -> Held {
        self.values.iter().map(|(_, value)| self.limits.held(*value)).max().unwrap_or(Held::Within)
    }

    pub fn shape(&self) -> Option<Shape> {
        match self.held() {
            Held::Within => None,
            Held::Warned => Some(Shape::Warn),
            Held::Broken => Some(Shape::Bad),
        }
    }

    /// Those that break a limit, by name: `slot 8: 8 lanes`.
    pub fn exceptions(&self, names: &Names) -> Vec<String> {
        let outside = self.values.iter().filter(|(_, value)| self.limits.held(*value) != Held::Within);
        outside
            .map(|(subject, value)| format!("{}: {}", names.short(subject), quantity::words(*value, self.unit)))
            .collect()
    }

    pub fn limit_words(&self) -> String {
        self.limits.words(self.unit)
    }

    /// The values as dots on a line between the limits; nothing where there is nothing to compare.
    pub fn strip(&self, names: &Names) -> Option<Markup> {
        let (lowest, highest) = self.extent();
        if self.limits == Limits::default() && lowest == highest {
            return None;
        }
        let mut told = format!("{} {}", self.name, self.range());
        for part in self.exceptions(names).into_iter().chain([self.limit_words()]).filter(|part| !part.is_empty()) {
            told.push_str("; ");
            told.push_str(&part);
        }
        let values: Vec<f64> = self.values.iter().map(|(_, value)| *value).collect();
        Some(strip::svg(&values, self.limits, &told))
    }

    fn extent(&self) -> (f64, f64) {
        let values = || self.values.iter().map(|(_, value)| *value);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    }
}

impl<'a> Grid<'a> {
    pub fn of(measurements: &'a [Measurement], names: &Names) -> Grid<'a> {
        let mut columns: Vec<&str> = Vec::new();
        let mut rows: Vec<(&str, Vec<&Measurement>)> = Vec::new();
        for measurement in measurements {
            if !columns.contains(&measurement.name.as_str()) {
                columns.push(&measurement.name);
            }
            match rows.iter_mut().find(|(subject, _)| *subject == measurement.subject.as_str()) {
                Some((_, row)) => row.push(measurement),
                None => rows.push((measurement.subject.as_str(), vec![measurement])),
            }
        }
        let cell = |row: &[&Measurement], name: &str| {
            let of_name = row.iter().filter(|measurement| measurement.name == name);
            of_name.map(|it| quantity::words(it.value, &it.unit)).collect::<Vec<_>>().join(", ")
        };
        let rows = rows
            .iter()
            .map(|(subject, row)| (names.long(subject), columns.iter().map(|name| cell(row, name)).collect()))
            .collect();
        Grid { names: columns, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::Subject;

    fn measurement(subject: &str, value: f64) -> Measurement {
        let mut measurement = Measurement::new("pcie-width", &Subject::named(subject), value, "lanes");
        measurement.floor = Some(16.0);
        measurement
    }

    #[test]
    fn eight_gpus_are_one_line_and_the_odd_one_is_named() {
        let measurements = [measurement("a", 16.0), measurement("b", 8.0)];
        let groups = Group::all(&measurements);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].range(), "8 lanes to 16 lanes");
        assert_eq!(groups[0].exceptions(&Names::default()), ["b: 8 lanes"]);
        assert_eq!(groups[0].held(), Held::Broken);
        assert_eq!(groups[0].limit_words(), "at least 16 lanes");
    }

    #[test]
    fn a_value_at_its_limit_is_within_it_and_what_is_no_number_is_not() {
        let limits = Limits { floor: Some(1.0), warn: Some(2.0), ceiling: Some(3.0) };
        let held = |value: f64| limits.held(value);
        assert_eq!([held(1.0), held(2.0), held(3.0)], [Held::Within, Held::Within, Held::Warned]);
        assert_eq!([held(0.9), held(3.1), held(f64::NAN)], [Held::Broken; 3]);
    }
}
