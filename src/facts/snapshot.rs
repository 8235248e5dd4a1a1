//! The host and its driver at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::answer::{Answers, Question};
use super::gpu::Gpu;
use super::host::HostFacts;
use crate::ident::{BusId, Digest};
use crate::reading::{Code, Reading};

/// The library that the session opened, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Library {
    /// Absolute path as opened.
    pub path: String,
    /// What the path resolves to.
    pub resolved: String,
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// User id of the owner; anything but 0 is refused on a live host.
    pub owner: u32,
    /// Whether it exports the marker of the simulated driver.
    pub simulated: bool,
    /// Whether it is CUDA's link-time stub.
    pub stub: bool,
}

/// How far the driver session came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum SessionState {
    /// Every question was answered, be it with a refusal.
    Answering,
    /// No library in any known place: the places that were looked at.
    NoLibrary { searched: Vec<String> },
    /// A library that must not be opened, and why.
    Refused { path: String, reason: String },
    /// `dlopen` or `nvmlInit` said no.
    InitFailed { code: Code, message: String },
    /// A question was not answered in time; the child was killed or abandoned.
    Hung(Wedge),
    /// The child died by a signal or gave garbage.
    Died { question: String, how: String },
    /// No session was tried.
    #[default]
    NotStarted,
}

/// A child that did not answer, as it was found at the deadline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wedge {
    /// The question that was not answered, e.g. `nvmlDeviceGetTemperature(3,0)`.
    pub question: String,
    pub pid: u32,
    /// State letter of `/proc/PID/stat`: `D` is uninterruptible sleep.
    pub process_state: String,
    /// `/proc/PID/wchan`, if readable.
    pub wait_channel: String,
    /// `/proc/PID/stack`, if readable, one frame a line.
    pub kernel_stack: Vec<String>,
    /// Whether the child was still there after SIGKILL and was abandoned.
    pub abandoned: bool,
    /// Seconds that we waited for the answer.
    pub waited: f64,
}

/// The driver as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverSession {
    pub session: SessionState,
    pub library: Option<Library>,
    /// Same for `libcuda.so.1`: found and hashed, not opened.
    pub cuda_library: Option<Library>,
    pub driver_version: Reading<String>,
    pub nvml_version: Reading<String>,
    /// 1000 × major + 10 × minor, e.g. 13000.
    pub cuda_version: Reading<u32>,
    pub device_count: Reading<u32>,
    pub excluded_count: Reading<u32>,
}

impl DriverSession {
    /// The questions about the driver as a whole.
    pub fn questions() -> Vec<Question> {
        [
            "nvmlSystemGetDriverVersion",
            "nvmlSystemGetNVMLVersion",
            "nvmlSystemGetCudaDriverVersion_v2",
            "nvmlDeviceGetCount_v2",
            "nvmlGetExcludedDeviceCount",
        ]
        .map(|function| Question::new(function, &[]))
        .to_vec()
    }

    /// Fills in what these questions were answered.
    pub fn read(&mut self, answers: &Answers) {
        self.driver_version = answers.reading("nvmlSystemGetDriverVersion", &[]);
        self.nvml_version = answers.reading("nvmlSystemGetNVMLVersion", &[]);
        self.cuda_version = answers.reading("nvmlSystemGetCudaDriverVersion_v2", &[]);
        self.device_count = answers.reading("nvmlDeviceGetCount_v2", &[]);
        self.excluded_count = answers.reading("nvmlGetExcludedDeviceCount", &[]);
    }

    /// Whether questions can still be asked.
    pub fn is_answering(&self) -> bool {
        self.session == SessionState::Answering
    }
}

/// What NVML says of two GPUs, by their indices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub a: u32,
    pub b: u32,
    /// 0 internal, 10 single switch, 20 multiple switches, 30 host bridge, 40 node, 50 system.
    pub ancestor: Reading<u32>,
    /// `nvmlGpuP2PStatus_t` for read, write, NVLink, atomics, property (0 to 4); 0 is OK.
    pub p2p: [Reading<u32>; 5],
}

impl Pair {
    pub fn questions(a: u32, b: u32) -> Vec<Question> {
        let mut questions = vec![Question::new("nvmlDeviceGetTopologyCommonAncestor", &[a, b])];
        questions.extend((0..5).map(|index| Question::new("nvmlDeviceGetP2PStatus", &[a, b, index])));
        questions
    }

    pub fn from_answers(a: u32, b: u32, answers: &Answers) -> Pair {
        Pair {
            a,
            b,
            ancestor: answers.reading("nvmlDeviceGetTopologyCommonAncestor", &[a, b]),
            p2p: [0, 1, 2, 3, 4].map(|index| answers.reading("nvmlDeviceGetP2PStatus", &[a, b, index])),
        }
    }
}

/// The host and its driver at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub host: HostFacts,
    pub driver: DriverSession,
    /// In NVML's order.
    pub gpus: Vec<Gpu>,
    /// Ordered pairs, `a != b`.
    pub pairs: Vec<Pair>,
    /// Whether every process of the host is visible to us, so that an empty list means idle.
    pub warnings: Vec<String>,
}

impl Snapshot {
    /// NVIDIA GPUs on the PCI bus as sysfs shows them, in address order.
    pub fn gpus_on_bus(&self) -> Vec<BusId> {
        self.host.pci.iter().filter(|(_, function)| function.is_nvidia_gpu()).map(|(bus_id, _)| *bus_id).collect()
    }

    /// GPUs with the address that the driver gives, in address order; one address may stand there twice.
    pub fn gpus_with_address(&self) -> Vec<(BusId, &Gpu)> {
        let mut gpus: Vec<(BusId, &Gpu)> = self.gpus.iter().filter_map(|gpu| Some((gpu.bus_id()?, gpu))).collect();
        gpus.sort_by_key(|(bus_id, gpu)| (*bus_id, gpu.index));
        gpus
    }

    /// GPUs by address as the driver shows them; of two at one address the later.
    pub fn gpus_by_bus_id(&self) -> BTreeMap<BusId, &Gpu> {
        self.gpus.iter().filter_map(|gpu| gpu.bus_id().map(|bus_id| (bus_id, gpu))).collect()
    }

    /// The name that a technician finds on the chassis for this GPU: the physical slot, then
    /// the module id, then nothing (the bus address is always printed beside it).
    pub fn slot_of(&self, bus_id: BusId) -> Option<String> {
        let on_path = |address: &BusId| self.host.slots.get(address).cloned();
        let function = self.host.pci.get(&bus_id);
        let from_bus = on_path(&BusId { function: 0, ..bus_id })
            .or_else(|| function.and_then(|function| function.upstream.iter().rev().find_map(on_path)));
        from_bus.or_else(|| {
            let gpus = self.gpus_by_bus_id();
            let module = gpus.get(&bus_id).and_then(|gpu| gpu.module_id.value().copied())?;
            // Cards that are no modules all give the same number: it names none of them.
            let namesakes = gpus.values().filter(|gpu| gpu.module_id.value() == Some(&module));
            (namesakes.count() == 1).then(|| format!("module {module}"))
        })
    }
}
