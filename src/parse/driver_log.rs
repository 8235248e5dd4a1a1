//! What the NVIDIA driver and the PCIe error reporting say in the kernel log.
//!
//! The forms are facts from NVIDIA's Xid catalogue and from public reports (open issues of
//! open-gpu-kernel-modules, NVSentinel #155, Bumblebee #554). A form that is not known is
//! counted and kept as such: silence about a line that we cannot read would be a guess.

use crate::facts::host::{LogEntry, LogKind};
use crate::ident::BusId;
use crate::parse::kmsg::Record;

/// Driver lines that say nothing of a fault: banners, and the later lines of a message whose first line was read.
const HARMLESS: &[&str] = &[
    "loading NVIDIA UNIX",
    "GPU at PCI:",
    "GPU Board Serial Number:",
    "This can occur when a driver such as",
    "this kernel module has the version",
    "make sure that this kernel module",
    "components have the same version",
    "responding to commands.",
];

/// Reads records one after another; a message may span several.
#[derive(Debug, Default)]
pub struct DriverLog {
    /// What was read, oldest first.
    pub entries: Vec<LogEntry>,
    /// Driver lines in no known form; each also stands in `entries`.
    pub unknown: u32,
    /// The GPU that the last `The NVIDIA GPU …` line named, for the lines that go on from it.
    named: Option<BusId>,
    /// Whether the last line was an API mismatch without the client's version.
    mismatch_open: bool,
}

impl DriverLog {
    /// Takes one record; only the kernel's own are believed.
    pub fn read(&mut self, record: &Record) {
        if !record.is_of_kernel() {
            return;
        }
        for line in &record.lines {
            if let Some(kind) = self.kind(line) {
                if kind == LogKind::Unknown {
                    self.unknown += 1;
                }
                self.entries.push(LogEntry {
                    sequence: record.sequence,
                    microseconds: record.microseconds,
                    kind,
                    text: line.clone(),
                });
            }
        }
    }

    /// The entry that this line makes, if any.
    fn kind(&mut self, line: &str) -> Option<LogKind> {
        let line = without_prefix(line);
        match line.trim_start().strip_prefix("NVRM:") {
            Some(message) => self.driver_line(message.trim()),
            None => switch_line(line).or_else(|| aer_line(line)),
        }
    }

    fn driver_line(&mut self, message: &str) -> Option<LogKind> {
        let named = self.named.take();
        let mismatch_open = std::mem::take(&mut self.mismatch_open);
        if let Some(rest) = message.strip_prefix("Xid (") {
            return Some(numbered(rest).map_or(LogKind::Unknown, |(code, bus_id)| LogKind::Xid { code, bus_id }));
        }
        if message.contains("fallen off the bus") {
            return Some(LogKind::FallenOffBus { bus_id: address_in(message).or(named) });
        }
        if message.contains("RmInitAdapter failed") || message.contains("rm_init_adapter failed") {
            return Some(LogKind::AdapterFailed { bus_id: address_in(message) });
        }
        if message.starts_with("API mismatch:") {
            let client = version_in(message);
            self.mismatch_open = client.is_none();
            return Some(LogKind::ApiMismatch { client: client.unwrap_or_default() });
        }
        if mismatch_open && let Some(client) = version_in(message) {
            self.complete_mismatch(client);
            return None;
        }
        let goes_on = message.starts_with("(PCI ID:") || message == "installed in this system has";
        if message.starts_with("The NVIDIA GPU") || (goes_on && named.is_some()) {
            self.named = address_in(message).or(named);
            return None;
        }
        if HARMLESS.iter().any(|start| message.starts_with(start)) { None } else { Some(LogKind::Unknown) }
    }

    /// Later drivers name the client's process on the first line and its version on the next.
    fn complete_mismatch(&mut self, version: String) {
        if let Some(LogEntry { kind: LogKind::ApiMismatch { client }, .. }) = self.entries.last_mut() {
            *client = version;
        }
    }
}

/// Whether a raw line may concern the driver, NVSwitch or a PCIe error; what a capture keeps of a log.
pub fn is_of_interest(line: &str) -> bool {
    ["NVRM", "nvidia", "AER:", "PCIe Bus Error"].iter().any(|word| line.contains(word))
}

/// The line without what a log daemon, `dmesg` or the journal put in front of it.
fn without_prefix(line: &str) -> &str {
    let mut rest = line.trim_start();
    if let Some(at) = rest.find("kernel: ").filter(|at| *at < 80 && !rest[..*at].contains("NVRM")) {
        rest = &rest[at + "kernel: ".len()..];
    }
    while let Some((_, tail)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        rest = tail.trim_start();
    }
    rest
}

/// `nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, …`
fn switch_line(line: &str) -> Option<LogKind> {
    let (_, message) = line.strip_prefix("nvidia-nvswitch")?.split_once(':')?;
    let rest = message.trim_start().strip_prefix("SXid (")?;
    Some(numbered(rest).map_or(LogKind::Unknown, |(code, bus_id)| LogKind::SXid { code, bus_id }))
}

/// `PCI:0000:9b:00): 119, …` after the opening bracket: the code, and the address if it reads as one.
/// With MIG the bracket also names the instance, after a space.
fn numbered(rest: &str) -> Option<(u32, Option<BusId>)> {
    let (place, rest) = rest.split_once(')')?;
    let place = place.split_whitespace().next().unwrap_or_default();
    let bus_id = place.strip_prefix("PCI:").unwrap_or(place).parse().ok();
    let rest = rest.strip_prefix(':')?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((rest[..end].parse().ok()?, bus_id))
}

/// An AER report: the port's line, or the device's own `PCIe Bus Error`.
fn aer_line(line: &str) -> Option<LogKind> {
    let (head, message) = match line.split_once(" AER: ") {
        Some(parts) => parts,
        None => line.split_once(" PCIe Bus Error: ")?,
    };
    let device = head.trim_end_matches(':').split_whitespace().last().and_then(|word| word.parse().ok());
    let (what, place) = match message.split_once("received") {
        Some((what, place)) => (what, address_in(place)),
        None => (message.strip_prefix("PCIe Bus Error: ").unwrap_or(message).strip_prefix("severity=")?, None),
    };
    Some(LogKind::Aer { severity: severity(what)?, bus_id: place.or(device) })
}

/// `corrected`, `nonfatal` or `fatal`, in the kernel's older and newer words.
fn severity(text: &str) -> Option<String> {
    let text = text.split(", ").next().unwrap_or_default();
    let name = if text.contains("Non-Fatal") {
        "nonfatal"
    } else if text.contains("Fatal") {
        "fatal"
    } else if text.contains("Correct") && !text.contains("Uncorrect") {
        "corrected"
    } else {
        return None;
    };
    Some(name.to_owned())
}

/// The first PCI address with domain in a line.
fn address_in(text: &str) -> Option<BusId> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';'));
    let words = words.map(|word| word.trim_start_matches("PCI:").trim_end_matches([':', '.']));
    words.filter(|word| word.matches(':').count() == 2).find_map(|word| word.parse().ok())
}

/// The first version after `has the version`.
fn version_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("has the version")?;
    let version: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == '.').take(40).collect();
    let version = version.trim_end_matches('.');
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(lines: &[&str]) -> (Vec<LogKind>, u32) {
        let mut log = DriverLog::default();
        for (sequence, line) in (0..).zip(lines) {
            let lines = line.split('\n').map(str::to_owned).collect();
            log.read(&Record { priority: 4, sequence, microseconds: 0, lines });
        }
        (log.entries.into_iter().map(|entry| entry.kind).collect(), log.unknown)
    }

    fn one(line: &str) -> Option<LogKind> {
        kinds(&[line]).0.pop()
    }

    fn at(text: &str) -> Option<BusId> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn an_xid_reads_in_every_form_and_behind_every_prefix() {
        let gpu = at("0000:9b:00.0");
        for (line, code) in [
            ("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", 79),
            ("NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79),
            ("NVRM: Xid (PCI:0000:9b:00.0): 119, pid=2, name=nvidia-smi, Timeout after 6s of waiting for RPC", 119),
            ("NVRM: Xid (0000:9b:00): 59, 0095(2af0) 0000000f 00000000", 59),
            ("NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7, Contained: CE User Channel (0x9). RST: No", 94),
            ("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 154, GPU recovery action changed", 154),
            ("[  123.456789] NVRM: Xid (PCI:0000:9b:00): 63, Row Remapper: New row marked for remapping", 63),
            ("Mar  3 04:27:08 r12-u07 kernel: [ 12.3] NVRM: Xid (PCI:0000:9b:00): 48, DBE", 48),
            ("[T1234] [ 1.2] NVRM: Xid (PCI:0000:9b:00): 145", 145),
        ] {
            assert_eq!(one(line), Some(LogKind::Xid { code, bus_id: gpu }), "{line}");
        }
        let strange = "NVRM: Xid (PCI:nowhere): 13, x";
        assert_eq!(one(strange), Some(LogKind::Xid { code: 13, bus_id: None }));
    }

    #[test]
    fn a_switch_error_is_not_a_gpu_error() {
        let line = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)";
        assert_eq!(one(line), Some(LogKind::SXid { code: 28006, bus_id: at("0000:c1:00.0") }));
        assert_eq!(one("nvidia-nvswitch3: open (major=510)"), None);
    }

    #[test]
    fn a_gpu_that_falls_off_the_bus_without_xid_is_named_over_several_lines() {
        let fallen = vec![LogKind::FallenOffBus { bus_id: at("0000:b3:00.0") }];
        for lines in [
            &[
                "NVRM: The NVIDIA GPU 0000:b3:00.0",
                "NVRM: (PCI ID: 10de:26b5) installed in this system has",
                "NVRM: fallen off the bus and is not responding to commands.",
            ][..],
            &[
                "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.",
            ],
            &[
                "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is not responding to commands.",
            ],
            &[
                "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:2330)",
                "NVRM: installed in this system has",
                "NVRM: fallen off the bus and is not",
                "NVRM: responding to commands.",
            ],
            &["NVRM: GPU at 0000:b3:00.0 has fallen off the bus."],
            &["NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."],
            &["NVRM: GPU at PCI:0000:b3:00: has fallen off the bus."],
        ] {
            assert_eq!(kinds(lines), (fallen.clone(), 0), "{lines:?}");
        }
        assert_eq!(one("NVRM: fallen off the bus and is not"), Some(LogKind::FallenOffBus { bus_id: None }));
    }

    #[test]
    fn an_adapter_that_never_came_up_is_named() {
        let failed = LogKind::AdapterFailed { bus_id: at("0000:01:00.0") };
        assert_eq!(one("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x65:1568)"), Some(failed.clone()));
        assert_eq!(one("NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0"), Some(failed));
        assert_eq!(one("NVRM: RmInitAdapter failed! (0x26:0xff:1290)"), Some(LogKind::AdapterFailed { bus_id: None }));
    }

    #[test]
    fn an_api_mismatch_gives_the_version_of_the_client() {
        let old = [
            "NVRM: API mismatch: the client has the version 535.247.01, but",
            "NVRM: this kernel module has the version 535.230.02.  Please",
            "NVRM: make sure that this kernel module and all NVIDIA driver",
            "NVRM: components have the same version.",
        ];
        assert_eq!(kinds(&old), (vec![LogKind::ApiMismatch { client: "535.247.01".into() }], 0));
        let new = [
            "NVRM: API mismatch: the client 'nvidia-smi' (pid 42)",
            "NVRM: has the version 595.84, but this kernel module has the version 595.71.05.",
        ];
        assert_eq!(kinds(&new), (vec![LogKind::ApiMismatch { client: "595.84".into() }], 0));
    }

    #[test]
    fn a_pcie_error_report_gives_severity_and_the_device_that_erred() {
        let aer = |severity: &str, bus_id| Some(LogKind::Aer { severity: severity.into(), bus_id: at(bus_id) });
        for (line, wanted) in [
            ("pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0", aer("corrected", "0000:01:00.0")),
            (
                "pcieport 0000:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:01:00.0",
                aer("nonfatal", "0000:01:00.0"),
            ),
            (
                "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:00:01.0",
                aer("fatal", "0000:00:01.0"),
            ),
            (
                "pcieport 0000:00:01.0: AER: Correctable error message received from 0000:01:00.0",
                aer("corrected", "0000:01:00.0"),
            ),
            (
                "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
                aer("corrected", "0000:01:00.0"),
            ),
            (
                "nvidia 0000:01:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
                aer("fatal", "0000:01:00.0"),
            ),
            ("pcieport 0000:00:01.0: AER: enabled with IRQ 30", None),
        ] {
            assert_eq!(one(line), wanted, "{line}");
        }
    }

    #[test]
    fn a_driver_line_in_no_known_form_is_counted_and_kept() {
        let (kinds, unknown) = kinds(&[
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03",
            "NVRM: something that nobody has seen before",
            "NVRM: Xid (PCI:0000:9b:00): many",
            "usb 1-1: new device",
        ]);
        assert_eq!((kinds, unknown), (vec![LogKind::Unknown, LogKind::Unknown], 2));
    }

    #[test]
    fn a_name_in_another_line_cannot_forge_a_driver_message() {
        assert_eq!(one("traps: NVRM: Xid (PCI[7] trap divide error"), None);
        let (kinds, _) = kinds(&["foo NVRM: Xid (PCI:0000:9b:00): 79, x"]);
        assert_eq!(kinds, []);
    }

    #[test]
    fn truncated_messages_never_panic() {
        let whole = "NVRM: Xid (PCI:0000:9b:00): 119, pid=1, ü";
        for end in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
            one(&whole[..end]);
        }
        for line in [
            "NVRM:",
            "[",
            "[]",
            "kernel: ",
            "nvidia-nvswitch",
            " AER: ",
            "x: AER: received",
            "PCIe Bus Error: severity=",
        ] {
            one(line);
        }
    }
}
