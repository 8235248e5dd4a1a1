//! Where a finding's subject is, for the person who goes there.

use crate::facts::Snapshot;
use crate::ident::{BusId, printable};
use crate::outcome::{Finding, Place};

/// Fills in slot, bus address, UUID and serial of findings about a GPU.
pub fn fill(findings: &mut [Finding], snapshot: &Snapshot) {
    for finding in findings.iter_mut().filter(|finding| finding.place.is_none()) {
        if let Ok(bus_id) = finding.subject.as_str().parse::<BusId>() {
            finding.place = Some(place_of(bus_id, snapshot));
        }
    }
}

fn place_of(bus_id: BusId, snapshot: &Snapshot) -> Place {
    let gpus = snapshot.gpus_by_bus_id();
    let gpu = gpus.get(&bus_id);
    let safe = |text: &String| printable(text, 64);
    Place {
        slot: snapshot.slot_of(bus_id).as_ref().map(safe),
        bus_id: Some(bus_id.to_string()),
        uuid: gpu.and_then(|gpu| gpu.uuid.value()).map(safe),
        serial: gpu.and_then(|gpu| gpu.serial.value()).map(safe),
    }
}
