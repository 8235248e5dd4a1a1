//! The machine and its operating system: DMI, kernel, image, processors, memory.

use std::collections::BTreeSet;

use super::{Parsed, attribute, text};
use crate::facts::host::{Cpu, Dmi, Kernel, NumaNode, OsImage};
use crate::host::root::Root;
use crate::ident::printable;
use crate::parse;
use crate::reading::{Code, Reading};

/// A line of 64 KiB a CPU and a thousand CPUs would be less.
const LARGEST_CPUINFO: u64 = 16 << 20;
/// Inode of the initial PID namespace (`PROC_PID_INIT_INO` in the kernel's `proc_ns.h`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

pub fn hostname(root: &Root) -> Reading<String> {
    match attribute(root, "/proc/sys/kernel/hostname") {
        Reading::Unsupported => attribute(root, "/etc/hostname"),
        other => other,
    }
}

pub fn dmi(root: &Root) -> Dmi {
    let of = |name: &str| attribute(root, &format!("/sys/class/dmi/id/{name}"));
    Dmi {
        vendor: of("sys_vendor"),
        product: of("product_name"),
        product_serial: of("product_serial"),
        product_uuid: of("product_uuid"),
        board_name: of("board_name"),
        board_serial: of("board_serial"),
        chassis_serial: of("chassis_serial"),
        bios_version: of("bios_version"),
    }
}

pub fn kernel(root: &Root) -> Kernel {
    let seconds =
        |text: &str| text.split_whitespace().next()?.parse::<f64>().ok().filter(|s| s.is_finite() && *s >= 0.0);
    Kernel {
        release: attribute(root, "/proc/sys/kernel/osrelease"),
        boot_id: attribute(root, "/proc/sys/kernel/random/boot_id"),
        command_line: text(root, "/proc/cmdline").map(|line| printable(line.trim(), 4096)),
        uptime: text(root, "/proc/uptime").parsed(seconds),
        modules: text(root, "/proc/modules").map(|text| parse::modules::modules(&text)),
    }
}

pub fn os_image(root: &Root) -> OsImage {
    let release = match text(root, "/etc/os-release") {
        Reading::Unsupported => text(root, "/usr/lib/os-release"),
        other => other,
    };
    let release = release.map(|text| parse::os_release::os_release(&text));
    let field = |name: &str| match release.as_ref().map(|release| release.get(name).cloned()) {
        Reading::Value(Some(value)) => Reading::Value(value),
        Reading::Value(None) | Reading::Unsupported => Reading::Unsupported,
        Reading::Unasked => Reading::Unasked,
        Reading::Failed(code) => Reading::Failed(code),
    };
    OsImage {
        pretty_name: field("PRETTY_NAME"),
        id: field("ID"),
        version_id: field("VERSION_ID"),
        image_id: field("IMAGE_ID"),
        image_version: field("IMAGE_VERSION"),
        machine_id: attribute(root, "/etc/machine-id"),
    }
}

pub fn cpu(root: &Root) -> Cpu {
    let text = root.read_up_to("/proc/cpuinfo", LARGEST_CPUINFO);
    let info = text.map(|bytes| parse::cpu::cpuinfo(&String::from_utf8_lossy(&bytes)));
    let of = |value: Option<u32>| value.map_or(Reading::Unsupported, Reading::Value);
    let listed = super::text(root, "/sys/devices/system/cpu/online").parsed(parse::cpu::list_length);
    Cpu {
        model: flatten(info.as_ref().map(|info| info.model.clone().map_or(Reading::Unsupported, Reading::Value))),
        sockets: match flatten(info.as_ref().map(|info| of(info.sockets))) {
            Reading::Unsupported => packages(root),
            other => other,
        },
        online: match listed {
            Reading::Unsupported => flatten(info.as_ref().map(|info| of(Some(info.processors).filter(|n| *n > 0)))),
            other => other,
        },
    }
}

/// Distinct physical packages by sysfs, where `/proc/cpuinfo` does not name them (Arm).
fn packages(root: &Root) -> Reading<u32> {
    let folder = "/sys/devices/system/cpu";
    let mut packages = BTreeSet::new();
    let names = match root.list(folder) {
        Reading::Value(names) => names,
        other => return other.map(|_| 0),
    };
    for name in names.iter().filter(|name| numbered(name, "cpu").is_some()) {
        match attribute(root, &format!("{folder}/{name}/topology/physical_package_id")) {
            Reading::Value(package) => packages.extend(package.parse::<i32>().ok().filter(|package| *package >= 0)),
            Reading::Failed(code) => return Reading::Failed(code),
            // A CPU that is offline has no topology.
            Reading::Unsupported | Reading::Unasked => {}
        }
    }
    u32::try_from(packages.len()).ok().filter(|count| *count > 0).map_or(Reading::Unsupported, Reading::Value)
}

pub fn numa(root: &Root) -> Vec<NumaNode> {
    let folder = "/sys/devices/system/node";
    let names = root.list(folder).value().cloned().unwrap_or_default();
    let mut ids: Vec<u32> = names.iter().filter_map(|name| numbered(name, "node")).collect();
    ids.sort_unstable();
    let numbers = |text: &str| text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>();
    let node = |id: u32| NumaNode {
        id,
        cpus: attribute(root, &format!("{folder}/node{id}/cpulist")),
        memory: text(root, &format!("{folder}/node{id}/meminfo")).parsed(parse::memory::total),
        distances: text(root, &format!("{folder}/node{id}/distance")).parsed(numbers),
    };
    ids.into_iter().map(node).collect()
}

/// Whether we see only a part of the host's processes. A recording is the whole host,
/// unless it was taken inside a namespace and says so.
pub fn foreign_pid_namespace(root: &Root) -> Reading<bool> {
    match root.link("/proc/self/ns/pid") {
        Reading::Value(namespace) if namespace.starts_with("pid:[") => {
            Reading::Value(namespace != INITIAL_PID_NAMESPACE)
        }
        Reading::Value(_) => Reading::Failed(Code::GARBLED),
        Reading::Unsupported if !root.is_live() => Reading::Value(false),
        other => other.map(|_| true),
    }
}

/// The number in `cpu12` or `node3`.
pub(super) fn numbered(name: &str, stem: &str) -> Option<u32> {
    name.strip_prefix(stem).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

fn flatten<T>(nested: Reading<Reading<T>>) -> Reading<T> {
    match nested {
        Reading::Value(inner) => inner,
        Reading::Unsupported => Reading::Unsupported,
        Reading::Unasked => Reading::Unasked,
        Reading::Failed(code) => Reading::Failed(code),
    }
}
