//! The topology as a drawing: CPUs on top, PCIe switches below them, then network devices and
//! GPUs, and NVLink at the bottom with the number of links as the width of the line.
//!
//! Written by hand, one element a line. Every text from the host is escaped. A fault has the
//! colour of alarm *and* a triangle with an exclamation mark, and its words stand in the drawing.

mod canvas;
mod layout;

use std::collections::BTreeMap;

use canvas::{Canvas, Ground, Style};
use layout::{GPU, Group, Layout, NIC, Panel, row};

use crate::facts::topology::{GpuPlace, Level, Topology};
use crate::ident::printable;
use crate::reading::Reading;

/// Characters of a name in the description.
const NAME: usize = 60;
/// Widest line that NVLinks are drawn with, for the most links that a GPU of this host has.
const WIDEST: f64 = 9.0;

/// The drawing, with its title and its description for those who do not see it.
pub fn svg(topology: &Topology, hostname: &str) -> String {
    draw(topology, hostname, Ground::Own, &BTreeMap::new())
}

/// The same as part of a page, whose stylesheet gives it its colours. `wrong` is what else is known to
/// be wrong with the GPU at an address.
pub fn inline(topology: &Topology, hostname: &str, wrong: &BTreeMap<String, String>) -> String {
    draw(topology, hostname, Ground::Page, wrong)
}

fn draw(topology: &Topology, hostname: &str, ground: Ground, wrong: &BTreeMap<String, String>) -> String {
    // A record may say anything; a matrix that does not fit its devices says nothing.
    if !topology.is_square() {
        let devices = topology.gpus.len() + topology.nics.len();
        let matrix = vec![vec![Level::Unknown; devices]; devices];
        return draw(&Topology { matrix, ..topology.clone() }, hostname, ground, wrong);
    }
    let layout = Layout::of(topology);
    let faults = faults(topology, wrong);
    let mut canvas = Canvas::new(layout.width, layout.height(faults.len()), ground);
    let models = models(topology);
    canvas.heading(hostname, &models, &description(topology, &faults));
    for panel in &layout.panels {
        draw_panel(&mut canvas, &layout, panel, topology);
    }
    draw_nvlinks(&mut canvas, &layout, topology);
    for (index, gpu) in topology.gpus.iter().enumerate() {
        draw_gpu(&mut canvas, (layout.gpus[index], layout.gpu_row), gpu, faults.contains_key(&index));
    }
    draw_faults(&mut canvas, &layout, &faults);
    canvas.finish()
}

/// What is wrong with a GPU or its place, by its position.
fn faults(topology: &Topology, wrong: &BTreeMap<String, String>) -> BTreeMap<usize, String> {
    let fault = |gpu: &GpuPlace| {
        let remark = super::topology::remark(gpu).map(|text| text.trim_start_matches("! ").to_owned());
        let known = gpu.bus_id.and_then(|bus_id| wrong.get(&bus_id.to_string()));
        match (remark, known) {
            (Some(remark), Some(known)) => Some(format!("{remark}; {known}")),
            (Some(remark), None) => Some(remark),
            (None, known) => known.map(|known| format!("{}: {known}", gpu.name)),
        }
    };
    topology.gpus.iter().enumerate().filter_map(|(index, gpu)| Some((index, fault(gpu)?))).collect()
}

/// `8 × NVIDIA H200`, each model once.
fn models(topology: &Topology) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for gpu in &topology.gpus {
        *counts.entry(gpu.model.as_deref().unwrap_or("GPU")).or_default() += 1;
    }
    let models: Vec<String> = counts.iter().map(|(model, count)| format!("{count} × {model}")).collect();
    if models.is_empty() { "no GPU".to_owned() } else { models.join(", ") }
}

fn description(topology: &Topology, faults: &BTreeMap<usize, String>) -> String {
    let places = topology.gpus.iter().map(|gpu| {
        let slot = gpu.slot.as_ref().map(|slot| format!(" in slot {}", printable(slot, NAME))).unwrap_or_default();
        let bus = gpu.bus_id.map(|bus_id| format!(" at {bus_id}")).unwrap_or_default();
        let node =
            gpu.numa_affinity.value().map(|node| format!(", NUMA node {}", printable(node, NAME))).unwrap_or_default();
        format!("{}{slot}{bus}{node}.", printable(&gpu.name, NAME))
    });
    let faults = faults.values().map(|fault| format!("Fault: {}.", printable(fault, 2 * NAME)));
    places.chain(faults).collect::<Vec<_>>().join(" ")
}

fn draw_panel(canvas: &mut Canvas, layout: &Layout, panel: &Panel, topology: &Topology) {
    canvas.rect(panel.x, row::PANEL, panel.width, layout.panel_bottom() - row::PANEL, 10.0, Style::Panel);
    canvas.rect(panel.x + 12.0, row::CPU, panel.width - 24.0, row::CPU_HEIGHT, 6.0, Style::Cpu);
    let middle = panel.x + panel.width / 2.0;
    canvas.text(middle, row::CPU + 19.0, "strong middle", &panel.title);
    canvas.text(middle, row::CPU + 35.0, "small middle", &panel.cpus);
    for group in &panel.groups {
        draw_group(canvas, layout, group, topology);
    }
}

fn draw_group(canvas: &mut Canvas, layout: &Layout, group: &Group, topology: &Topology) {
    let trunk = group.trunk();
    let down = if group.switch.is_some() { group.x + group.width / 2.0 } else { trunk };
    canvas.line((down, row::CPU + row::CPU_HEIGHT), (down, row::SWITCH), Style::Pcie);
    let from = match &group.switch {
        Some(address) => {
            canvas.rect(group.x, row::SWITCH, group.width, row::SWITCH_HEIGHT, 6.0, Style::Switch);
            canvas.text(group.x + group.width / 2.0, row::SWITCH + 17.0, "small middle", &format!("PCIe {address}"));
            row::SWITCH + row::SWITCH_HEIGHT
        }
        None => row::SWITCH,
    };
    for (position, index) in group.nics.iter().enumerate() {
        let (x, nic) = (group.nic_x(position), &topology.nics[*index]);
        let middle = x + NIC.0 / 2.0;
        canvas.line((middle, from), (middle, row::NIC), Style::Pcie);
        if group.switch.is_none() {
            canvas.line((middle.min(trunk), from), (middle.max(trunk), from), Style::Pcie);
        }
        canvas.rect(x, row::NIC, NIC.0, NIC.1, 6.0, Style::Nic);
        canvas.text(middle, row::NIC + 17.0, "name middle", &format!("{} {}", nic.name, nic.device));
        canvas.text(middle, row::NIC + 32.0, "small middle", &nic.bus_id.to_string());
    }
    if group.gpus.is_empty() {
        return;
    }
    // The way to the GPUs goes down beside the network devices and then along above the GPUs.
    let along = layout.gpu_row - 14.0;
    canvas.line((trunk, from), (trunk, along), Style::Pcie);
    for position in 0..group.gpus.len() {
        let middle = group.gpu_x(position) + GPU.0 / 2.0;
        canvas.line((trunk.min(middle), along), (trunk.max(middle), along), Style::Pcie);
        canvas.line((middle, along), (middle, layout.gpu_row), Style::Pcie);
    }
}

fn draw_gpu(canvas: &mut Canvas, (x, y): (f64, f64), gpu: &GpuPlace, is_faulty: bool) {
    canvas.rect(x, y, GPU.0, GPU.1, 6.0, if is_faulty { Style::Faulty } else { Style::Gpu });
    let middle = x + GPU.0 / 2.0;
    canvas.text(middle, y + 20.0, "strong middle", &gpu.name);
    let slot = match &gpu.slot {
        Some(slot) if slot.starts_with("module") => slot.clone(),
        Some(slot) => format!("slot {slot}"),
        None => "slot unknown".to_owned(),
    };
    canvas.text(middle, y + 37.0, "small middle", &slot);
    let bus = gpu.bus_id.map_or_else(|| "?".to_owned(), |bus_id| bus_id.to_string());
    canvas.text(middle, y + 52.0, "small middle", &bus);
    if is_faulty {
        canvas.warning(x + GPU.0 - 12.0, y + 2.0);
    }
}

/// One bar that all hang on where most pairs are joined, else an arc for each pair.
fn draw_nvlinks(canvas: &mut Canvas, layout: &Layout, topology: &Topology) {
    let pairs = joined(topology);
    let most = topology.gpus.iter().filter_map(|gpu| gpu.nvlinks.value()).map(|(_, all)| *all).max().unwrap_or(0);
    let width = |links: u32| (WIDEST * f64::from(links) / f64::from(most.max(1))).max(1.0);
    let middle = |index: usize| layout.gpus[index] + GPU.0 / 2.0;
    if layout.has_fabric {
        for (index, gpu) in topology.gpus.iter().enumerate() {
            let (top, bottom) = ((middle(index), layout.gpu_row + GPU.1), (middle(index), layout.fabric()));
            match gpu.nvlinks {
                Reading::Value((active, _)) if active > 0 => canvas.nvlink(top, bottom, width(active)),
                _ => canvas.line(top, bottom, Style::Broken),
            }
            let label = match gpu.nvlinks {
                Reading::Value((active, all)) if active == all => format!("{active} links"),
                Reading::Value((active, all)) => format!("{active} of {all} links"),
                _ => "?".to_owned(),
            };
            canvas.text(middle(index) + 10.0, layout.fabric() - 10.0, "small", &label);
        }
        let (first, last) = layout.extent();
        canvas.rect(first, layout.fabric(), last - first, row::FABRIC_HEIGHT, 6.0, Style::Fabric);
        canvas.text((first + last) / 2.0, layout.fabric() + 19.0, "name middle", "NVLink");
        return;
    }
    for (a, b, links) in pairs {
        canvas.arc(
            (middle(a), layout.gpu_row + GPU.1),
            (middle(b), layout.gpu_row + GPU.1),
            width(links),
            &format!("NV{links}"),
        );
    }
}

/// Pairs of GPUs that NVLinks join, each once.
fn joined(topology: &Topology) -> Vec<(usize, usize, u32)> {
    let gpus = topology.gpus.len();
    let links = |a: usize, b: usize| match topology.matrix[a][b] {
        Level::NvLink(links) => Some((a, b, links)),
        _ => None,
    };
    (0..gpus).flat_map(|a| (a + 1..gpus).filter_map(move |b| links(a, b))).collect()
}

fn draw_faults(canvas: &mut Canvas, layout: &Layout, faults: &BTreeMap<usize, String>) {
    for (line, fault) in faults.values().enumerate() {
        let y = layout.bottom() + 26.0 + 22.0 * line as f64;
        canvas.warning(36.0, y - 14.0);
        canvas.text(54.0, y, "fault", fault);
    }
}

#[cfg(test)]
mod tests;
