//! The driver session against libraries that answer, hang, crash and lie.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nodegate::facts::snapshot::{Library, SessionState};
use nodegate::facts::{Answer, Question, Snapshot};
use nodegate::host::{Machine, Origin, Source};
use nodegate::reading::{Code, Reading};

/// A recorded host whose driver is the stub with these faults.
struct Host {
    run: tempfile::TempDir,
}

impl Host {
    fn with(faults: &[&str]) -> Host {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join("root/usr/lib/x86_64-linux-gnu");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(run.path().join("root/proc")).unwrap();
        let host = Host { run };
        host.modules("nvidia 1 0 - Live 0x0\n");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/session/stub.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(folder.join("libnvidia-ml.so.1"))
            .args(faults.iter().map(|fault| format!("-D{fault}")))
            .arg(source)
            .status()
            .unwrap();
        assert!(built.success());
        host
    }

    fn modules(&self, text: &str) {
        std::fs::write(self.run.path().join("root/proc/modules"), text).unwrap();
    }

    fn library(&self) -> PathBuf {
        self.run.path().join("root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    }

    fn open(&self, patience: Duration) -> (Machine, Snapshot) {
        let source = Source {
            origin: Origin::Simulated,
            root: self.run.path().join("root"),
            run_folder: Some(self.run.path().to_owned()),
            ..Source::live()
        };
        Machine::open(source, Instant::now() + patience)
    }
}

fn soon() -> Duration {
    Duration::from_secs(15)
}

#[test]
fn a_driver_that_answers_fills_the_snapshot_and_what_it_lacks_is_said() {
    let host = Host::with(&[]);
    let (mut machine, snapshot) = host.open(soon());
    assert_eq!(snapshot.driver.session, SessionState::Answering, "{:?}", snapshot.warnings);
    assert!(matches!(&snapshot.driver.library, Some(Library { simulated: true, .. })));
    assert_eq!(snapshot.driver.driver_version, Reading::Value("580.105.08".to_owned()));
    assert_eq!(snapshot.driver.nvml_version, Reading::Failed(Code::FUNCTION_NOT_FOUND));
    let [one, two] = &snapshot.gpus[..] else { panic!("{}", snapshot.gpus.len()) };
    assert_eq!(one.handle, Reading::Value(true));
    assert_eq!(two.name, Reading::Value("two\u{1b}[31m".to_owned()));
    assert_eq!(two.temperature, Reading::Value(41));
    assert_eq!(one.ecc_mode.value().map(|mode| (mode.current, mode.pending)), Some((1, 0)));
    assert_eq!(one.brand, Reading::Value(4711));
    assert_eq!(one.power_usage, Reading::Failed(Code(77)));
    assert_eq!(one.numa_node, Reading::Unsupported);
    assert_eq!(one.event_reasons, Reading::Value(0x480));
    let fabric = one.fabric.value().unwrap();
    assert_eq!((fabric.state, fabric.health_mask), (3, 0x55));
    assert_eq!(fabric.cluster_uuid, "000000000000000000000000000000ab");
    assert_eq!(one.nvlinks.len(), 1);
    assert_eq!(one.nvlinks[0].speed, Reading::Value(26_000));
    assert_eq!(one.compute_processes, Reading::Value(vec![]));
    assert_eq!(two.compute_processes.value().map(Vec::len), Some(3));
    assert_eq!(snapshot.pairs.len(), 2);
    let limit = Question::new("nvmlDeviceGetFieldValues", &[0, 193, 0]);
    let answers = machine.ask(std::slice::from_ref(&limit), Instant::now() + soon());
    assert_eq!(answers.iter().next(), Some((&limit, &Answer::value(-8))));
    assert_eq!(machine.pulse().reading::<bool>("nvmlDeviceGetHandleByIndex_v2", &[1]), Reading::Value(true));
    assert_eq!(machine.close(), None);
}

#[test]
fn a_step_is_marked_in_the_run_folder_of_a_recorded_host() {
    let host = Host::with(&[]);
    let (mut machine, _) = host.open(soon());
    machine.mark(&"ecc".parse().unwrap());
    machine.mark(&"power".parse().unwrap());
    assert_eq!(std::fs::read_to_string(host.run.path().join("marks")).unwrap(), "ecc\npower\n");
}

#[test]
fn a_question_that_hangs_is_named_and_everything_behind_it_is_not_asked() {
    let host = Host::with(&["FAULT_HANG"]);
    let began = Instant::now();
    let (mut machine, snapshot) = host.open(Duration::from_secs(3));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let SessionState::Hung(wedge) = &snapshot.driver.session else { panic!("{:?}", snapshot.driver.session) };
    assert_eq!(wedge.question, "nvmlDeviceGetTemperature(1,0)");
    assert_eq!((wedge.process_state.as_str(), wedge.abandoned), ("S", false));
    assert!(snapshot.driver.library.is_some());
    assert_eq!(snapshot.gpus[0].temperature, Reading::Value(40));
    assert_eq!(snapshot.gpus[1].temperature, Reading::Failed(Code::HUNG));
    assert_eq!(snapshot.pairs[0].ancestor, Reading::Failed(Code::WEDGED));
    let before = Instant::now();
    let pulse = machine.pulse();
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(pulse.iter().all(|(_, answer)| *answer == Answer::refused(Code::WEDGED)));
}

#[test]
fn an_initialisation_that_hangs_is_named_and_the_library_is_still_known() {
    let host = Host::with(&["FAULT_HANG_INIT"]);
    let (_, snapshot) = host.open(Duration::from_secs(2));
    let SessionState::Hung(wedge) = &snapshot.driver.session else { panic!("{:?}", snapshot.driver.session) };
    assert_eq!(wedge.question, "nvmlInit_v2()");
    assert!(snapshot.driver.library.is_some() && snapshot.gpus.is_empty());
}

#[test]
fn a_child_that_dies_is_named_with_its_signal_and_its_question() {
    let host = Host::with(&["FAULT_CRASH"]);
    let (_, snapshot) = host.open(soon());
    let SessionState::Died { question, how } = &snapshot.driver.session else {
        panic!("{:?}", snapshot.driver.session)
    };
    assert_eq!(question, "nvmlDeviceGetSerial(1)");
    assert!(how.contains("SIGSEGV"), "{how}");
    assert_eq!(snapshot.gpus[1].serial, Reading::Failed(Code::DIED));
    assert_eq!(snapshot.gpus[1].brand, Reading::Failed(Code::WEDGED));
}

#[test]
fn a_shutdown_that_hangs_does_not_hold_the_run_up() {
    let host = Host::with(&["FAULT_HANG_SHUTDOWN"]);
    let (machine, _) = host.open(soon());
    let before = Instant::now();
    let wedge = machine.close().unwrap();
    assert_eq!(wedge.question, "nvmlShutdown()");
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_initialisation_that_is_refused_keeps_its_code_also_an_unknown_one() {
    for code in [9, 18, 27, 77, 999] {
        let host = Host::with(&[&format!("FAULT_INIT={code}")]);
        let (mut machine, snapshot) = host.open(soon());
        let state = &snapshot.driver.session;
        assert!(matches!(state, SessionState::InitFailed { code: Code(found), .. } if *found == code), "{state:?}");
        assert_eq!(snapshot.driver.device_count, Reading::Failed(Code(code)));
        assert!(machine.pulse().is_empty());
    }
}

#[test]
fn a_kernel_without_the_module_ends_the_session_before_the_library_is_initialised() {
    let host = Host::with(&["FAULT_HANG_INIT"]);
    host.modules("ext4 1 0 - Live 0x0\n");
    let (_, snapshot) = host.open(soon());
    let state = &snapshot.driver.session;
    assert!(matches!(state, SessionState::InitFailed { code: Code::DRIVER_NOT_LOADED, .. }), "{state:?}");
    assert!(snapshot.driver.library.is_some());
}

#[test]
fn the_simulated_driver_is_refused_where_the_host_is_real() {
    let host = Host::with(&[]);
    let source = Source {
        origin: Origin::Overridden,
        root: host.run.path().join("root"),
        nvml: Some(host.library()),
        ..Source::live()
    };
    let (_, snapshot) = Machine::open(source, Instant::now() + soon());
    let state = &snapshot.driver.session;
    assert!(matches!(state, SessionState::Refused { reason, .. } if reason.contains("simulated")), "{state:?}");
    assert!(matches!(&snapshot.driver.library, Some(Library { simulated: true, .. })));
    assert!(snapshot.gpus.is_empty());
}

#[test]
fn a_host_without_a_library_is_said_to_have_none() {
    let host = Host::with(&[]);
    std::fs::remove_file(host.library()).unwrap();
    let (_, snapshot) = host.open(soon());
    let state = &snapshot.driver.session;
    assert!(matches!(state, SessionState::NoLibrary { searched } if searched.len() > 10), "{state:?}");
}
