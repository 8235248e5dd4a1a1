//! Placeholder.
pub mod checks;
