//! The command line, one file per subcommand.

pub mod capture;
pub mod inventory;
pub mod job;
pub mod place;
pub mod topology;
