//! The text reporter: step lines on standard output as they come, a spinner on the terminal.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};

use crate::event::Event;
use crate::report::typeface::Typeface;
use crate::report::{Reporter, screen};

/// Prints step lines to `out`; shows what is running on standard error if that is a terminal.
pub struct Live<'a> {
    out: &'a mut dyn Write,
    typeface: Typeface,
    spinner: Option<Spinner>,
    /// When the run began, for the time that opening the host took.
    started_at: String,
}

impl<'a> Live<'a> {
    /// With `progress` the spinner turns from now on: a driver that hangs holds the opening up.
    pub fn new(out: &'a mut dyn Write, typeface: Typeface, progress: bool) -> Self {
        let spinner = progress.then(|| Spinner::new(typeface));
        let live = Live { out, typeface, spinner, started_at: String::new() };
        live.show("opening", screen::OPENING);
        live
    }

    /// A closed pipe is quiet: who stopped reading does not want to hear of it.
    fn line(&mut self, line: &str) {
        let write = |out: &mut dyn Write| writeln!(out, "{line}").and_then(|()| out.flush());
        let _closed = match &self.spinner {
            Some(spinner) => spinner.bar.suspend(|| write(self.out)),
            None => write(self.out),
        };
    }

    fn lines(&mut self, lines: impl IntoIterator<Item = String>) {
        lines.into_iter().for_each(|line| self.line(&line));
    }

    fn show(&self, what: &str, text: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.show(what, text);
        }
    }

    /// The time of what is shown counts from here.
    fn begin(&self, what: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.bar.reset_elapsed();
            spinner.show(what, "");
        }
    }
}

/// Columns left free behind the spinner: a terminal echoes `^C` there, and what stands on the line
/// before the cursor's cannot be cleared.
const ECHO: usize = 4;

/// Standard error as the spinner's terminal, narrower than it is: the line is filled up to the width,
/// and must not fill the terminal's.
#[derive(Debug)]
struct Line {
    width: usize,
}

impl Line {
    fn write(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    /// Moves the cursor (ECMA-48: CUU, CUD, CUF and CUB); a count of 0 would be taken for 1.
    fn go(&self, count: usize, towards: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.write(&format!("\x1b[{count}{towards}")) }
    }
}

impl TermLike for Line {
    fn width(&self) -> u16 {
        u16::try_from(self.width.saturating_sub(ECHO)).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.go(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.go(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.go(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.go(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.write(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// One line that turns, below everything that was printed. It is gone when this is dropped, so that
/// no way out of a run leaves it on the terminal.
struct Spinner {
    bar: ProgressBar,
    typeface: Typeface,
}

impl Spinner {
    fn new(typeface: Typeface) -> Self {
        let bar = ProgressBar::with_draw_target(
            None,
            ProgressDrawTarget::term_like_with_hz(Box::new(Line { width: typeface.width }), 20),
        );
        // In the columns of a step line, which takes its place.
        let style = ProgressStyle::with_template("  {spinner} {prefix:17} {msg} {clock:>8}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner())
            .with_key("clock", |state: &ProgressState, line: &mut dyn std::fmt::Write| {
                // A line that cannot be written is not drawn.
                let _undrawn = line.write_str(&clock(state.elapsed()));
            });
        let style = if typeface.unicode { style } else { style.tick_chars("-\\|/ ") };
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(120));
        Spinner { bar, typeface }
    }

    fn show(&self, what: &str, text: &str) {
        self.bar.set_prefix(what.to_owned());
        let columns = screen::cause_columns(self.typeface).saturating_sub(ECHO);
        self.bar.set_message(self.typeface.fit(text, columns));
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// `00:12`.
fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

impl Reporter for Live<'_> {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::RunStarted { at, .. } => {
                self.started_at.clone_from(at);
                self.lines(screen::heading(event, self.typeface));
                self.line("");
            }
            Event::Notice { text } => self.lines(screen::notice_lines(text, self.typeface)),
            Event::Waiting { reason, attempt } => self.show("waiting", &format!("{reason} (try {attempt})")),
            Event::StepStarted { id, index, at } => {
                if *index == 0 {
                    self.lines(screen::opening_line(&self.started_at, at, self.typeface));
                }
                self.begin(id.as_str());
            }
            Event::StepProgress { id, text, share } => {
                self.show(id.as_str(), &format!("{text} {:>3.0} %", share * 100.0));
            }
            Event::StepEnded { step } => self.line(&screen::step_line(step, self.typeface)),
            Event::RunEnded { details } => {
                self.spinner = None;
                let conclusion = screen::conclusion(details, self.typeface);
                self.line(conclusion.trim_end_matches('\n'));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_nothing_is_drawn_and_lines_come_as_they_are() {
        let mut out = Vec::new();
        let mut live = Live::new(&mut out, Typeface::PLAIN, false);
        assert!(live.spinner.is_none());
        live.hear(&Event::Notice { text: "a note".to_owned() });
        live.hear(&Event::Waiting { reason: "no driver".to_owned(), attempt: 1 });
        assert_eq!(String::from_utf8(out).unwrap(), "  note  a note\n");
    }

    #[test]
    fn the_clock_has_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_millis(12_900)), "00:12");
        assert_eq!(clock(Duration::from_secs(3_661)), "61:01");
    }
}
