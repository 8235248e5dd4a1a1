//! All facts about the host from its root folder, in one sweep.

mod clock;
mod driver;
mod pci;
mod system;

use serde::Deserialize;

use super::kmsg;
use super::root::{Recording, Root};
use crate::facts::HostFacts;
use crate::ident::printable;
use crate::reading::{Code, Reading};

/// Longest text that is kept of one attribute, in characters.
const TEXT: usize = 200;

/// Reads everything; what cannot be read says so in its own reading.
pub fn host_facts(root: &Root) -> HostFacts {
    let pci = pci::functions(root);
    HostFacts {
        hostname: system::hostname(root),
        dmi: system::dmi(root),
        kernel: system::kernel(root),
        os: system::os_image(root),
        cpu: system::cpu(root),
        numa: system::numa(root),
        memory_total: text(root, "/proc/meminfo").parsed(crate::parse::memory::total),
        pci_functions: pci::count(root),
        slots: pci::slots(root),
        nics: pci::nics(root),
        pci,
        driver: driver::driver_facts(root),
        kernel_log: kmsg::kernel_log(root),
        foreign_pid_namespace: system::foreign_pid_namespace(root),
        clock: clock::clock_state(root),
    }
}

/// What the jobs `host` and `record` are asked: which root folder to read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostJob {
    root: std::path::PathBuf,
}

/// How many lines the job `host` answers.
pub const HOST_ANSWERS: usize = 2;

/// The job `host`: `{"root": "/…"}` in; who the host is out at once, then all facts, so that a
/// device that holds the sweep up does not make the host a stranger. The error names what is wrong
/// with the request.
pub fn serve_host_job(request: serde_json::Value, answer: &mut dyn FnMut(Result<HostFacts, String>)) {
    match root_of(request).map(Root::new) {
        Ok(root) => {
            answer(Ok(identity(&root)));
            answer(Ok(host_facts(&root)));
        }
        Err(error) => answer(Err(error)),
    }
}

/// What tells this host from others, and no more.
fn identity(root: &Root) -> HostFacts {
    let (hostname, dmi, os) = (system::hostname(root), system::dmi(root), system::os_image(root));
    HostFacts { hostname, dmi, os, ..HostFacts::default() }
}

/// The job `record`: `{"root": "/…"}` in, everything that the facts were read from out.
pub fn serve_record_job(request: serde_json::Value) -> Result<Recording, String> {
    let root = Root::recording(root_of(request)?);
    host_facts(&root);
    Ok(root.recorded())
}

fn root_of(request: serde_json::Value) -> Result<std::path::PathBuf, String> {
    let job = HostJob::deserialize(request).map_err(|error| format!("request for host facts: {error}"))?;
    if !job.root.is_absolute() {
        return Err(format!("root folder {}: not an absolute path", job.root.display()));
    }
    match std::fs::read_dir(&job.root) {
        Ok(_) => Ok(job.root),
        Err(error) => Err(format!("root folder {}: {error}", job.root.display())),
    }
}

/// Turns text into a fact; text that does not read as one is garbled, never absent.
trait Parsed {
    fn parsed<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Reading<T>;
}

impl Parsed for Reading<String> {
    fn parsed<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
        match self.as_ref().map(|text| parse(text)) {
            Reading::Value(Some(fact)) => Reading::Value(fact),
            Reading::Value(None) => Reading::Failed(Code::GARBLED),
            Reading::Unsupported => Reading::Unsupported,
            Reading::Unasked => Reading::Unasked,
            Reading::Failed(code) => Reading::Failed(code),
        }
    }
}

/// The file as it is, for a parser.
fn text(root: &Root, path: &str) -> Reading<String> {
    root.read_text(path)
}

/// One attribute for people: trimmed and printable.
fn attribute(root: &Root, path: &str) -> Reading<String> {
    root.read_text(path).map(|text| printable(text.trim(), TEXT))
}

#[cfg(test)]
mod tests;
