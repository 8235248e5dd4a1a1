//! The GPU's place in the NVLink fabric: version 3 of the call, then 2, then the call that had none.

use nvml_wrapper_sys::bindings::{nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t};
use serde_json::{Value, json};

use super::driver::Driver;
use super::shape::symbol;
use super::structure::{cluster, filled};
use crate::reading::Code;

/// Asks with the newest structure that this driver understands. An older one shows less
/// (version 1 has no health mask); the state is in all of them.
pub(super) fn fabric(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    for version in [version_3, version_2] {
        match version(driver, arguments) {
            Err(Code::ARGUMENT_VERSION_MISMATCH) => {}
            Err(Code::FUNCTION_NOT_FOUND) => break,
            given => return given,
        }
    }
    version_1(driver, arguments)
}

fn version_3(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlDeviceGetGpuFabricInfoV);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`.
    let info = filled::<nvmlGpuFabricInfo_v3_t>(3, |out| unsafe { function(device, out) })?;
    Ok(json!({
        "state": info.state, "status": info.status, "cliqueId": info.cliqueId,
        "clusterUuid": cluster(&info.clusterUuid), "healthMask": info.healthMask,
        "healthSummary": info.healthSummary,
    }))
}

fn version_2(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlDeviceGetGpuFabricInfoV);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`; the version tag tells NVML the smaller structure's size.
    let info = filled::<nvmlGpuFabricInfo_v2_t>(2, |out| unsafe { function(device, out.cast()) })?;
    Ok(json!({
        "state": info.state, "status": info.status, "cliqueId": info.cliqueId,
        "clusterUuid": cluster(&info.clusterUuid), "healthMask": info.healthMask,
    }))
}

fn version_1(driver: &Driver, arguments: &[u32]) -> Result<Value, Code> {
    let function = symbol!(driver, nvmlDeviceGetGpuFabricInfo);
    let device = driver.device(arguments[0])?;
    // SAFETY: see the head of `shape.rs`.
    let info = filled::<nvmlGpuFabricInfo_t>(0, |out| unsafe { function(device, out) })?;
    Ok(json!({
        "state": info.state, "status": info.status, "cliqueId": info.cliqueId,
        "clusterUuid": cluster(&info.clusterUuid),
    }))
}
