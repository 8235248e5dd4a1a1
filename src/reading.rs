//! One value as the machine gave it.
//!
//! A reading is never an `Option`: "the machine said that it has no such thing"
//! and "we could not find out" lead to different decisions, so they are
//! different values here and the raw return code is kept.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One value as the machine gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reading<T> {
    /// The machine answered.
    Value(T),
    /// The machine said that it has no such thing (NVML 3, a file that the kernel does not offer).
    Unsupported,
    /// Nobody asked.
    #[default]
    Unasked,
    /// We asked and did not find out; the code says how it went.
    Failed(Code),
}

impl<T> Reading<T> {
    /// The value, if the machine gave one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Value(value) => Some(value),
            Reading::Unsupported | Reading::Unasked | Reading::Failed(_) => None,
        }
    }

    /// The code of a failed reading.
    pub fn failure(&self) -> Option<Code> {
        match self {
            Reading::Failed(code) => Some(*code),
            Reading::Value(_) | Reading::Unsupported | Reading::Unasked => None,
        }
    }

    /// The same reading with its value changed; the other three states stay what they are.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Value(value) => Reading::Value(change(value)),
            Reading::Unsupported => Reading::Unsupported,
            Reading::Unasked => Reading::Unasked,
            Reading::Failed(code) => Reading::Failed(code),
        }
    }

    /// The reading without its value, for saying why there is none.
    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Reading::Value(value) => Reading::Value(value),
            Reading::Unsupported => Reading::Unsupported,
            Reading::Unasked => Reading::Unasked,
            Reading::Failed(code) => Reading::Failed(*code),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reading::Value(value) => value.fmt(f),
            Reading::Unsupported => f.write_str("not supported"),
            Reading::Unasked => f.write_str("not asked"),
            Reading::Failed(code) => code.fmt(f),
        }
    }
}

/// How a question to the machine ended: an `nvmlReturn_t` as the driver gave it, or,
/// from 10 000 on, one of our own for what no driver can say of itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Code(pub u32);

/// The codes by name. 0 to 30 and 999 are NVML's (`nvml.h`).
impl Code {
    pub const SUCCESS: Code = Code(0);
    pub const UNINITIALIZED: Code = Code(1);
    pub const INVALID_ARGUMENT: Code = Code(2);
    pub const NOT_SUPPORTED: Code = Code(3);
    pub const NO_PERMISSION: Code = Code(4);
    pub const ALREADY_INITIALIZED: Code = Code(5);
    pub const NOT_FOUND: Code = Code(6);
    pub const INSUFFICIENT_SIZE: Code = Code(7);
    pub const INSUFFICIENT_POWER: Code = Code(8);
    pub const DRIVER_NOT_LOADED: Code = Code(9);
    pub const TIMEOUT: Code = Code(10);
    pub const IRQ_ISSUE: Code = Code(11);
    pub const LIBRARY_NOT_FOUND: Code = Code(12);
    pub const FUNCTION_NOT_FOUND: Code = Code(13);
    pub const CORRUPTED_INFOROM: Code = Code(14);
    pub const GPU_IS_LOST: Code = Code(15);
    pub const RESET_REQUIRED: Code = Code(16);
    pub const OPERATING_SYSTEM: Code = Code(17);
    pub const LIB_RM_VERSION_MISMATCH: Code = Code(18);
    pub const IN_USE: Code = Code(19);
    pub const MEMORY: Code = Code(20);
    pub const NO_DATA: Code = Code(21);
    pub const VGPU_ECC_NOT_SUPPORTED: Code = Code(22);
    pub const INSUFFICIENT_RESOURCES: Code = Code(23);
    pub const FREQ_NOT_SUPPORTED: Code = Code(24);
    pub const ARGUMENT_VERSION_MISMATCH: Code = Code(25);
    pub const DEPRECATED: Code = Code(26);
    pub const NOT_READY: Code = Code(27);
    pub const GPU_NOT_FOUND: Code = Code(28);
    pub const INVALID_STATE: Code = Code(29);
    pub const RESET_TYPE_NOT_SUPPORTED: Code = Code(30);
    pub const UNKNOWN: Code = Code(999);

    /// The simulated driver has no recorded answer to this question.
    pub const NOT_RECORDED: Code = Code(10_001);
    /// No answer within the deadline; the child was killed or abandoned.
    pub const HUNG: Code = Code(10_002);
    /// The child that asked died by a signal.
    pub const DIED: Code = Code(10_003);
    /// Not asked any more, because the driver hung or its child died before.
    pub const WEDGED: Code = Code(10_004);
    /// The answer was not of the expected shape.
    pub const GARBLED: Code = Code(10_005);
    /// A file could not be read for another reason than permission or absence.
    pub const UNREADABLE: Code = Code(10_006);

    /// What the code means, in words: NVML's own for NVML's codes.
    pub fn meaning(self) -> &'static str {
        match self.0 {
            0 => "success",
            1 => "uninitialized",
            2 => "invalid argument",
            3 => "not supported",
            4 => "insufficient permissions",
            5 => "already initialized",
            6 => "not found",
            7 => "insufficient size",
            8 => "insufficient external power",
            9 => "driver not loaded",
            10 => "timeout",
            11 => "interrupt request issue",
            12 => "NVML shared library not found",
            13 => "function not found in this driver",
            14 => "corrupted InfoROM",
            15 => "GPU is lost",
            16 => "GPU requires reset",
            17 => "GPU access blocked by the operating system",
            18 => "driver/library version mismatch",
            19 => "in use by another client",
            20 => "insufficient memory",
            21 => "no data",
            22 => "ECC not supported on this vGPU",
            23 => "insufficient resources",
            24 => "frequency not supported",
            25 => "argument version mismatch",
            26 => "deprecated in this driver",
            27 => "system is not in ready state",
            28 => "no supported GPUs were found",
            29 => "invalid state",
            30 => "reset type not supported",
            999 => "unknown error",
            10_001 => "not recorded",
            10_002 => "no answer within the deadline",
            10_003 => "the asking process died",
            10_004 => "not asked, the driver was wedged before",
            10_005 => "answer of unexpected shape",
            10_006 => "unreadable",
            _ => "unknown code",
        }
    }

    /// Whether the code is one of our own and not the driver's.
    pub fn is_ours(self) -> bool {
        self.0 >= 10_000
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ours() { f.write_str(self.meaning()) } else { write!(f, "{} (NVML {})", self.meaning(), self.0) }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({} {})", self.0, self.meaning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reading_has_no_value_and_keeps_its_code() {
        let reading: Reading<u32> = Reading::Failed(Code::GPU_IS_LOST);
        assert_eq!(reading.value(), None);
        assert_eq!(reading.map(|v| v + 1).failure(), Some(Code(15)));
    }

    #[test]
    fn an_unknown_code_is_kept_and_shown_as_number() {
        assert_eq!(Code(77).to_string(), "unknown code (NVML 77)");
        assert_eq!(Code::HUNG.to_string(), "no answer within the deadline");
    }
}
