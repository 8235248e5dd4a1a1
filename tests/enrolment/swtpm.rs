//! A software TPM of its own for each test, on a socket in a folder that goes with it.

use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct Swtpm {
    child: Child,
    folder: tempfile::TempDir,
}

impl Swtpm {
    pub fn start() -> Swtpm {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let arguments = [
            "socket".to_owned(),
            "--tpm2".to_owned(),
            format!("--tpmstate=dir={}", folder.path().display()),
            format!("--server=type=unixio,path={}", path("tpm")),
            format!("--ctrl=type=unixio,path={}", path("tpm.ctrl")),
            "--flags=not-need-init,startup-clear".to_owned(),
        ];
        let child = Command::new("swtpm").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("swtpm is needed for this test (Debian: swtpm, tpm2-tools, libtss2-tcti-swtpm0)");
        let swtpm = Swtpm { child, folder };
        // It takes some milliseconds to listen; a minute means that it never will.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !swtpm.answers() {
            assert!(std::time::Instant::now() < end, "swtpm does not answer; is tpm2-tools installed?");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        swtpm
    }

    pub fn tcti(&self) -> String {
        format!("swtpm:path={}", self.folder.path().join("tpm").display())
    }

    /// Runs one of tpm2-tools on it, in this folder.
    pub fn tool(&self, folder: &Path, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.args(["-T", &self.tcti()]).args(arguments).current_dir(folder);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Nothing that tpm2-tools left in it stays.
    pub fn flush(&self, folder: &Path) {
        self.tool(folder, "tpm2_flushcontext", &["-t"]);
    }

    fn answers(&self) -> bool {
        let mut command = Command::new("tpm2_getcap");
        command.args(["-T", &self.tcti(), "properties-fixed"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
