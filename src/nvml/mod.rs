//! The driver's management library, opened at run time, function by function.
//!
//! One explicit table ([`table`]) says for each NVML function which arguments it takes and
//! which shape its answer has; the shapes stand in files of their own. Every function is
//! optional: a driver that lacks one answers `FUNCTION_NOT_FOUND`. Return codes and enum
//! values stay the integers that the driver gave, also those that no header of ours knows.
//! Nothing here has a deadline: these calls belong in a child.

mod call;
mod catalogue;
mod driver;
mod fabric;
mod field;
mod list;
mod shape;
mod simulated;
mod structure;
mod table;

pub use catalogue::{rest_of_gpu, rest_of_link, rest_of_system};
pub use driver::{Driver, OpenError};
pub use simulated::{PrepareError, is_simulated, prepare};
