//! PCI functions with the bridges above them, physical slots, and network devices.

use std::collections::{BTreeMap, BTreeSet};

use super::{Parsed, attribute, text};
use crate::facts::host::{Nic, PciFunction, PciLink};
use crate::host::root::Root;
use crate::ident::{BusId, PciModel, printable};
use crate::parse::pci::{self, LinkText};
use crate::reading::{Code, Reading};

const DEVICES: &str = "/sys/bus/pci/devices";
const SLOTS: &str = "/sys/bus/pci/slots";

/// How many functions are listed, or why none could be.
pub fn count(root: &Root) -> Reading<usize> {
    root.list(DEVICES).map(|names| names.len())
}

/// Every function. Links are read for GPUs, network devices and the bridges above them only: the
/// kernel answers them from config space, which is slow, and may wake a device that sleeps.
pub fn functions(root: &Root) -> BTreeMap<BusId, PciFunction> {
    let names = root.list(DEVICES).value().cloned().unwrap_or_default();
    let addresses = names.iter().filter_map(|name| name.parse::<BusId>().ok());
    let mut functions: BTreeMap<_, _> = addresses.map(|bus_id| (bus_id, function(root, bus_id))).collect();
    let mut of_interest = BTreeSet::new();
    for (bus_id, function) in functions.iter().filter(|(_, function)| has_judged_link(function)) {
        of_interest.insert(*bus_id);
        of_interest.extend(&function.upstream);
    }
    for (bus_id, function) in &mut functions {
        if of_interest.contains(bus_id) {
            function.link = link(root, *bus_id);
        }
    }
    functions
}

/// Slot names by the address of the device in them. Where several slots claim one address the first name stays.
pub fn slots(root: &Root) -> BTreeMap<BusId, String> {
    let mut slots = BTreeMap::new();
    for name in root.list(SLOTS).value().into_iter().flatten() {
        let address = attribute(root, &format!("{SLOTS}/{name}/address"));
        if let Some(bus_id) = address.value().and_then(|address| address.parse().ok()) {
            slots.entry(bus_id).or_insert_with(|| printable(name, 60));
        }
    }
    slots
}

/// Network and RDMA devices that stand on a PCI function, in the order of their names.
pub fn nics(root: &Root) -> Vec<Nic> {
    let mut nics = Vec::new();
    for (class, rdma) in [("/sys/class/infiniband", true), ("/sys/class/net", false)] {
        for name in root.list(class).value().into_iter().flatten() {
            if let Some(bus_id) = function_of(root, &format!("{class}/{name}/device")) {
                nics.push(Nic { name: printable(name, 60), bus_id, rdma });
            }
        }
    }
    nics.sort_by_cached_key(|nic| (!nic.rdma, natural(&nic.name)));
    nics
}

fn function(root: &Root, bus_id: BusId) -> PciFunction {
    let folder = format!("{DEVICES}/{bus_id}");
    let of = |name: &str| format!("{folder}/{name}");
    let path = root.real_path(&folder);
    let parts: Vec<&str> = path.value().map(|path| path.split('/').collect()).unwrap_or_default();
    let upstream = parts.iter().rev().skip(1).rev().filter_map(|part| part.parse().ok()).collect();
    let root_complex = parts.iter().find(|part| part.starts_with("pci") && part.contains(':'));
    let model = match model(root, &folder, "vendor", "device") {
        Reading::Unsupported => text(root, &of("modalias")).parsed(pci::modalias),
        other => other,
    };
    PciFunction {
        model,
        subsystem: self::model(root, &folder, "subsystem_vendor", "subsystem_device"),
        class: text(root, &of("class")).parsed(pci::hexadecimal),
        driver: root.link(&of("driver")).map(|target| printable(target.rsplit('/').next().unwrap_or_default(), 60)),
        numa_node: text(root, &of("numa_node")).parsed(|text| text.trim().parse().ok()),
        local_cpus: attribute(root, &of("local_cpulist")),
        upstream,
        root: root_complex.map(|part| printable(part, 40)).unwrap_or_default(),
        link: PciLink::default(),
    }
}

fn model(root: &Root, folder: &str, vendor: &str, device: &str) -> Reading<PciModel> {
    let device = match text(root, &format!("{folder}/{device}")) {
        Reading::Value(device) => device,
        other => return other.parsed(|_| None),
    };
    text(root, &format!("{folder}/{vendor}")).parsed(|vendor| pci::model(vendor, &device))
}

/// GPUs, and network and InfiniBand controllers (base class 02, 0c06).
fn has_judged_link(function: &PciFunction) -> bool {
    let class = function.class.value().copied().unwrap_or_default();
    function.is_nvidia_gpu() || class >> 16 == 0x02 || class >> 8 == 0x0c06
}

fn link(root: &Root, bus_id: BusId) -> PciLink {
    let read = |name: &str| text(root, &format!("{DEVICES}/{bus_id}/{name}"));
    let speed = |name| known(read(name).parsed(pci::link_speed));
    // Lanes are at most 32, which a u32 holds exactly.
    let width = |name| known(read(name).parsed(pci::link_width)).map(|lanes| lanes as u32);
    PciLink {
        speed: speed("current_link_speed"),
        width: width("current_link_width"),
        max_speed: speed("max_link_speed"),
        max_width: width("max_link_width"),
        correctable: read("aer_dev_correctable").parsed(pci::aer_total),
        nonfatal: read("aer_dev_nonfatal").parsed(pci::aer_total),
        fatal: read("aer_dev_fatal").parsed(pci::aer_total),
    }
}

/// A link of which the kernel does not know the state was asked for and not found out.
fn known(reading: Reading<LinkText>) -> Reading<f64> {
    match reading {
        Reading::Value(LinkText::Known(number)) => Reading::Value(number),
        Reading::Value(LinkText::Unknown) => Reading::Failed(Code::UNREADABLE),
        Reading::Unsupported => Reading::Unsupported,
        Reading::Unasked => Reading::Unasked,
        Reading::Failed(code) => Reading::Failed(code),
    }
}

/// The PCI function at the end of a `device` link: the last address on its path, so that a
/// device behind another bus (virtio, auxiliary) is found too.
fn function_of(root: &Root, device: &str) -> Option<BusId> {
    let path = root.real_path(device);
    path.value()?.split('/').rev().filter(|part| part.matches(':').count() == 2).find_map(|part| part.parse().ok())
}

/// `mlx5_2` before `mlx5_10`: the text before the number at the end, then the number.
fn natural(name: &str) -> (String, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), name[stem.len()..].parse().unwrap_or(0))
}
