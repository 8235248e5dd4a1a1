//! The collector as a process: what it takes and refuses, what it shows and to whom.

#[path = "collector/client.rs"]
mod client;
#[path = "store/host.rs"]
mod host;
#[path = "record/sample.rs"]
mod sample;
#[path = "collector/server.rs"]
mod server;

#[path = "collector/access.rs"]
mod access;
#[path = "collector/ending.rs"]
mod ending;
#[path = "collector/intake.rs"]
mod intake;
#[path = "collector/reading.rs"]
mod reading;
#[path = "collector/tls.rs"]
mod tls;
