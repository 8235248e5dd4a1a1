//! Field values: numbers by id and scope, each with a type tag and a return code of its own.
//!
//! Ids are sent as asked. NVIDIA renumbered 251 to 273 at driver 580.82; who asks one of
//! those has to know the driver.

use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlValue_t};
use serde_json::{Number, Value};

use super::call::check;
use super::driver::Driver;
use super::shape::symbol;
use crate::reading::Code;

/// `nvmlValueType_t`; the wrapper's own type stops before the last two.
mod tag {
    pub const DOUBLE: u32 = 0;
    pub const UNSIGNED_INT: u32 = 1;
    pub const UNSIGNED_LONG: u32 = 2;
    pub const UNSIGNED_LONG_LONG: u32 = 3;
    pub const SIGNED_LONG_LONG: u32 = 4;
    pub const SIGNED_INT: u32 = 5;
    pub const UNSIGNED_SHORT: u32 = 6;
}

/// Distances to the temperature limits (`NVML_FI_DEV_TEMPERATURE_*_TLIMIT`): may be negative.
const T_LIMITS: std::ops::RangeInclusive<u32> = 193..=196;

/// The value of one field of one scope.
pub(super) fn field(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlDeviceGetFieldValues);
    let device = driver.device(arguments[0])?;
    let mut field = nvmlFieldValue_t {
        fieldId: arguments[1],
        scopeId: arguments[2],
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: nvmlValue_t { ullVal: 0 },
    };
    // SAFETY: see the head of `shape.rs`; the array has the one element that the count says.
    check(unsafe { function(device, 1, &mut field) })?;
    check(field.nvmlReturn)?;
    // SAFETY: all eight bytes of the union are initialised above, and they are plain memory.
    let bits = unsafe { field.value.ullVal };
    value(arguments[1], field.valueType, bits).ok_or(Code::GARBLED)
}

/// The union's bits by their tag. T.Limit fields are signed by meaning, whatever a driver tags
/// them; the union's members all begin at its first byte, so that on our little-endian
/// platforms the low bits hold them.
fn value(id: u32, kind: u32, bits: u64) -> Option<Value> {
    let signed_int = |bits: u64| Value::from(bits as u32 as i32);
    match kind {
        tag::DOUBLE => Number::from_f64(f64::from_bits(bits)).map(Value::Number),
        tag::UNSIGNED_INT if T_LIMITS.contains(&id) => Some(signed_int(bits)),
        tag::UNSIGNED_INT => Some((bits as u32).into()),
        tag::UNSIGNED_LONG | tag::UNSIGNED_LONG_LONG => Some(bits.into()),
        tag::SIGNED_LONG_LONG => Some(bits.cast_signed().into()),
        tag::SIGNED_INT => Some(signed_int(bits)),
        tag::UNSIGNED_SHORT => Some((bits as u16).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_limit_stays_negative_however_it_is_tagged() {
        let minus_eight = u64::from((-8_i32).cast_unsigned());
        for tag in [1, 5] {
            assert_eq!(value(193, tag, minus_eight), Some((-8).into()));
        }
        assert_eq!(value(82, 1, minus_eight), Some(4_294_967_288_u32.into()));
    }

    #[test]
    fn each_tag_reads_its_own_bits_and_an_unknown_tag_is_no_value() {
        let all = u64::MAX;
        assert_eq!(value(1, 2, all), Some(all.into()));
        assert_eq!(value(1, 3, all), Some(all.into()));
        assert_eq!(value(1, 4, all), Some((-1).into()));
        assert_eq!(value(1, 6, all), Some(65_535.into()));
        assert_eq!(value(1, 0, 1.5_f64.to_bits()), Some(1.5.into()));
        assert_eq!(value(1, 0, f64::NAN.to_bits()), None);
        assert_eq!(value(1, 9, 0), None);
    }
}
