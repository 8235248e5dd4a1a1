//! Where everything stands: a panel for each NUMA node, in it a group for each PCIe switch or root.

use std::collections::BTreeMap;

use crate::facts::topology::{Level, Topology};
use crate::ident::BusId;
use crate::reading::Reading;

/// Width and height of a box.
pub const GPU: (f64, f64) = (128.0, 62.0);
pub const NIC: (f64, f64) = (100.0, 40.0);
const GAP: f64 = 14.0;
const MARGIN: f64 = 24.0;
/// Room beside the network devices for the way down to the GPUs.
const TRUNK: f64 = 20.0;
/// Narrowest drawing, so that heading and faults fit.
const NARROWEST: f64 = 560.0;

/// Heights of the rows, from the top of the drawing.
pub mod row {
    pub const PANEL: f64 = 76.0;
    pub const CPU: f64 = 88.0;
    pub const CPU_HEIGHT: f64 = 44.0;
    pub const SWITCH: f64 = 158.0;
    pub const SWITCH_HEIGHT: f64 = 26.0;
    pub const NIC: f64 = 208.0;
    pub const FABRIC_HEIGHT: f64 = 28.0;
    /// Where the GPUs stand below network devices, below switches alone, and below neither.
    pub const GPU: [f64; 3] = [282.0, 222.0, 180.0];
}

pub struct Panel {
    pub title: String,
    pub cpus: String,
    pub x: f64,
    pub width: f64,
    pub groups: Vec<Group>,
}

/// Devices below one switch, or directly below one host bridge.
#[derive(Default)]
pub struct Group {
    pub switch: Option<String>,
    /// Positions in the topology.
    pub gpus: Vec<usize>,
    pub nics: Vec<usize>,
    pub x: f64,
    pub width: f64,
}

impl Group {
    pub fn gpu_x(&self, position: usize) -> f64 {
        let all = self.gpus.len() as f64 * (GPU.0 + GAP) - GAP;
        self.x + (self.width - all) / 2.0 + position as f64 * (GPU.0 + GAP)
    }

    pub fn nic_x(&self, position: usize) -> f64 {
        self.x + position as f64 * (NIC.0 + GAP)
    }

    /// Where the way from the CPU goes down: beside the network devices, if there are any.
    pub fn trunk(&self) -> f64 {
        if self.nics.is_empty() || self.gpus.is_empty() {
            self.x + self.width / 2.0
        } else {
            self.x + self.width - TRUNK / 2.0
        }
    }

    fn natural_width(&self) -> f64 {
        let gpus = self.gpus.len() as f64 * (GPU.0 + GAP) - GAP;
        let nics = self.nics.len() as f64 * (NIC.0 + GAP) - GAP;
        let beside = if self.nics.is_empty() || self.gpus.is_empty() { 0.0 } else { TRUNK + 4.0 };
        gpus.max(nics + beside)
    }
}

pub struct Layout {
    pub width: f64,
    pub panels: Vec<Panel>,
    /// Upper edge of the GPUs.
    pub gpu_row: f64,
    /// Left edges of the GPUs, in their order.
    pub gpus: Vec<f64>,
    /// Whether NVLink joins most pairs, so that it is drawn as one bar.
    pub has_fabric: bool,
    has_nvlink: bool,
}

impl Layout {
    pub fn of(topology: &Topology) -> Layout {
        let (mut x, mut panels) = (MARGIN, Vec::new());
        for (node, groups) in nodes(topology) {
            let panel = panel(topology, &node, groups, x);
            x += panel.width + MARGIN;
            panels.push(panel);
        }
        let mut gpus = vec![0.0; topology.gpus.len()];
        for group in panels.iter().flat_map(|panel| &panel.groups) {
            for (position, index) in group.gpus.iter().enumerate() {
                gpus[*index] = group.gpu_x(position);
            }
        }
        let count = topology.gpus.len();
        let joined = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let joined = joined.filter(|(a, b)| matches!(topology.matrix[*a][*b], Level::NvLink(_))).count();
        let has_fabric = count > 2 && joined * 2 >= count * (count - 1);
        let has_switch = panels.iter().flat_map(|panel| &panel.groups).any(|group| group.switch.is_some());
        let gpu_row = match (topology.nics.is_empty(), has_switch) {
            (false, _) => row::GPU[0],
            (true, true) => row::GPU[1],
            (true, false) => row::GPU[2],
        };
        Layout { width: x.max(NARROWEST), panels, gpu_row, gpus, has_fabric, has_nvlink: joined > 0 }
    }

    /// The lower edge of the panels.
    pub fn panel_bottom(&self) -> f64 {
        self.gpu_row + GPU.1 + 16.0
    }

    /// The upper edge of the bar that stands for NVLink.
    pub fn fabric(&self) -> f64 {
        self.panel_bottom() + 44.0
    }

    /// The lower edge of everything but the faults.
    pub fn bottom(&self) -> f64 {
        match (self.has_fabric, self.has_nvlink) {
            (true, _) => self.fabric() + row::FABRIC_HEIGHT,
            (false, true) => self.panel_bottom() + 70.0,
            (false, false) => self.panel_bottom(),
        }
    }

    pub fn height(&self, faults: usize) -> f64 {
        self.bottom() + 24.0 + 22.0 * faults as f64
    }

    /// Left and right edge of all GPUs.
    pub fn extent(&self) -> (f64, f64) {
        let first = self.gpus.iter().copied().fold(f64::INFINITY, f64::min);
        let last = self.gpus.iter().copied().fold(0.0, f64::max) + GPU.0;
        (first, last)
    }
}

/// A group's place in the order: root complex, then the switch.
type Place = (String, Option<BusId>);

/// Groups by NUMA node; `?` for what does not say its node.
fn nodes(topology: &Topology) -> BTreeMap<String, BTreeMap<Place, Group>> {
    let mut nodes: BTreeMap<String, BTreeMap<Place, Group>> = BTreeMap::new();
    let group = |numa: &Reading<String>, root: &Option<String>, upstream: &[BusId]| {
        // A GPU whose memory is NUMA nodes lists those too, after the node of its CPU (`0,3-9`).
        let first = numa.value().and_then(|nodes| nodes.split([',', '-']).next()).filter(|node| !node.is_empty());
        let node = first.unwrap_or("?").to_owned();
        // Root port, upstream port of the switch, its downstream port: the second is the switch.
        let switch = if upstream.len() > 2 { upstream.get(1).copied() } else { None };
        (node, (root.clone().unwrap_or_default(), switch))
    };
    for (index, gpu) in topology.gpus.iter().enumerate() {
        let (node, place) = group(&gpu.numa_affinity, &gpu.root, &gpu.upstream);
        nodes.entry(node).or_default().entry(place).or_default().gpus.push(index);
    }
    for (index, nic) in topology.nics.iter().enumerate() {
        let (node, place) = group(&nic.numa_affinity, &nic.root, &nic.upstream);
        nodes.entry(node).or_default().entry(place).or_default().nics.push(index);
    }
    nodes
}

fn panel(topology: &Topology, node: &str, groups: BTreeMap<Place, Group>, x: f64) -> Panel {
    let mut edge = x + GAP;
    let mut placed = Vec::new();
    for ((_, switch), mut group) in groups {
        group.switch = switch.map(|address| address.to_string());
        (group.x, group.width) = (edge, group.natural_width());
        edge += group.width + GAP;
        placed.push(group);
    }
    let gpus = placed.iter().flat_map(|group| &group.gpus);
    let cpus = gpus.filter_map(|index| topology.gpus[*index].cpu_affinity.value()).next();
    Panel {
        title: if node == "?" { "NUMA node unknown".to_owned() } else { format!("NUMA node {node}") },
        cpus: cpus.map(|cpus| format!("CPUs {cpus}")).unwrap_or_default(),
        x,
        width: edge - x,
        groups: placed,
    }
}
