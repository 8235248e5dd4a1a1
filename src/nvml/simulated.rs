//! The simulated driver, as far as the product knows it: its marker and its preparation.
//!
//! The marker is looked for before the first NVML call, so that the simulated library can
//! never be read as a real one.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};

use super::call::text_of;

/// Exported by the simulated driver and by nothing else.
const MARKER: &[u8] = b"nodegate_simulated_driver\0";
const PREPARE: &[u8] = b"nodegate_simulated_prepare\0";
/// Room for the text with which a preparation fails, bytes.
const ERROR_SIZE: usize = 4096;

/// Why a recorded host could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("cannot load {path}")]
    Load { path: PathBuf, source: libloading::Error },
    #[error("{path} is not the simulated driver")]
    NotSimulated { path: PathBuf, source: libloading::Error },
    #[error("the path {path} holds a NUL byte")]
    Nul { path: PathBuf, source: std::ffi::NulError },
    #[error("{message}")]
    Refused { message: String },
}

/// Whether the library at this path is the simulated driver.
pub fn is_simulated(path: &Path) -> Result<bool, PrepareError> {
    let library = load(path)?;
    // SAFETY: the symbol's address is looked up and never used.
    let marked = unsafe { library.get::<*const ()>(MARKER) }.is_ok();
    // The library stays mapped: the session opens it next, and unloading runs its destructors.
    std::mem::forget(library);
    Ok(marked)
}

/// Makes a run folder of a recorded host, by the simulated driver at `library`.
pub fn prepare(library: &Path, fixture: &Path, run: &Path) -> Result<(), PrepareError> {
    type Prepare = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int;
    let loaded = load(library)?;
    let (fixture, run) = (c_path(fixture)?, c_path(run)?);
    let mut error: [c_char; ERROR_SIZE] = [0; ERROR_SIZE];
    // SAFETY: the simulated driver exports this name with this signature (`fixtures/driver`).
    let prepare: Symbol<'_, Prepare> = unsafe { loaded.get(PREPARE) }
        .map_err(|source| PrepareError::NotSimulated { path: library.to_owned(), source })?;
    // SAFETY: two NUL-ended strings and a buffer with its length, all alive during the call.
    let code = unsafe { prepare(fixture.as_ptr(), run.as_ptr(), error.as_mut_ptr(), error.len()) };
    std::mem::forget(loaded);
    if code == 0 { Ok(()) } else { Err(PrepareError::Refused { message: text_of(&error) }) }
}

fn load(path: &Path) -> Result<Library, PrepareError> {
    // SAFETY: loading runs the library's constructors. The path was judged before (owner,
    // permissions, class; `host::library`) and this process exists to load it.
    unsafe { Library::new(path) }.map_err(|source| PrepareError::Load { path: path.to_owned(), source })
}

fn c_path(path: &Path) -> Result<CString, PrepareError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|source| PrepareError::Nul { path: path.to_owned(), source })
}
