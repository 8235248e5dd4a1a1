//! What the collector says while it works: one line each, on standard error.
//!
//! A thread of its own writes, so that a reader who stopped reading holds nobody, and a flood of
//! refusals becomes a number: no peer can fill a disk. Everything in a line is printable.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ident::printable;

/// Lines that wait for being written.
const WAITING: usize = 256;
/// Refusals a second that are written, and how many at once after silence.
const REFUSALS: u64 = 20;
const REFUSALS_AT_ONCE: u64 = 200;
/// Characters of a line.
const LONGEST: usize = 1000;
/// How often it is said how many refusals were left out.
const SUMMARY: Duration = Duration::from_secs(10);

/// Where lines go. Clones write to the same place.
#[derive(Clone)]
pub struct Log {
    lines: SyncSender<Line>,
    left_out: Arc<AtomicU64>,
}

/// The thread that writes.
pub struct Writer(Option<JoinHandle<()>>);

enum Line {
    /// Always written.
    Said(String),
    /// Written as far as the rate allows.
    Refused(String),
}

impl Log {
    /// Begins to write to standard error.
    pub fn to_standard_error() -> (Log, Writer) {
        Log::to(std::io::stderr())
    }

    pub fn to(out: impl Write + Send + 'static) -> (Log, Writer) {
        let (lines, waiting) = sync_channel(WAITING);
        let left_out = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&left_out);
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || write(&waiting, &counts, out));
        // Without a thread nothing is written; the collector works all the same.
        (Log { lines, left_out }, Writer(thread.ok()))
    }

    /// What an operator should know: a start, an end, a store that does not answer.
    pub fn say(&self, text: &str) {
        let _full = self.lines.try_send(Line::Said(text.to_owned()));
    }

    /// Why somebody was refused.
    pub fn refuse(&self, text: String) {
        if self.lines.try_send(Line::Refused(text)).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Waits until everything is written. Every [`Log`] must be gone.
    pub fn end(mut self) {
        if let Some(thread) = self.0.take() {
            let _panicked = thread.join();
        }
    }
}

fn write(lines: &Receiver<Line>, left_out: &AtomicU64, mut out: impl Write) {
    let mut budget = Budget { left: REFUSALS_AT_ONCE, at: Instant::now() };
    let mut summary = Instant::now() + SUMMARY;
    loop {
        match lines.recv_timeout(summary.saturating_duration_since(Instant::now())) {
            Ok(Line::Said(text)) => put(&mut out, &text),
            Ok(Line::Refused(text)) if budget.take() => put(&mut out, &text),
            Ok(Line::Refused(_)) => drop(left_out.fetch_add(1, Ordering::Relaxed)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                summarise(&mut out, left_out);
                return;
            }
        }
        if Instant::now() >= summary {
            summarise(&mut out, left_out);
            summary = Instant::now() + SUMMARY;
        }
    }
}

fn summarise(out: &mut impl Write, left_out: &AtomicU64) {
    let count = left_out.swap(0, Ordering::Relaxed);
    if count > 0 {
        put(out, &format!("{count} more refusals, not written one by one"));
    }
}

fn put(out: &mut impl Write, text: &str) {
    // Standard error may be closed; there is nobody to tell.
    let _closed = writeln!(out, "nodegate collector: {}", printable(text, LONGEST));
}

struct Budget {
    left: u64,
    at: Instant,
}

impl Budget {
    fn take(&mut self) -> bool {
        let earned = self.at.elapsed().as_millis() / u128::from(1000 / REFUSALS);
        if earned > 0 {
            self.left = (self.left + u64::try_from(earned).unwrap_or(u64::MAX)).min(REFUSALS_AT_ONCE);
            self.at = Instant::now();
        }
        let enough = self.left > 0;
        self.left = self.left.saturating_sub(1);
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_of_refusals_becomes_a_number_and_what_is_said_stays() {
        let paper = Paper::default();
        let (log, writer) = Log::to(paper.clone());
        (0..10_000).for_each(|number| log.refuse(format!("refused {number}\u{1b}[2J\n{}", "x".repeat(5000))));
        // The channel may be full of refusals still.
        while log.lines.try_send(Line::Said("the end".to_owned())).is_err() {
            std::thread::yield_now();
        }
        drop(log);
        writer.end();
        let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        let written = text.lines().filter(|line| line.contains("refused ")).count();
        let left_out: usize = text
            .lines()
            .filter_map(|line| line.strip_suffix(" more refusals, not written one by one"))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
            .sum();
        assert_eq!(written + left_out, 10_000, "{}", text.len());
        assert!(written < 1000, "{written}");
        assert!(text.contains("collector: the end\n") && !text.contains('\u{1b}'));
        assert!(text.lines().all(|line| line.chars().count() < LONGEST + 40));
    }
}
