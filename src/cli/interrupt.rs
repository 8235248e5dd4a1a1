//! SIGINT, SIGTERM and SIGHUP end a run in good order: they only raise a flag.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Failure;

/// From now on these signals raise the flag that the waiting places look at. A lost connection is
/// one of them, unless the caller had it ignored (`nohup`), which stays so.
pub fn install() -> Result<(), Failure> {
    let flag: Arc<AtomicBool> = crate::isolate::interrupt_flag();
    let hangup = (!ignores_hangup()).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(Failure::broken)?;
    }
    Ok(())
}

/// Whether one of them came.
pub fn interrupted() -> bool {
    crate::isolate::interrupted()
}

/// A failure that a signal brought about is nobody's mistake: nothing was found out.
pub fn or(failure: fn(Box<dyn Error>) -> Failure) -> impl Fn(Box<dyn Error>) -> Failure {
    move |error| {
        if interrupted() { Failure::Held("interrupted before the host was read".into()) } else { failure(error) }
    }
}

/// The kernel's own list of the signals that we ignore (proc(5), `SigIgn`); without it, none.
#[expect(clippy::disallowed_methods, reason = "the edge reads how it was started")]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}
