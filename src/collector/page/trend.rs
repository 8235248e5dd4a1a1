//! Measurements of one node over its runs: a small plot for each name with all GPUs in it, and a line
//! for those that never change.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use askama::filters::Safe;

use crate::predicate::Details;
use crate::report::diff::Identities;
use crate::report::html::Markup;
use crate::report::html::measured::{Held, Limits, Names};
use crate::report::quantity;

/// Runs that a plot shows.
pub const MOST_RUNS: usize = 60;
/// Lines of one plot; a name with more subjects than a large host has GPUs tells its extent alone.
const MOST_SERIES: usize = 64;

/// Measurements of one name in one step.
pub struct Trend {
    pub name: String,
    unit: String,
    /// As of the newest run that has it.
    limits: Limits,
    series: Vec<Series>,
    runs: usize,
}

/// One subject over the runs, oldest first; nothing where a run did not measure it.
struct Series {
    /// The GPU by its own identity, wherever it was.
    who: String,
    /// Where it was last, in words.
    called: String,
    points: Vec<Option<f64>>,
}

/// Plots, what breaks a limit first and then what changed most; and what never changed.
pub struct Trends {
    pub moving: Vec<Trend>,
    pub steady: Vec<Trend>,
    pub runs: usize,
}

impl Trends {
    /// From records of one node, newest first.
    pub fn of(history: &[&Details]) -> Trends {
        let runs: Vec<&&Details> = history.iter().take(MOST_RUNS).rev().collect();
        let mut trends: BTreeMap<(usize, String), Trend> = BTreeMap::new();
        let mut order: HashMap<(String, String), usize> = HashMap::new();
        for (run, details) in runs.iter().enumerate() {
            add(&mut trends, &mut order, details, run, runs.len());
        }
        let (steady, mut moving): (Vec<Trend>, Vec<Trend>) = trends.into_values().partition(Trend::is_steady);
        moving.sort_by(|a, b| b.held().cmp(&a.held()).then(b.spread().total_cmp(&a.spread())));
        Trends { moving, steady, runs: runs.len() }
    }
}

fn add(
    trends: &mut BTreeMap<(usize, String), Trend>,
    order: &mut HashMap<(String, String), usize>,
    details: &Details,
    run: usize,
    runs: usize,
) {
    let (identities, names) = (Identities::of(details), Names::of(details));
    for step in &details.steps {
        for measurement in &step.outcome.measurements {
            let key = (step.id.to_string(), format!("{} {}", measurement.name, measurement.unit));
            let next = order.len();
            let place = *order.entry(key.clone()).or_insert(next);
            let trend = trends.entry((place, key.1)).or_insert_with(|| Trend {
                name: measurement.name.clone(),
                unit: measurement.unit.clone(),
                limits: Limits::default(),
                series: Vec::new(),
                runs,
            });
            trend.limits = Limits::of(measurement);
            let who = identities.of_subject(measurement.subject.as_str());
            let called = names.short(measurement.subject.as_str());
            trend.put(who, called, run, measurement.value);
        }
    }
}

impl Trend {
    /// `29 °C to 32 °C`, as of the newest run.
    pub fn now(&self) -> String {
        range(self.last(), &self.unit)
    }

    /// Over all runs, where that is another range than the newest run's.
    pub fn ever(&self) -> Option<String> {
        let ever = range(self.values().collect(), &self.unit);
        (ever != self.now()).then_some(ever)
    }

    pub fn limit_words(&self) -> String {
        self.limits.words(&self.unit)
    }

    pub fn count(&self) -> usize {
        self.series.len()
    }

    pub fn held(&self) -> Held {
        self.values().map(|value| self.limits.held(value)).max().unwrap_or(Held::Within)
    }

    /// Those that break a limit now, or did: `slot 8: 8 lanes now`, `slot 3: was 91 °C`.
    pub fn exceptions(&self) -> Vec<String> {
        let outside = |value: &f64| self.limits.held(*value) == Held::Broken;
        let told = self.series.iter().filter_map(|series| {
            let last = series.points.last().copied().flatten();
            if let Some(value) = last.filter(outside) {
                return Some(format!("{}: {} now", series.called, quantity::words(value, &self.unit)));
            }
            let was = series.points.iter().flatten().copied().rfind(outside)?;
            Some(format!("{}: was {}", series.called, quantity::words(was, &self.unit)))
        });
        told.collect()
    }

    /// The same value in every run, be it another one for each subject, and no limit broken.
    fn is_steady(&self) -> bool {
        let constant = |series: &Series| {
            let mut values = series.points.iter().flatten();
            let first = values.next();
            values.all(|value| Some(value) == first)
        };
        self.held() == Held::Within && self.series.iter().all(constant)
    }

    /// The range of all values as a part of the largest.
    fn spread(&self) -> f64 {
        let (lowest, highest) = extent(self.values());
        let largest = lowest.abs().max(highest.abs());
        if largest > 0.0 { (highest - lowest) / largest } else { 0.0 }
    }

    fn put(&mut self, who: &str, called: &str, run: usize, value: f64) {
        let runs = self.runs;
        let known = self.series.iter_mut().position(|series| series.who == who);
        let place = match known {
            Some(place) => place,
            None if self.series.len() < MOST_SERIES => {
                self.series.push(Series { who: who.to_owned(), called: String::new(), points: vec![None; runs] });
                self.series.len() - 1
            }
            None => return,
        };
        self.series[place].called = called.to_owned();
        self.series[place].points[run] = Some(value);
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.series.iter().flat_map(|series| series.points.iter().flatten().copied())
    }

    fn last(&self) -> Vec<f64> {
        self.series.iter().filter_map(|series| series.points.last().copied().flatten()).collect()
    }

    /// The plot, with all that it shows in its label.
    pub fn svg(&self) -> Markup {
        let mut drawing = Drawing::of(self);
        drawing.limits(&self.limits);
        for series in &self.series {
            drawing.series(series, &self.limits);
        }
        Safe(drawing.finish())
    }

    fn told(&self) -> String {
        let mut told = format!("{} of {} over {} runs: now {}", self.name, self.count(), self.runs, self.now());
        for part in [self.ever().map(|ever| format!("ever {ever}")), Some(self.limit_words())].into_iter().flatten() {
            if !part.is_empty() {
                told.push_str("; ");
                told.push_str(&part);
            }
        }
        told
    }
}

fn range(values: Vec<f64>, unit: &str) -> String {
    if values.is_empty() {
        return "not measured".to_owned();
    }
    let (lowest, highest) = extent(values.into_iter());
    match (quantity::words(lowest, unit), quantity::words(highest, unit)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    }
}

fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 96.0;
/// Left of the first and right of the last run; the names of the limits stand beyond.
const PLOT: (f64, f64) = (6.0, 262.0);
const TOP: f64 = 8.0;
/// How many times the values' own range a limit may be away and still be drawn to scale.
const FAR: f64 = 6.0;
/// A label needs this much height.
const LABEL: f64 = 11.0;

/// A plot that is being written.
struct Drawing {
    text: String,
    lowest: f64,
    span: f64,
    runs: usize,
}

impl Drawing {
    fn of(trend: &Trend) -> Drawing {
        let (mut lowest, mut highest) = extent(trend.values().filter(|value| value.is_finite()));
        if !lowest.is_finite() || !(highest - lowest).is_finite() {
            (lowest, highest) = (0.0, 0.0);
        }
        let near = (highest - lowest) * FAR;
        let (low, high) = (lowest, highest);
        for limit in trend.limits.all() {
            // A limit that is far away would make a line of what moves: it is told at the edge.
            if low == high || (limit >= low - near && limit <= high + near) {
                (lowest, highest) = (lowest.min(limit), highest.max(limit));
            }
        }
        let room = if highest > lowest { (highest - lowest) * 0.08 } else { 1.0 };
        let below = if lowest >= 0.0 && lowest - room < 0.0 { lowest.min(room) } else { room };
        let text = format!(
            "<svg class=\"trend\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\
             <path class=\"axis\" d=\"M{} {TOP}V{}H{}\"/>",
            crate::report::html::escaped(&trend.told()),
            PLOT.0 - 4.0,
            HEIGHT - 4.0,
            PLOT.1 + 4.0
        );
        Drawing { text, lowest: lowest - below, span: highest - lowest + below + room, runs: trend.runs }
    }

    fn x(&self, run: usize) -> f64 {
        match self.runs {
            0 | 1 => (PLOT.0 + PLOT.1) / 2.0,
            runs => PLOT.0 + (PLOT.1 - PLOT.0) * run as f64 / (runs - 1) as f64,
        }
    }

    fn y(&self, value: f64) -> f64 {
        let part = ((value - self.lowest) / self.span).clamp(0.0, 1.0);
        HEIGHT - 6.0 - part * (HEIGHT - 6.0 - TOP)
    }

    fn limits(&mut self, limits: &Limits) {
        let lines = [
            ("ceiling", limits.ceiling, "limit"),
            ("warns", limits.warn, "warn-limit"),
            ("floor", limits.floor, "limit"),
        ];
        let mut places: Vec<(f64, String, &str)> = Vec::new();
        for (word, limit, class) in lines {
            let Some(limit) = limit.filter(|limit| limit.is_finite()) else { continue };
            let (above, below) = (limit > self.lowest + self.span, limit < self.lowest);
            let arrow = if above {
                " ↑"
            } else if below {
                " ↓"
            } else {
                ""
            };
            let class = if above || below { "" } else { class };
            places.push((self.y(limit), format!("{word}{arrow}"), class));
        }
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = 0.0;
        for (y, word, class) in places {
            // Writing to a String cannot fail.
            if !class.is_empty() {
                let _ = write!(self.text, "<path class=\"{class}\" d=\"M{} {y:.1}H{}\"/>", PLOT.0 - 4.0, PLOT.1 + 4.0);
            }
            let label = (y + 4.0).max(free + LABEL).min(HEIGHT - 1.0);
            let _ = write!(self.text, "<text x=\"{}\" y=\"{label:.1}\">{word}</text>", PLOT.1 + 10.0);
            free = label;
        }
    }

    fn series(&mut self, series: &Series, limits: &Limits) {
        let mut path = String::new();
        let mut marks = String::new();
        let mut drawing = false;
        let mut odd = false;
        for (run, point) in series.points.iter().enumerate() {
            let Some(value) = point.filter(|value| value.is_finite()) else {
                drawing = false;
                continue;
            };
            let (x, y) = (self.x(run), self.y(value));
            let _ = write!(path, "{}{x:.1} {y:.1}", if drawing { "L" } else { "M" });
            let alone = !drawing && series.points.get(run + 1).copied().flatten().is_none();
            drawing = true;
            if limits.held(value) == Held::Broken {
                odd = true;
                let _ =
                    write!(marks, "<path class=\"value broken\" d=\"M{:.1} {:.1}l7 7m0 -7l-7 7\"/>", x - 3.5, y - 3.5);
            } else if alone || run + 1 == self.runs {
                let _ = write!(marks, "<circle class=\"value\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\"/>");
            }
        }
        let class = if odd { "series odd" } else { "series" };
        let _ = write!(self.text, "<path class=\"{class}\" d=\"{path}\"/>{marks}");
    }

    fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }
}
