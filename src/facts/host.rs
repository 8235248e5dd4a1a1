//! The host itself as the kernel shows it under `/proc`, `/sys`, `/etc` and `/dev`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ident::{BusId, PciModel};
use crate::reading::Reading;

/// Everything that is read from the root folder in one sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    pub hostname: Reading<String>,
    pub dmi: Dmi,
    pub kernel: Kernel,
    pub os: OsImage,
    pub cpu: Cpu,
    pub numa: Vec<NumaNode>,
    /// Bytes.
    pub memory_total: Reading<u64>,
    /// How many devices the kernel lists on the PCI bus; while that is not known, a device that is
    /// not in `pci` is not missing, it was not looked for.
    #[serde(default)]
    pub pci_listing: Reading<u32>,
    /// Every PCI function, by address.
    pub pci: BTreeMap<BusId, PciFunction>,
    /// Physical slot names by address of the device in them (`/sys/bus/pci/slots`).
    pub slots: BTreeMap<BusId, String>,
    pub nics: Vec<Nic>,
    pub driver: DriverFacts,
    pub kernel_log: KernelLog,
    /// Whether we are in another PID namespace than the host's init (`NSpid` and `/proc/1`).
    pub foreign_pid_namespace: Reading<bool>,
    /// The clock as the kernel keeps it.
    pub clock: ClockState,
}

/// `/sys/class/dmi/id`; placeholders are kept as read, judging them is not this module's work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dmi {
    pub vendor: Reading<String>,
    pub product: Reading<String>,
    pub product_serial: Reading<String>,
    pub product_uuid: Reading<String>,
    pub board_name: Reading<String>,
    pub board_serial: Reading<String>,
    pub chassis_serial: Reading<String>,
    pub bios_version: Reading<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    pub release: Reading<String>,
    pub boot_id: Reading<String>,
    pub command_line: Reading<String>,
    /// `/proc/uptime`, seconds.
    pub uptime: Reading<f64>,
    /// Loaded modules by name.
    pub modules: Reading<BTreeMap<String, Module>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// `Live`, `Loading` or `Unloading`.
    pub state: String,
    pub used_by: Vec<String>,
}

/// `/etc/os-release`, and the image ids that it may carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OsImage {
    pub pretty_name: Reading<String>,
    pub id: Reading<String>,
    pub version_id: Reading<String>,
    pub image_id: Reading<String>,
    pub image_version: Reading<String>,
    /// `/etc/machine-id`: for the record's evidence only, cloned images share it.
    pub machine_id: Reading<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    pub model: Reading<String>,
    pub sockets: Reading<u32>,
    pub online: Reading<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NumaNode {
    pub id: u32,
    /// As the kernel lists them: `0-15,64-79`; empty for a node of memory alone.
    pub cpus: Reading<String>,
    /// Bytes.
    pub memory: Reading<u64>,
    pub distances: Reading<Vec<u32>>,
}

/// One function on the PCI bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PciFunction {
    pub model: Reading<PciModel>,
    pub subsystem: Reading<PciModel>,
    /// 24 bits: base class, sub-class, interface.
    pub class: Reading<u32>,
    pub driver: Reading<String>,
    /// -1 where the firmware does not say.
    pub numa_node: Reading<i32>,
    pub local_cpus: Reading<String>,
    /// Bridges from the root port down to the parent, nearest last.
    pub upstream: Vec<BusId>,
    /// The root complex, e.g. `pci0000:15`.
    pub root: String,
    pub link: PciLink,
}

impl PciFunction {
    /// Whether this is an NVIDIA GPU: vendor 10de, class display (0300 VGA, 0302 3D).
    pub fn is_nvidia_gpu(&self) -> bool {
        let vendor = self.model.value().map(|model| model.vendor);
        let class = self.class.value().map(|class| class >> 8);
        vendor == Some(0x10de) && matches!(class, Some(0x0300 | 0x0302))
    }

    /// Whether this may be an NVIDIA GPU of which the kernel did not say so: vendor or class could
    /// not be read, and what could be read does not speak against it.
    pub fn may_be_nvidia_gpu(&self) -> bool {
        let vendor = self.model.value().map(|model| model.vendor);
        let class = self.class.value().map(|class| class >> 8);
        (vendor.is_none() || class.is_none())
            && vendor.is_none_or(|vendor| vendor == 0x10de)
            && class.is_none_or(|class| matches!(class, 0x0300 | 0x0302))
    }
}

/// Speeds as GT/s, widths as lanes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PciLink {
    pub speed: Reading<f64>,
    pub width: Reading<u32>,
    pub max_speed: Reading<f64>,
    pub max_width: Reading<u32>,
    /// Sums of `aer_dev_correctable`, `aer_dev_nonfatal`, `aer_dev_fatal`.
    pub correctable: Reading<u64>,
    pub nonfatal: Reading<u64>,
    pub fatal: Reading<u64>,
}

/// A network or InfiniBand device that stands on a PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    pub name: String,
    pub bus_id: BusId,
    /// Whether this is an RDMA device (`/sys/class/infiniband`); `nvidia-smi topo` shows only those.
    #[serde(default)]
    pub rdma: bool,
}

/// What the kernel side of the driver says, and what lies in the library folders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverFacts {
    /// `/sys/module/nvidia/version`.
    pub module_version: Reading<String>,
    /// First line of `/proc/driver/nvidia/version`.
    pub version_text: Reading<String>,
    /// `NVRM version: NVIDIA UNIX Open Kernel Module` is the open flavour.
    pub open_module: Reading<bool>,
    /// `EnableGpuFirmware` and friends of `/proc/driver/nvidia/params`.
    pub parameters: Reading<BTreeMap<String, String>>,
    /// Minor numbers of `/dev/nvidiaN` that exist.
    pub device_nodes: Vec<u32>,
    pub control_node: Reading<bool>,
}

/// Records of `/dev/kmsg` that concern GPUs, links and memory, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelLog {
    pub state: Reading<LogExtent>,
    pub entries: Vec<LogEntry>,
}

/// How much of the log we saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogExtent {
    /// Sequence numbers of the first record from which on none is missing, and of the last.
    pub first: u64,
    pub last: u64,
    /// Whether the record 0 of this boot was still there; if not, earlier Xids may be lost.
    pub complete: bool,
    /// Driver lines that no known form matches.
    pub unknown: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    pub sequence: u64,
    /// Microseconds since boot.
    pub microseconds: u64,
    pub kind: LogKind,
    /// The line, made printable, at most 400 characters.
    pub text: String,
}

/// Forms of driver messages (NVIDIA's Xid catalogue, public reports).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum LogKind {
    Xid {
        code: u32,
        bus_id: Option<BusId>,
    },
    SXid {
        code: u32,
        bus_id: Option<BusId>,
    },
    /// `RmInitAdapter failed!`
    AdapterFailed {
        bus_id: Option<BusId>,
    },
    /// `GPU has fallen off the bus`, without an Xid.
    FallenOffBus {
        bus_id: Option<BusId>,
    },
    /// `API mismatch: the client has the version …`
    ApiMismatch {
        client: String,
    },
    /// An AER report of a port or device.
    Aer {
        severity: String,
        bus_id: Option<BusId>,
    },
    /// A line of the driver in a form that we do not know.
    Unknown,
}

/// What the kernel says of its clock (`adjtimex`), at the time of the reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockState {
    pub synchronised: Reading<bool>,
    /// Microseconds; the kernel's own bound of its error.
    pub maximum_error: Reading<i64>,
}
