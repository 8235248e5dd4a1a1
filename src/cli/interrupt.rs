//! SIGINT and SIGTERM end a run in good order: they only raise a flag.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use super::Failure;

/// From now on both signals raise the flag that the waiting places look at.
pub fn install() -> Result<(), Failure> {
    let flag: Arc<AtomicBool> = crate::isolate::interrupt_flag();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(Failure::broken)?;
    }
    Ok(())
}

/// Whether one of them came.
pub fn interrupted() -> bool {
    crate::isolate::interrupted()
}
