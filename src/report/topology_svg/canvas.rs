//! SVG elements as text; the only place where markup is written.

use std::fmt::Write;

use crate::ident::printable;

/// How an element looks. The colours are told apart without colour too: by place, words and shape.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    Panel,
    Cpu,
    Switch,
    Nic,
    Gpu,
    Faulty,
    Fabric,
    Pcie,
    Broken,
}

impl Style {
    fn class(self) -> &'static str {
        match self {
            Style::Panel => "panel",
            Style::Cpu => "cpu",
            Style::Switch => "switch",
            Style::Nic => "nic",
            Style::Gpu => "gpu",
            Style::Faulty => "faulty",
            Style::Fabric => "fabric",
            Style::Pcie => "pcie",
            Style::Broken => "broken",
        }
    }
}

/// Contrast of text on its ground is at least 7 to 1 (WCAG AAA); lines 3 to 1.
const STYLE: &str = "
    text { font-family: 'DejaVu Sans', 'Segoe UI', system-ui, sans-serif; fill: #1b2733; font-size: 13px }
    .title { font-size: 20px; font-weight: bold } .subtitle { font-size: 13px; fill: #44525f }
    .strong { font-size: 14px; font-weight: bold } .name { font-size: 12px; font-weight: bold }
    .small { font-size: 11px; fill: #33414d } .middle { text-anchor: middle }
    .fault { font-size: 13px; fill: #8f0d22; font-weight: bold }
    .panel { fill: #f5f7f9; stroke: #cdd5dc } .cpu { fill: #dde4eb; stroke: #7c8a97 }
    .switch { fill: #ffffff; stroke: #7c8a97 } .nic { fill: #e4eefb; stroke: #2f66a8 }
    .gpu { fill: #e7f3df; stroke: #47802a; stroke-width: 1.5 } .fabric { fill: #cfe6c1; stroke: #47802a }
    .faulty { fill: #fdeaed; stroke: #c4122f; stroke-width: 3 }
    .pcie { stroke: #7c8a97; stroke-width: 1.5; fill: none } .nvlink { stroke: #5b9a3b; fill: none }
    .broken { stroke: #c4122f; stroke-width: 2; stroke-dasharray: 3 5 }
    .triangle { fill: #c4122f; stroke: #ffffff; stroke-width: 1.5; stroke-linejoin: round }
    .mark { fill: #ffffff; font-size: 12px; font-weight: bold; text-anchor: middle }
";

/// Where a drawing is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// As a file of its own: it brings its colours along.
    Own,
    /// In a page, whose stylesheet colours it: a strict policy takes no style from within.
    Page,
}

/// A drawing that is being written.
pub struct Canvas {
    text: String,
    ground: Ground,
}

impl Canvas {
    pub fn new(width: f64, height: f64, ground: Ground) -> Canvas {
        let mut canvas = Canvas { text: String::new(), ground };
        canvas.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"topology\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-labelledby=\"topology-title topology-desc\">"
        ));
        canvas
    }

    /// Title and description for readers of either kind, then the ground and the heading.
    pub fn heading(&mut self, title: &str, subtitle: &str, description: &str) {
        self.put(&format!("<title id=\"topology-title\">Topology of {}</title>", escaped(title, 100)));
        self.put(&format!("<desc id=\"topology-desc\">{}</desc>", escaped(description, 4000)));
        if self.ground == Ground::Own {
            self.put(&format!("<style>{STYLE}</style>"));
            self.put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>");
        }
        self.text(24.0, 36.0, "title", title);
        self.text(24.0, 57.0, "subtitle", subtitle);
    }

    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, radius: f64, style: Style) {
        let class = style.class();
        self.put(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\"/>"
        ));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), style: Style) {
        self.put(&format!(
            "<line class=\"{}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            style.class(),
            from.0,
            from.1,
            to.0,
            to.1
        ));
    }

    pub fn nvlink(&mut self, from: (f64, f64), to: (f64, f64), width: f64) {
        self.put(&format!(
            "<line class=\"nvlink\" stroke-width=\"{width:.1}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A hanging arc between two points of one height, with a label at its lowest point.
    pub fn arc(&mut self, from: (f64, f64), to: (f64, f64), width: f64, label: &str) {
        let depth = 22.0 + (to.0 - from.0).abs() * 0.06;
        let middle = (from.0 + to.0) / 2.0;
        self.put(&format!(
            "<path class=\"nvlink\" stroke-width=\"{width:.1}\" d=\"M {:.1} {:.1} C {:.1} {:.1} {:.1} {:.1} {:.1} {:.1}\"/>",
            from.0,
            from.1,
            from.0,
            from.1 + depth,
            to.0,
            to.1 + depth,
            to.0,
            to.1
        ));
        self.text(middle, from.1 + depth * 0.75 + 16.0, "name middle", label);
    }

    /// The sign of a fault: a triangle with an exclamation mark, its top at this point.
    pub fn warning(&mut self, x: f64, y: f64) {
        self.put(&format!(
            "<path class=\"triangle\" d=\"M {:.1} {:.1} l 10 18 h -20 z\"/><text class=\"mark\" x=\"{:.1}\" y=\"{:.1}\">!</text>",
            x,
            y,
            x,
            y + 15.0
        ));
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put(&format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text, 120)));
    }

    pub fn finish(mut self) -> String {
        self.put("</svg>");
        self.text
    }

    fn put(&mut self, element: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{element}");
    }
}

/// Printable, and with the five characters of markup as entities.
fn escaped(text: &str, limit: usize) -> String {
    let mut safe = String::new();
    for c in printable(text, limit).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Not characters of XML 1.0, and so an error even as entities.
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}
