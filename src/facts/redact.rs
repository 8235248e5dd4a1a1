//! Consistent pseudonyms for what identifies a host, so that a capture can be given away.
//!
//! The same original always becomes the same pseudonym of the same shape: two GPUs that share a
//! serial still share one. Serials and names are learned from where they stand and then replaced
//! wherever else they occur; UUIDs, MAC addresses and 32-digit ids are known by their form.

use std::collections::BTreeMap;

use serde_json::Value;

use super::answer::{Answer, Answers, Question};

/// Answers whose text identifies: function, and the field within a struct.
const IDENTITIES: &[(&str, Option<&str>)] = &[
    ("nvmlDeviceGetSerial", None),
    ("nvmlDeviceGetPlatformInfo", Some("chassisSerialNumber")),
    ("nvmlDeviceGetGpuFabricInfoV", Some("clusterUuid")),
];

/// Files whose whole text identifies, below the root folder.
const IDENTITY_FILES: &[&str] =
    &["proc/sys/kernel/hostname", "etc/hostname", "etc/machine-id", "proc/sys/kernel/random/boot_id"];
/// DMI attributes that identify (`/sys/class/dmi/id`, wherever its link leads).
const IDENTITY_ATTRIBUTES: &[&str] =
    &["product_serial", "product_uuid", "board_serial", "chassis_serial", "product_asset_tag", "chassis_asset_tag"];

/// Values that are no identity and that a host identity must still see as what they are.
const PLACEHOLDERS: &[&str] = &[
    "",
    "0",
    "n/a",
    "none",
    "default string",
    "to be filled by o.e.m.",
    "not specified",
    "system serial number",
    "unknown",
];

/// Kernel parameters whose values say how the hardware is used; the values of all others are left out.
const PARAMETERS: &[&str] = &[
    "nvidia",
    "nouveau",
    "pci",
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "modprobe.blacklist",
    "rd.driver.blacklist",
    "numa",
    "isolcpus",
    "nohz_full",
    "hugepages",
    "hugepagesz",
    "default_hugepagesz",
    "init_on_alloc",
    "mitigations",
    "console",
    "quiet",
    "ro",
    "rw",
    "splash",
    "nomodeset",
    "processor.max_cstate",
    "intel_idle.max_cstate",
];

/// Shortest learned text that is replaced wherever it occurs; a shorter one would hit other words.
const SHORTEST: usize = 6;

/// The pseudonyms given so far.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    learned: BTreeMap<String, String>,
    count: u64,
}

impl Redactor {
    /// Learns what identifies, from all answers and files, before anything is replaced.
    pub fn learn(&mut self, answers: &Answers, files: impl Iterator<Item = (String, String)>) {
        for (question, answer) in answers.iter() {
            for (_, field) in IDENTITIES.iter().filter(|(function, _)| *function == question.function) {
                let Answer::Value { v } = answer else { continue };
                let text = field.map_or(v, |field| &v[field]).as_str().unwrap_or_default();
                self.pseudonym(text);
            }
        }
        for (_, text) in files.filter(|(path, _)| is_identity(path)) {
            self.pseudonym(text.trim());
        }
    }

    /// The answer with every identity in it replaced.
    pub fn answer(&mut self, question: &Question, answer: &Answer) -> Answer {
        match answer {
            Answer::Value { v } => Answer::Value { v: self.value(&question.function, v) },
            Answer::Refused { rc } => Answer::Refused { rc: *rc },
        }
    }

    /// The text of a file with every identity in it replaced.
    pub fn file(&mut self, path: &str, text: &str) -> String {
        if is_identity(path) {
            let trimmed = text.trim();
            return text.replacen(trimmed, &self.pseudonym(trimmed), 1);
        }
        let text = match path {
            "proc/cmdline" => command_line(text),
            "dev/kmsg" => text.lines().map(|line| without_process_name(line) + "\n").collect(),
            _ => text.to_owned(),
        };
        self.text(&text)
    }

    /// Any text, a path too, with every identity in it replaced.
    pub fn text(&mut self, text: &str) -> String {
        let mut redacted = text.to_owned();
        // Longest first, so that a serial within another does not cut it up.
        let mut learned: Vec<(String, String)> = self.learned.clone().into_iter().collect();
        learned.sort_by_key(|(original, _)| std::cmp::Reverse(original.len()));
        for (original, pseudonym) in learned.iter().filter(|(original, _)| original.len() >= SHORTEST) {
            redacted = replace_words(&redacted, original, pseudonym);
        }
        self.forms(&redacted)
    }

    fn value(&mut self, function: &str, value: &Value) -> Value {
        let whole = IDENTITIES.iter().any(|(name, field)| *name == function && field.is_none());
        match value {
            Value::String(text) if whole => Value::String(self.pseudonym(text)),
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.value(function, item)).collect()),
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| {
                    let identity = IDENTITIES.iter().any(|(f, n)| *f == function && *n == Some(name.as_str()));
                    let value = match value {
                        Value::String(text) if identity => Value::String(self.pseudonym(text)),
                        other => self.value(function, other),
                    };
                    (name.clone(), value)
                };
                Value::Object(fields.iter().map(field).collect())
            }
            other => other.clone(),
        }
    }

    /// The pseudonym of one identity; placeholders and all zeros stay.
    fn pseudonym(&mut self, original: &str) -> String {
        if is_placeholder(original) {
            return original.to_owned();
        }
        if let Some(known) = self.learned.get(original).or_else(|| self.learned.get(&original.to_lowercase())) {
            return known.clone();
        }
        if self.learned.values().any(|pseudonym| pseudonym == original) {
            return original.to_owned();
        }
        self.count += 1;
        let pseudonym = shaped(original, self.count);
        self.learned.insert(original.to_owned(), pseudonym.clone());
        pseudonym
    }

    /// Replaces what its form gives away: UUIDs, MAC addresses, 32 hexadecimal digits.
    fn forms(&mut self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let word_starts = !redacted.ends_with(|c: char| c.is_ascii_alphanumeric());
            let length = if word_starts { form_length(rest) } else { None };
            match length {
                Some(length) => {
                    redacted.push_str(&self.pseudonym(&rest[..length]));
                    rest = &rest[length..];
                }
                None => {
                    redacted.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        redacted
    }
}

/// Whether a serial or id is what a factory leaves where it enters none.
pub fn is_placeholder(text: &str) -> bool {
    PLACEHOLDERS.contains(&text.to_lowercase().as_str()) || text.bytes().all(|b| matches!(b, b'0' | b'-'))
}

fn is_identity(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    IDENTITY_FILES.contains(&path) || (path.contains("/dmi/id/") && IDENTITY_ATTRIBUTES.contains(&name))
}

/// Separators of a form with the lengths of the hexadecimal groups between them.
const FORMS: &[(char, &[usize])] = &[('-', &[8, 4, 4, 4, 12]), (':', &[2, 2, 2, 2, 2, 2]), (' ', &[32])];

/// The length of the UUID, MAC address or id that the text begins with, or of an interface named after a MAC address.
fn form_length(text: &str) -> Option<usize> {
    if let Some(digits) = text.strip_prefix("enx").and_then(|rest| rest.get(..12)) {
        return digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some("enx".len() + 12);
    }
    FORMS.iter().find_map(|(separator, groups)| {
        let mut rest = text;
        for (position, length) in groups.iter().enumerate() {
            if position > 0 {
                rest = rest.strip_prefix(*separator)?;
            }
            let group = rest.get(..*length)?;
            if !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            rest = &rest[*length..];
        }
        let ends = !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == *separator);
        ends.then(|| text.len() - rest.len())
    })
}

/// A pseudonym of the same shape and length: the number in hexadecimal or decimal digits, and for
/// names a word before it.
fn shaped(original: &str, number: u64) -> String {
    let length = original.len();
    let form = form_length(original) == Some(length);
    if form && original.starts_with("enx") {
        return format!("enx02{number:010x}");
    }
    if form && original.contains(':') {
        let digits = format!("02{number:010x}");
        return (0..6).map(|pair| &digits[pair * 2..pair * 2 + 2]).collect::<Vec<_>>().join(":");
    }
    if form && original.contains('-') {
        return format!("00000000-0000-4000-8000-{number:012x}");
    }
    if form {
        return format!("4{number:031x}");
    }
    if original.bytes().all(|b| b.is_ascii_digit()) {
        return format!("9{number:0width$}", width = length.saturating_sub(1).max(5));
    }
    format!("X{number:0width$}", width = length.clamp(8, 20) - 1)
}

/// Replaces `original` where it stands as a word of its own.
fn replace_words(text: &str, original: &str, pseudonym: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(original) {
        let end = at + original.len();
        let inside = |c: char| c.is_ascii_alphanumeric();
        let alone = !rest[..at].ends_with(inside) && !rest[end..].starts_with(inside);
        replaced.push_str(&rest[..at]);
        replaced.push_str(if alone { pseudonym } else { original });
        rest = &rest[end..];
    }
    replaced.push_str(rest);
    replaced
}

/// The kernel's command line with the values of parameters that are not about hardware left out.
fn command_line(text: &str) -> String {
    let word = |word: &str| match word.split_once('=') {
        Some((name, _)) if !is_about_hardware(name) => format!("{name}=redacted"),
        _ => word.to_owned(),
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ") + "\n"
}

/// A parameter by its name or by its module's, `nouveau.modeset`; all of NVIDIA's modules and PCIe's.
fn is_about_hardware(name: &str) -> bool {
    let module = name.split('.').next().unwrap_or_default();
    let known = PARAMETERS.iter().any(|known| *known == name || *known == module);
    known || module.starts_with("nvidia") || module.starts_with("pcie_")
}

/// A log line without the name of the process that an Xid was charged to.
fn without_process_name(line: &str) -> String {
    match line.split_once(", name=") {
        Some((head, tail)) => {
            let rest = tail.find(',').map_or("", |at| &tail[at..]);
            format!("{head}, name=redacted{rest}")
        }
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Code;

    const UUID: &str = "3f0c1d2e-1111-2222-3333-444455556666";

    fn redactor() -> Redactor {
        let answers: Answers = [
            (Question::new("nvmlDeviceGetSerial", &[0]), Answer::value("1650523009012")),
            (Question::new("nvmlDeviceGetSerial", &[1]), Answer::value("1650523009012")),
        ]
        .into_iter()
        .collect();
        let files = [
            ("proc/sys/kernel/hostname", "gpu-r12-u07\n"),
            ("sys/devices/virtual/dmi/id/product_serial", "S123ABC\n"),
            ("etc/os-release", "ID=ubuntu\n"),
        ];
        let mut redactor = Redactor::default();
        redactor.learn(&answers, files.map(|(path, text)| (path.to_owned(), text.to_owned())).into_iter());
        redactor
    }

    #[test]
    fn the_same_identity_gets_the_same_pseudonym_everywhere() {
        let mut redactor = redactor();
        let serial = Answer::value("1650523009012");
        let first = redactor.answer(&Question::new("nvmlDeviceGetSerial", &[0]), &serial);
        assert_eq!(first, redactor.answer(&Question::new("nvmlDeviceGetSerial", &[1]), &serial));
        let Answer::Value { v: Value::String(pseudonym) } = first else { panic!("no text") };
        assert_eq!(pseudonym.len(), 13);
        assert_ne!(pseudonym, "1650523009012");
        let log = redactor.file("dev/kmsg", "6,1,2,-;NVRM: GPU Board Serial Number: 1650523009012\n");
        assert_eq!(log, format!("6,1,2,-;NVRM: GPU Board Serial Number: {pseudonym}\n"));
    }

    #[test]
    fn uuids_macs_and_ids_are_known_by_their_form() {
        let mut redactor = redactor();
        let gpu = redactor.text(&format!("GPU-{UUID}"));
        assert!(gpu.starts_with("GPU-00000000-0000-4000-8000-") && gpu.len() == 40, "{gpu}");
        assert_eq!(redactor.text(&format!("at GPU-{UUID}, again")), format!("at {gpu}, again"));
        assert_eq!(redactor.text(&gpu), gpu, "a pseudonym stays what it is");
        let mac = redactor.text("link a0:b1:c2:d3:e4:f5 up");
        assert!(mac.starts_with("link 02:00:") && mac.ends_with(" up"), "{mac}");
        let interface = redactor.text("sys/class/net/enxa0b1c2d3e4f5/device");
        assert!(interface.starts_with("sys/class/net/enx02000000") && interface.ends_with("/device"), "{interface}");
        let id = redactor.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        assert!(id.len() == 33 && !id.contains("0123456789abcdef"), "{id}");
    }

    #[test]
    fn addresses_versions_and_placeholders_stay() {
        let mut redactor = redactor();
        for text in
            ["0000:1b:00.0", "00000000:1B:00.0", "580.105.08", "96.00.74.00.0D", "Default string", "0-63,128-191"]
        {
            assert_eq!(redactor.text(text), text);
        }
        let placeholder = redactor.file("sys/devices/virtual/dmi/id/board_serial", "To be filled by O.E.M.\n");
        assert_eq!(placeholder, "To be filled by O.E.M.\n");
        let none = redactor.text("00000000-0000-0000-0000-000000000000");
        assert_eq!(none, "00000000-0000-0000-0000-000000000000");
        let refused = Answer::refused(Code::NOT_SUPPORTED);
        assert_eq!(redactor.answer(&Question::new("nvmlDeviceGetSerial", &[0]), &refused), refused);
    }

    #[test]
    fn the_host_name_goes_from_files_and_log_but_only_as_a_word() {
        let mut redactor = redactor();
        let name = redactor.file("proc/sys/kernel/hostname", "gpu-r12-u07\n");
        assert!(!name.contains("gpu-r12-u07"), "{name}");
        assert_eq!(redactor.text("set gpu-r12-u07."), format!("set {}.", name.trim()));
        assert_eq!(redactor.text("gpu-r12-u070"), "gpu-r12-u070");
    }

    #[test]
    fn the_command_line_keeps_what_is_about_hardware() {
        let line =
            "BOOT_IMAGE=/vmlinuz root=UUID=abc ks=http://u:p@h/ intel_iommu=on nvidia.NVreg_X=1 pci=realloc quiet\n";
        let kept = redactor().file("proc/cmdline", line);
        assert_eq!(
            kept,
            "BOOT_IMAGE=redacted root=redacted ks=redacted intel_iommu=on nvidia.NVreg_X=1 pci=realloc quiet\n"
        );
    }

    #[test]
    fn a_process_name_in_an_xid_is_left_out() {
        let line = "4,1,2,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=secret-model, MMU Fault\n";
        let kept = redactor().file("dev/kmsg", line);
        assert_eq!(kept, "4,1,2,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=redacted, MMU Fault\n");
    }

    #[test]
    fn fields_of_structs_are_replaced_by_name() {
        let question = Question::new("nvmlDeviceGetPlatformInfo", &[0]);
        let answer = Answer::value(serde_json::json!({"chassisSerialNumber": "CH42", "slotNumber": 3}));
        let Answer::Value { v } = redactor().answer(&question, &answer) else { panic!("no value") };
        assert_ne!(v["chassisSerialNumber"], "CH42");
        assert_eq!(v["slotNumber"], 3);
    }
}
