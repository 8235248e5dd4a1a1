//! A job of ours in a child with a deadline.
//!
//! Whatever may hang (the driver, the kernel's files, a mount) is asked by a re-executed
//! child of our own binary: request on stdin, JSON lines on stdout, an empty environment and
//! nothing inherited. At the deadline the child gets SIGTERM, two seconds later SIGKILL, and
//! if it is still there it sleeps uninterruptibly in the kernel: it is named and abandoned,
//! never waited for. A child that dies or talks garbage is an answer, never a crash of ours.

mod child;
mod dialogue;
mod end;
mod interrupt;
mod lines;
mod program;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use child::{Child, Line};
pub use dialogue::{Dialogue, serve_each, serve_one};
pub use interrupt::{interrupt_flag, interrupted};
pub use program::{Bytes, Done, Failed, ProgramError, Step, Work, run_programs, serve_program_job};

use crate::facts::snapshot::Wedge;
use crate::ident::printable;

/// The argument by which our executable knows that it is to be a child.
pub const JOB_ARGUMENT: &str = "__job";

/// Why a child gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("the child process could not be started")]
    Start(#[source] io::Error),
    #[error("the child process gave no answer within {:.1} s", .0.waited)]
    Hung(Wedge),
    #[error("the child process {how}")]
    Died { how: String },
    #[error("the child process gave garbage: {detail}")]
    Garbled { detail: String },
}

/// How long a job of one answer may still take when the run is to end. It takes milliseconds where
/// nothing hangs, and its answer is what the record of an interrupted run stands on.
pub const CALL_GRACE: Duration = Duration::from_secs(2);

/// Runs a job that takes one request and gives one answer.
pub fn call<Q: Serialize, A: DeserializeOwned>(job: &str, request: &Q, deadline: Duration) -> Result<A, Broken> {
    let began = Instant::now();
    let answer = answer(job, request, began + deadline);
    let broken = answer.as_ref().err().map(|broken| printable(&broken.to_string(), 300));
    tracing::debug!(job, took = ?began.elapsed(), broken, "asked a child");
    answer
}

fn answer<Q: Serialize, A: DeserializeOwned>(job: &str, request: &Q, deadline: Instant) -> Result<A, Broken> {
    let mut child = Child::start(job)?.with_grace(CALL_GRACE);
    child.send(request)?;
    child.finish_input();
    let line = child.next_line(deadline)?;
    let answer = parsed(&line)?;
    child.stop();
    Ok(answer)
}

/// A child's line as data.
pub fn parsed<A: DeserializeOwned>(line: &str) -> Result<A, Broken> {
    serde_json::from_str(line)
        .map_err(|error| Broken::Garbled { detail: format!("{error}, in `{}`", printable(line, 80)) })
}

/// Our own executable: the running file, also where an upgrade has replaced it on disk.
///
/// A test executable lies in `deps` and cannot serve jobs; the binary lies one directory up.
pub fn executable() -> PathBuf {
    let Ok(path) = std::env::current_exe() else { return PathBuf::from("/proc/self/exe") };
    let in_deps = path.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "deps"));
    let beside = in_deps.and_then(|deps| deps.parent()).map(|profile| profile.join("nodegate"));
    match beside {
        Some(binary) if binary.is_file() => binary,
        _ if path.is_file() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}
