//! C structures that NVML fills, and what of them an answer holds.
//!
//! Names in the answers are the structure's own (`fixtures/FORMAT.md`).

use std::mem::size_of;

use nvml_wrapper_sys::bindings::*;
use serde_json::{Value, json};

use super::call::{check, hex, text_of};
use super::driver::Driver;
use super::shape::symbol;
use crate::reading::Code;

/// A structure of plain numbers and arrays of them, for which all zeroes is a value.
///
/// # Safety
/// Every bit pattern of the implementing type must be valid. Where `VERSIONED` is true, the
/// first field must be the `u32` that NVML calls `version`.
pub(super) unsafe trait Plain: Copy {
    const VERSIONED: bool;
}

macro_rules! plain {
    ($versioned:literal: $($type:ty),+ $(,)?) => {$(
        // SAFETY: bindgen's `repr(C)` structure of integers, byte arrays and such structures;
        // where it is versioned, its first field is `version: u32`.
        unsafe impl Plain for $type {
            const VERSIONED: bool = $versioned;
        }
    )+};
}

plain!(false: nvmlPciInfo_t, nvmlMemory_t, nvmlBAR1Memory_t, nvmlRowRemapperHistogramValues_t, nvmlGpuFabricInfo_t,
    nvmlViolationTime_t, nvmlC2cModeInfo_v1_t, nvmlConfComputeSystemState_t, nvmlExcludedDeviceInfo_t);
plain!(true: nvmlMemory_v2_t, nvmlEccSramErrorStatus_v1_t, nvmlRepairStatus_v1_t, nvmlMarginTemperature_v1_t,
    nvmlDeviceAddressingMode_v1_t, nvmlPlatformInfo_v1_t, nvmlPlatformInfo_v2_t, nvmlGpuFabricInfo_v2_t,
    nvmlGpuFabricInfo_v3_t, nvmlSystemDriverBranchInfo_v1_t);

/// The structure as the call filled it. `version` is the header's number; NVML wants it in
/// the upper byte, over the size (`NVML_STRUCT_VERSION`).
pub(super) fn filled<T: Plain>(version: u32, call: impl FnOnce(*mut T) -> nvmlReturn_t) -> Result<T, Code> {
    // SAFETY: `Plain` promises that all zeroes is a value of `T`.
    let mut structure: T = unsafe { std::mem::zeroed() };
    if T::VERSIONED {
        let tag = size_of::<T>() as u32 | version << 24;
        // SAFETY: `Plain` promises that a versioned structure begins with a `u32`.
        unsafe { std::ptr::from_mut(&mut structure).cast::<u32>().write(tag) };
    }
    check(call(&mut structure))?;
    Ok(structure)
}

pub(super) fn pci(info: &nvmlPciInfo_t) -> Value {
    json!({
        "busIdLegacy": text_of(&info.busIdLegacy),
        "domain": info.domain,
        "bus": info.bus,
        "device": info.device,
        "pciDeviceId": info.pciDeviceId,
        "pciSubSystemId": info.pciSubSystemId,
        "busId": text_of(&info.busId),
    })
}

pub(super) fn memory(memory: &nvmlMemory_t) -> Value {
    json!({ "total": memory.total, "free": memory.free, "used": memory.used })
}

pub(super) fn memory_2(memory: &nvmlMemory_v2_t) -> Value {
    json!({ "total": memory.total, "reserved": memory.reserved, "free": memory.free, "used": memory.used })
}

pub(super) fn bar1(memory: &nvmlBAR1Memory_t) -> Value {
    json!({ "bar1Total": memory.bar1Total, "bar1Free": memory.bar1Free, "bar1Used": memory.bar1Used })
}

pub(super) fn sram(status: &nvmlEccSramErrorStatus_v1_t) -> Value {
    json!({
        "aggregateUncParity": status.aggregateUncParity,
        "aggregateUncSecDed": status.aggregateUncSecDed,
        "aggregateCor": status.aggregateCor,
        "volatileUncParity": status.volatileUncParity,
        "volatileUncSecDed": status.volatileUncSecDed,
        "volatileCor": status.volatileCor,
        "aggregateUncBucketL2": status.aggregateUncBucketL2,
        "aggregateUncBucketSm": status.aggregateUncBucketSm,
        "aggregateUncBucketPcie": status.aggregateUncBucketPcie,
        "aggregateUncBucketMcu": status.aggregateUncBucketMcu,
        "aggregateUncBucketOther": status.aggregateUncBucketOther,
        "bThresholdExceeded": status.bThresholdExceeded,
    })
}

pub(super) fn histogram(values: &nvmlRowRemapperHistogramValues_t) -> Value {
    json!({ "max": values.max, "high": values.high, "partial": values.partial, "low": values.low, "none": values.none })
}

pub(super) fn repair(status: &nvmlRepairStatus_v1_t) -> Value {
    json!({ "bChannelRepairPending": status.bChannelRepairPending, "bTpcRepairPending": status.bTpcRepairPending })
}

pub(super) fn margin(temperature: &nvmlMarginTemperature_v1_t) -> Value {
    temperature.marginTemperature.into()
}

pub(super) fn addressing(mode: &nvmlDeviceAddressingMode_v1_t) -> Value {
    mode.value.into()
}

pub(super) fn violation(time: &nvmlViolationTime_t) -> Value {
    json!({ "referenceTime": time.referenceTime, "violationTime": time.violationTime })
}

pub(super) fn c2c(mode: &nvmlC2cModeInfo_v1_t) -> Value {
    json!({ "isC2cEnabled": mode.isC2cEnabled })
}

/// Version 2 of the platform, or version 1 by the names of version 2 where the driver is older.
pub(super) fn platform(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlDeviceGetPlatformInfo);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`.
    let newer = filled::<nvmlPlatformInfo_v2_t>(2, |out| unsafe { function(device, out) });
    match newer {
        Ok(info) => Ok(platform_2(&info)),
        Err(Code::ARGUMENT_VERSION_MISMATCH) => {
            // SAFETY: see the head of `shape.rs`; the version tag says which of the two structures,
            // which have the same size, NVML is to fill in.
            let older = filled::<nvmlPlatformInfo_v1_t>(1, |out| unsafe { function(device, out.cast()) })?;
            Ok(platform_1(&older))
        }
        Err(code) => Err(code),
    }
}

fn platform_2(info: &nvmlPlatformInfo_v2_t) -> Value {
    json!({
        "chassisSerialNumber": text_of(&info.chassisSerialNumber.map(u8::cast_signed)),
        "slotNumber": info.slotNumber,
        "trayIndex": info.trayIndex,
        "hostId": info.hostId,
        "peerType": info.peerType,
        "moduleId": info.moduleId,
    })
}

fn platform_1(info: &nvmlPlatformInfo_v1_t) -> Value {
    json!({
        "chassisSerialNumber": "",
        "slotNumber": info.chassisPhysicalSlotNumber,
        "trayIndex": info.computeSlotIndex,
        "hostId": info.nodeIndex,
        "peerType": info.peerType,
        "moduleId": info.moduleId,
    })
}

/// `nvmlDeviceGetRemappedRows`, the one call with four outputs.
pub(super) fn remapped_rows(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlDeviceGetRemappedRows);
    let device = driver.device(arguments[0])?;
    let [mut corrected, mut uncorrected, mut pending, mut failure] = [0; 4];
    // SAFETY: see the head of `shape.rs`.
    check(unsafe { function(device, &mut corrected, &mut uncorrected, &mut pending, &mut failure) })?;
    Ok(json!({ "corrRows": corrected, "uncRows": uncorrected, "isPending": pending, "failureOccurred": failure }))
}

/// One MIG instance: its own handle's name and UUID.
pub(super) fn mig_instance(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let by_index = symbol!(driver, nvmlDeviceGetMigDeviceHandleByIndex);
    let uuid = symbol!(driver, nvmlDeviceGetUUID);
    let name = symbol!(driver, nvmlDeviceGetName);
    let device = driver.device(arguments[0])?;
    let mut instance: nvmlDevice_t = std::ptr::null_mut();
    // SAFETY: see the head of `shape.rs`.
    check(unsafe { by_index(device, arguments[1], &mut instance) })?;
    // SAFETY: as above; the handle is the one that the call just gave.
    let uuid = super::call::text(|buffer| unsafe { uuid(instance, buffer.as_mut_ptr(), buffer.len() as u32) })?;
    // SAFETY: as above.
    let name = super::call::text(|buffer| unsafe { name(instance, buffer.as_mut_ptr(), buffer.len() as u32) })?;
    Ok(json!({ "uuid": uuid, "name": name }))
}

/// A GPU that the administrator excluded; the argument counts those, not the GPUs.
pub(super) fn excluded(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlGetExcludedDeviceInfoByIndex);
    // SAFETY: see the head of `shape.rs`.
    let info = filled::<nvmlExcludedDeviceInfo_t>(0, |out| unsafe { function(arguments[0], out) })?;
    Ok(json!({ "pciInfo": pci(&info.pciInfo), "uuid": text_of(&info.uuid) }))
}

pub(super) fn confidential(driver: &Driver, _: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlSystemGetConfComputeState);
    // SAFETY: see the head of `shape.rs`.
    let state = filled::<nvmlConfComputeSystemState_t>(0, |out| unsafe { function(out) })?;
    Ok(json!({ "environment": state.environment, "ccFeature": state.ccFeature, "devToolsMode": state.devToolsMode }))
}

pub(super) fn driver_branch(driver: &Driver, _: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlSystemGetDriverBranch);
    // SAFETY: see the head of `shape.rs`; the length is that of `branch`.
    let info = filled::<nvmlSystemDriverBranchInfo_v1_t>(1, |out| unsafe { function(out, 80) })?;
    Ok(text_of(&info.branch).into())
}

/// 16 bytes of a cluster's UUID.
pub(super) fn cluster(uuid: &[u8; 16]) -> Value {
    hex(uuid).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_versioned_structure_carries_its_size_and_version() {
        let memory = filled::<nvmlMemory_v2_t>(2, |out| {
            // SAFETY: `out` is the structure that `filled` holds.
            unsafe { (*out).total = 7 };
            0
        });
        let memory = memory.unwrap();
        assert_eq!(memory.version, 0x0200_0028);
        assert_eq!(memory_2(&memory)["total"], 7);
    }

    #[test]
    fn the_two_platforms_have_one_size_so_that_one_pointer_serves_both() {
        assert_eq!(size_of::<nvmlPlatformInfo_v1_t>(), size_of::<nvmlPlatformInfo_v2_t>());
    }
}
