//! How near GPUs and network devices are to each other, as `nvidia-smi topo -m` says it.
//!
//! Pairs of GPUs: the NVLinks that are active between them, else NVML's common ancestor, else
//! what sysfs shows. Network devices stand in sysfs alone. What cannot be known is [`Level::Unknown`],
//! printed `?`, and never a guess. The meanings are those of `nvidia-smi topo -h`.

pub mod distance;
mod place;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Snapshot;
use super::gpu::Gpu;
use super::snapshot::Pair;
use crate::ident::BusId;
use crate::reading::Reading;

pub use place::{GpuPlace, NicPlace};

/// How near two devices are, nearest first. In JSON it is the word that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Level {
    /// The device itself.
    Own,
    /// This many NVLinks, direct or through switches.
    NvLink(u32),
    /// On one board.
    Psb,
    /// At most one PCIe bridge between them.
    Pix,
    /// Several PCIe bridges, but not the host bridge.
    Pxb,
    /// The same host bridge, typically of one CPU.
    Phb,
    /// Different host bridges of one NUMA node.
    Node,
    /// Different NUMA nodes.
    Sys,
    Unknown,
}

impl Level {
    /// From `nvmlGpuTopologyLevel_t`.
    fn of_ancestor(number: u32) -> Level {
        match number {
            0 => Level::Psb,
            10 => Level::Pix,
            20 => Level::Pxb,
            30 => Level::Phb,
            40 => Level::Node,
            50 => Level::Sys,
            _ => Level::Unknown,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Own => f.pad("X"),
            Level::NvLink(links) => f.pad(&format!("NV{links}")),
            Level::Psb => f.pad("PSB"),
            Level::Pix => f.pad("PIX"),
            Level::Pxb => f.pad("PXB"),
            Level::Phb => f.pad("PHB"),
            Level::Node => f.pad("NODE"),
            Level::Sys => f.pad("SYS"),
            Level::Unknown => f.pad("?"),
        }
    }
}

/// A word that names no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a level of nearness: X, NV and a number, PSB, PIX, PXB, PHB, NODE, SYS or ?")]
pub struct UnknownLevel;

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        const PLAIN: [Level; 8] =
            [Level::Own, Level::Psb, Level::Pix, Level::Pxb, Level::Phb, Level::Node, Level::Sys, Level::Unknown];
        match text.strip_prefix("NV") {
            Some(links) => links.parse().map(Level::NvLink).map_err(|_| UnknownLevel),
            None => PLAIN.into_iter().find(|level| level.to_string() == text).ok_or(UnknownLevel),
        }
    }
}

impl TryFrom<String> for Level {
    type Error = UnknownLevel;

    fn try_from(text: String) -> Result<Self, UnknownLevel> {
        text.parse()
    }
}

impl From<Level> for String {
    fn from(level: Level) -> String {
        level.to_string()
    }
}

/// What the driver and the kernel each say of two GPUs, where they do not say the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Disagreement {
    pub a: String,
    pub b: String,
    pub driver: Level,
    pub kernel: Level,
}

/// Peer-to-peer capabilities in the order of `nvmlGpuP2PCapsIndex_t`.
pub const CAPABILITIES: [&str; 5] = ["read", "write", "nvlink", "atomics", "prop"];

/// The whole picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// In NVML's order, then those on the bus that the driver does not show.
    pub gpus: Vec<GpuPlace>,
    pub nics: Vec<NicPlace>,
    /// Rows and columns: all GPUs, then all network devices.
    pub matrix: Vec<Vec<Level>>,
    /// By capability, GPUs × GPUs: `X OK CNS GNS TNS DR NS U`, `?` where it is not known.
    /// A record leaves it out.
    #[serde(skip_deserializing, skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(skip)]
    pub p2p: Vec<Vec<Vec<&'static str>>>,
    #[serde(default)]
    pub disagreements: Vec<Disagreement>,
}

impl Topology {
    pub fn of(snapshot: &Snapshot) -> Topology {
        let mut gpus = place::gpus(snapshot);
        let mut nics = place::nics(snapshot);
        let matrix = matrix(snapshot, &gpus, &nics);
        let (g, n) = (gpus.len(), nics.len());
        for (row, gpu) in gpus.iter_mut().enumerate() {
            gpu.nearest_nics = nearest(&matrix[row][g..]).map(|column| nics[column].name.clone()).collect();
        }
        for (row, nic) in nics.iter_mut().enumerate() {
            nic.nearest_gpus = nearest(&matrix[g + row][..g]).map(|column| gpus[column].name.clone()).collect();
        }
        debug_assert_eq!(matrix.len(), g + n);
        let p2p = (0..CAPABILITIES.len()).map(|capability| p2p(snapshot, &gpus, capability)).collect();
        let disagreements = disagreements(snapshot, &gpus);
        Topology { gpus, nics, matrix, p2p, disagreements }
    }

    /// Whether the matrix has a row and a column for each device, as one from elsewhere may not.
    pub fn is_square(&self) -> bool {
        let devices = self.gpus.len() + self.nics.len();
        self.matrix.len() == devices && self.matrix.iter().all(|row| row.len() == devices)
    }
}

/// Columns at the nearest known level; none where every level is unknown.
fn nearest(row: &[Level]) -> impl Iterator<Item = usize> {
    let best = row.iter().filter(|level| **level != Level::Unknown).min().copied();
    row.iter().enumerate().filter(move |(_, level)| Some(**level) == best).map(|(column, _)| column)
}

fn matrix(snapshot: &Snapshot, gpus: &[GpuPlace], nics: &[NicPlace]) -> Vec<Vec<Level>> {
    let buses: Vec<Option<BusId>> =
        gpus.iter().map(|gpu| gpu.bus_id).chain(nics.iter().map(|nic| Some(nic.bus_id))).collect();
    let level = |a: usize, b: usize| match (gpus.get(a), gpus.get(b)) {
        _ if a == b => Level::Own,
        (Some(first), Some(second)) => between_gpus(snapshot, first, second),
        _ => match (buses[a], buses[b]) {
            (Some(first), Some(second)) => distance::level(&snapshot.host, first, second),
            _ => Level::Unknown,
        },
    };
    (0..buses.len()).map(|a| (0..buses.len()).map(|b| level(a, b)).collect()).collect()
}

fn between_gpus(snapshot: &Snapshot, a: &GpuPlace, b: &GpuPlace) -> Level {
    let kernel = || match (a.bus_id, b.bus_id) {
        (Some(a), Some(b)) => distance::level(&snapshot.host, a, b),
        _ => Level::Unknown,
    };
    let (Some(first), Some(second)) = (driver_gpu(snapshot, a), driver_gpu(snapshot, b)) else { return kernel() };
    let pair = pair(snapshot, first.index, second.index);
    match nvlinks_between(first, second, pair) {
        Reading::Value(0) => match pair.map(|pair| &pair.ancestor) {
            Some(Reading::Value(number)) => Level::of_ancestor(*number),
            _ => kernel(),
        },
        Reading::Value(links) => Level::NvLink(links),
        _ => Level::Unknown,
    }
}

fn driver_gpu<'a>(snapshot: &'a Snapshot, place: &GpuPlace) -> Option<&'a Gpu> {
    snapshot.gpus.iter().find(|gpu| Some(gpu.index) == place.index)
}

fn pair(snapshot: &Snapshot, a: u32, b: u32) -> Option<&Pair> {
    snapshot.pairs.iter().find(|pair| pair.a == a && pair.b == b)
}

/// `nvmlIntNvLinkDeviceType_t`: a switch is at the other end.
const REMOTE_SWITCH: u32 = 2;

/// NVLinks that are active between two GPUs: those that end at the peer, or, where both hang on
/// switches, what the weaker of the two brings to them. One link that cannot be read leaves the number unknown.
fn nvlinks_between(a: &Gpu, b: &Gpu, pair: Option<&Pair>) -> Reading<u32> {
    if let (Some(code), _) | (_, Some(code)) = (a.handle.failure(), b.handle.failure()) {
        return Reading::Failed(code);
    }
    if a.nvlinks.is_empty() || b.nvlinks.is_empty() {
        // The driver can only say "OK" for NVLink between two GPUs if there are links that we did not see.
        return match pair.map(|pair| &pair.p2p[2]) {
            Some(Reading::Value(0)) => Reading::Unasked,
            Some(Reading::Failed(code)) => Reading::Failed(*code),
            _ => Reading::Value(0),
        };
    }
    match (ends(a, b.bus_id()), ends(b, a.bus_id())) {
        (Reading::Value(first), Reading::Value(second)) => {
            Reading::Value(first.at_peer.min(second.at_peer) + first.at_switch.min(second.at_switch))
        }
        (Reading::Value(_), other) | (other, _) => other.map(|_| 0),
    }
}

/// Where a GPU's active links end.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    at_peer: u32,
    at_switch: u32,
}

fn ends(gpu: &Gpu, peer: Option<BusId>) -> Reading<Ends> {
    let mut ends = Ends::default();
    for link in &gpu.nvlinks {
        match (&link.state, &link.remote_type) {
            (Reading::Value(0) | Reading::Unsupported, _) => {}
            (Reading::Value(_), Reading::Value(kind)) if *kind == REMOTE_SWITCH => ends.at_switch += 1,
            // Drivers before R470 do not know the type of the other end; its address says it too.
            (Reading::Value(_), _) => match link.remote.as_ref().map(|remote| remote.bus_id.parse::<BusId>()) {
                Reading::Value(Ok(remote)) => ends.at_peer += u32::from(Some(remote) == peer),
                Reading::Value(Err(_)) | Reading::Unsupported | Reading::Unasked => return Reading::Unasked,
                Reading::Failed(code) => return Reading::Failed(code),
            },
            (Reading::Failed(code), _) => return Reading::Failed(*code),
            (Reading::Unasked, _) => return Reading::Unasked,
        }
    }
    Reading::Value(ends)
}

/// The words of `nvidia-smi topo -p2p` for `nvmlGpuP2PStatus_t`.
fn p2p(snapshot: &Snapshot, gpus: &[GpuPlace], capability: usize) -> Vec<Vec<&'static str>> {
    let cell = |a: &GpuPlace, b: &GpuPlace| {
        let (Some(first), Some(second)) = (a.index, b.index) else { return "?" };
        match pair(snapshot, first, second).map(|pair| &pair.p2p[capability]) {
            _ if first == second => "X",
            Some(Reading::Value(0)) => "OK",
            Some(Reading::Value(1)) => "CNS",
            Some(Reading::Value(2)) => "GNS",
            Some(Reading::Value(3)) => "TNS",
            Some(Reading::Value(4)) => "DR",
            Some(Reading::Value(5) | Reading::Unsupported) => "NS",
            Some(Reading::Value(6)) => "U",
            _ => "?",
        }
    };
    gpus.iter().map(|a| gpus.iter().map(|b| cell(a, b)).collect()).collect()
}

/// Pairs of which the driver's common ancestor is not what sysfs shows, each once.
fn disagreements(snapshot: &Snapshot, gpus: &[GpuPlace]) -> Vec<Disagreement> {
    let mut found = Vec::new();
    for (position, a) in gpus.iter().enumerate() {
        for b in &gpus[position + 1..] {
            let (Some(first), Some(second)) = (a.index, b.index) else { continue };
            let (Some(bus_a), Some(bus_b)) = (a.bus_id, b.bus_id) else { continue };
            let ancestor = pair(snapshot, first, second).and_then(|pair| pair.ancestor.value());
            let driver = ancestor.map_or(Level::Unknown, |number| Level::of_ancestor(*number));
            let kernel = distance::level(&snapshot.host, bus_a, bus_b);
            if driver != kernel && driver != Level::Unknown && kernel != Level::Unknown {
                found.push(Disagreement { a: a.name.clone(), b: b.name.clone(), driver, kernel });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
