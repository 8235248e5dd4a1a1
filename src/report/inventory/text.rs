//! The inventory as a screen: the host, then the GPUs of each model in one block.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::{GpuEntry, Host, Inventory, NotRead};
use crate::facts::redact::is_placeholder;
use crate::report::columns::{LINE, align, cut};

/// Fields of a row, by their names in `notRead`, with the heads of their columns.
const COLUMNS: [(&str, &str); 7] = [
    ("slot", "slot"),
    ("bus", "bus"),
    ("serial", "serial"),
    ("linkWidth", "link"),
    ("power", "power"),
    ("temperature", "temp"),
    ("ecc", "ECC"),
];

pub fn text(inventory: &Inventory) -> String {
    let mut lines = host(&inventory.host);
    lines.extend(rest_of_host(inventory));
    let shown: Vec<&GpuEntry> = inventory.gpus.iter().filter(|gpu| gpu.in_driver).collect();
    for block in blocks(&shown) {
        lines.push(String::new());
        lines.extend(gpu_block(&block));
    }
    lines.extend(marks(inventory));
    lines.extend(unread(&shown));
    let mut text = String::new();
    for line in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", cut(&line, LINE));
    }
    text
}

fn host(host: &Host) -> Vec<String> {
    let machine: Vec<&str> = [&host.vendor, &host.product].into_iter().flatten().map(String::as_str).collect();
    let serial = match (&host.serial, host.not_read.get("serial")) {
        (Some(serial), _) if is_placeholder(serial) => "serial –".to_owned(),
        (Some(serial), _) => format!("serial {serial}"),
        (None, Some(reason)) if reason != "not supported" => format!("serial ? ({reason})"),
        (None, _) => String::new(),
    };
    let name = host.hostname.clone().unwrap_or_else(|| "?".to_owned());
    wrapped("", "  ", &[name, machine.join(" "), serial])
}

fn rest_of_host(inventory: &Inventory) -> Vec<String> {
    let (host, driver) = (&inventory.host, &inventory.driver);
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
    let kernel = format!("kernel {}", or(&host.kernel));
    let flavour = match driver.open_module {
        Some(true) => "open kernel module",
        Some(false) => "proprietary kernel module",
        None => "",
    };
    let cuda = driver.cuda.as_ref().map(|cuda| format!("CUDA {cuda}")).unwrap_or_default();
    let version = driver.version.clone().unwrap_or_else(|| "none loaded".to_owned());
    let sockets = host.sockets.map(|sockets| format!("{sockets} × ")).unwrap_or_default();
    let cpus = host.cpus.map(|cpus| format!("{cpus} CPUs")).unwrap_or_default();
    let nodes = match host.numa_nodes {
        0 => String::new(),
        1 => "1 NUMA node".to_owned(),
        count => format!("{count} NUMA nodes"),
    };
    let memory = host.memory.map_or_else(|| "?".to_owned(), size);
    let mut lines = Vec::new();
    for (head, parts) in [
        ("  os      ", vec![or(&host.os), kernel, host.os_image.clone().unwrap_or_default()]),
        ("  driver  ", vec![version, cuda, flavour.to_owned()]),
        ("  cpu     ", vec![format!("{sockets}{}", or(&host.cpu)), cpus, nodes]),
        ("  memory  ", vec![memory]),
    ] {
        lines.extend(wrapped(head, "          ", &parts));
    }
    if let Some(trouble) = &driver.trouble {
        lines.push(format!("! driver  {trouble}"));
    }
    lines
}

/// GPUs that share model, memory and VBIOS, in the order in which they come.
fn blocks<'a>(gpus: &[&'a GpuEntry]) -> Vec<Vec<&'a GpuEntry>> {
    let kind = |gpu: &GpuEntry| (gpu.name.clone(), gpu.memory, gpu.vbios.clone());
    let mut blocks: Vec<Vec<&GpuEntry>> = Vec::new();
    for gpu in gpus {
        match blocks.iter_mut().find(|block| kind(block[0]) == kind(gpu)) {
            Some(block) => block.push(gpu),
            None => blocks.push(vec![gpu]),
        }
    }
    blocks
}

fn gpu_block(block: &[&GpuEntry]) -> Vec<String> {
    let first = block[0];
    let title = [
        format!("{} × {}", block.len(), value(&first.name, "name", &first.not_read)),
        value(&first.memory.map(size), "memory", &first.not_read),
        format!("VBIOS {}", value(&first.vbios, "vbios", &first.not_read)),
    ];
    let heads = COLUMNS.iter().map(|(_, head)| (*head).to_owned()).chain(["MIG".to_owned()]).collect();
    let mut rows: Vec<Vec<String>> = vec![heads];
    rows.extend(block.iter().map(|gpu| row(gpu)));
    let mut lines = vec![joined(&title)];
    for (line, gpu) in align(&rows).into_iter().zip(std::iter::once(None).chain(block.iter().map(Some))) {
        let mark = if gpu.is_some_and(|gpu| !gpu.on_bus) { '!' } else { ' ' };
        lines.push(format!("{mark} {line}"));
    }
    lines
}

fn row(gpu: &GpuEntry) -> Vec<String> {
    let not_read = &gpu.not_read;
    let link = match (gpu.link_generation, gpu.link_width) {
        (Some(generation), Some(width)) => Some(format!("gen{generation} x{width}")),
        (None, Some(width)) => Some(format!("x{width}")),
        (_, None) => None,
    };
    let power = match (gpu.power, gpu.power_limit) {
        (Some(power), Some(limit)) => Some(format!("{power:.0}/{limit:.0} W")),
        (Some(power), None) => Some(format!("{power:.0} W")),
        (None, _) => None,
    };
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let mig = match gpu.mig {
        Some(true) => Some(format!("on, {}", gpu.mig_instances)),
        other => other.map(switch),
    };
    vec![
        gpu.slot.clone().unwrap_or_else(|| "–".to_owned()),
        gpu.bus_id.map_or_else(|| "?".to_owned(), |bus_id| bus_id.to_string()),
        serial(gpu),
        value(&link, "linkWidth", not_read),
        value(&power, "power", not_read),
        value(&gpu.temperature.map(|celsius| format!("{celsius} C")), "temperature", not_read),
        value(&gpu.ecc.map(switch), "ecc", not_read),
        value(&mig, "mig", not_read),
    ]
}

/// The serial number; `–` where firmware has a placeholder for one.
fn serial(gpu: &GpuEntry) -> String {
    match &gpu.serial {
        Some(serial) if is_placeholder(serial) => "–".to_owned(),
        serial => value(serial, "serial", &gpu.not_read),
    }
}

/// The value; `–` where the machine has no such thing, `?` where we could not find out.
fn value(value: &Option<String>, field: &str, not_read: &NotRead) -> String {
    match (value, not_read.get(field).map(String::as_str)) {
        (Some(value), _) => value.clone(),
        (None, Some("not supported")) => "–".to_owned(),
        (None, _) => "?".to_owned(),
    }
}

/// GPUs that the bus and the driver do not both show.
fn marks(inventory: &Inventory) -> Vec<String> {
    let place = |gpu: &GpuEntry| {
        let bus = gpu.bus_id.map_or_else(|| "bus ?".to_owned(), |bus_id| format!("bus {bus_id}"));
        let slot = gpu.slot.as_ref().map(|slot| format!("slot {slot}")).unwrap_or_default();
        joined(&[slot, bus, gpu.pci_model.clone().unwrap_or_default()])
    };
    let mut lines = Vec::new();
    if inventory.gpus.is_empty() {
        lines.extend([String::new(), "! no NVIDIA GPU on the PCI bus".to_owned()]);
    }
    for (title, wrong) in [
        ("on the PCI bus, but not shown by the driver", (true, false)),
        ("shown by the driver, but not on the PCI bus", (false, true)),
    ] {
        let gpus: Vec<_> = inventory.gpus.iter().filter(|gpu| (gpu.on_bus, gpu.in_driver) == wrong).collect();
        if !gpus.is_empty() {
            lines.extend([String::new(), title.to_owned()]);
            lines.extend(gpus.into_iter().map(|gpu| format!("! {}", place(gpu))));
        }
    }
    lines
}

/// Each reason for a `?` once, with the fields and the number of GPUs that it holds for.
fn unread(gpus: &[&GpuEntry]) -> Vec<String> {
    let mut reasons = std::collections::BTreeMap::<&str, (Vec<&str>, Vec<String>)>::new();
    for gpu in gpus {
        for (field, reason) in gpu.not_read.iter().filter(|(_, reason)| *reason != "not supported") {
            let (fields, places) = reasons.entry(reason).or_default();
            let place =
                gpu.bus_id.map_or_else(|| format!("GPU {}", gpu.index.unwrap_or_default()), |id| id.to_string());
            if !fields.contains(field) {
                fields.push(field);
            }
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    let mut lines = Vec::new();
    for (reason, (fields, places)) in reasons {
        let whose =
            if places.len() == gpus.len() && gpus.len() > 1 { "every GPU".to_owned() } else { places.join(" ") };
        let what = if fields.len() > 4 { format!("{} readings", fields.len()) } else { fields.join(", ") };
        lines.push(format!("? {reason}: {what} of {whose}"));
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn joined(parts: &[String]) -> String {
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" · ")
}

/// The parts after the head, in as many lines as it takes; the later ones are indented.
fn wrapped(head: &str, indent: &str, parts: &[String]) -> Vec<String> {
    let mut lines = vec![head.to_owned()];
    let mut is_empty = true;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let line = lines.last().map(String::as_str).unwrap_or_default();
        let longer = if is_empty { format!("{line}{part}") } else { format!("{line} · {part}") };
        if is_empty || longer.width() <= LINE {
            lines.pop();
            lines.push(longer);
        } else {
            lines.push(format!("{indent}{part}"));
        }
        is_empty = false;
    }
    lines
}

/// Bytes with the binary unit that leaves one to four digits.
fn size(bytes: u64) -> String {
    let gibibytes = bytes as f64 / f64::from(1 << 30);
    if gibibytes >= 1024.0 {
        format!("{:.1} TiB", gibibytes / 1024.0)
    } else if gibibytes >= 100.0 {
        format!("{gibibytes:.0} GiB")
    } else {
        format!("{gibibytes:.1} GiB")
    }
}
