//! Programs that are not ours, each an argument vector, run one after another in a child of ours.
//!
//! There is no shell and no environment; what comes out is bounded, and the deadline is the child's. A
//! program dies with the child that started it. Files that the programs hand to each other lie in a
//! folder of their own, which goes when the work is done, however it ended.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::Broken;
use crate::ident::{printable, printable_bytes};

/// Where programs are looked for: the system's folders and no others, whatever the caller's PATH says.
const FOLDERS: [&str; 5] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];
/// Bytes that are kept of what a program prints or writes to a file. A signature has a few hundred.
const LIMIT: u64 = 1 << 20;
/// Bytes that are kept of a program's complaint.
const COMPLAINT: u64 = 16 << 10;

/// Bytes as base64, since JSON has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub Vec<u8>);

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Work {
    /// Files that must be there before the first step, by name.
    pub files: Vec<(String, Bytes)>,
    pub steps: Vec<Step>,
    /// Files to give back, by name.
    pub results: Vec<String>,
    /// For all steps together.
    pub patience: Duration,
}

/// One program and its arguments. It runs in the work's own folder.
#[derive(Debug, Serialize, Deserialize)]
pub struct Step {
    /// A path, or a name that is looked for in the system's folders.
    pub program: String,
    pub arguments: Vec<String>,
    /// What it reads.
    pub input: Bytes,
    /// Whether its failure may be passed over.
    pub may_fail: bool,
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What each step printed.
    pub printed: Vec<Bytes>,
    /// The files asked for.
    pub results: Vec<Bytes>,
}

/// Why the work was not done.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("no folder for its files")]
    Folder(#[source] io::Error),
    #[error("the child that ran it")]
    Broken(#[source] Box<Broken>),
    #[error("{0}")]
    Failed(Failed),
}

/// Which program failed, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failed {
    #[error("{program} is not installed")]
    Missing { program: String },
    #[error("{program} cannot be run: {why}")]
    Start { program: String, why: String },
    #[error("{program} {how}{}", .complaint.as_ref().map_or(String::new(), |text| format!(": {text}")))]
    Ended { program: String, how: String, complaint: Option<String> },
    #[error("file {name}: {why}")]
    File { name: String, why: String },
}

/// The request of the job `program`.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    folder: PathBuf,
    work: Work,
}

impl Step {
    pub fn new(program: &str, arguments: &[&str]) -> Step {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Step { program: program.to_owned(), arguments, input: Bytes::default(), may_fail: false }
    }

    pub fn reading(self, input: &[u8]) -> Step {
        Step { input: Bytes(input.to_vec()), ..self }
    }

    pub fn that_may_fail(self) -> Step {
        Step { may_fail: true, ..self }
    }
}

/// Runs the steps in a child. The first that fails ends the work.
pub fn run_programs(work: Work) -> Result<Done, ProgramError> {
    let folder = tempfile::Builder::new().prefix("nodegate-work-").tempdir().map_err(ProgramError::Folder)?;
    let patience = work.patience;
    let order = Order { folder: folder.path().to_owned(), work };
    let answer: Result<Done, Failed> =
        super::call("program", &order, patience).map_err(|broken| ProgramError::Broken(Box::new(broken)))?;
    answer.map_err(ProgramError::Failed)
}

/// The job `program`.
pub fn serve_program_job() -> std::process::ExitCode {
    super::serve_one(|order: Order| carry_out(&order.folder, &order.work))
}

fn carry_out(folder: &Path, work: &Work) -> Result<Done, Failed> {
    let file = |name: &str, error: io::Error| Failed::File { name: printable(name, 60), why: error.to_string() };
    for (name, bytes) in &work.files {
        fs::write(folder.join(name), &bytes.0).map_err(|error| file(name, error))?;
    }
    let mut done = Done::default();
    for step in &work.steps {
        match step.run(folder) {
            Ok(printed) => done.printed.push(Bytes(printed)),
            Err(_) if step.may_fail => done.printed.push(Bytes::default()),
            Err(failed) => return Err(failed),
        }
    }
    for name in &work.results {
        let mut bytes = Vec::new();
        let opened = fs::File::open(folder.join(name));
        opened.and_then(|opened| opened.take(LIMIT).read_to_end(&mut bytes)).map_err(|error| file(name, error))?;
        done.results.push(Bytes(bytes));
    }
    Ok(done)
}

impl Step {
    fn run(&self, folder: &Path) -> Result<Vec<u8>, Failed> {
        let program = printable(&self.program, 120);
        let path = find(&self.program).ok_or_else(|| Failed::Missing { program: program.clone() })?;
        let start = |error: io::Error| Failed::Start { program: program.clone(), why: error.to_string() };
        let mut command = Command::new(path);
        command.args(&self.arguments).env_clear().current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec only prctl is called, which is safe there and allocates nothing.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let mut process = command.spawn().map_err(start)?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let input = self.input.0.clone();
        // A program that does not read all of its input may still do its work: its status tells.
        let writer = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
        let complaints = std::thread::spawn(move || stderr.map_or(Vec::new(), |pipe| bounded(pipe, COMPLAINT)));
        let printed = stdout.map_or(Vec::new(), |pipe| bounded(pipe, LIMIT));
        let status = process.wait().map_err(start)?;
        drop(writer.join());
        if status.success() {
            return Ok(printed);
        }
        let complaint = last_line(&complaints.join().unwrap_or_default());
        Err(Failed::Ended { program, how: super::end::how(status), complaint })
    }
}

/// The first bytes of what comes; the rest is read too, so that the program can end.
fn bounded(mut pipe: impl Read, limit: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error ends what was said; what was said before it stands.
    pipe.by_ref().take(limit).read_to_end(&mut bytes).ok();
    io::copy(&mut pipe, &mut io::sink()).ok();
    bytes
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = printable_bytes(bytes, usize::MAX).replace("\\u{a}", "\n");
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(|line| printable(line, 200))
}

fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        let path = PathBuf::from(program);
        return path.is_file().then_some(path);
    }
    FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

impl TryFrom<String> for Bytes {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, base64::DecodeError> {
        STANDARD.decode(text).map(Bytes)
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        STANDARD.encode(bytes.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried_out(steps: Vec<Step>, results: &[&str]) -> Result<Done, Failed> {
        let folder = tempfile::tempdir().unwrap();
        let files = vec![("given".to_owned(), Bytes(b"from us".to_vec()))];
        let results = results.iter().map(|name| (*name).to_owned()).collect();
        carry_out(folder.path(), &Work { files, steps, results, patience: Duration::from_secs(20) })
    }

    #[test]
    fn programs_hand_files_to_each_other_and_read_what_they_are_given() {
        let steps = vec![Step::new("cp", &["given", "taken"]), Step::new("cat", &[]).reading(b"\x00\xff")];
        let done = carried_out(steps, &["taken"]).unwrap();
        assert_eq!((&done.results[0].0[..], &done.printed[1].0[..]), (&b"from us"[..], &b"\x00\xff"[..]));
    }

    #[test]
    fn arguments_are_words_and_no_shell_reads_them() {
        let done = carried_out(vec![Step::new("echo", &["$HOME", "a; b", "*"])], &[]).unwrap();
        assert_eq!(done.printed[0].0, b"$HOME a; b *\n");
        assert_eq!(carried_out(vec![Step::new("env", &[])], &[]).unwrap().printed[0].0, b"");
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_complaint_and_ends_the_work() {
        let error = carried_out(vec![Step::new("ls", &["/nonexistent"]), Step::new("true", &[])], &[]).unwrap_err();
        assert!(error.to_string().starts_with("ls ended with status 2: "), "{error}");
        let passed_over = vec![Step::new("false", &[]).that_may_fail(), Step::new("echo", &["x"])];
        assert_eq!(carried_out(passed_over, &[]).unwrap().printed[1].0, b"x\n");
        let missing = carried_out(vec![Step::new("no-such-program", &[])], &[]).unwrap_err();
        assert_eq!(missing.to_string(), "no-such-program is not installed");
    }

    #[test]
    fn a_flood_is_cut_and_a_missing_result_named() {
        let done = carried_out(vec![Step::new("head", &["-c", "3000000", "/dev/zero"])], &[]).unwrap();
        assert_eq!(done.printed[0].0.len() as u64, LIMIT);
        assert!(carried_out(vec![], &["absent"]).unwrap_err().to_string().contains("absent"));
    }
}
