//! What the terminal can show, and output that does not mind a closed pipe.

use std::io::{self, IsTerminal, Write};

use tracing::level_filters::LevelFilter;

use crate::report::typeface::Typeface;

/// Writes through, and turns a closed pipe into silence: `nodegate record list | head` is no error.
pub struct Quiet<W> {
    inner: W,
    closed: bool,
}

impl<W: Write> Quiet<W> {
    pub fn new(inner: W) -> Self {
        Quiet { inner, closed: false }
    }

    fn swallow<T>(&mut self, result: io::Result<T>, otherwise: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Quiet<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        let result = self.inner.write(bytes);
        self.swallow(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.inner.flush();
        self.swallow(result, ())
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
