//! The edge: a child's job, or the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == nodegate::isolate::JOB_ARGUMENT) {
        return nodegate::cli::job::serve(&arguments.next().unwrap_or_default().to_string_lossy());
    }
    ExitCode::FAILURE
}
