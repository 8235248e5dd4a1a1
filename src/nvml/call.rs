//! What every call has in common: its return code, and one output that it writes.

use std::ffi::c_char;

use nvml_wrapper_sys::bindings::nvmlReturn_t;
use serde_json::Value;

use crate::reading::Code;

/// Larger than any text of the header (`NVML_DEVICE_NAME_V2_BUFFER_SIZE` is 96), and than the
/// 64 bytes that `nvmlDeviceGetGspFirmwareVersion` writes without being told a length.
const TEXT_SIZE: usize = 256;

/// What an answer is: a value, or the code with which the driver refused.
pub(super) type Given = Result<Value, Code>;

/// Success, or the code as the driver gave it.
pub(super) fn check(code: nvmlReturn_t) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}

/// One number.
pub(super) fn number<T: Default + Into<Value>>(call: impl FnOnce(&mut T) -> nvmlReturn_t) -> Given {
    let mut number = T::default();
    check(call(&mut number))?;
    Ok(number.into())
}

/// Two numbers, under the names that the header gives the parameters.
pub(super) fn two<T: Default + Into<Value>>(
    names: [&str; 2],
    call: impl FnOnce(&mut T, &mut T) -> nvmlReturn_t,
) -> Given {
    let (mut first, mut second) = (T::default(), T::default());
    check(call(&mut first, &mut second))?;
    Ok(Value::from_iter([(names[0], first.into()), (names[1], second.into())]))
}

/// A text, from a buffer and its length.
pub(super) fn text(call: impl FnOnce(&mut [c_char; TEXT_SIZE]) -> nvmlReturn_t) -> Given {
    let mut buffer = [0; TEXT_SIZE];
    check(call(&mut buffer))?;
    Ok(text_of(&buffer).into())
}

/// A call that has no output.
pub(super) fn done(code: nvmlReturn_t) -> Given {
    check(code)?;
    Ok(true.into())
}

/// The characters before the first NUL, or all of them where there is none. What is not
/// UTF-8 becomes U+FFFD; making it printable is for who prints it.
pub(super) fn text_of(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|c| c.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Bytes as hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_an_end_is_read_to_the_end_of_its_buffer_and_no_further() {
        assert_eq!(text_of(&[0x41; 4]), "AAAA");
        assert_eq!(text_of(&[0x41, 0, 0x42]), "A");
        assert_eq!(text_of(&[-1, 0x42]), "\u{fffd}B");
    }

    #[test]
    fn a_code_that_no_header_knows_is_kept() {
        assert_eq!(number::<u32>(|_| 77), Err(Code(77)));
        assert_eq!(
            number::<u32>(|out| {
                *out = 5;
                0
            }),
            Ok(5.into())
        );
    }
}
