//! The child's side: requests from the parent, answers to it, a line each.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Stdin, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::stdio::dup2_stdout;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first descriptor that is not one of the three standard ones.
const FIRST_OTHER: i32 = 3;

/// Requests in, answers out.
pub struct Dialogue<R, W> {
    requests: R,
    answers: W,
}

impl Dialogue<BufReader<Stdin>, File> {
    /// The dialogue of a child with the parent that started it.
    ///
    /// The child dies with its parent, holds no descriptor that the parent's caller left open
    /// (a lock that an abandoned child kept would outlive the run), and what a library prints
    /// to stdout goes to stderr, so that it cannot be taken for an answer.
    pub fn with_parent() -> io::Result<Self> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        close_inherited();
        let answers = fcntl_dupfd_cloexec(io::stdout(), FIRST_OTHER)?;
        dup2_stdout(io::stderr())?;
        Ok(Dialogue { requests: BufReader::new(io::stdin()), answers: File::from(answers) })
    }
}

impl<R: BufRead, W: Write> Dialogue<R, W> {
    /// A dialogue over any two ends.
    pub fn new(requests: R, answers: W) -> Self {
        Dialogue { requests, answers }
    }

    /// The parent's next request, or nothing when it has no more.
    pub fn request<Q: DeserializeOwned>(&mut self) -> io::Result<Option<Q>> {
        let mut line = String::new();
        match self.requests.read_line(&mut line)? {
            0 => Ok(None),
            _ => serde_json::from_str(&line).map(Some).map_err(io::Error::from),
        }
    }

    /// Gives one answer, at once: the parent sees from what is missing where we hang.
    pub fn answer<A: Serialize>(&mut self, answer: &A) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        self.answers.write_all(&line)?;
        self.answers.flush()
    }
}

/// Serves a job of one request and one answer.
pub fn serve_one<Q: DeserializeOwned, A: Serialize>(job: impl FnOnce(Q) -> A) -> ExitCode {
    serve_each(|request, answer| answer(job(request)))
}

/// Serves a job of one request that gives its answers one by one.
pub fn serve_each<Q: DeserializeOwned, A: Serialize>(job: impl FnOnce(Q, &mut dyn FnMut(A))) -> ExitCode {
    let served = Dialogue::with_parent().and_then(|mut dialogue| {
        let request = dialogue.request()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut said = Ok(());
        job(request, &mut |answer| {
            if said.is_ok() {
                said = dialogue.answer(&answer);
            }
        });
        said
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent keeps the end of our stderr and names it.
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Closes what the parent's own caller left open across `exec`.
fn close_inherited() {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd >= FIRST_OTHER)
        .collect();
    for descriptor in open {
        // The folder's own descriptor is in the list and closed by now.
        if std::fs::symlink_metadata(format!("/proc/self/fd/{descriptor}")).is_ok() {
            // SAFETY: this runs first in a new process with one thread, in which nobody owns a
            // descriptor beyond the three standard ones yet; the descriptor is open.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_lines() {
        let mut said = Vec::new();
        let mut dialogue = Dialogue::new(&b"[1,2]\n\"x\"\n"[..], &mut said);
        assert_eq!(dialogue.request::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
        assert!(dialogue.request::<u32>().is_err());
        assert_eq!(dialogue.request::<u32>().unwrap(), None);
        dialogue.answer(&"ö\n").unwrap();
        assert_eq!(said, "\"ö\\n\"\n".as_bytes());
    }
}
