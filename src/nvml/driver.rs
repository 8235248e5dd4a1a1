//! An initialised NVML, and the answer to one question.
//!
//! `nvml-wrapper` loads and initialises; the questions go through its table of raw symbols.
//! The generated methods of that table panic where a symbol is missing and so does the
//! wrapper's `Drop`, so neither is ever reached from here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlReturn_t};

use super::call::check;
use super::table;
use crate::facts::{Answer, Question};
use crate::reading::Code;

/// Why there is no session with the driver.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot load {path}")]
    Load { path: PathBuf, source: NvmlError },
    #[error("nvmlInit: {code}")]
    Refused { code: Code },
}

impl OpenError {
    /// The code that a session reports: the driver's own, or 12 where the loader said no.
    pub fn code(&self) -> Code {
        match self {
            OpenError::Load { .. } => Code::LIBRARY_NOT_FOUND,
            OpenError::Refused { code } => *code,
        }
    }
}

/// An initialised NVML.
pub struct Driver {
    /// Never dropped: `Nvml`'s own `Drop` panics where the library lacks `nvmlShutdown`.
    nvml: ManuallyDrop<Nvml>,
    /// By index. A GPU that falls off the bus keeps its handle, and then says so itself.
    handles: RefCell<BTreeMap<u32, nvmlDevice_t>>,
}

impl Driver {
    /// Loads the library at this absolute path and initialises it. May block for ever.
    pub fn open(path: &Path) -> Result<Driver, OpenError> {
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => Ok(Driver { nvml: ManuallyDrop::new(nvml), handles: RefCell::default() }),
            Err(source @ NvmlError::LibloadingError(_)) => Err(OpenError::Load { path: path.to_owned(), source }),
            Err(NvmlError::FailedToLoadSymbol(_)) => Err(OpenError::Refused { code: Code::FUNCTION_NOT_FOUND }),
            // The wrapper keeps codes that it does not know as `UnexpectedVariant`.
            Err(error) => Err(OpenError::Refused { code: Code(nvmlReturn_t::from(error)) }),
        }
    }

    /// Asks one question. May block for ever.
    pub fn answer(&self, question: &Question) -> Answer {
        match table::answer(self, question) {
            Ok(value) => Answer::Value { v: value },
            Err(code) => Answer::refused(code),
        }
    }

    /// Shuts the library down, where it can; it stays mapped. May block for ever.
    pub fn close(self) {
        if let Ok(shutdown) = self.symbols().nvmlShutdown.as_ref() {
            // SAFETY: the symbol was resolved by this name and takes no argument; `self` is
            // consumed, so no handle of this session is used afterwards.
            unsafe { shutdown() };
        }
    }

    /// The raw symbols, each of which may be missing.
    pub(super) fn symbols(&self) -> &NvmlLib {
        self.nvml.lib()
    }

    /// The handle of this GPU, from the first time that the driver gave one.
    pub(super) fn device(&self, index: u32) -> Result<nvmlDevice_t, Code> {
        if let Some(handle) = self.handles.borrow().get(&index) {
            return Ok(*handle);
        }
        self.ask_handle(index)
    }

    /// Asks for the handle anew; of a lost GPU the driver says so here.
    pub(super) fn ask_handle(&self, index: u32) -> Result<nvmlDevice_t, Code> {
        let by_index = self.symbols().nvmlDeviceGetHandleByIndex_v2.as_ref().map_err(|_| Code::FUNCTION_NOT_FOUND)?;
        let mut handle = MaybeUninit::<nvmlDevice_t>::zeroed();
        // SAFETY: resolved by this name with the header's signature; `handle` is valid for the write.
        check(unsafe { by_index(index, handle.as_mut_ptr()) })?;
        // SAFETY: all zeroes is a valid (null) pointer, and the driver wrote a pointer or nothing.
        let handle = unsafe { handle.assume_init() };
        if handle.is_null() {
            return Err(Code::GARBLED);
        }
        self.handles.borrow_mut().insert(index, handle);
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_library_cannot_be_loaded_and_says_which() {
        let error = Driver::open(Path::new("/proc/self/status")).err().unwrap();
        assert_eq!(error.code(), Code::LIBRARY_NOT_FOUND);
        assert_eq!(error.to_string(), "cannot load /proc/self/status");
    }
}
