//! The macros by which the table names a function once and gets its call.
//!
//! Each expands to a closure that captures nothing. The safety of all of them is one argument, which stands here:
//! the function pointer was resolved under the very name that stands in the table, with
//! the type that the header gives that name; the device handle came from this session's
//! own `nvmlDeviceGetHandleByIndex_v2` and stays valid until `close`, which consumes the
//! session; input arguments are plain integers, which NVML checks itself; and each output
//! is a place of the header's type (or at least its length) that outlives the call.

/// The symbol, or `FUNCTION_NOT_FOUND`.
macro_rules! symbol {
    ($driver:expr, $function:ident) => {
        $driver.symbols().$function.as_ref().map_err(|_| crate::reading::Code::FUNCTION_NOT_FOUND)?
    };
}

/// `function(out)`.
macro_rules! system_number {
    ($function:ident, $type:ty) => {
        |driver, _| {
            let function = symbol!(driver, $function);
            // SAFETY: see the head of `shape.rs`.
            crate::nvml::call::number(|out: &mut $type| unsafe { function(out) })
        }
    };
}

/// `function(buffer, length)`.
macro_rules! system_text {
    ($function:ident) => {
        |driver, _| {
            let function = symbol!(driver, $function);
            // SAFETY: see the head of `shape.rs`; the length is the buffer's own.
            crate::nvml::call::text(|buffer| unsafe { function(buffer.as_mut_ptr(), buffer.len() as u32) })
        }
    };
}

/// `function(device, …, out)`, where `…` are the arguments of these positions.
macro_rules! number {
    ($function:ident, $type:ty $(, $position:literal)*) => {
        |driver, arguments| {
            let function = symbol!(driver, $function);
            let device = driver.device(arguments[0])?;
            // SAFETY: see the head of `shape.rs`.
            crate::nvml::call::number(|out: &mut $type| unsafe { function(device, $(arguments[$position],)* out) })
        }
    };
}

/// `function(device, …, buffer, length)`.
macro_rules! text {
    ($function:ident $(, $position:literal)*) => {
        |driver, arguments| {
            let function = symbol!(driver, $function);
            let device = driver.device(arguments[0])?;
            crate::nvml::call::text(|buffer| {
                let length = buffer.len() as u32;
                // SAFETY: see the head of `shape.rs`; the length is the buffer's own.
                unsafe { function(device, $(arguments[$position],)* buffer.as_mut_ptr(), length) }
            })
        }
    };
}

/// `function(device, first, second)`, both outputs of one type.
macro_rules! two {
    ($function:ident, $type:ty, $first:literal, $second:literal) => {
        |driver, arguments| {
            let function = symbol!(driver, $function);
            let device = driver.device(arguments[0])?;
            // SAFETY: see the head of `shape.rs`.
            let call = |first: &mut $type, second: &mut $type| unsafe { function(device, first, second) };
            crate::nvml::call::two([$first, $second], call)
        }
    };
}

/// `function(device, …, structure)` for a structure with a version of its own, or none (0).
macro_rules! structure {
    ($function:ident, $type:ty, $version:literal, $show:expr $(, $position:literal)*) => {
        |driver, arguments| {
            let function = symbol!(driver, $function);
            let device = driver.device(arguments[0])?;
            let structure = crate::nvml::structure::filled::<$type>($version, |out| {
                // SAFETY: see the head of `shape.rs`.
                unsafe { function(device, $(arguments[$position],)* out) }
            })?;
            Ok($show(&structure))
        }
    };
}

pub(super) use {number, structure, symbol, system_number, system_text, text, two};
