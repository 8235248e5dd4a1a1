//! Two records of the collector side by side.

use askama::Template;
use jiff::Timestamp;

use super::link::record_address;
use super::standing::verdict;
use super::{Frame, written};
use crate::collector::model::Record;
use crate::collector::policy::{Policy, standing};
use crate::predicate::Details;
use crate::report::diff::Difference;
use crate::report::html::{DifferenceBody, Markup, SideView};

/// One of the two.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    pub record: &'a Record,
    pub details: &'a Details,
}

pub fn difference(before: Compared<'_>, after: Compared<'_>, policy: &Policy, now: Timestamp) -> String {
    let difference = Difference::between(before.details, after.details);
    let side = |it: Compared<'_>| SideView {
        href: Some(record_address(&it.record.payload)),
        verdict: Some(verdict(it.record, standing(it.record, policy, now)).with(it.details)),
    };
    let body = DifferenceBody { difference: &difference, before: side(before), after: side(after) };
    let (first, second) = (&before.record.hostname, &after.record.hostname);
    let title = if first == second { first.clone() } else { format!("{first} and {second}") };
    written(&Page { frame: Frame::new(&format!("Difference of {title}"), ""), title, body: body.markup() })
}

#[derive(Template)]
#[template(path = "diff.html")]
struct Page {
    frame: Frame,
    title: String,
    body: Markup,
}
