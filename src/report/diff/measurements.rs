//! Measurements that both records have, by how much they changed.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::Serialize;

use super::gpus::Identities;
use crate::outcome::Measurement;
use crate::predicate::Details;
use crate::report::html::measured::{Held, Limits, Names};
use crate::report::quantity;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasurementChange {
    pub step: String,
    pub name: String,
    /// As the later record names it.
    pub subject: String,
    /// `slot 8`, or the subject.
    pub place: String,
    pub unit: String,
    pub before: f64,
    pub after: f64,
    /// The change as a part of the earlier value; none of a change from nothing.
    pub relative: Option<f64>,
    /// Whether the later value breaks a limit that it is held against.
    pub breaks: bool,
}

impl MeasurementChange {
    /// `+12 %`, or `from 0`.
    pub fn change(&self) -> String {
        self.relative.map_or_else(|| "from 0".to_owned(), quantity::percent)
    }

    pub fn before_words(&self) -> String {
        quantity::words(self.before, &self.unit)
    }

    pub fn after_words(&self) -> String {
        quantity::words(self.after, &self.unit)
    }
}

type Key<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The changes, what breaks a limit first, then the largest; and how many are the same.
pub fn changes(
    before: &Details,
    after: &Details,
    identities: &(Identities, Identities),
) -> (Vec<MeasurementChange>, usize) {
    let earlier = by_key(before, &identities.0);
    let names = Names::of(after);
    let mut changes = Vec::new();
    let mut same = 0;
    for (key, measurement) in keyed(after, &identities.1) {
        let Some(value) = earlier.get(&key) else { continue };
        if *value == measurement.value {
            same += 1;
            continue;
        }
        changes.push(MeasurementChange {
            step: key.0.to_owned(),
            name: measurement.name.clone(),
            subject: measurement.subject.to_string(),
            place: names.short(measurement.subject.as_str()).to_owned(),
            unit: measurement.unit.clone(),
            before: *value,
            after: measurement.value,
            relative: quantity::relative(*value, measurement.value),
            breaks: Limits::of(measurement).held(measurement.value) == Held::Broken,
        });
    }
    changes.sort_by(larger_first);
    (changes, same)
}

fn larger_first(a: &MeasurementChange, b: &MeasurementChange) -> Ordering {
    // From nothing to something is larger than any part.
    let size = |change: &MeasurementChange| change.relative.map_or(f64::INFINITY, f64::abs);
    b.breaks.cmp(&a.breaks).then(size(b).total_cmp(&size(a))).then_with(|| a.name.cmp(&b.name))
}

fn by_key<'a>(details: &'a Details, identities: &'a Identities) -> HashMap<Key<'a>, f64> {
    keyed(details, identities).map(|(key, measurement)| (key, measurement.value)).collect()
}

fn keyed<'a>(details: &'a Details, identities: &'a Identities) -> impl Iterator<Item = (Key<'a>, &'a Measurement)> {
    details.steps.iter().flat_map(move |step| {
        step.outcome.measurements.iter().map(move |it| {
            let subject = identities.of_subject(it.subject.as_str());
            ((step.id.as_str(), it.name.as_str(), it.unit.as_str(), subject), it)
        })
    })
}
