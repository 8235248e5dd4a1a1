//! What the terminal can show, and output that does not mind a closed pipe.

use std::io::{self, IsTerminal, Write};

use tracing::level_filters::LevelFilter;

use crate::report::typeface::Typeface;

/// Writes through until a write fails, and is silent from then on: a run goes on to its record
/// whatever becomes of its output. A closed pipe is no error (`nodegate record list | head`);
/// anything else is one, and [`Quiet::end`] tells it.
pub struct Quiet<W> {
    inner: W,
    failed: Option<io::Error>,
}

impl<W: Write> Quiet<W> {
    pub fn new(inner: W) -> Self {
        Quiet { inner, failed: None }
    }

    /// Writes out what is left, and says whether all of it came through.
    ///
    /// # Errors
    ///
    /// The first that a write gave, unless the reader had gone.
    pub fn end(mut self) -> io::Result<()> {
        self.flush()?;
        match self.failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Some(_) | None => Ok(()),
        }
    }

    fn keep<T>(&mut self, result: io::Result<T>, otherwise: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                self.failed = Some(error);
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Quiet<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_some() {
            return Ok(bytes.len());
        }
        let result = self.inner.write(bytes);
        self.keep(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        let result = self.inner.flush();
        self.keep(result, ())
    }
}

/// The typeface for standard output: colour and width only on a terminal, `NO_COLOR` honoured.
#[expect(clippy::disallowed_methods, reason = "the edge reads the environment")]
pub fn typeface() -> Typeface {
    let terminal = io::stdout().is_terminal();
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| set(name)).unwrap_or_default();
    let utf8 = locale.to_lowercase().replace('-', "").contains("utf8");
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col));
    Typeface {
        colour: terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb"),
        unicode: utf8 || !terminal,
        width: if terminal && columns >= 60 { columns.min(100) } else { 80 },
    }
}

/// Whether progress may be drawn on standard error: not where `--verbose` writes there.
pub fn draws_progress() -> bool {
    io::stderr().is_terminal() && !tracing::enabled!(tracing::Level::DEBUG)
}

/// What `--verbose` asks for, on standard error, with the seconds since the start.
pub fn say_more(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_max_level(level)
        // A closed standard error is no reason to panic.
        .log_internal_errors(false)
        .finish();
    // Nobody else sets one; if somebody did, that one stays.
    drop(tracing::subscriber::set_global_default(subscriber));
}
