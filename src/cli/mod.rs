//! The command line.

pub mod key;
pub mod record;
pub mod status;
pub mod verify;
