//! Other people's verifiers. Each is installed under `target/`; where that cannot be done, the
//! tests fail: a verifier that was not run has verified nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Fails the test with the tool's own words if it does not succeed.
pub fn succeeds(program: &str, arguments: &[&str]) -> String {
    let output = run(Path::new(program), arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}", words(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn run(program: &Path, arguments: &[&str]) -> Output {
    match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => panic!("{} is needed for this test and cannot be run: {error}", program.display()),
    }
}

pub fn words(output: &Output) -> String {
    format!("{} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A Python with securesystemslib.
pub fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let folder = tools().join("python");
        let python = folder.join("bin/python");
        let ready = || {
            let output = Command::new(&python).args(["-c", "import securesystemslib.dsse, cryptography"]).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !ready() {
            succeeds("python3", &["-m", "venv", "--clear", folder.to_str().unwrap()]);
            let pip = folder.join("bin/pip");
            succeeds(pip.to_str().unwrap(), &["install", "--quiet", "securesystemslib==1.6.0", "cryptography"]);
            assert!(ready(), "securesystemslib was installed and cannot be imported");
        }
        python
    })
}

/// The folder in which node finds `@sigstore/verify`.
pub fn node_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tools().join("node");
        let packages = ["@sigstore/verify", "@sigstore/bundle"];
        if !packages.iter().all(|package| folder.join("node_modules").join(package).join("package.json").exists()) {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("package.json"), "{\"private\": true}\n").unwrap();
            let prefix = folder.to_str().unwrap();
            let versions = ["@sigstore/verify@3.1.1", "@sigstore/bundle@4.0.0"];
            succeeds("npm", &[&["install", "--prefix", prefix, "--no-fund", "--no-audit"][..], &versions].concat());
        }
        folder
    })
}

/// A script of `tests/verify/`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify").join(name)
}

fn tools() -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verifiers");
    std::fs::create_dir_all(&tools).unwrap();
    tools
}
