//! The child's side of the driver session.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use super::{Event, Opening};
use crate::facts::Question;
use crate::facts::snapshot::{Library, SessionState};
use crate::host::Origin;
use crate::host::library::{self, Found};
use crate::ident::printable;
use crate::isolate::Dialogue;
use crate::nvml::{self, Driver, OpenError};
use crate::reading::Code;

/// The device of WSL's paravirtual GPU.
const WSL_DEVICE: &str = "dev/dxg";

/// The job `session`.
pub fn serve() -> ExitCode {
    match Dialogue::with_parent().and_then(|mut dialogue| hold(&mut dialogue)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent keeps the end of our stderr and names it.
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Finds the libraries, opens the session, and answers until the parent has no more questions.
fn hold<R: BufRead, W: Write>(dialogue: &mut Dialogue<R, W>) -> io::Result<()> {
    let Some(opening) = dialogue.request::<Opening>()? else { return Ok(()) };
    let nvml = library::find(library::NVML, opening.nvml.as_deref(), &opening.root, opening.origin);
    let cuda = library::find(library::CUDA, opening.cuda.as_deref(), &opening.root, opening.origin);
    dialogue.answer(&as_on_the_host(found(&nvml, cuda), &opening))?;
    let (opened, driver) = open(&opening, nvml);
    dialogue.answer(&as_on_the_host(opened, &opening))?;
    let Some(driver) = driver else { return Ok(()) };
    while let Some(questions) = dialogue.request::<Vec<Question>>()? {
        for question in &questions {
            dialogue.answer(&driver.answer(question))?;
        }
    }
    driver.close();
    Ok(())
}

/// Paths as the recorded host had them: the private copy of its root folder means nothing to
/// people, and is gone after the run. A root folder that a person named stays in its paths.
fn as_on_the_host(mut event: Event, opening: &Opening) -> Event {
    if opening.origin != Origin::Simulated {
        return event;
    }
    let root = opening.root.to_string_lossy();
    let root = root.trim_end_matches('/');
    let strip = |text: &mut String| {
        if !root.is_empty() {
            *text = text.replace(root, "");
        }
    };
    match &mut event {
        Event::Found { library, cuda_library, cuda_objection } => {
            for library in library.iter_mut().chain(cuda_library) {
                strip(&mut library.path);
                strip(&mut library.resolved);
            }
            cuda_objection.iter_mut().for_each(strip);
        }
        Event::Opened { state: SessionState::NoLibrary { searched }, .. } => searched.iter_mut().for_each(strip),
        Event::Opened { state: SessionState::Refused { path, .. }, .. } => strip(path),
        Event::Opened { state: SessionState::InitFailed { message, .. }, .. } => strip(message),
        Event::Opened { .. } => {}
    }
    event
}

fn found(nvml: &Found, cuda: Found) -> Event {
    let library = match nvml {
        Found::Library(library) => Some(library.clone()),
        Found::Refused { .. } | Found::Nowhere { .. } => None,
    };
    let (cuda_library, cuda_objection) = match cuda {
        Found::Library(library) => (Some(library), None),
        Found::Refused { path, reason } => (None, Some(format!("{path}: {reason}"))),
        Found::Nowhere { .. } => (None, None),
    };
    Event::Found { library, cuda_library, cuda_objection }
}

fn open(opening: &Opening, nvml: Found) -> (Event, Option<Driver>) {
    let without = |state| (Event::Opened { state, simulated: false }, None);
    let library = match nvml {
        Found::Library(library) => library,
        Found::Refused { path, reason } => return without(SessionState::Refused { path, reason }),
        Found::Nowhere { searched } => return without(SessionState::NoLibrary { searched }),
    };
    let driver_loaded = opening.driver_loaded || is_wsl(opening);
    // On a live host nothing of the driver's runs while the kernel does not have it.
    if opening.origin == Origin::Live && !driver_loaded {
        return without(not_loaded());
    }
    let simulated = match nvml::is_simulated(Path::new(&library.path)) {
        Ok(simulated) => simulated,
        Err(error) => return without(init_failed(Code::LIBRARY_NOT_FOUND, &error)),
    };
    let (state, driver) = initialise(opening, &library, simulated, driver_loaded);
    (Event::Opened { state, simulated }, driver)
}

/// The one place where the library's own code begins to run as a driver.
fn initialise(
    opening: &Opening,
    library: &Library,
    simulated: bool,
    driver_loaded: bool,
) -> (SessionState, Option<Driver>) {
    let refused = |reason: &str| SessionState::Refused { path: library.path.clone(), reason: reason.to_owned() };
    if simulated && opening.origin != Origin::Simulated {
        return (refused("the simulated driver, which no real host is judged by"), None);
    }
    if !simulated && opening.origin == Origin::Simulated {
        return (refused("not the simulated driver, which alone reads a recorded host"), None);
    }
    if !driver_loaded {
        return (not_loaded(), None);
    }
    match Driver::open(Path::new(&library.path)) {
        Ok(driver) => (SessionState::Answering, Some(driver)),
        Err(error @ OpenError::Refused { .. }) => {
            (SessionState::InitFailed { code: error.code(), message: error.to_string() }, None)
        }
        Err(error @ OpenError::Load { .. }) => (init_failed(error.code(), &error), None),
    }
}

/// WSL's paravirtual GPU has a driver that is no kernel module.
fn is_wsl(opening: &Opening) -> bool {
    opening.origin != Origin::Simulated && opening.root.join(WSL_DEVICE).exists()
}

fn not_loaded() -> SessionState {
    let message = "the kernel has no nvidia module; the library was not initialised".to_owned();
    SessionState::InitFailed { code: Code::DRIVER_NOT_LOADED, message }
}

/// The error with its causes: the loader's text says what a library lacks.
fn init_failed(code: Code, error: &dyn std::error::Error) -> SessionState {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    SessionState::InitFailed { code, message: printable(&message, 400) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(opening: &Opening) -> (Event, Event) {
        let mut request = serde_json::to_vec(opening).unwrap();
        request.push(b'\n');
        let mut said = Vec::new();
        hold(&mut Dialogue::new(request.as_slice(), &mut said)).unwrap();
        let mut events = said.split(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).unwrap());
        (events.next().unwrap(), events.next().unwrap())
    }

    fn opening(origin: Origin, root: &Path, driver_loaded: bool) -> Opening {
        Opening { origin, root: root.to_owned(), nvml: None, cuda: None, driver_loaded }
    }

    #[test]
    fn a_host_without_a_library_says_where_it_was_looked_for() {
        let root = tempfile::tempdir().unwrap();
        let (found, opened) = opened(&opening(Origin::Live, root.path(), true));
        assert!(matches!(found, Event::Found { library: None, cuda_library: None, .. }));
        assert!(matches!(opened, Event::Opened { state: SessionState::NoLibrary { .. }, .. }));
    }

    #[test]
    fn a_recorded_host_names_its_own_paths_and_a_named_root_its_whole_ones() {
        let root = tempfile::tempdir().unwrap();
        let searched = |origin| match opened(&opening(origin, root.path(), true)).1 {
            Event::Opened { state: SessionState::NoLibrary { searched }, .. } => searched,
            other => panic!("{other:?}"),
        };
        assert_eq!(searched(Origin::Simulated)[0], "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
        assert!(searched(Origin::Overridden)[0].starts_with(&*root.path().to_string_lossy()));
    }

    #[test]
    fn a_library_that_is_no_simulated_driver_cannot_stand_for_a_recorded_host() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib64");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(libc_path(), folder.join(library::NVML)).unwrap();
        let (_, opened) = opened(&opening(Origin::Simulated, root.path(), true));
        match opened {
            Event::Opened { state: SessionState::Refused { reason, .. }, simulated: false } => {
                assert!(reason.contains("not the simulated driver"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_library_without_nvml_in_it_fails_to_initialise() {
        let named = Some(libc_path());
        let opening = Opening { nvml: named, ..opening(Origin::Overridden, Path::new("/"), true) };
        let (_, opened) = opened(&opening);
        match opened {
            Event::Opened { state: SessionState::InitFailed { code, .. }, .. } => {
                assert_eq!(code, Code::FUNCTION_NOT_FOUND);
            }
            other => panic!("{other:?}"),
        }
    }

    /// The C library that this process runs on: a shared object that is no driver.
    fn libc_path() -> std::path::PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.split_whitespace().find(|part| part.ends_with("/libc.so.6")).unwrap();
        path.into()
    }
}
