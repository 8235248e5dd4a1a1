//! The edge: one file per subcommand.

pub mod class;
pub mod input;
pub mod plan;
pub mod site;
