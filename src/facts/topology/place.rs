//! Where each device stands: slot, bridge, NUMA node, processors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::Snapshot;
use crate::facts::gpu::Gpu;
use crate::facts::host::PciFunction;
use crate::ident::{BusId, printable};
use crate::reading::Reading;

/// One GPU in the topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuPlace {
    /// `GPU0` by NVML's index; `PCI0` for one that the driver does not show.
    pub name: String,
    /// NVML's index; none for one that the driver does not show.
    pub index: Option<u32>,
    pub bus_id: Option<BusId>,
    pub slot: Option<String>,
    pub model: Option<String>,
    /// Whether sysfs shows it.
    pub on_bus: bool,
    /// As the kernel lists CPUs.
    pub cpu_affinity: Reading<String>,
    pub numa_affinity: Reading<String>,
    /// The NUMA node that its own memory is; not supported where it is none.
    pub gpu_numa_id: Reading<u32>,
    /// Bridges above it, the root port first.
    pub upstream: Vec<BusId>,
    /// Its root complex, `pci0000:15`.
    pub root: Option<String>,
    /// Active NVLinks, and all that the board has; not supported where it has none.
    pub nvlinks: Reading<(u32, u32)>,
    pub nearest_nics: Vec<String>,
}

/// One network device in the topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicPlace {
    /// `NIC0` in the order of the devices' names.
    pub name: String,
    /// The kernel's name, `mlx5_0`.
    pub device: String,
    pub bus_id: BusId,
    pub numa_affinity: Reading<String>,
    pub upstream: Vec<BusId>,
    pub root: Option<String>,
    pub nearest_gpus: Vec<String>,
}

pub(super) fn gpus(snapshot: &Snapshot) -> Vec<GpuPlace> {
    let mut places: Vec<GpuPlace> = snapshot.gpus.iter().map(|gpu| driver_place(snapshot, gpu)).collect();
    let known: Vec<BusId> = places.iter().filter_map(|place| place.bus_id).collect();
    let hidden = snapshot.gpus_on_bus().into_iter().filter(|bus_id| !known.contains(bus_id));
    places.extend(hidden.enumerate().map(|(number, bus_id)| GpuPlace {
        name: format!("PCI{number}"),
        model: snapshot.host.pci.get(&bus_id).and_then(|f| f.model.value()).map(ToString::to_string),
        ..bus_place(snapshot, Some(bus_id))
    }));
    places
}

/// RDMA devices, as `nvidia-smi` shows them; where there are none, every network device.
pub(super) fn nics(snapshot: &Snapshot) -> Vec<NicPlace> {
    let nics = &snapshot.host.nics;
    let any_rdma = nics.iter().any(|nic| nic.rdma);
    let shown = nics.iter().filter(|nic| nic.rdma || !any_rdma);
    let place = |(number, nic): (usize, &crate::facts::host::Nic)| {
        let function = snapshot.host.pci.get(&nic.bus_id);
        NicPlace {
            name: format!("NIC{number}"),
            device: nic.name.clone(),
            bus_id: nic.bus_id,
            numa_affinity: function.map_or(Reading::Unasked, numa_of),
            upstream: function.map(|function| function.upstream.clone()).unwrap_or_default(),
            root: root_of(function),
            nearest_gpus: Vec::new(),
        }
    };
    shown.enumerate().map(place).collect()
}

fn driver_place(snapshot: &Snapshot, gpu: &Gpu) -> GpuPlace {
    let place = bus_place(snapshot, gpu.bus_id());
    let cpus = gpu.cpu_affinity.as_ref().map(|words| list(words));
    let nodes = gpu.memory_affinity.as_ref().map(|words| list(words));
    GpuPlace {
        name: format!("GPU{}", gpu.index),
        index: Some(gpu.index),
        model: gpu.name.value().map(|name| printable(name, 60)),
        cpu_affinity: or(cpus, place.cpu_affinity),
        numa_affinity: or(nodes, place.numa_affinity),
        gpu_numa_id: gpu.numa_node.clone(),
        nvlinks: nvlinks(gpu),
        ..place
    }
}

fn bus_place(snapshot: &Snapshot, bus_id: Option<BusId>) -> GpuPlace {
    let function = bus_id.and_then(|bus_id| snapshot.host.pci.get(&bus_id));
    GpuPlace {
        bus_id,
        slot: bus_id.and_then(|bus_id| snapshot.slot_of(bus_id)),
        on_bus: function.is_some(),
        cpu_affinity: function.map_or(Reading::Unasked, |function| function.local_cpus.clone()),
        numa_affinity: function.map_or(Reading::Unasked, numa_of),
        upstream: function.map(|function| function.upstream.clone()).unwrap_or_default(),
        root: root_of(function),
        ..GpuPlace::default()
    }
}

fn root_of(function: Option<&PciFunction>) -> Option<String> {
    function.map(|function| function.root.clone()).filter(|root| !root.is_empty())
}

/// The node as text; -1 is the firmware not saying.
fn numa_of(function: &PciFunction) -> Reading<String> {
    match &function.numa_node {
        Reading::Value(node) if *node < 0 => Reading::Unsupported,
        other => other.as_ref().map(ToString::to_string),
    }
}

/// The first reading that has a value; where neither has, what the first one said.
fn or(first: Reading<String>, second: Reading<String>) -> Reading<String> {
    if first.value().is_none_or(String::is_empty) && second.value().is_some() { second } else { first }
}

fn nvlinks(gpu: &Gpu) -> Reading<(u32, u32)> {
    if let Some(code) = gpu.handle.failure() {
        return Reading::Failed(code);
    }
    let (mut active, mut all) = (0, 0);
    for link in &gpu.nvlinks {
        match &link.state {
            Reading::Value(state) => (active, all) = (active + u32::from(*state != 0), all + 1),
            Reading::Unsupported => {}
            Reading::Unasked => return Reading::Unasked,
            Reading::Failed(code) => return Reading::Failed(*code),
        }
    }
    if all == 0 { Reading::Unsupported } else { Reading::Value((active, all)) }
}

/// Bits of a mask as the kernel lists them: `0-63,128-191`.
pub(super) fn list(words: &[u64]) -> String {
    let set = |bit: usize| words.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1);
    let mut ranges = Vec::new();
    let mut bit = 0;
    while bit < words.len() * 64 {
        if !set(bit) {
            bit += 1;
            continue;
        }
        let first = bit;
        while set(bit) {
            bit += 1;
        }
        let last = bit - 1;
        ranges.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
    }
    ranges.join(",")
}
