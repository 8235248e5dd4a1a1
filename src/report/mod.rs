//! What people see of a run and of its record.

pub mod record;
