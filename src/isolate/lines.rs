//! Bytes from a child, cut into lines, with a bound on what a child may say.

use std::collections::VecDeque;

/// A line longer than this is no answer of ours: the largest, the facts of a host with a
/// full kernel log, is below one MiB.
const LINE_LIMIT: usize = 8 << 20;
/// What a child may say to one request, bytes.
const TOTAL_LIMIT: usize = 64 << 20;
/// What is kept of a child's stderr, bytes.
const STDERR_LIMIT: usize = 64 << 10;

/// The lines of a child's stdout.
#[derive(Default)]
pub(super) struct Lines {
    whole: VecDeque<Vec<u8>>,
    partial: Vec<u8>,
    total: usize,
}

impl Lines {
    /// A new request: the child may say as much again.
    pub(super) fn begin(&mut self) {
        self.total = 0;
    }

    /// Takes bytes as they came. An error says which bound they break.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        self.total += bytes.len();
        if self.total > TOTAL_LIMIT {
            return Err("more than 64 MiB to one request");
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(&bytes[..end]);
            self.whole.push_back(std::mem::take(&mut self.partial));
            bytes = &bytes[end + 1..];
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > LINE_LIMIT { Err("a line of more than 8 MiB") } else { Ok(()) }
    }

    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }
}

/// The end of a child's stderr, at most 64 KiB of it.
#[derive(Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let excess = self.0.len().saturating_sub(STDERR_LIMIT);
        self.0.drain(..excess);
    }

    /// The last line that is not empty, if any.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.0);
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(|line| crate::ident::printable(line, 200))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_the_bytes_were_cut() {
        let mut lines = Lines::default();
        lines.take(b"a\nb").unwrap();
        assert_eq!(lines.next(), Some(b"a".to_vec()));
        assert_eq!(lines.next(), None);
        lines.take(b"c\n\n").unwrap();
        assert_eq!(lines.next(), Some(b"bc".to_vec()));
        assert_eq!(lines.next(), Some(b"".to_vec()));
    }

    #[test]
    fn a_flood_is_refused_by_line_and_in_total() {
        let mut endless = Lines::default();
        assert!(endless.take(&vec![b'x'; LINE_LIMIT]).is_ok());
        assert!(endless.take(b"x").is_err());
        let mut many = Lines::default();
        let chunk = [vec![b'x'; (1 << 20) - 1], vec![b'\n']].concat();
        assert_eq!((0..80).filter(|_| many.take(&chunk).is_ok()).count(), 64);
        many.begin();
        assert!(many.take(&chunk).is_ok());
    }

    #[test]
    fn of_stderr_the_end_is_kept() {
        let mut tail = Tail::default();
        tail.take(&vec![b'x'; 1 << 20]);
        tail.take(b"\nthe \x1breason\n\n");
        assert_eq!(tail.last_line().as_deref(), Some("the \\u{1b}reason"));
        assert_eq!(tail.0.len(), STDERR_LIMIT);
    }
}
