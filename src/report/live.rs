//! The text reporter: step lines on standard output as they come, a spinner on the terminal.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::event::Event;
use crate::report::typeface::Typeface;
use crate::report::{Reporter, screen};

/// Prints step lines to `out`; shows what is running on standard error if that is a terminal.
pub struct Live<'a> {
    out: &'a mut dyn Write,
    typeface: Typeface,
    spinner: Option<ProgressBar>,
}

impl<'a> Live<'a> {
    pub fn new(out: &'a mut dyn Write, typeface: Typeface, progress: bool) -> Self {
        let spinner = progress.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("  {spinner} {prefix:17} {msg} {elapsed:>6}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            bar.set_style(style);
            bar
        });
        Live { out, typeface, spinner }
    }

    /// A closed pipe is quiet: who stopped reading does not want to hear of it.
    fn line(&mut self, line: &str) {
        let write = |out: &mut dyn Write| writeln!(out, "{line}").and_then(|()| out.flush());
        let _closed = match &self.spinner {
            Some(spinner) => spinner.suspend(|| write(self.out)),
            None => write(self.out),
        };
    }

    fn show(&self, prefix: &str, text: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_prefix(prefix.to_owned());
            spinner.set_message(text.to_owned());
            spinner.enable_steady_tick(Duration::from_millis(120));
        }
    }
}

impl Reporter for Live<'_> {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::RunStarted { .. } => {
                let heading = screen::heading(event).unwrap_or_default();
                self.line(&heading);
                self.line("");
            }
            Event::Notice { text } => {
                for line in screen::notice_lines(text, self.typeface) {
                    self.line(&line);
                }
            }
            Event::Waiting { reason, attempt } => self.show("waiting", &format!("{reason} (try {attempt})")),
            Event::StepStarted { id, .. } => self.show(id.as_str(), ""),
            Event::StepProgress { id, text, share } => {
                self.show(id.as_str(), &format!("{text} {:>3.0} %", share * 100.0));
            }
            Event::StepEnded { step } => self.line(&screen::step_line(step, self.typeface)),
            Event::RunEnded { details } => {
                if let Some(spinner) = self.spinner.take() {
                    spinner.finish_and_clear();
                }
                let conclusion = screen::conclusion(details, self.typeface);
                self.line(conclusion.trim_end_matches('\n'));
            }
        }
    }
}
