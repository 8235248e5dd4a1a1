//! Records of `/dev/kmsg`: `priority,sequence,microseconds,flags[,…];text`.
//!
//! The form is the kernel's `Documentation/ABI/testing/dev-kmsg`: the first line is the
//! record, lines that begin with a space are its dictionary (`SUBSYSTEM=`, `DEVICE=`),
//! and bytes that a terminal could take for control are written as `\xNN`.

use crate::ident::printable_bytes;

/// Longest text that is kept of one line, in characters.
const LINE: usize = 400;

/// One record, its text split into the lines that the kernel printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Severity in the lower three bits, facility above; 0 is the kernel itself.
    pub priority: u32,
    pub sequence: u64,
    /// Microseconds since boot.
    pub microseconds: u64,
    /// Printable, at most 400 characters each.
    pub lines: Vec<String>,
}

impl Record {
    /// Whether the kernel wrote it, and not a process through `/dev/kmsg`.
    pub fn is_of_kernel(&self) -> bool {
        self.priority >> 3 == 0
    }
}

/// One record from the text of one read (or one line of a recording); none if it does not read as one.
pub fn record(text: &str) -> Option<Record> {
    let first = text.split('\n').next()?;
    let (head, text) = first.split_once(';')?;
    let mut fields = head.split(',');
    let mut number = || fields.next().filter(|field| field.bytes().all(|b| b.is_ascii_digit()))?.parse::<u64>().ok();
    let (priority, sequence, microseconds) = (number()?, number()?, number()?);
    let bytes = unescape(text);
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| printable_bytes(line, LINE)).collect();
    Some(Record { priority: u32::try_from(priority).ok()?, sequence, microseconds, lines })
}

/// Whether this line belongs to the record before it.
pub fn is_dictionary(line: &str) -> bool {
    line.starts_with(' ')
}

/// Takes back the kernel's `\xNN`; anything else that follows a backslash stays as it is.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        match escaped(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

fn escaped(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(br"\x")?.get(..2)?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_with_its_numbers_and_its_text() {
        let read = record("6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n").unwrap();
        assert_eq!((read.priority, read.sequence, read.microseconds), (6, 339, 5_140_900));
        assert_eq!(read.lines, ["NET: Registered protocol family 10"]);
    }

    #[test]
    fn later_kernels_may_add_fields_before_the_text() {
        let read = record("4,7,8,-,caller=T123;a;b").unwrap();
        assert_eq!((read.sequence, read.lines), (7, vec!["a;b".to_owned()]));
    }

    #[test]
    fn escaped_line_feeds_make_lines_and_escaped_controls_stay_harmless() {
        let read = record(r"4,1,2,-;NVRM: one\x0aNVRM: t\x1b[31mwo \x5cx0a \xzz \x4").unwrap();
        assert_eq!(read.lines, ["NVRM: one".to_owned(), r"NVRM: t\u{1b}[31mwo \x0a \xzz \x4".to_owned()]);
    }

    #[test]
    fn a_process_cannot_speak_for_the_kernel() {
        assert!(record("4,1,2,-;x").unwrap().is_of_kernel());
        assert!(!record("12,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, forged").unwrap().is_of_kernel());
    }

    #[test]
    fn what_is_cut_short_or_no_record_gives_none() {
        for text in [
            "",
            ";",
            "6",
            "6,1",
            "6,1,2",
            "6,1;x",
            "a,1,2,-;x",
            "6,-1,2,-;x",
            "6,99999999999999999999,2,-;x",
            "+6,1,2,-;x",
        ] {
            assert_eq!(record(text), None, "{text}");
        }
        assert!(record("6,1,2;x").is_some());
    }
}
