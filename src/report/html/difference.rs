//! The body of the page that holds two records against each other.

use std::fmt;

use askama::Template;

use super::age::written;
use super::{Against, Markup, Shape, Verdict, markup};
use crate::outcome::Status;
use crate::report::diff::{Difference, FoundAt, MeasurementChange, Side, What};
use crate::report::problem;

/// Measurements that are shown before one asks for the rest.
const SHOWN: usize = 24;

/// Two records and where each is to be found; without addresses their names alone.
pub struct DifferenceBody<'a> {
    pub difference: &'a Difference,
    pub before: SideView,
    pub after: SideView,
}

/// What is known of one of the two beyond its own words: where it is, and what is thought of it.
#[derive(Clone, Debug, Default)]
pub struct SideView {
    pub href: Option<String>,
    pub verdict: Option<Verdict>,
}

#[derive(Template)]
#[template(path = "diff-body.html")]
struct Sections<'a> {
    difference: &'a Difference,
    sides: [Column<'a>; 2],
    shown: &'a [MeasurementChange],
    rest: &'a [MeasurementChange],
}

struct Column<'a> {
    heading: &'static str,
    side: &'a Side,
    view: &'a SideView,
    verdict: Verdict,
}

impl DifferenceBody<'_> {
    pub fn markup(&self) -> Markup {
        markup(self.to_string())
    }

    fn sections(&self) -> Sections<'_> {
        let difference = self.difference;
        let column = |heading, side, view| Column { heading, side, view, verdict: verdict(side, view) };
        let (shown, rest) = difference.measurements.split_at(difference.measurements.len().min(SHOWN));
        Sections {
            difference,
            sides: [
                column("Before", &difference.before, &self.before),
                column("After", &difference.after, &self.after),
            ],
            shown,
            rest,
        }
    }
}

impl fmt::Display for DifferenceBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sections().render_into(f).map_err(|_| fmt::Error)
    }
}

/// By itself a record says less than its decision where it is marked so.
fn verdict(side: &Side, view: &SideView) -> Verdict {
    let marks = ["simulated", "overridden", "partial"];
    let against = side.marks.iter().filter(|mark| marks.contains(&mark.as_str())).map(|mark| Against::new(mark, ""));
    view.verdict.clone().unwrap_or_else(|| Verdict::new(side.decision, against.collect()))
}

impl Sections<'_> {
    fn status_shape(&self, status: &Option<Status>) -> Shape {
        status.map_or(Shape::Left, Shape::from)
    }

    fn status_word(&self, status: &Option<Status>) -> &'static str {
        status.map_or("not run", Status::as_str)
    }

    fn either<'b>(&self, text: &'b Option<String>) -> &'b str {
        text.as_deref().unwrap_or("none")
    }

    fn place(&self, found: &FoundAt) -> Vec<String> {
        problem::place(&found.finding)
    }

    fn written(&self, time: &str) -> String {
        written(time)
    }

    fn bad(&self) -> Shape {
        Shape::Bad
    }

    /// Heading, findings, and whether they are gone.
    fn lists(&self) -> [(&'static str, &[FoundAt], bool); 2] {
        let difference = self.difference;
        [("New findings", &difference.new_findings, false), ("Findings that are gone", &difference.gone_findings, true)]
    }

    fn grade_shape(&self, found: &FoundAt) -> Shape {
        found.finding.grade.into()
    }

    /// The change as a bar from the middle: a tenth of the earlier value or less is a tenth of the way.
    fn bar(&self, change: &MeasurementChange) -> Markup {
        let part = change.relative.map_or(1.0, |relative| relative.clamp(-1.0, 1.0));
        let end = 40.0 + 38.0 * part;
        markup(format!(
            "<svg class=\"bar\" viewBox=\"0 0 80 14\" width=\"80\" height=\"14\" aria-hidden=\"true\" focusable=\"false\">\
             <path class=\"track\" d=\"M40 1V13\"/><path class=\"change\" d=\"M40 7H{end:.1}\"/></svg>"
        ))
    }
}
