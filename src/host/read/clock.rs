//! The kernel's own opinion of its clock (`adjtimex`).

use crate::facts::host::ClockState;
use crate::host::root::Root;
use crate::reading::{Code, Reading};

/// The state of this machine's clock; a root folder cannot carry that of another.
pub fn clock_state(root: &Root) -> ClockState {
    if !root.is_live() {
        let not_recorded = Code::NOT_RECORDED;
        return ClockState {
            synchronised: Reading::Failed(not_recorded),
            maximum_error: Reading::Failed(not_recorded),
        };
    }
    // SAFETY: `timex` is plain integers, for which all zeros is a valid value.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole `timex` that lives through the call; `modes` is 0, so the
    // kernel only writes into it and changes nothing of the clock.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        let denied = std::io::Error::last_os_error().kind() == std::io::ErrorKind::PermissionDenied;
        let code = if denied { Code::NO_PERMISSION } else { Code::UNREADABLE };
        return ClockState { synchronised: Reading::Failed(code), maximum_error: Reading::Failed(code) };
    }
    let unsynchronised = state == libc::TIME_ERROR || timex.status & libc::STA_UNSYNC != 0;
    ClockState {
        synchronised: Reading::Value(!unsynchronised),
        // `c_long` is narrower than 64 bits on some targets only.
        #[allow(clippy::useless_conversion)]
        maximum_error: Reading::Value(i64::from(timex.maxerror)),
    }
}
