#![doc = include_str!("gpu_inventory.md")]

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::look::{Held, Look, expected_gpus};
use super::{Check, Context, LONGEST_CLOSING, session};
use crate::facts::host::{LogEntry, LogKind};
use crate::facts::{Gpu, Snapshot};
use crate::ident::{BusId, PciModel, Subject};
use crate::outcome::{Action, Finding, Grade, Judgement, Outcome, blame};
use crate::reading::{Code, Reading};
use crate::units::Bytes;

/// What a class may ask of the set of GPUs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GpuInventory {
    pub count: Count,
    /// Models that may stand in this host; none named: any.
    #[serde(default)]
    pub models: Vec<PciModel>,
    /// Sizes of memory that they may have; none named: any.
    #[serde(default)]
    pub memory: Vec<Bytes>,
    /// How far the memory may be from such a size; absent: not at all.
    pub memory_tolerance: Option<Bytes>,
    /// Versions that are pinned; absent: any.
    pub vbios: Option<Vec<String>>,
    pub inforom: Option<Vec<String>>,
    pub serials: Serials,
}

/// How many GPUs: a number, or a range with both ends in it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Count {
    Exactly(usize),
    Between(Range),
}

/// Both ends belong to it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub min: usize,
    pub max: usize,
}

/// What is asked of serial numbers. GeForce boards have none; the two GPUs of a Grace module
/// share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serials {
    Required,
    Ignored,
}

impl Check for GpuInventory {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        self.judge(context.opening)
    }
}

impl Count {
    fn range(self) -> (usize, usize) {
        match self {
            Count::Exactly(count) => (count, count),
            Count::Between(Range { min, max }) => (min, max),
        }
    }

    fn words(self) -> String {
        match self.range() {
            (min, max) if min == max => min.to_string(),
            (min, max) => format!("{min} to {max}"),
        }
    }
}

/// The driver's GPUs by the address at which they stand, as far as that is known.
struct Roster<'a> {
    named: BTreeMap<BusId, &'a Gpu>,
    /// GPUs that no longer tell their address, matched to it because no other is left over.
    matched: BTreeMap<BusId, &'a Gpu>,
    /// GPUs that could stand at more than one address.
    unmatched: Vec<&'a Gpu>,
}

impl GpuInventory {
    /// Judges the set of GPUs and then each of them.
    pub fn judge(&self, facts: &Snapshot) -> Outcome {
        if let Some(blind) = blind(facts) {
            return blind;
        }
        let roster = roster(facts);
        let present = expected_gpus(facts);
        let absent = self.absent(facts, present.len());
        let subjects = present.iter().map(|bus_id| Subject::gpu(*bus_id)).chain(absent.iter().cloned());
        let mut judgement = Judgement::expecting(subjects.collect::<Vec<_>>());
        if let Some(silent) = session::silent(facts).filter(|_| absent.is_empty()) {
            return silent;
        }
        self.judge_count(facts, &absent, &roster, &mut judgement);
        // Without a driver the bus alone was looked at, and no card is blamed for not being in it.
        let looked_at = if facts.driver.is_answering() { &present } else { &BTreeSet::new() };
        for bus_id in looked_at {
            let mut look = Look::at(&mut judgement, Subject::gpu(*bus_id));
            self.judge_address(facts, *bus_id, &roster, &mut look);
            look.end();
        }
        judge_duplicates("uuid", &uuids(&roster), &mut judgement);
        if self.serials == Serials::Required {
            judge_duplicates("serial", &serials(&roster), &mut judgement);
        }
        judgement.close(&self.closing(facts, present.len()))
    }

    /// `8 of 8 GPUs, NVIDIA H100 80GB HBM3`; the vendor's name and then the end of the line give
    /// way where a screen has no room. The inventory of the record has the names in full.
    fn closing(&self, facts: &Snapshot, present: usize) -> String {
        let models = facts.gpus.iter().filter_map(|gpu| gpu.name.value()).collect::<BTreeSet<_>>();
        let names = models.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let count = match self.count {
            Count::Exactly(count) => format!("{present} of {count} GPU{}", plural(count)),
            Count::Between(_) => {
                format!("{present} GPU{} (class allows {})", plural(present), self.count.words())
            }
        };
        let whole = if names.is_empty() { count.clone() } else { format!("{count}, {names}") };
        if whole.chars().count() <= LONGEST_CLOSING {
            return whole;
        }
        let short = format!("{count}, {}", names.replace("NVIDIA ", ""));
        if short.chars().count() <= LONGEST_CLOSING {
            return short;
        }
        short.chars().take(LONGEST_CLOSING - 1).chain(['…']).collect()
    }

    /// Who is missing: by the address of the empty slot if just so many slots are empty, else
    /// as the n-th of so many.
    fn absent(&self, facts: &Snapshot, present: usize) -> Vec<Subject> {
        let (min, _) = self.count.range();
        let missing = min.saturating_sub(present);
        let empty = empty_slots(facts);
        if missing > 0 && empty.len() == missing {
            return empty.into_iter().map(Subject::gpu).collect();
        }
        (present + 1..=min).map(|number| Subject::named(&format!("gpu {number} of {min}"))).collect()
    }

    fn judge_count(&self, facts: &Snapshot, absent: &[Subject], roster: &Roster<'_>, judgement: &mut Judgement) {
        let (_, max) = self.count.range();
        let on_bus = facts.gpus_on_bus().len();
        let lost = roster.unmatched.iter().map(|gpu| Some(*gpu)).chain(std::iter::repeat(None));
        for (subject, gpu) in absent.iter().zip(lost) {
            judgement.find(match gpu.map(|gpu| handle_fault(facts, gpu, None, subject)) {
                Some(fault) => fault,
                None if on_bus == 0 && matches!(self.count, Count::Between(_)) => self.none_at_all(subject),
                None => missing(subject, &self.count.words(), on_bus),
            });
        }
        for gpu in roster.unmatched.iter().skip(absent.len()) {
            let subject = Subject::named(&format!("NVML GPU {}", gpu.index));
            judgement.find(handle_fault(facts, gpu, None, &subject));
        }
        if on_bus > max {
            judgement.find(
                Finding::new(Grade::Failed, "gpu-too-many", Subject::host(), "Too many GPUs", Action::Configure)
                    .compared(format!("{} GPUs on the PCI bus", self.count.words()), on_bus)
                    .advise("Take the extra card out, or name the class of this host (nodegate run --class ID)."),
            );
        }
    }

    /// A class of one or more GPUs, and a machine that may never have had one.
    fn none_at_all(&self, subject: &Subject) -> Finding {
        let (min, _) = self.count.range();
        Finding::new(Grade::Failed, "gpu-missing", subject.clone(), "No GPU on the PCI bus", Action::Reseat)
            .compared(format!("at least {min} NVIDIA GPU{} on the PCI bus", plural(min)), "none")
            .advise(
                "If this machine should have GPUs: lspci -d 10de: shows none; check power, risers and BIOS; \
                 in a virtual machine, pass them through.",
            )
    }

    fn judge_address(&self, facts: &Snapshot, bus_id: BusId, roster: &Roster<'_>, look: &mut Look<'_>) {
        let on_bus = facts.host.pci.get(&bus_id).filter(|function| function.is_nvidia_gpu());
        if facts.gpus_with_address().iter().filter(|(address, _)| *address == bus_id).count() > 1 {
            return look.unread(address_twice(look.subject())).unwrap_or(());
        }
        match (on_bus, roster.named.get(&bus_id).or(roster.matched.get(&bus_id))) {
            (_, Some(gpu)) if gpu.handle.value().is_none() => {
                look.unread::<()>(handle_fault(facts, gpu, Some(bus_id), &look.subject()));
            }
            (Some(function), Some(gpu)) if roster.named.contains_key(&bus_id) => {
                if self.judge_model(facts, &function.model, gpu, look) {
                    self.judge_gpu(gpu, look);
                }
            }
            (_, Some(gpu)) if !roster.named.contains_key(&bus_id) => {
                // Given, it reads as no address: else the GPU would have a name.
                if look.require(&gpu.pci, "PCI address").is_some() {
                    look.unread::<()>(blame::unanswered(&look.subject(), "PCI address", Code::GARBLED));
                }
            }
            (Some(_), None) => look.find(not_in_driver(facts, bus_id, look.subject())),
            _ => look.find(
                Finding::new(Grade::Failed, "gpu-not-on-bus", look.subject(), "GPU not on the bus", Action::Reseat)
                    .compared("the GPU in /sys/bus/pci/devices", "only the driver shows it")
                    .advise("Power off, reseat the module or riser, run again; in a container, mount the host's /sys."),
            ),
        }
    }

    /// Whether the GPU is of the right model, so that the class's other numbers are its own.
    fn judge_model(&self, facts: &Snapshot, on_bus: &Reading<PciModel>, gpu: &Gpu, look: &mut Look<'_>) -> bool {
        let Some(model) = look.require(on_bus, "PCI model").copied() else { return false };
        let Some(pci) = look.require(&gpu.pci, "PCI model as the driver gives it") else { return false };
        if pci.model() != model {
            look.unread::<()>(
                Finding::new(
                    Grade::Undecided,
                    "model-disagrees",
                    look.subject(),
                    "Model in doubt",
                    Action::Investigate,
                )
                .compared(format!("{model}, as the bus says"), format!("{}, as the driver says", pci.model()))
                .advise("Reboot and run again; a card that answers as two models is not one to trust."),
            );
        }
        let right = self.models.is_empty() || self.models.contains(&model);
        if !right {
            let advice = if self.fits_none(facts) {
                "Put the right cards in, or name the class of this host (nodegate run --class ID)."
            } else {
                "Put the right card into this slot; run again."
            };
            let name = gpu.name.value().map_or("", String::as_str);
            look.find(
                Finding::new(Grade::Failed, "wrong-model", look.subject(), "Wrong GPU model", Action::Replace)
                    .compared(joined(&self.models), format!("{model} {name}"))
                    .advise(advice),
            );
        }
        right
    }

    /// Whether every GPU is of another model, so that rather the class is the wrong one.
    fn fits_none(&self, facts: &Snapshot) -> bool {
        let mut models = facts.host.pci.values().filter(|function| function.is_nvidia_gpu());
        models.all(|function| function.model.value().is_some_and(|model| !self.models.contains(model)))
    }

    fn judge_gpu(&self, gpu: &Gpu, look: &mut Look<'_>) {
        self.judge_memory(gpu, look);
        look.require(&gpu.uuid, "UUID");
        if self.serials == Serials::Required {
            look.require(&gpu.serial, "serial number");
        }
        judge_pinned("wrong-vbios", "VBIOS", self.vbios.as_deref(), &gpu.vbios, look);
        judge_pinned("wrong-inforom", "InfoROM", self.inforom.as_deref(), &gpu.inforom_image, look);
        if let Some(false) = look.optional(&gpu.inforom_valid, "InfoROM checksum") {
            look.find(blame::unanswered(&look.subject(), "InfoROM checksum", Code::CORRUPTED_INFOROM));
        }
    }

    fn judge_memory(&self, gpu: &Gpu, look: &mut Look<'_>) {
        let Some(memory) = look.require(&gpu.memory, "memory size") else { return };
        let total = memory.total as f64;
        let tolerance = self.memory_tolerance.map_or(0.0, Bytes::number);
        let fits = |size: &&Bytes| (size.number() - total).abs() <= tolerance;
        let number = look.number("gpu-memory", total, "B");
        match self.memory.iter().find(fits) {
            Some(size) => look.measure(number.at_least(size.number() - tolerance).at_most(size.number() + tolerance)),
            None if self.memory.is_empty() => look.measure(number),
            None => {
                look.measure(number);
                let wanted = self.memory.iter().map(|size| mebibytes(size.number())).collect::<Vec<_>>().join(" or ");
                look.find(
                    Finding::new(Grade::Failed, "wrong-memory", look.subject(), "Wrong memory size", Action::Replace)
                        .compared(format!("{wanted}, within {}", mebibytes(tolerance)), mebibytes(total))
                        .advise("Power-cycle and run again; if memory is still missing, replace the GPU."),
                );
            }
        }
    }
}

/// What keeps us from knowing which GPUs there are. No card is missing that was not looked for.
fn blind(facts: &Snapshot) -> Option<Outcome> {
    let unsure = facts.host.pci.iter().filter(|(_, function)| function.may_be_nvidia_gpu());
    let unsure: Vec<_> = unsure.map(|(bus_id, function)| (Subject::gpu(*bus_id), function)).collect();
    let subjects = unsure.iter().map(|(subject, _)| subject.clone()).chain([Subject::host()]);
    let mut judgement = Judgement::expecting(subjects.collect::<Vec<_>>());
    let mut host = Look::at(&mut judgement, Subject::host());
    host.require(&facts.host.pci_listing, "devices on the PCI bus (/sys/bus/pci/devices)");
    if facts.driver.is_answering()
        && let Some(count) = host.require(&facts.driver.device_count, "number of GPUs in the driver").copied()
        && facts.gpus.len() != count as usize
    {
        let finding = blame::unanswered(&Subject::host(), "number of GPUs in the driver", Code::GARBLED);
        host.unread::<()>(
            finding.compared("as many GPUs as the driver counts", format!("{} of {count}", facts.gpus.len())),
        );
    }
    host.end();
    for (subject, function) in unsure {
        let mut look = Look::at(&mut judgement, subject);
        look.require(&function.model, "PCI model");
        look.require(&function.class, "PCI class");
        look.end();
    }
    (!judgement.findings().is_empty()).then(|| judgement.close(""))
}

fn address_twice(subject: Subject) -> Finding {
    Finding::new(Grade::Undecided, "duplicate-address", subject, "Two GPUs at one address", Action::Investigate)
        .compared("an address for each GPU", "the driver shows more than one here")
        .advise("Reboot and run again; if it stays, the driver lies about one of them: reinstall it.")
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / 1_048_576.0)
}

fn joined(models: &[PciModel]) -> String {
    models.iter().map(PciModel::to_string).collect::<Vec<_>>().join(" or ")
}

fn judge_pinned(
    code: &'static str,
    what: &str,
    pinned: Option<&[String]>,
    reading: &Reading<String>,
    look: &mut Look<'_>,
) {
    let Some(pinned) = pinned else {
        // Nobody pins it, but a corrupt InfoROM may show here first (NVML 14).
        if reading.failure() == Some(Code::CORRUPTED_INFOROM) {
            look.find(blame::unanswered(&look.subject(), what, Code::CORRUPTED_INFOROM));
        }
        return;
    };
    let Some(version) = look.require(reading, &format!("{what} version")) else { return };
    if !pinned.contains(version) {
        look.find(
            Finding::new(Grade::Failed, code, look.subject(), &format!("Wrong {what} version"), Action::Configure)
                .compared(pinned.join(" or "), version)
                .advise(&format!(
                    "Bring the {what} to the pinned version with the vendor's tool, power-cycle, run again."
                )),
        );
    }
}

/// Slots in which no device stands. A slot's address is that of function 0.
fn empty_slots(facts: &Snapshot) -> Vec<BusId> {
    let taken = |slot: &BusId| {
        facts.host.pci.keys().any(|device| BusId { function: 0, ..*device } == BusId { function: 0, ..*slot })
    };
    facts.host.slots.keys().filter(|slot| !taken(slot)).copied().collect()
}

fn missing(subject: &Subject, wanted: &str, on_bus: usize) -> Finding {
    Finding::new(Grade::Failed, "gpu-missing", subject.clone(), "GPU missing", Action::Reseat)
        .compared(format!("{wanted} GPUs on the PCI bus"), on_bus)
        .advise("Power off, reseat the module and its power; if it stays away, replace it.")
}

fn not_in_driver(facts: &Snapshot, bus_id: BusId, subject: Subject) -> Finding {
    let driver = facts.host.pci.get(&bus_id).and_then(|function| function.driver.value());
    let mut found = driver.map_or("on the bus, not in the driver".to_owned(), |driver| {
        format!("on the bus, bound to {driver}, not in NVML")
    });
    if facts.host.kernel_log.entries.iter().any(|entry| adapter_failed(entry, bus_id)) {
        found += ", RmInitAdapter failed";
    }
    Finding::new(Grade::Failed, "gpu-not-in-driver", subject, "GPU not in the driver", Action::Reseat)
        .compared("the driver shows every GPU on the bus", found)
        .advise(&format!("dmesg | grep -i {bus_id} says why; power-cycle; if it stays, reseat, then replace it."))
}

fn adapter_failed(entry: &LogEntry, at: BusId) -> bool {
    matches!(entry.kind, LogKind::AdapterFailed { bus_id: Some(bus_id) } if bus_id == at)
}

/// The driver's GPUs by address. NVML orders its indices by bus address, so that GPUs without
/// one match the addresses that are left over, if there are as many.
fn roster(facts: &Snapshot) -> Roster<'_> {
    let named = facts.gpus_by_bus_id();
    let nameless: Vec<&Gpu> = facts.gpus.iter().filter(|gpu| gpu.bus_id().is_none()).collect();
    let left_over: Vec<BusId> = facts.gpus_on_bus().into_iter().filter(|bus_id| !named.contains_key(bus_id)).collect();
    if nameless.len() == left_over.len() {
        Roster { named, matched: left_over.into_iter().zip(nameless).collect(), unmatched: Vec::new() }
    } else {
        Roster { named, matched: BTreeMap::new(), unmatched: nameless }
    }
}

/// Why the driver gives no usable handle. Many drivers answer 999 and not 15 for a GPU that
/// fell off the bus (open-gpu-kernel-modules #387): then the kernel log decides.
fn handle_fault(facts: &Snapshot, gpu: &Gpu, bus_id: Option<BusId>, subject: &Subject) -> Finding {
    let code = gpu.handle.failure().or(gpu.pci.failure()).unwrap_or(Code::GARBLED);
    let code = if code == Code::UNKNOWN && bus_id.is_some_and(|bus_id| fell_off(facts, bus_id)) {
        Code::GPU_IS_LOST
    } else {
        code
    };
    let finding = blame::unanswered(subject, "GPU handle", code);
    if finding.code.as_str() != "unreadable" {
        return finding;
    }
    Finding::new(Grade::Undecided, "gpu-unreadable", subject.clone(), "GPU does not answer", Action::Reboot)
        .compared("a handle from the driver", code)
        .advise("Keep dmesg | grep -i -e nvrm -e xid; reboot and run again; if it stays, power off and reseat the GPU.")
}

fn fell_off(facts: &Snapshot, at: BusId) -> bool {
    facts.host.kernel_log.entries.iter().any(|entry| match entry.kind {
        LogKind::Xid { code: 79, bus_id } | LogKind::FallenOffBus { bus_id } => bus_id == Some(at),
        _ => false,
    })
}

fn uuids(roster: &Roster<'_>) -> Vec<(Subject, String)> {
    identities(roster, |gpu| gpu.uuid.value())
}

fn serials(roster: &Roster<'_>) -> Vec<(Subject, String)> {
    identities(roster, |gpu| gpu.serial.value())
}

fn identities(roster: &Roster<'_>, name: impl Fn(&Gpu) -> Option<&String>) -> Vec<(Subject, String)> {
    let named = roster.named.iter();
    named.filter_map(|(bus_id, gpu)| Some((Subject::gpu(*bus_id), name(gpu)?.clone()))).collect()
}

fn judge_duplicates(what: &str, names: &[(Subject, String)], judgement: &mut Judgement) {
    let (code, title) =
        if what == "uuid" { ("duplicate-uuid", "UUID twice") } else { ("duplicate-serial", "Serial twice") };
    for (subject, name) in names.iter().filter(|(_, name)| names.iter().filter(|(_, other)| other == name).count() > 1)
    {
        judgement.find(
            Finding::new(Grade::Failed, code, subject.clone(), title, Action::Investigate)
                .compared(format!("a {what} of its own"), name)
                .advise("Power-cycle and run again; if it stays, one of these boards carries another's identity: replace it."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread, unread_optional};
    use crate::facts::gpu::{Memory, PciInfo};
    use crate::outcome::Status;

    const FIRST: &str = "0000:1b:00.0";
    const LAST: &str = "0000:3b:00.0";

    fn check(count: &str) -> GpuInventory {
        let text = format!(
            "count = {count}\nmodels = [\"10de:2330\"]\nmemory = [\"81559 MiB\"]\nmemory-tolerance = \"512 MiB\"\n\
             vbios = [\"96.00.BC.00.01\"]\ninforom = [\"G520.0200.00.05\"]\nserials = \"required\""
        );
        toml::from_str(&text).unwrap()
    }

    #[track_caller]
    fn after(change: impl FnOnce(&mut Snapshot), status: &str, findings: &[(&str, &str)]) {
        let mut facts = sample::host(3);
        change(&mut facts);
        assert_outcome(&check("3").judge(&facts), status, findings);
    }

    #[test]
    fn the_closing_text_counts_names_and_fits_the_screen() {
        let closing = |count: &str, name: &str| {
            let mut facts = sample::host(3);
            facts.gpus.iter_mut().for_each(|gpu| gpu.name = Reading::Value(name.to_owned()));
            let outcome = check(count).judge(&facts);
            sample::assert_fits(&outcome);
            outcome.cause
        };
        assert_eq!(closing("3", "NVIDIA H100 80GB HBM3"), "3 of 3 GPUs, NVIDIA H100 80GB HBM3");
        let range = "{ min = 1, max = 8 }";
        assert_eq!(closing(range, "NVIDIA L40S"), "3 GPUs (class allows 1 to 8), NVIDIA L40S");
        assert_eq!(closing(range, "NVIDIA GeForce RTX 409"), "3 GPUs (class allows 1 to 8), GeForce RTX 409");
        assert!(closing("3", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition").ends_with('…'));
    }

    fn lose(facts: &mut Snapshot, index: usize, code: Code) {
        facts.gpus[index] =
            Gpu { index: index as u32, handle: Reading::Failed(code), pci: Reading::Failed(code), ..Gpu::default() };
    }

    /// The driver no longer shows the last GPU.
    fn drop_last(facts: &mut Snapshot) {
        facts.gpus.pop();
        facts.driver.device_count = Reading::Value(facts.gpus.len() as u32);
    }

    #[test]
    fn a_complete_set_passes() {
        assert_outcome(&check("3").judge(&sample::host(3)), "passed", &[]);
        assert_outcome(&check("{ min = 1, max = 8 }").judge(&sample::host(3)), "passed", &[]);
    }

    #[test]
    fn a_missing_gpu_is_named_by_its_empty_slot_or_by_number() {
        let remove = |facts: &mut Snapshot| {
            drop_last(facts);
            facts.host.pci.remove(&sample::bus_id(2));
        };
        after(remove, "failed", &[("gpu-missing", "gpu 3 of 3")]);
        let with_slots = |facts: &mut Snapshot| {
            facts.host.slots = (0..3).map(|index| (sample::bus_id(index), format!("{index}"))).collect();
            remove(facts);
        };
        after(with_slots, "failed", &[("gpu-missing", LAST)]);
        let two_empty = |facts: &mut Snapshot| {
            with_slots(facts);
            facts.host.slots.insert("0000:aa:00.0".parse().unwrap(), "nvme".to_owned());
        };
        after(two_empty, "failed", &[("gpu-missing", "gpu 3 of 3")]);
    }

    #[test]
    fn a_bus_that_was_not_read_accuses_no_gpu() {
        let unread = |facts: &mut Snapshot| {
            facts.host.pci.clear();
            facts.host.pci_listing = Reading::Unasked;
        };
        let mut facts = sample::host(3);
        unread(&mut facts);
        let outcome = check("3").judge(&facts);
        assert_eq!(outcome.status(), Status::Undecided, "{outcome:?}");
        facts.gpus.clear();
        facts.driver.session = crate::facts::snapshot::SessionState::NotStarted;
        assert_eq!(check("3").judge(&facts).status(), Status::Undecided);
    }

    #[test]
    fn bus_and_driver_are_compared_both_ways() {
        after(drop_last, "failed", &[("gpu-not-in-driver", LAST)]);
        after(|facts| drop(facts.host.pci.remove(&sample::bus_id(2))), "failed", &[("gpu-not-on-bus", LAST)]);
    }

    #[test]
    fn a_lost_gpu_is_found_at_the_address_that_is_left_over() {
        after(|facts| lose(facts, 1, Code::GPU_IS_LOST), "failed", &[("gpu-lost", "0000:2b:00.0")]);
        after(|facts| lose(facts, 1, Code::UNKNOWN), "undecided", &[("gpu-unreadable", "0000:2b:00.0")]);
        let with_xid = |facts: &mut Snapshot| {
            lose(facts, 1, Code::UNKNOWN);
            let kind = LogKind::Xid { code: 79, bus_id: Some(sample::bus_id(1)) };
            facts.host.kernel_log.entries.push(LogEntry { sequence: 7, microseconds: 7, kind, text: String::new() });
        };
        after(with_xid, "failed", &[("gpu-lost", "0000:2b:00.0")]);
        let gone_from_bus = |facts: &mut Snapshot| {
            lose(facts, 2, Code::GPU_IS_LOST);
            facts.host.pci.remove(&sample::bus_id(2));
        };
        after(gone_from_bus, "failed", &[("gpu-lost", "gpu 3 of 3")]);
    }

    #[test]
    fn too_many_gpus_are_rejected() {
        assert_outcome(&check("2").judge(&sample::host(3)), "failed", &[("gpu-too-many", "host")]);
    }

    #[test]
    fn a_wrong_model_is_one_problem_and_not_several() {
        let swap = |facts: &mut Snapshot| {
            facts.host.pci.get_mut(&sample::bus_id(0)).unwrap().model = Reading::Value("10de:2335".parse().unwrap());
            facts.gpus[0].pci =
                Reading::Value(PciInfo { bus_id: FIRST.to_owned(), pci_device_id: 0x2335_10de, pci_sub_system_id: 0 });
            facts.gpus[0].memory = Reading::Value(Memory { total: 143_771 << 20, reserved: 0, free: 0, used: 0 });
        };
        after(swap, "failed", &[("wrong-model", FIRST)]);
    }

    #[test]
    fn memory_versions_and_inforom_are_held_against_the_class() {
        let half = Memory { total: 40_000 << 20, reserved: 0, free: 0, used: 0 };
        after(|facts| facts.gpus[0].memory = Reading::Value(half), "failed", &[("wrong-memory", FIRST)]);
        let of = |mebibytes: u64| Memory { total: mebibytes << 20, ..half };
        for wrong in [81_559 - 513, 81_559 + 513, 143_771] {
            after(|facts| facts.gpus[0].memory = Reading::Value(of(wrong)), "failed", &[("wrong-memory", FIRST)]);
        }
        for right in [81_559 - 512, 81_559 + 512] {
            after(|facts| facts.gpus[0].memory = Reading::Value(of(right)), "passed", &[]);
        }
        after(|facts| facts.gpus[0].vbios = Reading::Value("1".into()), "failed", &[("wrong-vbios", FIRST)]);
        after(|facts| facts.gpus[0].inforom_image = Reading::Value("1".into()), "failed", &[("wrong-inforom", FIRST)]);
        let corrupt = Reading::Failed(Code::CORRUPTED_INFOROM);
        after(|facts| facts.gpus[0].inforom_valid = corrupt, "failed", &[("inforom-corrupt", FIRST)]);
    }

    #[test]
    fn identities_must_be_unique() {
        let uuid = |facts: &mut Snapshot| facts.gpus[2].uuid = facts.gpus[0].uuid.clone();
        after(uuid, "failed", &[("duplicate-uuid", FIRST), ("duplicate-uuid", LAST)]);
        let serial = |facts: &mut Snapshot| facts.gpus[2].serial = facts.gpus[0].serial.clone();
        after(serial, "failed", &[("duplicate-serial", FIRST), ("duplicate-serial", LAST)]);
    }

    #[test]
    fn a_set_of_gpus_that_cannot_be_seen_accuses_no_card() {
        for state in unread() {
            let mut facts = sample::host(3);
            (facts.host.pci_listing, facts.host.pci) = (state, BTreeMap::new());
            assert_eq!(check("3").judge(&facts).status().as_str(), "undecided");
            facts.driver.session = crate::facts::snapshot::SessionState::Hung(Default::default());
            assert_eq!(check("3").judge(&facts).status().as_str(), "undecided");
        }
        for state in unread() {
            let mut facts = sample::host(3);
            (facts.driver.device_count, facts.gpus) = (state, Vec::new());
            assert_eq!(check("3").judge(&facts).status().as_str(), "undecided");
        }
        after(|facts| facts.driver.device_count = Reading::Value(200), "undecided", &[("garbled", "host")]);
        for state in unread() {
            let mut facts = sample::host(3);
            facts.host.pci.get_mut(&sample::bus_id(1)).unwrap().model = state;
            assert_eq!(check("3").judge(&facts).status().as_str(), "undecided");
        }
        for state in unread() {
            let mut facts = sample::host(3);
            facts.host.pci.get_mut(&sample::bus_id(1)).unwrap().class = state;
            assert_eq!(check("{ min = 1, max = 8 }").judge(&facts).status().as_str(), "undecided");
        }
    }

    #[test]
    fn a_card_that_only_the_bus_may_have_is_not_overlooked() {
        let mut facts = sample::host(2);
        let unnamed = crate::facts::host::PciFunction { class: Reading::Value(0x03_0200), ..Default::default() };
        facts.host.pci.insert(sample::bus_id(5), unnamed);
        assert_eq!(check("{ min = 1, max = 8 }").judge(&facts).status().as_str(), "undecided");
    }

    #[test]
    fn two_gpus_at_one_address_are_never_taken_for_one() {
        let twice = |facts: &mut Snapshot| {
            facts.gpus.push(Gpu { index: 3, uuid: Reading::Value("GPU-x".into()), ..facts.gpus[2].clone() });
            facts.driver.device_count = Reading::Value(4);
        };
        after(twice, "undecided", &[("duplicate-address", LAST)]);
    }

    #[test]
    fn an_address_that_is_none_leaves_its_gpu_open() {
        let garble = |facts: &mut Snapshot| {
            if let Reading::Value(pci) = &mut facts.gpus[1].pci {
                pci.bus_id = "somewhere".to_owned();
            }
        };
        after(garble, "undecided", &[("garbled", "0000:2b:00.0")]);
    }

    #[test]
    fn nothing_unread_and_no_empty_host_ever_passes() {
        macro_rules! never {
            ($states:expr, $field:ident) => {
                assert_never_passes_unread(stringify!($field), $states, |state| {
                    let mut facts = sample::host(1);
                    facts.gpus[0].$field = state;
                    check("1").judge(&facts)
                })
            };
        }
        never!(unread(), handle);
        never!(unread(), memory);
        never!(unread(), uuid);
        never!(unread(), serial);
        never!(unread(), vbios);
        never!(unread(), inforom_image);
        never!(unread_optional(), inforom_valid);
        assert_outcome(&check("0").judge(&sample::host(0)), "undecided", &[]);
        assert_outcome(&check("1").judge(&Snapshot::default()), "undecided", &[("not-asked", "host")]);
        let bare = Snapshot { host: sample::host(0).host, ..Snapshot::default() };
        assert_outcome(&check("1").judge(&bare), "failed", &[("gpu-missing", "gpu 1 of 1")]);
    }
}
