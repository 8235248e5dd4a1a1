//! Values as dots on a line, with marks where the limits are. The words stand in the label.

use std::fmt::Write as _;

use super::escape::escaped;
use super::measured::{Held, Limits};
use super::{Markup, markup};

const WIDTH: f64 = 160.0;
const HEIGHT: f64 = 22.0;
/// Room for a dot at either end.
const MARGIN: f64 = 7.0;
/// Room beside the outermost value or limit, as a part of what lies between them.
const ROOM: f64 = 0.12;

/// The drawing. Limits are bars with a foot on the side that is allowed: floor `⌊`, ceiling `⌉`.
pub fn svg(values: &[f64], limits: Limits, told: &str) -> Markup {
    let scale = Scale::of(values, limits);
    let middle = HEIGHT / 2.0;
    let mut text = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" \
         aria-label=\"{}\"><path class=\"track\" d=\"M{MARGIN} {middle}H{}\"/>",
        escaped(told),
        WIDTH - MARGIN
    );
    // Writing to a String cannot fail.
    if let Some(x) = limits.floor.map(|floor| scale.x(floor)) {
        let _ = write!(text, "<path class=\"limit\" d=\"M{:.1} 3h-3.5V{:.1}h3.5\"/>", x + 1.0, HEIGHT - 3.0);
    }
    if let Some(x) = limits.ceiling.map(|ceiling| scale.x(ceiling)) {
        let _ = write!(text, "<path class=\"limit\" d=\"M{:.1} 3h3.5V{:.1}h-3.5\"/>", x - 1.0, HEIGHT - 3.0);
    }
    if let Some(x) = limits.warn.map(|warn| scale.x(warn)) {
        let _ = write!(text, "<path class=\"warn-limit\" d=\"M{x:.1} 3V{:.1}\"/>", HEIGHT - 3.0);
    }
    for value in values.iter().filter(|value| value.is_finite()) {
        let x = scale.x(*value);
        let _ = match limits.held(*value) {
            Held::Within => write!(text, "<circle class=\"value\" cx=\"{x:.1}\" cy=\"{middle}\" r=\"3.4\"/>"),
            Held::Warned => {
                write!(text, "<path class=\"value warned\" d=\"M{x:.1} {:.1}l4.6 8.4h-9.2z\"/>", middle - 5.2)
            }
            Held::Broken => {
                write!(text, "<path class=\"value broken\" d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\"/>", x - 4.0, middle - 4.0)
            }
        };
    }
    text.push_str("</svg>");
    markup(text)
}

/// From a value to a place on the line.
struct Scale {
    lowest: f64,
    span: f64,
}

impl Scale {
    fn of(values: &[f64], limits: Limits) -> Scale {
        let all = values.iter().copied().chain([limits.floor, limits.warn, limits.ceiling].into_iter().flatten());
        let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in all.filter(|value| value.is_finite()) {
            (lowest, highest) = (lowest.min(value), highest.max(value));
        }
        if !lowest.is_finite() || !(highest - lowest).is_finite() {
            return Scale { lowest: -1.0, span: 2.0 };
        }
        // What has no floor and is never negative begins at nothing, so that the distance to its
        // ceiling is seen as it is. Elsewhere there is room beside the outermost.
        let from_nothing = limits.floor.is_none() && lowest >= 0.0;
        let lowest = if from_nothing { 0.0 } else { lowest };
        let room = if highest > lowest { (highest - lowest) * ROOM } else { 1.0 };
        let below = if from_nothing && highest > 0.0 { 0.0 } else { room };
        Scale { lowest: lowest - below, span: highest - lowest + below + room }
    }

    fn x(&self, value: f64) -> f64 {
        let part = ((value - self.lowest) / self.span).clamp(0.0, 1.0);
        MARGIN + part * (WIDTH - 2.0 * MARGIN)
    }
}
