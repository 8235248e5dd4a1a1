//! What a host has: the text that a technician reads at a glance, and its JSON.

mod text;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::facts::Snapshot;
use crate::facts::gpu::Gpu;
use crate::facts::host::DriverFacts;
use crate::facts::snapshot::SessionState;
use crate::ident::{BusId, printable};
use crate::reading::{Code, Reading};

/// Version of the JSON. A newer one may add fields.
pub const FORMAT: u32 = 1;

/// What a host has. A field is `null` where there is no value; `notRead` then says why, by the field's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    pub format: u32,
    pub host: Host,
    pub driver: Driver,
    /// In NVML's order, then those that only the bus shows, in address order.
    pub gpus: Vec<GpuEntry>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub hostname: Option<String>,
    pub vendor: Option<String>,
    pub product: Option<String>,
    pub serial: Option<String>,
    pub bios: Option<String>,
    pub os: Option<String>,
    pub os_image: Option<String>,
    pub kernel: Option<String>,
    pub cpu: Option<String>,
    pub sockets: Option<u32>,
    /// Logical CPUs online.
    pub cpus: Option<u32>,
    pub numa_nodes: usize,
    /// Bytes.
    pub memory: Option<u64>,
    pub not_read: NotRead,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Driver {
    /// As NVML says; without NVML, the loaded kernel module's.
    pub version: Option<String>,
    pub module_version: Option<String>,
    pub open_module: Option<bool>,
    pub nvml: Option<String>,
    /// `13.0`.
    pub cuda: Option<String>,
    /// Why the driver does not answer, if it does not.
    pub trouble: Option<String>,
    pub not_read: NotRead,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuEntry {
    /// NVML's index; null where the driver does not show it.
    pub index: Option<u32>,
    pub slot: Option<String>,
    pub bus_id: Option<BusId>,
    /// Whether sysfs shows it on the PCI bus.
    pub on_bus: bool,
    /// Whether the driver shows it.
    pub in_driver: bool,
    /// `10de:2330`.
    pub pci_model: Option<String>,
    pub name: Option<String>,
    pub uuid: Option<String>,
    pub serial: Option<String>,
    /// Bytes.
    pub memory: Option<u64>,
    pub vbios: Option<String>,
    pub link_generation: Option<u32>,
    pub link_width: Option<u32>,
    /// Watts.
    pub power: Option<f64>,
    pub power_limit: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    pub ecc: Option<bool>,
    pub mig: Option<bool>,
    /// Number of MIG instances.
    pub mig_instances: usize,
    pub not_read: NotRead,
}

/// Why a field has no value, by the field's name.
pub type NotRead = BTreeMap<&'static str, String>;

impl Inventory {
    pub fn of(snapshot: &Snapshot) -> Inventory {
        let mut gpus: Vec<GpuEntry> = snapshot.gpus.iter().map(|gpu| entry(snapshot, gpu)).collect();
        let shown = snapshot.gpus_by_bus_id();
        let hidden = snapshot.gpus_on_bus().into_iter().filter(|bus_id| !shown.contains_key(bus_id));
        gpus.extend(hidden.map(|bus_id| bus_entry(snapshot, bus_id)));
        Inventory { format: FORMAT, host: host(snapshot), driver: driver(snapshot), gpus }
    }

    /// The screen, at most 80 columns, each line ended.
    pub fn to_text(&self) -> String {
        text::text(self)
    }

    /// The JSON, indented, with a line feed at the end.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|json| json + "\n")
    }
}

/// Takes values out of readings and keeps the reasons of those that have none.
#[derive(Default)]
struct Taker(NotRead);

/// Why a reading has no value; the kernel has no NVML numbers.
fn reason<T>(reading: &Reading<T>) -> String {
    match reading {
        Reading::Failed(code) if *code == Code::NO_PERMISSION => code.meaning().to_owned(),
        other => other.as_ref().map(|_| "").to_string(),
    }
}

impl Taker {
    fn take<T: Clone>(&mut self, field: &'static str, reading: &Reading<T>) -> Option<T> {
        match reading {
            Reading::Value(value) => Some(value.clone()),
            other => {
                self.0.insert(field, reason(other));
                None
            }
        }
    }

    fn text(&mut self, field: &'static str, reading: &Reading<String>) -> Option<String> {
        self.take(field, reading).map(|text| printable(&text, 120))
    }
}

fn host(snapshot: &Snapshot) -> Host {
    let facts = &snapshot.host;
    let mut taker = Taker::default();
    let image = match (&facts.os.image_id, &facts.os.image_version) {
        (Reading::Value(id), Reading::Value(version)) => Some(format!("{id} {version}")),
        (Reading::Value(id), _) => Some(id.clone()),
        _ => None,
    };
    Host {
        hostname: taker.text("hostname", &facts.hostname),
        vendor: taker.text("vendor", &facts.dmi.vendor),
        product: taker.text("product", &facts.dmi.product),
        serial: taker.text("serial", &facts.dmi.product_serial),
        bios: taker.text("bios", &facts.dmi.bios_version),
        os: taker.text("os", &facts.os.pretty_name),
        os_image: image.map(|image| printable(&image, 120)),
        kernel: taker.text("kernel", &facts.kernel.release),
        cpu: taker.text("cpu", &facts.cpu.model),
        sockets: taker.take("sockets", &facts.cpu.sockets),
        cpus: taker.take("cpus", &facts.cpu.online),
        numa_nodes: facts.numa.len(),
        memory: taker.take("memory", &facts.memory_total),
        not_read: taker.0,
    }
}

fn driver(snapshot: &Snapshot) -> Driver {
    let (session, facts): (_, &DriverFacts) = (&snapshot.driver, &snapshot.host.driver);
    let mut taker = Taker::default();
    let version = taker.text("version", &session.driver_version);
    let module_version = taker.text("moduleVersion", &facts.module_version);
    Driver {
        version: version.or_else(|| module_version.clone()),
        module_version,
        open_module: taker.take("openModule", &facts.open_module),
        nvml: taker.text("nvml", &session.nvml_version),
        cuda: taker
            .take("cuda", &session.cuda_version)
            .map(|number| format!("{}.{}", number / 1000, number % 1000 / 10)),
        trouble: trouble(&session.session),
        not_read: taker.0,
    }
}

fn trouble(session: &SessionState) -> Option<String> {
    let text = match session {
        SessionState::Answering => return None,
        SessionState::NoLibrary { .. } => "libnvidia-ml.so.1 was not found".to_owned(),
        SessionState::Refused { path, reason } => format!("{path} is not opened: {reason}"),
        SessionState::InitFailed { code, .. } => format!("the driver does not start: {code}"),
        SessionState::Hung(wedge) => format!("{} was not answered in {:.0} s", wedge.question, wedge.waited),
        SessionState::Died { question, how } => format!("the process that asked {question} ended: {how}"),
        SessionState::NotStarted => "the driver was not asked".to_owned(),
    };
    Some(printable(&text, 300))
}

fn entry(snapshot: &Snapshot, gpu: &Gpu) -> GpuEntry {
    let mut taker = Taker::default();
    let bus_id = gpu.bus_id();
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    let instances = gpu.mig_instances.iter().filter(|instance| instance.value().is_some()).count();
    GpuEntry {
        index: Some(gpu.index),
        slot: bus_id.and_then(|bus_id| snapshot.slot_of(bus_id)),
        bus_id,
        on_bus: bus_id.is_some_and(|bus_id| snapshot.host.pci.contains_key(&bus_id)),
        in_driver: true,
        pci_model: taker.take("pciModel", &gpu.pci).map(|pci| pci.model().to_string()),
        name: taker.text("name", &gpu.name),
        uuid: taker.text("uuid", &gpu.uuid),
        serial: taker.text("serial", &gpu.serial),
        memory: taker.take("memory", &gpu.memory).map(|memory| memory.total),
        vbios: taker.text("vbios", &gpu.vbios),
        link_generation: taker.take("linkGeneration", &gpu.link_generation),
        link_width: taker.take("linkWidth", &gpu.link_width),
        power: taker.take("power", &gpu.power_usage).map(watts),
        power_limit: taker.take("powerLimit", &gpu.power_limit).map(watts),
        temperature: taker.take("temperature", &gpu.temperature),
        ecc: taker.take("ecc", &gpu.ecc_mode).map(|mode| mode.current != 0),
        mig: taker.take("mig", &gpu.mig_mode).map(|mode| mode.current != 0),
        mig_instances: instances,
        not_read: taker.0,
    }
}

fn bus_entry(snapshot: &Snapshot, bus_id: BusId) -> GpuEntry {
    let model = snapshot.host.pci.get(&bus_id).and_then(|function| function.model.value());
    GpuEntry {
        slot: snapshot.slot_of(bus_id),
        bus_id: Some(bus_id),
        on_bus: true,
        pci_model: model.map(ToString::to_string),
        ..GpuEntry::default()
    }
}

#[cfg(test)]
mod tests;
