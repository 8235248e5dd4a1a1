//! The flag that ends a run early. Signals are the process's own, so the flag is too: whoever waits
//! for a child looks at it, and gives the child up when it is raised.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag, for a signal handler to raise.
pub fn interrupt_flag() -> Arc<AtomicBool> {
    Arc::clone(FLAG.get_or_init(Arc::default))
}

/// Whether the run is to end. Never so in a process that nobody has given the flag to.
pub fn interrupted() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
