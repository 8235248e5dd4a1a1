//! The kernel log: `/dev/kmsg` of the live machine, or the raw records of a recording.
//!
//! A character device gives one record a read and is read until it has no more; a regular file
//! gives one record a line. Nothing here waits for a record to come.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;

use super::root::{self, Root, Trace};
use crate::facts::host::{KernelLog, LogEntry, LogExtent, LogKind};
use crate::parse::driver_log::{DriverLog, is_of_interest};
use crate::parse::kmsg;
use crate::reading::{Code, Reading};

const PATH: &str = "/dev/kmsg";
/// Longest record that the kernel gives (`CONSOLE_EXT_LOG_MAX` is 8192).
const RECORD: usize = 16 << 10;
/// The largest ring buffer that kernels are built with holds fewer; a log that grows while it is read ends here.
const MOST_RECORDS: u64 = 1 << 20;
/// A recorded log, in bytes.
const LARGEST_FILE: u64 = 32 << 20;
/// Entries that are kept, the newest.
const MOST_ENTRIES: usize = 2000;
/// Lines in no known form that are kept, so that a flood of them cannot push out what is known.
const MOST_UNKNOWN: usize = 200;

/// Reads the whole log; keeps what concerns GPUs and links, counts the rest.
pub fn kernel_log(root: &Root) -> KernelLog {
    let mut reader = Reader::default();
    let read = root.open(PATH).and_then(|(resolved, file)| {
        if file.metadata()?.file_type().is_char_device() {
            reader.device(file)?;
        } else {
            reader.file(file)?;
        }
        root.remember(&resolved, || Trace::File(reader.kept()));
        Ok(())
    });
    match root::reading(read) {
        Reading::Value(()) => reader.log(),
        Reading::Unsupported => KernelLog { state: Reading::Unsupported, entries: Vec::new() },
        Reading::Unasked => KernelLog::default(),
        Reading::Failed(code) => KernelLog { state: Reading::Failed(code), ..reader.log() },
    }
}

#[derive(Default)]
struct Reader {
    log: DriverLog,
    /// A record of this number and all after it were read.
    whole_from: Option<u64>,
    /// Records were lost, or one could not be read, since the last that was.
    hole: bool,
    /// Sequence numbers of the first and last record.
    seen: Option<(u64, u64)>,
    has_record_0: bool,
    /// Lines of a recorded log that are no records.
    garbled: bool,
    first: String,
    last: String,
    /// Raw records that a recording needs to read the same again.
    raw: Vec<String>,
}

impl Reader {
    fn device(&mut self, mut file: File) -> io::Result<()> {
        let mut buffer = vec![0; RECORD];
        for _ in 0..MOST_RECORDS {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => self.record(&String::from_utf8_lossy(&buffer[..length])),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    // EPIPE: records were overwritten before we read them; the next read goes on after the gap.
                    ErrorKind::BrokenPipe => self.hole = true,
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn file(&mut self, file: File) -> io::Result<()> {
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(io::Error::from(ErrorKind::FileTooLarge));
        }
        let text = String::from_utf8_lossy(&bytes);
        for line in text.lines().filter(|line| !line.is_empty() && !kmsg::is_dictionary(line)) {
            self.record(line);
        }
        Ok(())
    }

    fn record(&mut self, text: &str) {
        let Some(record) = kmsg::record(text) else {
            (self.garbled, self.hole) = (true, true);
            return;
        };
        if std::mem::take(&mut self.hole) || self.whole_from.is_none() {
            self.whole_from = Some(record.sequence);
        }
        let first_line = text.split('\n').next().unwrap_or_default();
        let (first, last) = self.seen.unwrap_or((record.sequence, record.sequence));
        self.seen = Some((first.min(record.sequence), last.max(record.sequence)));
        self.has_record_0 |= record.sequence == 0;
        if self.first.is_empty() {
            self.first = first_line.to_owned();
        }
        self.last = first_line.to_owned();
        if is_of_interest(first_line) {
            self.raw.push(first_line.to_owned());
        }
        self.log.read(&record);
    }

    fn log(self) -> KernelLog {
        let Some((first, last)) = self.seen else {
            // Even an idle machine has logged its own start.
            return KernelLog { state: Reading::Failed(Code::GARBLED), entries: Vec::new() };
        };
        let unknown = self.log.unknown;
        let (entries, lost) = newest(self.log.entries);
        // The extent begins where nothing is missing any more: behind a hole, behind what was left out.
        let behind_hole = if self.hole { last.saturating_add(1) } else { self.whole_from.unwrap_or(first) };
        let first =
            [Some(behind_hole), lost.map(|lost| lost.saturating_add(1))].into_iter().flatten().fold(first, u64::max);
        let complete = self.has_record_0 && first == 0 && !self.garbled;
        KernelLog { state: Reading::Value(LogExtent { first, last, complete, unknown }), entries }
    }

    /// The records of interest between the first and the last, whose texts are left out.
    fn kept(&self) -> String {
        let bare = |line: &str| line.split(';').next().map(|head| format!("{head};")).unwrap_or_default();
        let mut lines = self.raw.clone();
        if lines.first() != Some(&self.first) {
            lines.insert(0, bare(&self.first));
        }
        if lines.last() != Some(&self.last) {
            lines.push(bare(&self.last));
        }
        lines.retain(|line| !line.is_empty());
        let mut text = lines.join("\n");
        text.push('\n');
        text
    }
}

/// The newest entries within the bounds, and the last record of a known form that was left out.
fn newest(entries: Vec<LogEntry>) -> (Vec<LogEntry>, Option<u64>) {
    let (mut known, mut unknown, mut lost) = (0, 0, None);
    let mut kept: Vec<LogEntry> = Vec::with_capacity(entries.len().min(MOST_ENTRIES));
    for entry in entries.into_iter().rev() {
        let (count, bound) = match entry.kind {
            LogKind::Unknown => (&mut unknown, MOST_UNKNOWN),
            _ => (&mut known, MOST_ENTRIES - MOST_UNKNOWN),
        };
        if *count < bound {
            *count += 1;
            kept.push(entry);
        } else if entry.kind != LogKind::Unknown {
            lost = lost.max(Some(entry.sequence));
        }
    }
    kept.reverse();
    (kept, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(text: &str) -> KernelLog {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        std::fs::write(folder.path().join("dev/kmsg"), text).unwrap();
        let root = Root::recording(folder.path());
        let log = kernel_log(&root);
        let again = tempfile::tempdir().unwrap();
        std::fs::create_dir(again.path().join("dev")).unwrap();
        let Some(Trace::File(kept)) = root.recorded().remove("dev/kmsg") else { panic!("the log was not remembered") };
        std::fs::write(again.path().join("dev/kmsg"), kept).unwrap();
        assert_eq!(kernel_log(&Root::new(again.path())), log, "what a recording keeps reads the same");
        log
    }

    #[test]
    fn a_log_with_its_first_record_is_complete() {
        let log = log_of(
            "5,0,0,-;Linux version 5.15.0\n6,1,10,-;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=c1\n\
             4,2,1234567,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n6,3,2000000,-;eth0: up\n",
        );
        assert_eq!(log.state, Reading::Value(LogExtent { first: 0, last: 3, complete: true, unknown: 0 }));
        assert_eq!(log.entries.len(), 1);
        assert_eq!((log.entries[0].sequence, log.entries[0].microseconds), (2, 1_234_567));
    }

    #[test]
    fn a_log_without_its_first_record_may_have_lost_an_xid() {
        let log = log_of("6,700,10,-;x\n4,701,11,-;NVRM: never seen\n");
        assert_eq!(log.state, Reading::Value(LogExtent { first: 700, last: 701, complete: false, unknown: 1 }));
    }

    #[test]
    fn a_log_is_whole_only_behind_its_last_hole() {
        let mut reader = Reader::default();
        reader.record("5,0,0,-;Linux");
        reader.hole = true;
        reader.record("6,40,1,-;after a flood");
        reader.record("6,41,1,-;and on");
        let extent = LogExtent { first: 40, last: 41, complete: false, unknown: 0 };
        assert_eq!(reader.log().state, Reading::Value(extent));
        let mut reader = Reader::default();
        reader.record("5,0,0,-;Linux");
        reader.record("no record");
        let extent = LogExtent { first: 1, last: 0, complete: false, unknown: 0 };
        assert_eq!(reader.log().state, Reading::Value(extent));
    }

    #[test]
    fn a_log_of_no_records_is_garbled_and_an_absent_one_unsupported() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(kernel_log(&Root::new(folder.path())).state, Reading::Unsupported);
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        for text in ["", "[    0.000000] Linux version 5.15.0\n"] {
            std::fs::write(folder.path().join("dev/kmsg"), text).unwrap();
            assert_eq!(kernel_log(&Root::new(folder.path())).state, Reading::Failed(Code::GARBLED), "{text}");
        }
    }

    #[test]
    fn a_flood_of_unknown_lines_cannot_push_out_an_xid() {
        let mut text = "5,0,0,-;Linux\n4,1,1,-;NVRM: Xid (PCI:0000:1b:00): 48, DBE\n".to_owned();
        for sequence in 2..5000 {
            text.push_str(&format!("4,{sequence},1,-;NVRM: noise\n"));
        }
        let log = log_of(&text);
        assert_eq!(log.entries.len(), MOST_UNKNOWN + 1);
        assert!(matches!(log.entries[0].kind, LogKind::Xid { code: 48, .. }));
        assert_eq!(log.state, Reading::Value(LogExtent { first: 0, last: 4999, complete: true, unknown: 4998 }));
    }

    #[test]
    fn when_known_entries_had_to_be_left_out_the_log_is_not_complete() {
        let mut text = "5,0,0,-;Linux\n".to_owned();
        for sequence in 1..3000 {
            text.push_str(&format!("4,{sequence},1,-;NVRM: Xid (PCI:0000:1b:00): 31, MMU\n"));
        }
        let log = log_of(&text);
        assert_eq!(log.entries.len(), MOST_ENTRIES - MOST_UNKNOWN);
        assert_eq!(log.entries.last().map(|entry| entry.sequence), Some(2999));
        let extent = log.state.value().unwrap();
        assert!(!extent.complete);
        assert_eq!(extent.first, log.entries[0].sequence, "it is whole from the first entry that is kept");
    }
}
