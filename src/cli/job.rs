//! `nodegate __job NAME`: the jobs that run in a child of ours. Not for people.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::host::{fixture, read, session};
use crate::isolate::{serve_each, serve_one, serve_program_job};
use crate::wire;

/// Runs the job of this name with the parent at stdin and stdout.
pub fn serve(name: &str) -> ExitCode {
    match JOBS.iter().find(|(known, _)| *known == name) {
        Some((_, job)) => job(),
        None => {
            writeln!(io::stderr(), "no such job: {}", crate::ident::printable(name, 60)).ok();
            ExitCode::FAILURE
        }
    }
}

/// A job's name, and what it does with the parent at stdin and stdout.
type Job = (&'static str, fn() -> ExitCode);

const JOBS: &[Job] = &[
    ("host", || serve_each(read::serve_host_job)),
    ("record", || serve_one(read::serve_record_job)),
    ("session", session::serve),
    ("prepare", || serve_one(fixture::serve_prepare_job)),
    ("exchange", || serve_one(wire::serve_exchange_job)),
    ("program", serve_program_job),
];
