//! Text to facts, pure.
//!
//! Every function takes text as a kernel, a driver or a distribution wrote it and gives
//! plain data. The text may be truncated or hostile: a line that does not read as it
//! should gives no fact, never a guess, and nothing here can panic.

pub mod cpu;
pub mod driver_log;
pub mod kmsg;
pub mod memory;
pub mod modules;
pub mod nvidia;
pub mod os_release;
pub mod pci;
