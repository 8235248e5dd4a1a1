//! How a child ends: asked, killed, or abandoned where even SIGKILL does not reach it.

use std::fs;
use std::process::{Child as Process, ExitStatus};
use std::time::{Duration, Instant};

use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};

use crate::facts::snapshot::Wedge;
use crate::ident::printable;

/// From SIGTERM to SIGKILL. With the next it stays below the five seconds by which a run may
/// pass a step's deadline.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// From SIGKILL to giving up: a process that dies at all does so in milliseconds.
const KILL_GRACE: Duration = Duration::from_millis(500);
/// How often a dying child is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// What is kept of a kernel stack, frames.
const FRAMES: usize = 64;

/// Describes the child as it stands, then ends it. It may outlive the call: `abandoned` says so.
pub(super) fn end_hung(process: &mut Process, waited: Duration) -> Wedge {
    let mut wedge = look(process.id());
    wedge.waited = waited.as_secs_f64();
    signal(process, Signal::TERM);
    if gone_within(process, TERM_GRACE).is_some() {
        return wedge;
    }
    signal(process, Signal::KILL);
    if gone_within(process, KILL_GRACE).is_none() {
        wedge = Wedge { waited: wedge.waited, abandoned: true, ..look(process.id()) };
    }
    wedge
}

/// Kills at once, without asking; used where nobody wants to know how it went.
pub(super) fn kill(process: &mut Process) {
    signal(process, Signal::KILL);
    gone_within(process, KILL_GRACE);
}

/// The status, if the child ends within this time. The child is looked at, never waited for.
pub(super) fn gone_within(process: &mut Process, patience: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + patience;
    loop {
        if let Ok(Some(status)) = process.try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// How it ended, as a sentence's second half.
pub(super) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended without an answer".to_owned(),
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}{}", name(signal)),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

fn signal(process: &Process, signal: Signal) {
    // The child has not been reaped, so that its number is still its own.
    if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
        // A failure means that it has just ended, which the next look shows.
        kill_process(pid, signal).ok();
    }
}

/// The child as the kernel shows it. These files do not wait for the process that they
/// describe; the stack is readable for root alone.
fn look(pid: u32) -> Wedge {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    Wedge {
        pid,
        process_state: state_in(&read("stat")),
        wait_channel: Some(read("wchan").trim())
            .filter(|channel| *channel != "0")
            .map_or(String::new(), |text| printable(text, 80)),
        kernel_stack: read("stack").lines().take(FRAMES).map(|frame| printable(frame.trim(), 120)).collect(),
        ..Wedge::default()
    }
}

/// The state letter of `/proc/PID/stat`: the first field after the name, which may hold
/// brackets and spaces itself.
fn state_in(stat: &str) -> String {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state_in("7 (a) S (b)) D 1 7 7"), "D");
        assert_eq!(state_in(""), "");
    }

    #[test]
    fn our_own_state_is_running() {
        assert_eq!(look(std::process::id()).process_state.len(), 1);
    }
}
