//! Signs that are told apart by their outline: colour is only a second signal, and prints grey.

use super::{Markup, markup};
use crate::decision::Decision;
use crate::outcome::{Grade, Status};

/// A sign. The word always stands beside it, so that it is hidden from readers who hear the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A disc with a tick.
    Good,
    /// An octagon with a cross.
    Bad,
    /// A diamond with a question mark.
    Doubt,
    /// A triangle with an exclamation mark.
    Warn,
    /// An outlined triangle with a wave.
    Waived,
    /// An outlined circle with a bar.
    Left,
    /// A dot.
    Absent,
    /// An outlined circle with the hands of a clock.
    Expired,
    /// An outlined circle, struck through.
    Void,
}

impl Shape {
    /// The name that the stylesheet gives a colour to.
    pub fn tone(self) -> &'static str {
        match self {
            Shape::Good => "good",
            Shape::Bad => "bad",
            Shape::Doubt => "doubt",
            Shape::Warn | Shape::Waived | Shape::Expired => "warn",
            Shape::Left | Shape::Absent | Shape::Void => "void",
        }
    }

    pub fn svg(self) -> Markup {
        let (hollow, outline, mark) = match self {
            Shape::Good => ("", DISC, "M5.5 10.4l3 3.1 6-6.9"),
            Shape::Bad => ("", "M6.3 1h7.4L19 6.3v7.4L13.7 19H6.3L1 13.7V6.3z", "M6.8 6.8l6.4 6.4M13.2 6.8l-6.4 6.4"),
            Shape::Doubt => {
                ("", "M10 .4 19.6 10 10 19.6 .4 10z", "M7.6 7.9a2.4 2.4 0 1 1 3.6 2.1c-.8.5-1.2.9-1.2 1.8M10 14.4v.1")
            }
            Shape::Warn => ("", "M10 1.2 19.4 18.2H.6z", "M10 7.4v4.9M10 15.2v.1"),
            Shape::Waived => (" hollow", "M10 2.2 18.6 17.4H1.4z", "M6.4 13.4c1.2-1.6 2.4-1.6 3.6-.6s2.4 1 3.6-.6"),
            Shape::Left => (" hollow", CIRCLE, "M6 10h8"),
            Shape::Absent => ("", "M10 7a3 3 0 1 0 .01 0z", ""),
            Shape::Expired => (" hollow", CIRCLE, "M10 5.2V10l3.2 2.2"),
            Shape::Void => (" hollow", CIRCLE, "M4.6 15.4 15.4 4.6"),
        };
        markup(format!(
            "<svg class=\"shape{hollow}\" viewBox=\"0 0 20 20\" width=\"20\" height=\"20\" aria-hidden=\"true\" \
             focusable=\"false\"><path class=\"outline\" d=\"{outline}\"/><path class=\"mark\" d=\"{mark}\"/></svg>"
        ))
    }
}

const DISC: &str = "M10 .8a9.2 9.2 0 1 0 .01 0z";
const CIRCLE: &str = "M10 1.6a8.4 8.4 0 1 0 .01 0z";

impl From<Status> for Shape {
    fn from(status: Status) -> Shape {
        match status {
            Status::Passed => Shape::Good,
            Status::Warned => Shape::Warn,
            Status::Failed => Shape::Bad,
            Status::Undecided => Shape::Doubt,
            Status::Skipped => Shape::Left,
            Status::Waived => Shape::Waived,
            Status::Absent => Shape::Absent,
        }
    }
}

impl From<Grade> for Shape {
    fn from(grade: Grade) -> Shape {
        match grade {
            Grade::Failed => Shape::Bad,
            Grade::Undecided => Shape::Doubt,
            Grade::Warned => Shape::Warn,
        }
    }
}

impl From<Decision> for Shape {
    fn from(decision: Decision) -> Shape {
        match decision {
            Decision::Accepted => Shape::Good,
            Decision::Rejected => Shape::Bad,
            Decision::Undecided => Shape::Doubt,
        }
    }
}
