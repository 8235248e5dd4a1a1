//! NVIDIA's own Python binding reads the simulated driver and gets what was recorded.
//!
//! The binding knows the C interface from NVIDIA, not from us: a wrong struct layout, argument
//! order or buffer rule of ours shows here as a wrong value.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use serde::Deserialize;
use serde_json::{Value, json};

/// The binding that the test was written against (package name and version).
const BINDING: &str = "nvidia-ml-py==13.615.71";

type Prepare = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int;

/// One line of `abi.py`.
#[derive(Debug, Deserialize)]
struct Line {
    f: String,
    a: Vec<u32>,
    answer: Value,
}

#[test]
fn nvidias_python_binding_reads_what_was_recorded() {
    let (library, python) = (build_library(), install_binding());
    for host in recorded_hosts() {
        let run = tempfile::tempdir().unwrap();
        prepare(&library, &host, run.path());
        let output = ask(&python, &run.path().join("root/usr/lib/x86_64-linux-gnu"));
        let recorded: Value = serde_json::from_slice(&fs::read(host.join("driver.json")).unwrap()).unwrap();
        let lines: Vec<Line> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() > 80, "{}: only {} answers", host.display(), lines.len());
        for line in &lines {
            let expected = expected(&recorded["answers"], line);
            assert!(agrees(&expected, &line.answer), "{}: recorded {expected}, read {line:?}", host.display());
        }
    }
}

/// The small host of the driver's own tests, and every host that has a recording of its own.
fn recorded_hosts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hosts = fs::read_dir(root.join("fixtures/hosts")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = hosts.filter(|host| host.join("driver.json").is_file()).collect();
    all.push(root.join("fixtures/driver/testdata/two-gpus"));
    all
}

/// Builds the library, which `cargo test --test abi` alone would not, and says where it is.
fn build_library() -> PathBuf {
    let executable = env::current_exe().unwrap();
    let folder = executable.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", "nodegate-driver"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    succeed(cargo);
    folder.join("libnodegate_driver.so")
}

/// Installs the binding into a virtual environment of its own; the interpreter in it.
fn install_binding() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvidia-ml-py");
    let python = folder.join("bin/python");
    let mut known = Command::new(&python);
    if known.args(["-c", "import pynvml"]).output().is_ok_and(|output| output.status.success()) {
        return python;
    }
    let mut create = Command::new("python3");
    create.args(["-m", "venv", "--clear"]).arg(&folder);
    succeed(create);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", BINDING]);
    succeed(install);
    python
}

fn prepare(library: &Path, host: &Path, run: &Path) {
    let path = |path: &Path| CString::new(path.to_str().unwrap()).unwrap();
    let (host, run) = (path(host), path(run));
    let mut error = [0_u8; 1000];
    // SAFETY: the library is the one that was just built, the function has this type in it, and
    // both paths and the buffer live through the call.
    let code = unsafe {
        let library = libloading::Library::new(library).unwrap();
        let prepare = library.get::<Prepare>(b"nodegate_simulated_prepare\0").unwrap();
        prepare(host.as_ptr(), run.as_ptr(), error.as_mut_ptr().cast(), error.len())
    };
    assert_eq!(code, 0, "{}", String::from_utf8_lossy(&error));
}

fn ask(python: &Path, libraries: &Path) -> String {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi.py")).env("LD_LIBRARY_PATH", libraries);
    String::from_utf8(succeed(command).stdout).unwrap()
}

fn succeed(mut command: Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The recorded answer: the key with the fewest `*`, of these the one with the leftmost literal.
fn expected(answers: &Value, line: &Line) -> Value {
    let given: Vec<String> = line.a.iter().map(u32::to_string).collect();
    let matches = |key: &str| {
        let parts: Vec<&str> = key.split(',').filter(|part| !part.is_empty()).collect();
        parts.len() == given.len() && parts.iter().zip(&given).all(|(part, given)| *part == "*" || part == given)
    };
    let rank = |key: &str| (key.matches('*').count(), key.split(',').map(|part| part == "*").collect::<Vec<_>>());
    let keys = answers[&line.f].as_object().into_iter().flatten();
    let best = keys.filter(|(key, _)| matches(key)).min_by_key(|(key, _)| rank(key));
    let answer = best.map_or_else(|| json!({"rc": 10_001}), |(_, answer)| answer.clone());
    answer.get(0).cloned().unwrap_or(answer)
}

/// What was read must be what was recorded; a read array may go on with zeroes, and a read
/// struct may have members that were not recorded and are zero.
fn agrees(recorded: &Value, read: &Value) -> bool {
    match (recorded, read) {
        (Value::Array(recorded), Value::Array(read)) => {
            recorded.len() <= read.len()
                && recorded.iter().zip(read).all(|(recorded, read)| agrees(recorded, read))
                && read[recorded.len()..].iter().all(is_empty)
        }
        (Value::Object(recorded), Value::Object(read)) => {
            read.iter().all(|(name, value)| recorded.get(name).map_or(is_empty(value), |known| agrees(known, value)))
        }
        (recorded, read) => recorded == read,
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_u64() == Some(0) || value.as_str().is_some_and(|text| text.bytes().all(|byte| byte == b'0'))
}
