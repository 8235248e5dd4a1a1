//! The machine under test: its host facts and its driver session, as snapshots.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::root::Root;
use super::session::{Opening, Session};
use super::{Origin, Source};
use crate::facts::snapshot::{DriverSession, Pair, SessionState, Wedge};
use crate::facts::{Answers, Gpu, HostFacts, Question, Snapshot};
use crate::ident::{StepId, printable};
use crate::isolate;
use crate::reading::Reading;

/// How long a sweep of the root folder may take. It is tens of milliseconds on a healthy host;
/// a device that fell off the bus can hold a read of its configuration space for seconds.
const HOST_PATIENCE: Duration = Duration::from_secs(15);
/// How long the few counters after a step may take altogether.
const PULSE_PATIENCE: Duration = Duration::from_secs(20);
/// More GPUs than any host has; a driver that counts more has lost its count.
const MOST_GPUS: u32 = 128;
/// Pairs are asked of hosts with at most this many GPUs (240 ordered pairs).
const MOST_PAIRED: u32 = 16;
/// A fresh one at every boot.
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
/// Kernel modules that bring a driver for NVML: the discrete GPUs', and Tegra's.
const MODULES: [&str; 2] = ["nvidia", "nvgpu"];
/// The paravirtual GPU of WSL, whose driver is no module of its own.
const WSL_DEVICE: &str = "dev/dxg";

/// The machine under test, with one driver session for the whole run.
pub struct Machine {
    pub source: Source,
    session: Session,
    /// GPUs at the opening, whose counters are asked after each step.
    gpus: u32,
    /// Number of the kernel log's last record in the newest snapshot.
    log_end: Option<u64>,
    /// What went wrong on our side and belongs into the next snapshot.
    warnings: Vec<String>,
}

impl Machine {
    /// Reads the host, opens the driver session and takes the opening snapshot. What fails is
    /// in the snapshot; a hang costs at most the deadline and 4 s.
    pub fn open(source: Source, deadline: Instant) -> (Machine, Snapshot) {
        let (source, session) = (absolute(source), Session::none());
        let mut machine = Machine { source, session, gpus: 0, log_end: None, warnings: Vec::new() };
        let host = machine.host_facts(deadline);
        machine.session = Session::open(&machine.opening(&host), deadline);
        machine.warnings.extend(machine.session.cuda_objection.take());
        let snapshot = machine.around(host, deadline);
        machine.gpus = count(&snapshot.driver);
        (machine, snapshot)
    }

    /// Asks the driver more. After a hang every answer is `WEDGED`.
    pub fn ask(&mut self, questions: &[Question], deadline: Instant) -> Answers {
        let began = Instant::now();
        let answers = self.session.ask(questions, deadline);
        tracing::debug!(questions = questions.len(), took = ?began.elapsed(), "asked the driver");
        for (question, answer) in answers.iter() {
            // Made only where somebody listens.
            tracing::trace!(answer = printable(&format!("{answer:?}"), 200), "{question}");
        }
        answers
    }

    /// A whole new snapshot.
    pub fn snapshot(&mut self, deadline: Instant) -> Snapshot {
        let host = self.host_facts(deadline);
        self.around(host, deadline)
    }

    /// The counters of every GPU that the opening snapshot has.
    pub fn pulse(&mut self) -> Answers {
        let questions: Vec<Question> = (0..self.gpus).flat_map(Gpu::pulse).collect();
        self.ask(&questions, Instant::now() + PULSE_PATIENCE)
    }

    /// Tells a simulated machine that this step begins, so that its later events befall it.
    pub fn mark(&mut self, step: &StepId) {
        let Some(run) = &self.source.run_folder else { return };
        let marked = append(&run.join("marks"), step.as_str());
        if let Err(error) = marked {
            self.warnings.push(format!("step {step} could not be marked in the run folder: {error}"));
        }
    }

    /// How the driver session stands.
    pub fn session_state(&self) -> &SessionState {
        self.session.state()
    }

    /// Number of the kernel log's last record that a snapshot of this machine has, if it could be read.
    pub fn log_end(&self) -> Option<u64> {
        self.log_end
    }

    /// Ends the session. A wedge says that the driver did not let our child go.
    pub fn close(mut self) -> Option<Wedge> {
        self.session.close()
    }

    /// The boot that we are in now, if the kernel says. A plain file of the kernel's own memory:
    /// reading it cannot hang.
    pub fn boot_id(&self) -> Option<String> {
        Root::new(&self.source.root).read_text(BOOT_ID).value().map(|text| printable(text.trim(), 40))
    }

    fn host_facts(&mut self, deadline: Instant) -> HostFacts {
        let (host, problem) = host_facts(&self.source, deadline);
        self.warnings.extend(problem);
        // A later look that failed makes nothing seen that was not.
        self.log_end = host.kernel_log.state.value().map(|extent| extent.last).or(self.log_end);
        host
    }

    fn opening(&self, host: &HostFacts) -> Opening {
        Opening {
            origin: self.source.origin,
            root: self.source.root.clone(),
            nvml: self.source.nvml.clone(),
            cuda: self.source.cuda.clone(),
            driver_loaded: has_driver(host) || self.is_wsl(),
        }
    }

    fn is_wsl(&self) -> bool {
        self.source.origin != Origin::Simulated && self.source.root.join(WSL_DEVICE).exists()
    }

    /// A snapshot of the driver around these facts about the host.
    fn around(&mut self, host: HostFacts, deadline: Instant) -> Snapshot {
        let mut answers = self.ask(&DriverSession::questions(), deadline);
        let mut driver = DriverSession::default();
        driver.read(&answers);
        let gpus = count(&driver);
        let first: Vec<Question> = (0..gpus).flat_map(Gpu::questions).collect();
        answers.extend(self.ask(&first, deadline));
        let second: Vec<Question> = (0..gpus).flat_map(|gpu| Gpu::follow_up(gpu, &answers)).collect();
        answers.extend(self.ask(&second, deadline));
        let pairs = pairs(gpus);
        let third: Vec<Question> = pairs.iter().flat_map(|(a, b)| Pair::questions(*a, *b)).collect();
        answers.extend(self.ask(&third, deadline));
        driver.session = self.session.state().clone();
        driver.library = self.session.library.clone();
        driver.cuda_library = self.session.cuda_library.clone();
        Snapshot {
            host,
            driver,
            gpus: (0..gpus).map(|gpu| Gpu::from_answers(gpu, &answers)).collect(),
            pairs: pairs.iter().map(|(a, b)| Pair::from_answers(*a, *b, &answers)).collect(),
            warnings: std::mem::take(&mut self.warnings),
        }
    }
}

/// The facts of a host without its driver, read in a child; and what went wrong, if so. Every
/// reading of a host that could not be read is `Unasked`, which no check takes for good.
pub fn host_facts(source: &Source, deadline: Instant) -> (HostFacts, Option<String>) {
    let left = deadline.saturating_duration_since(Instant::now()).min(HOST_PATIENCE);
    let root = absolute(source.clone()).root;
    let read: Result<Result<HostFacts, String>, _> = isolate::call("host", &json!({ "root": root }), left);
    let problem = match read {
        Ok(Ok(host)) => return (host, None),
        Ok(Err(message)) => message,
        Err(broken) => broken.to_string(),
    };
    (HostFacts::default(), Some(format!("host facts could not be read: {}", printable(&problem, 300))))
}

/// Whether the kernel has a driver for the library to talk to. Where the list of modules could
/// not be read, the library may say so itself.
fn has_driver(host: &HostFacts) -> bool {
    match &host.kernel.modules {
        Reading::Value(modules) => MODULES.iter().any(|module| modules.contains_key(*module)),
        Reading::Unsupported | Reading::Unasked | Reading::Failed(_) => true,
    }
}

fn count(driver: &DriverSession) -> u32 {
    driver.device_count.value().map_or(0, |count| (*count).min(MOST_GPUS))
}

fn pairs(gpus: u32) -> Vec<(u32, u32)> {
    if gpus > MOST_PAIRED {
        return Vec::new();
    }
    (0..gpus).flat_map(|a| (0..gpus).filter(move |b| a != *b).map(move |b| (a, b))).collect()
}

/// Children work in `/`, so that a path must not depend on where we were started.
fn absolute(source: Source) -> Source {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    Source {
        root: absolute(source.root),
        nvml: source.nvml.map(absolute),
        cuda: source.cuda.map(absolute),
        run_folder: source.run_folder.map(absolute),
        ..source
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::facts::host::Module;
    use crate::reading::Code;

    #[test]
    fn a_library_is_not_initialised_on_a_kernel_that_is_known_to_have_no_driver() {
        let mut host = HostFacts::default();
        assert!(has_driver(&host));
        host.kernel.modules = Reading::Failed(Code::NO_PERMISSION);
        assert!(has_driver(&host));
        host.kernel.modules = Reading::Value(BTreeMap::from([("nouveau".to_owned(), Module::default())]));
        assert!(!has_driver(&host));
        host.kernel.modules = Reading::Value(BTreeMap::from([("nvidia".to_owned(), Module::default())]));
        assert!(has_driver(&host));
    }

    #[test]
    fn pairs_are_ordered_and_never_of_one_gpu() {
        assert_eq!(pairs(2), [(0, 1), (1, 0)]);
        assert_eq!(pairs(8).len(), 56);
        assert!(pairs(17).is_empty());
    }
}
