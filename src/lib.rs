//! `nodegate` decides, on evidence, whether a GPU host may take work.
//!
//! The modules stand in layers; a module uses only lower ones, and
//! `tests/tidy.rs` enforces it. `docs/architecture.md` has the map.

// Layer 0: words and numbers.
pub mod ident;
pub mod reading;
pub mod units;

// Layer 1: plain data and the decision over it.
pub mod decision;
pub mod event;
pub mod facts;
pub mod outcome;
pub mod predicate;

// Layer 2: text to facts, and the driver's C interface.
pub mod nvml;
pub mod parse;

// Layer 3: a job of ours in a child with a deadline.
#[expect(clippy::disallowed_methods, reason = "starting, ending and watching children is what it is for")]
pub mod isolate;

// Layer 4: the doorways.
#[expect(clippy::disallowed_methods, reason = "a doorway: files, clocks and waiting end here")]
pub mod host;
pub mod wire;

// Layer 6: the checks.
pub mod check;

// Layer 7: what will run.
pub mod plan;

// Layer 8: a run, its record, and what people see of it.
pub mod gate;
pub mod record;
pub mod report;

// Layer 9: the record on its way, and where it arrives.
#[expect(clippy::disallowed_methods, reason = "the server's doorways: its store, its sockets, its clock")]
pub mod collector;
pub mod deliver;

// Layer 10: the edge.
pub mod cli;
pub mod exit;
