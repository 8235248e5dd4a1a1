//! The parent's side: start a child, send requests, read lines until a deadline.
//!
//! Both directions go through one poll without blocking, so that a child that neither reads
//! nor writes cannot hold us.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child as Process, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use serde::Serialize;

use super::lines::{Lines, Tail};
use super::{Broken, JOB_ARGUMENT, end};
use crate::facts::snapshot::Wedge;

/// What comes back when a line is waited for.
pub type Line = Result<String, Broken>;

/// How long a child that has nothing more to do may take to leave. A driver without
/// persistence mode puts its GPUs to sleep meanwhile; no answer depends on it.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
/// How often a wait looks whether the run is to end: a signal may come just before the wait begins.
const GLANCE: Duration = Duration::from_millis(200);
/// How long a child that closed its stdout may take to be gone.
const DYING_PATIENCE: Duration = Duration::from_millis(500);

/// A job in a child.
pub struct Child {
    /// None once it has ended or was abandoned.
    process: Option<Process>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// What the child has not read yet.
    unsent: Vec<u8>,
    /// Close stdin when everything is sent.
    closing: bool,
    lines: Lines,
    tail: Tail,
    last_word: Instant,
    /// How long the child may still take when the run is to end, and until when that is.
    grace: Duration,
    cut_off: Option<Instant>,
}

impl Child {
    /// Starts our own executable with this job.
    pub fn start(job: &str) -> Result<Child, Broken> {
        let mut command = Command::new(super::executable());
        command.arg0("nodegate").args([JOB_ARGUMENT, job]);
        let child = Child::spawn(command)?;
        tracing::trace!(job, pid = child.process.as_ref().map(Process::id), "started a child");
        Ok(child)
    }

    /// Starts the command: no environment, no terminal signals, no mount held by its folder.
    fn spawn(mut command: Command) -> Result<Child, Broken> {
        command.env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(Broken::Start)?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let child = Child {
            process: Some(process),
            stdin,
            stdout,
            stderr,
            unsent: Vec::new(),
            closing: false,
            lines: Lines::default(),
            tail: Tail::default(),
            last_word: Instant::now(),
            grace: Duration::ZERO,
            cut_off: None,
        };
        child.unblock().map_err(Broken::Start)?;
        Ok(child)
    }

    /// When the run is to end, the child may still take this long to answer: for work that a
    /// record needs and that is done in a moment.
    pub fn with_grace(mut self, grace: Duration) -> Child {
        self.grace = grace;
        self
    }

    /// Queues one request line; it is written while lines are waited for. Never blocks.
    pub fn send<Q: Serialize>(&mut self, request: &Q) -> Result<(), Broken> {
        let line = serde_json::to_vec(request).map_err(|error| Broken::Start(error.into()))?;
        self.unsent.extend_from_slice(&line);
        self.unsent.push(b'\n');
        self.lines.begin();
        self.last_word = Instant::now();
        self.write();
        Ok(())
    }

    /// No more requests: the child sees the end of its stdin.
    pub fn finish_input(&mut self) {
        self.closing = true;
        self.write();
    }

    /// The child's next line. At the deadline the child is ended and described.
    pub fn next_line(&mut self, deadline: Instant) -> Line {
        loop {
            if let Some(line) = self.lines.next() {
                self.last_word = Instant::now();
                let garbled = |_| Broken::Garbled { detail: "not UTF-8".to_owned() };
                return String::from_utf8(line).map_err(garbled).inspect_err(|_| self.kill());
            }
            if self.process.is_none() {
                return Err(Broken::Died { how: "had ended before".to_owned() });
            }
            if self.stdout.is_none() {
                return Err(self.died());
            }
            if !self.wait(deadline) {
                return Err(if super::interrupted() { self.given_up() } else { self.hung() });
            }
            if let Err(detail) = self.read() {
                self.kill();
                return Err(Broken::Garbled { detail: detail.to_owned() });
            }
            self.write();
        }
    }

    /// Lets the child leave, and ends it if it does not. A wedge says that it hung in leaving.
    pub fn stop(mut self) -> Option<Wedge> {
        self.finish_input();
        let deadline = Instant::now() + LEAVE_PATIENCE;
        while self.stdout.is_some() && self.wait(deadline) {
            // What a leaving child still says interests nobody, only that it goes.
            self.read().ok();
            self.write();
        }
        let mut process = self.process.take()?;
        match end::gone_within(&mut process, deadline.saturating_duration_since(Instant::now())) {
            Some(_) => None,
            None => Some(end::end_hung(&mut process, LEAVE_PATIENCE)),
        }
    }

    /// Our ends of the pipes; the child's ends are other descriptions and still block.
    fn unblock(&self) -> io::Result<()> {
        for end in [self.stdin.as_ref().map(AsFd::as_fd), self.stdout.as_ref().map(AsFd::as_fd)] {
            end.map_or(Ok(()), |end| ioctl_fionbio(end, true))?;
        }
        self.stderr.as_ref().map_or(Ok(()), |end| ioctl_fionbio(end, true))?;
        Ok(())
    }

    /// Waits until a pipe has something to do. False at the deadline.
    fn wait(&mut self, deadline: Instant) -> bool {
        let cut_off = &mut self.cut_off;
        let mut pipes = Vec::with_capacity(3);
        pipes.extend(self.stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        pipes.extend(self.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let to_write = self.stdin.as_ref().filter(|_| !self.unsent.is_empty());
        pipes.extend(to_write.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        loop {
            let now = Instant::now();
            if super::interrupted() && now >= *cut_off.get_or_insert(now + self.grace) {
                return false;
            }
            let left = deadline.saturating_duration_since(now).min(GLANCE);
            if left.is_zero() {
                return false;
            }
            let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut pipes, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Any other error shows itself again in the read.
                Ok(_) | Err(_) => return true,
            }
        }
    }

    /// Takes what is there. An error says which bound the child broke.
    fn read(&mut self) -> Result<(), &'static str> {
        let mut buffer = [0; 16 << 10];
        if let Some(pipe) = &mut self.stdout {
            match pipe.read(&mut buffer) {
                Ok(0) => self.stdout = None,
                Ok(count) => self.lines.take(&buffer[..count])?,
                Err(error) if is_later(&error) => {}
                Err(_) => self.stdout = None,
            }
        }
        if let Some(pipe) = &mut self.stderr {
            match pipe.read(&mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(count) => self.tail.take(&buffer[..count]),
                Err(error) if is_later(&error) => {}
                Err(_) => self.stderr = None,
            }
        }
        Ok(())
    }

    /// Writes what the child takes now. A child that is gone shows itself in the read.
    fn write(&mut self) {
        while let Some(pipe) = self.stdin.as_mut().filter(|_| !self.unsent.is_empty()) {
            match pipe.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.stdin = None;
                    self.unsent.clear();
                }
            }
        }
        if self.closing {
            self.stdin = None;
        }
    }

    /// The child closed its stdout: it is dead, or as good as.
    fn died(&mut self) -> Broken {
        let Some(mut process) = self.process.take() else {
            return Broken::Died { how: "had ended before".to_owned() };
        };
        let Some(status) = end::gone_within(&mut process, DYING_PATIENCE) else {
            end::end_hung(&mut process, DYING_PATIENCE);
            return Broken::Died { how: "closed its output and stayed".to_owned() };
        };
        // Its last words may still lie in the pipe.
        self.read().ok();
        let last_words = self.tail.last_line().map_or(String::new(), |line| format!(": {line}"));
        Broken::Died { how: format!("{}{last_words}", end::how(status)) }
    }

    fn hung(&mut self) -> Broken {
        let waited = self.last_word.elapsed();
        let Some(mut process) = self.process.take() else {
            return Broken::Died { how: "had ended before".to_owned() };
        };
        Broken::Hung(end::end_hung(&mut process, waited))
    }

    /// The run is to end: the child did nothing wrong, but nobody waits for it any more.
    fn given_up(&mut self) -> Broken {
        self.kill();
        Broken::Died { how: "was stopped, because the run was interrupted".to_owned() }
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            end::kill(&mut process);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Child::spawn(command).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn hung(script: &str) -> (Wedge, Duration) {
        let mut child = shell(script);
        assert_eq!(child.next_line(soon()).unwrap(), "ready");
        let before = Instant::now();
        match child.next_line(Instant::now() + Duration::from_millis(100)) {
            Err(Broken::Hung(wedge)) => (wedge, before.elapsed()),
            other => panic!("{other:?}"),
        }
    }

    fn broken(script: &str) -> String {
        shell(script).next_line(soon()).unwrap_err().to_string()
    }

    #[test]
    fn a_child_hears_and_answers_more_than_a_pipe_holds() {
        let mut child = shell("cat");
        let long = "x".repeat(300_000);
        child.send(&long).unwrap();
        child.send(&"second").unwrap();
        assert_eq!(child.next_line(soon()).unwrap().len(), long.len() + 2);
        assert_eq!(child.next_line(soon()).unwrap(), "\"second\"");
        assert!(child.stop().is_none());
    }

    #[test]
    fn a_child_that_hangs_is_described_and_gone_after_sigterm() {
        let (wedge, took) = hung("echo ready; exec /bin/sleep 60");
        assert_eq!((wedge.process_state.as_str(), wedge.abandoned), ("S", false));
        assert!(wedge.pid > 0 && wedge.waited >= 0.1, "{wedge:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert!(!std::path::Path::new(&format!("/proc/{}", wedge.pid)).exists());
    }

    #[test]
    fn a_child_that_ignores_sigterm_is_killed_within_five_seconds() {
        let (wedge, took) = hung("trap '' TERM; echo ready; while :; do read -r x </dev/zero; done");
        assert!(!wedge.abandoned);
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
        assert!(!std::path::Path::new(&format!("/proc/{}", wedge.pid)).exists());
    }

    #[test]
    fn a_death_by_signal_is_named_and_so_are_last_words() {
        assert!(broken("kill -SEGV $$").contains("killed by signal 11 (SIGSEGV)"));
        assert!(broken("echo 'no such thing' >&2; exit 3").ends_with("ended with status 3: no such thing"));
        assert!(broken("exit 0").ends_with("ended without an answer"));
    }

    #[test]
    fn garbage_and_floods_are_refused() {
        assert!(broken("printf '\\377\\n'").contains("not UTF-8"));
        assert!(broken("cat /dev/zero").contains("a line of more than 8 MiB"));
        assert!(super::super::parsed::<u32>("{").unwrap_err().to_string().contains("garbage"));
    }

    #[test]
    fn a_flood_of_stderr_does_not_hold_the_answer_up() {
        let mut child = shell("head -c 300000 /dev/zero >&2; echo ready");
        assert_eq!(child.next_line(soon()).unwrap(), "ready");
    }

    #[test]
    fn nothing_of_our_environment_reaches_a_child() {
        let mut child = shell("/usr/bin/env | /bin/grep -v -e ^PWD= -e ^_= -e ^SHLVL= ; pwd");
        assert_eq!(child.next_line(soon()).unwrap(), "/");
    }

    #[test]
    fn a_child_that_is_dropped_is_killed() {
        let child = shell("exec /bin/sleep 60");
        let pid = child.process.as_ref().unwrap().id();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
