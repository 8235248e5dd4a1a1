//! What a host is, as plain data.
//!
//! Nothing here does I/O and nothing here judges: a doorway fills these structures
//! from a live machine or a recorded one, and the checks read them.

pub mod answer;
pub mod gpu;
pub mod host;
pub mod redact;
pub mod snapshot;
pub mod topology;

pub use answer::{Answer, Answers, Question};
pub use gpu::Gpu;
pub use host::HostFacts;
pub use snapshot::Snapshot;
