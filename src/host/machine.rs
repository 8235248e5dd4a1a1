//! The machine under test: its host facts and its driver session, as snapshots.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::Source;
use super::read::HOST_ANSWERS;
use super::session::{Opening, Session};
use crate::facts::host::Dmi;
use crate::facts::snapshot::{DriverSession, Pair, SessionState, Wedge};
use crate::facts::{Answers, Gpu, HostFacts, Question, Snapshot};
use crate::ident::{StepId, printable};
use crate::isolate::{self, Broken, Child};
use crate::reading::{Code, Reading};

/// How long a sweep of the root folder may take. It is tens of milliseconds on a healthy host;
/// a device that fell off the bus can hold a read of its configuration space for seconds.
const HOST_PATIENCE: Duration = Duration::from_secs(15);
/// How long the few counters after a step may take altogether.
const PULSE_PATIENCE: Duration = Duration::from_secs(20);
/// More GPUs than any host has; a driver that counts more has lost its count.
const MOST_GPUS: u32 = 128;
/// Pairs are asked of hosts with at most this many GPUs (240 ordered pairs).
const MOST_PAIRED: u32 = 16;
/// Kernel modules that bring a driver for NVML: the discrete GPUs', and Tegra's.
const MODULES: [&str; 2] = ["nvidia", "nvgpu"];

/// The machine under test, with one driver session for the whole run.
pub struct Machine {
    pub source: Source,
    session: Session,
    /// GPUs at the opening, whose counters are asked after each step.
    gpus: u32,
    /// Number of the kernel log's last record in the newest snapshot.
    log_end: Option<u64>,
    /// The root folder held a child up once. It is not asked again: each try costs its deadline.
    root_hung: bool,
    /// The boot that the last sweep saw.
    boot_id: Option<String>,
    /// What went wrong on our side and belongs into the next snapshot.
    warnings: Vec<String>,
}

impl Machine {
    /// Reads the host, opens the driver session and takes the opening snapshot. What fails is
    /// in the snapshot; a hang costs at most the deadline and 4 s.
    pub fn open(source: Source, deadline: Instant) -> (Machine, Snapshot) {
        let sweep = Sweep::of(&source, deadline);
        Machine::open_on(source, sweep, deadline)
    }

    /// The same on a sweep of the host that was made already.
    pub fn open_on(source: Source, sweep: Sweep, deadline: Instant) -> (Machine, Snapshot) {
        let mut machine = Machine {
            source: absolute(source),
            session: Session::none(),
            gpus: 0,
            log_end: None,
            root_hung: false,
            boot_id: None,
            warnings: Vec::new(),
        };
        let host = machine.take(sweep);
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

    /// The boot that the last sweep of the host saw, if the kernel said.
    pub fn boot_id(&self) -> Option<String> {
        self.boot_id.clone()
    }

    fn host_facts(&mut self, deadline: Instant) -> HostFacts {
        let sweep = if self.root_hung { Sweep::wedged() } else { Sweep::of(&self.source, deadline) };
        self.take(sweep)
    }

    fn take(&mut self, sweep: Sweep) -> HostFacts {
        self.root_hung |= sweep.hung;
        self.boot_id = sweep.facts.kernel.boot_id.value().cloned().or(self.boot_id.take());
        // A later look that failed makes nothing seen that was not.
        self.log_end = sweep.facts.kernel_log.state.value().map(|extent| extent.last).or(self.log_end);
        self.warnings.extend(sweep.problem);
        sweep.facts
    }

    fn opening(&self, host: &HostFacts) -> Opening {
        Opening {
            origin: self.source.origin,
            root: self.source.root.clone(),
            nvml: self.source.nvml.clone(),
            cuda: self.source.cuda.clone(),
            driver_loaded: has_driver(host),
        }
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

/// The facts of a host without its driver, as a child read them.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Every reading that the child did not come to is `Unasked`, which no check takes for good.
    pub facts: HostFacts,
    /// Why the root folder that was named is none.
    pub refused: Option<String>,
    /// What went wrong, if something did.
    problem: Option<String>,
    /// The root folder held the child up.
    hung: bool,
}

impl Sweep {
    /// Reads the host. Who it is comes first, and stands where the rest hangs; where even that
    /// could not be read, the facts say so, so that nobody takes the host for another one.
    pub fn of(source: &Source, deadline: Instant) -> Sweep {
        let deadline = deadline.min(Instant::now() + HOST_PATIENCE);
        let mut sweep = Sweep { facts: nobody(Code::DIED), refused: None, problem: None, hung: false };
        if let Err(broken) = sweep.read(&absolute(source.clone()), deadline) {
            sweep.hung = matches!(broken, Broken::Hung(_));
            sweep.problem = Some(format!("host facts could not be read: {}", printable(&broken.to_string(), 300)));
        }
        sweep
    }

    /// What a root folder that hangs is worth: nothing, and at once.
    fn wedged() -> Sweep {
        let problem = "host facts could not be read: the root folder hung before".to_owned();
        Sweep { facts: nobody(Code::WEDGED), refused: None, problem: Some(problem), hung: true }
    }

    fn read(&mut self, source: &Source, deadline: Instant) -> Result<(), Broken> {
        let mut child = Child::start("host")?.with_grace(isolate::CALL_GRACE);
        child.send(&json!({ "root": source.root }))?;
        child.finish_input();
        for _ in 0..HOST_ANSWERS {
            let answer: Result<HostFacts, String> = isolate::parsed(&child.next_line(deadline)?)?;
            self.facts = answer.map_err(|detail| {
                self.refused = Some(detail.clone());
                Broken::Died { how: format!("says: {detail}") }
            })?;
        }
        child.stop();
        Ok(())
    }
}

/// The facts of a host whose identity is there and could not be read.
fn nobody(code: Code) -> HostFacts {
    let unread = || Reading::Failed(code);
    let dmi = Dmi {
        product_serial: unread(),
        product_uuid: unread(),
        board_serial: unread(),
        chassis_serial: unread(),
        ..Dmi::default()
    };
    HostFacts { dmi, ..HostFacts::default() }
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
