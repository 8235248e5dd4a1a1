//! Whether the host is still coming up, so that asking again later is worth it.

use crate::facts::Snapshot;
use crate::facts::snapshot::SessionState;
use crate::reading::Code;

/// NVML's fabric states before `COMPLETED` (`nvml.h`: 1 not started, 2 in progress).
const FABRIC_UNDER_WAY: [u32; 2] = [1, 2];

/// Why the host is not ready yet, if waiting may help: the driver is not there yet, or its
/// fabric is still being set up. A hang is none of these: it does not get better by asking.
pub fn not_ready_yet(snapshot: &Snapshot) -> Option<String> {
    match &snapshot.driver.session {
        SessionState::NoLibrary { .. } => return Some("the driver's library is not there yet".to_owned()),
        SessionState::InitFailed { code, .. } if [Code::DRIVER_NOT_LOADED, Code::NOT_READY].contains(code) => {
            return Some(format!("the driver says: {}", code.meaning()));
        }
        SessionState::Answering => {}
        SessionState::Refused { .. }
        | SessionState::InitFailed { .. }
        | SessionState::Hung(_)
        | SessionState::Died { .. }
        | SessionState::NotStarted => return None,
    }
    let shown = snapshot.driver.device_count.value().copied();
    if shown == Some(0) && !snapshot.gpus_on_bus().is_empty() {
        return Some("the driver shows no GPU yet".to_owned());
    }
    let under_way = snapshot
        .gpus
        .iter()
        .filter(|gpu| gpu.fabric.value().is_some_and(|fabric| FABRIC_UNDER_WAY.contains(&fabric.state)));
    match under_way.count() {
        0 => None,
        count => Some(format!("the NVLink fabric is still being set up on {count} GPUs")),
    }
}
