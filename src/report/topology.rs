//! The topology as people know it from `nvidia-smi topo -m`, and its JSON.

use std::fmt::Write;

use crate::facts::topology::{CAPABILITIES, GpuPlace, Level, Topology};
use crate::reading::Reading;
use crate::report::columns::{LINE, align, cut, pad};

/// What the cells mean, in the order of nearness (`nvidia-smi topo -h`).
const LEGEND: &[(&str, &str)] = &[
    ("NV#", "# NVLinks"),
    ("PSB", "one board"),
    ("PIX", "at most one PCIe bridge between"),
    ("PXB", "several PCIe bridges, not the host bridge"),
    ("PHB", "one host bridge"),
    ("NODE", "host bridges of one NUMA node"),
    ("SYS", "between NUMA nodes"),
    ("?", "could not be read"),
];

/// The screen, at most 80 columns, each line ended.
pub fn text(topology: &Topology) -> String {
    if topology.gpus.is_empty() {
        return "no NVIDIA GPU on the PCI bus, and the driver shows none\n".to_owned();
    }
    let mut lines = matrix(topology);
    lines.extend(legend(topology));
    lines.push(String::new());
    lines.extend(places(topology));
    lines.extend(nics(topology));
    lines.extend(peer_to_peer(topology));
    lines.extend(remarks(topology));
    let mut text = String::new();
    for line in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", cut(line.trim_end(), LINE));
    }
    text
}

/// The JSON, indented, with a line feed at the end: devices, and the matrix in their order.
pub fn json(topology: &Topology) -> Result<String, serde_json::Error> {
    #[derive(serde::Serialize)]
    struct Versioned<'a> {
        format: u32,
        #[serde(flatten)]
        topology: &'a Topology,
    }
    serde_json::to_string_pretty(&Versioned { format: 1, topology }).map(|json| json + "\n")
}

/// All rows, in blocks of as many columns as fit a line; a block of GPUs, then one of network devices.
fn matrix(topology: &Topology) -> Vec<String> {
    let names: Vec<&str> = topology
        .gpus
        .iter()
        .map(|gpu| gpu.name.as_str())
        .chain(topology.nics.iter().map(|nic| nic.name.as_str()))
        .collect();
    let cells = topology.matrix.iter().flatten().map(|level| level.to_string().len());
    let width = names.iter().map(|name| name.len()).chain(cells).max().unwrap_or(0) + 1;
    let fitting = (LINE / width).saturating_sub(1).max(1);
    let gpus = topology.gpus.len();
    let blocks: Vec<std::ops::Range<usize>> = if names.len() <= fitting {
        std::iter::once(0..names.len()).collect()
    } else {
        [0..gpus, gpus..names.len()].into_iter().flat_map(|all| chunks(all, fitting)).collect()
    };
    let mut lines = Vec::new();
    for block in blocks.into_iter().filter(|block| !block.is_empty()) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let line = |head: &str, cells: Vec<String>| {
            let cells = cells.iter().map(|cell| pad(cell, width));
            std::iter::once(pad(head, width)).chain(cells).collect::<String>()
        };
        lines.push(line("", names[block.clone()].iter().map(|name| (*name).to_owned()).collect()));
        for (name, row) in names.iter().zip(&topology.matrix) {
            lines.push(line(name, row[block.clone()].iter().map(ToString::to_string).collect()));
        }
    }
    lines
}

fn chunks(all: std::ops::Range<usize>, size: usize) -> Vec<std::ops::Range<usize>> {
    all.clone().step_by(size).map(|start| start..all.end.min(start + size)).collect()
}

/// The meanings of those levels that occur.
fn legend(topology: &Topology) -> Vec<String> {
    let shown = |level: &Level| match level {
        Level::NvLink(_) => "NV#".to_owned(),
        other => other.to_string(),
    };
    let occurring: Vec<String> = topology.matrix.iter().flatten().map(shown).collect();
    let used = LEGEND.iter().filter(|(name, _)| occurring.iter().any(|level| level == name));
    let mut lines: Vec<String> = Vec::new();
    for part in used.map(|(name, meaning)| format!("{name} {meaning}")) {
        match lines.last_mut() {
            Some(line) if line.len() + part.len() + 3 <= LINE => *line = format!("{line} · {part}"),
            _ => lines.push(part),
        }
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn places(topology: &Topology) -> Vec<String> {
    let heads = ["", "slot", "bus", "NUMA", "CPUs", "nearest NIC", "bridge"].map(str::to_owned).to_vec();
    let device = |name: &String| {
        let nic = topology.nics.iter().find(|nic| nic.name == *name);
        nic.map_or_else(|| name.clone(), |nic| format!("{name} {}", nic.device))
    };
    let row = |gpu: &GpuPlace| {
        let nearest = match &gpu.nearest_nics[..] {
            [] => "–".to_owned(),
            [one] => device(one),
            [first, rest @ ..] => format!("{first} +{}", rest.len()),
        };
        vec![
            gpu.name.clone(),
            gpu.slot.clone().unwrap_or_else(|| "–".to_owned()),
            gpu.bus_id.map_or_else(|| "?".to_owned(), |bus_id| bus_id.to_string()),
            cell(&numa(gpu)),
            cell(&gpu.cpu_affinity),
            nearest,
            gpu.upstream.last().map_or_else(|| "–".to_owned(), ToString::to_string),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(heads).chain(topology.gpus.iter().map(row)).collect();
    align(&rows)
}

/// The node of the host's memory, and the GPU's own where it is one.
fn numa(gpu: &GpuPlace) -> Reading<String> {
    match (&gpu.numa_affinity, &gpu.gpu_numa_id) {
        (Reading::Value(node), Reading::Value(own)) => Reading::Value(format!("{node}, own {own}")),
        (node, _) => node.clone(),
    }
}

fn nics(topology: &Topology) -> Vec<String> {
    if topology.nics.is_empty() {
        return Vec::new();
    }
    let heads = ["", "device", "bus", "NUMA", "nearest GPU"].map(str::to_owned).to_vec();
    let rows = topology.nics.iter().map(|nic| {
        let numa = cell(&nic.numa_affinity);
        vec![nic.name.clone(), nic.device.clone(), nic.bus_id.to_string(), numa, nic.nearest_gpus.join(" ")]
    });
    let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    std::iter::once(String::new()).chain(align(&rows)).collect()
}

fn cell(reading: &Reading<String>) -> String {
    match reading {
        Reading::Value(text) if text.is_empty() => "–".to_owned(),
        Reading::Value(text) => text.clone(),
        Reading::Unsupported => "–".to_owned(),
        Reading::Unasked | Reading::Failed(_) => "?".to_owned(),
    }
}

/// One line where all pairs of the driver's GPUs say the same of a capability, a matrix where they do not.
fn peer_to_peer(topology: &Topology) -> Vec<String> {
    // GPUs that the driver does not show stand last and have nothing to say here.
    let shown = topology.gpus.iter().filter(|gpu| gpu.index.is_some()).count();
    let mut same: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut mixed: Vec<(&[Vec<&'static str>], Vec<&str>)> = Vec::new();
    for (capability, rows) in CAPABILITIES.into_iter().zip(&topology.p2p) {
        let cells: Vec<&str> =
            rows.iter().take(shown).flat_map(|row| &row[..shown]).copied().filter(|cell| *cell != "X").collect();
        match cells.first() {
            None => {}
            Some(first) if cells.iter().all(|cell| cell == first) => gather(&mut same, *first, capability),
            Some(_) => gather(&mut mixed, rows, capability),
        }
    }
    let mut lines: Vec<String> =
        same.iter().map(|(word, names)| format!("peer to peer  every pair {word}: {}", names.join(", "))).collect();
    for (rows, capabilities) in mixed {
        lines.push(format!("peer to peer  {}", capabilities.join(", ")));
        lines.extend(peer_matrix(&topology.gpus[..shown], rows));
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

/// Puts the name under its key.
fn gather<K: PartialEq, N>(groups: &mut Vec<(K, Vec<N>)>, key: K, name: N) {
    match groups.iter_mut().find(|(known, _)| *known == key) {
        Some((_, names)) => names.push(name),
        None => groups.push((key, vec![name])),
    }
}

fn peer_matrix(gpus: &[GpuPlace], rows: &[Vec<&'static str>]) -> Vec<String> {
    let names = || gpus.iter().map(|gpu| gpu.name.clone());
    let mut table: Vec<Vec<String>> = vec![std::iter::once(String::new()).chain(names()).collect()];
    for (name, row) in names().zip(rows) {
        table.push(std::iter::once(name).chain(row[..gpus.len()].iter().map(|cell| (*cell).to_owned())).collect());
    }
    align(&table)
}

/// What a technician should look at: GPUs that the driver or the bus does not show, NVLinks
/// that are down, and pairs of which driver and kernel do not say the same.
fn remarks(topology: &Topology) -> Vec<String> {
    let mut lines: Vec<String> = topology.gpus.iter().filter_map(remark).collect();
    let disagreeing = topology.disagreements.iter().take(8);
    lines.extend(disagreeing.map(|found| {
        format!("! {} to {}: the driver says {}, sysfs shows {}", found.a, found.b, found.driver, found.kernel)
    }));
    if topology.disagreements.len() > 8 {
        lines.push(format!("! and {} more such pairs", topology.disagreements.len() - 8));
    }
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

/// What is wrong with the place of one GPU.
pub fn remark(gpu: &GpuPlace) -> Option<String> {
    let text = match (&gpu.nvlinks, gpu.index.is_some(), gpu.on_bus) {
        (_, false, _) => "on the PCI bus, but not shown by the driver".to_owned(),
        (Reading::Failed(code), ..) => format!("NVLinks could not be read: {code}"),
        (_, _, false) => "shown by the driver, but not on the PCI bus".to_owned(),
        (Reading::Value((active, all)), ..) if active < all => format!("{active} of {all} NVLinks are active"),
        _ => return None,
    };
    Some(format!("! {}: {text}", gpu.name))
}

#[cfg(test)]
mod tests;
