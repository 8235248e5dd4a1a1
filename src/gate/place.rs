//! Where a finding's subject is, for the person who goes there.

use crate::facts::Snapshot;
use crate::ident::{BusId, printable};
use crate::outcome::{Finding, Place};
use crate::predicate::{Details, InventoryGpu, Step};

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
        last_accepted: None,
    }
}

/// Whether a step misses a GPU, so that an older record may say which one that was.
pub fn misses_a_gpu(steps: &[Step]) -> bool {
    steps.iter().flat_map(|step| &step.outcome.findings).any(is_missing_gpu)
}

/// Says of each missing GPU what the last accepted record knew of it: a label for people, which
/// changes no outcome. Cards whose place is not known are named only if just as many are gone.
pub fn name_the_missing(steps: &mut [Step], opening: &Snapshot, last: &Details) {
    let present: Vec<String> = opening.gpus_on_bus().iter().map(ToString::to_string).collect();
    let gone: Vec<&InventoryGpu> = last.inventory.gpus.iter().filter(|gpu| !present.contains(&gpu.bus_id)).collect();
    let missing: Vec<&mut Finding> = steps
        .iter_mut()
        .flat_map(|step| &mut step.outcome.findings)
        .filter(|finding| is_missing_gpu(finding))
        .collect();
    let as_many = missing.len() == gone.len();
    let mut unplaced = gone.iter();
    for finding in missing {
        let at = finding.subject.as_str();
        let known = match at.parse::<BusId>() {
            Ok(_) => gone.iter().find(|gpu| gpu.bus_id == at),
            Err(_) => unplaced.next().filter(|_| as_many),
        };
        let Some(gpu) = known else { continue };
        let place = finding.place.get_or_insert_default();
        place.slot = place.slot.take().or_else(|| gpu.slot.clone());
        place.bus_id = Some(gpu.bus_id.clone());
        place.uuid = gpu.uuid.clone();
        place.serial = gpu.serial.clone();
        place.last_accepted = Some(last.finished_at.chars().take("2026-11-30".len()).collect());
    }
}

fn is_missing_gpu(finding: &Finding) -> bool {
    finding.code.as_str() == "gpu-missing"
}
