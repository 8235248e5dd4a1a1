//! How a line looks: glyphs, colour as a second signal only, and cutting to a width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::outcome::{Grade, Status};

/// What the output can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typeface {
    pub colour: bool,
    /// Whether the terminal takes UTF-8; serial consoles often do not.
    pub unicode: bool,
    /// Columns.
    pub width: usize,
}

impl Typeface {
    /// Eighty columns, no colour: what is safe in a ticket.
    pub const PLAIN: Typeface = Typeface { colour: false, unicode: true, width: 80 };

    pub fn status(self, status: Status) -> String {
        let (glyph, ascii, colour) = match status {
            Status::Passed => ("✓", "+", "32"),
            Status::Warned => ("!", "!", "33"),
            Status::Failed => ("✗", "x", "31;1"),
            Status::Undecided => ("?", "?", "35;1"),
            Status::Skipped => ("–", "-", "2"),
            Status::Waived => ("~", "~", "33"),
            Status::Absent => ("·", ".", "2"),
        };
        self.paint(if self.unicode { glyph } else { ascii }, colour)
    }

    pub fn grade(self, grade: Grade, text: &str) -> String {
        let colour = match grade {
            Grade::Failed => "31;1",
            Grade::Undecided => "35;1",
            Grade::Warned => "33",
        };
        self.paint(text, colour)
    }

    pub fn arrow(self) -> &'static str {
        if self.unicode { "→" } else { "->" }
    }

    pub fn paint(self, text: &str, colour: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The text in exactly `columns` columns: cut with `…` or filled with spaces.
    pub fn fit(self, text: &str, columns: usize) -> String {
        let mut fitted = if text.width() > columns { cut(text, columns, self.unicode) } else { text.to_owned() };
        fitted.extend(std::iter::repeat_n(' ', columns.saturating_sub(fitted.width())));
        fitted
    }

    /// The text in lines of at most the typeface's width, each indented.
    pub fn wrap(self, text: &str, indent: &str, hanging: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = indent.to_owned();
        let mut empty = true;
        for word in text.split_whitespace() {
            if !empty && line.width() + 1 + word.width() > self.width {
                lines.push(std::mem::replace(&mut line, hanging.to_owned()));
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        lines.push(line);
        lines
    }

    /// The text in lines of at most the typeface's width, broken at ` · ` alone.
    pub fn wrap_parts(self, text: &str, hanging: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for part in text.split(" · ") {
            match lines.last_mut() {
                Some(line) if line.width() + 3 + part.width() <= self.width => *line = format!("{line} · {part}"),
                Some(_) => lines.push(format!("{hanging}{part}")),
                None => lines.push(part.to_owned()),
            }
        }
        lines
    }
}

fn cut(text: &str, columns: usize, unicode: bool) -> String {
    let mark = if unicode { "…" } else { "~" };
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width + 1 > columns {
            break;
        }
        used += width;
        kept.push(c);
    }
    kept.push_str(mark);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fills_exactly_its_columns() {
        assert_eq!(Typeface::PLAIN.fit("abc", 5), "abc  ");
        assert_eq!(Typeface::PLAIN.fit("abcdef", 5), "abcd…");
        assert_eq!(Typeface::PLAIN.fit("幅幅幅", 5).width(), 5);
    }

    #[test]
    fn wrapped_lines_stay_within_the_width() {
        let narrow = Typeface { width: 20, ..Typeface::PLAIN };
        let lines = narrow.wrap("one two three four five six", "-> ", "   ");
        assert!(lines.len() > 1 && lines.iter().all(|line| line.width() <= 20), "{lines:?}");
    }

    #[test]
    fn parts_stay_whole_and_stand_below_where_they_do_not_fit() {
        let narrow = Typeface { width: 20, ..Typeface::PLAIN };
        assert_eq!(narrow.wrap_parts("one two · three · four five", "  "), ["one two · three", "  four five"]);
        assert_eq!(narrow.wrap_parts("one · two", "  "), ["one · two"]);
    }
}
