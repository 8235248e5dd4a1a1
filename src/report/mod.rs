//! What people and machines see: passive, they listen and print.

pub mod plan;
