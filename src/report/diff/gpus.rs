//! GPUs that came, went, moved, or changed something that a GPU does not change by itself.

use std::collections::HashMap;

use serde::Serialize;

use crate::predicate::{Details, InventoryGpu};

/// A GPU in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuName {
    pub bus_id: String,
    pub slot: Option<String>,
    pub name: Option<String>,
    pub serial: Option<String>,
    pub uuid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuChange {
    pub gpu: GpuName,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum What {
    Appeared,
    Gone,
    /// To the place of `gpu`, from this one.
    Moved {
        from: GpuName,
    },
    /// `VBIOS`, `memory`, `model`: the text that it had and the one that it has.
    Changed {
        property: &'static str,
        before: Option<String>,
        after: Option<String>,
    },
}

/// Which GPU stands at which address: what a subject of one record is in another.
#[derive(Clone, Debug, Default)]
pub struct Identities(HashMap<String, String>);

impl GpuName {
    pub fn of(gpu: &InventoryGpu) -> GpuName {
        GpuName {
            bus_id: gpu.bus_id.clone(),
            slot: gpu.slot.clone(),
            name: gpu.name.clone().or_else(|| gpu.model.clone()),
            serial: gpu.serial.clone(),
            uuid: gpu.uuid.clone(),
        }
    }

    /// `slot 8 · bus 0000:86:00.0`.
    pub fn place(&self) -> String {
        let slot = self.slot.as_deref().map(|slot| format!("{} · ", super::problem::slot(slot)));
        format!("{}bus {}", slot.unwrap_or_default(), self.bus_id)
    }

    /// `serial 1650523005678`, or the UUID where there is no serial number.
    pub fn identity(&self) -> String {
        match (&self.serial, &self.uuid) {
            (Some(serial), _) => format!("serial {serial}"),
            (None, Some(uuid)) => uuid.clone(),
            (None, None) => "neither serial nor UUID".to_owned(),
        }
    }
}

impl Identities {
    pub fn of(details: &Details) -> Identities {
        let gpus = details.inventory.gpus.iter();
        Identities(gpus.map(|gpu| (gpu.bus_id.clone(), identity(gpu))).collect())
    }

    /// The GPU's own identity for a subject that is a GPU's address; another subject is itself.
    pub fn of_subject<'a>(&'a self, subject: &'a str) -> &'a str {
        self.0.get(subject).map_or(subject, String::as_str)
    }
}

/// A board's serial number outlives its driver's UUID; several GPUs on one board share it, so that
/// both are taken where both are there.
fn identity(gpu: &InventoryGpu) -> String {
    match (&gpu.serial, &gpu.uuid) {
        (None, None) => gpu.bus_id.clone(),
        (Some(serial), Some(uuid)) => format!("{serial} {uuid}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
    }
}

/// Whether two entries are one GPU: the same serial number or the same UUID, and neither of the two
/// that both have differs. Without any of the two the place stands for it.
fn same(a: &InventoryGpu, b: &InventoryGpu) -> bool {
    let compare = |a: &Option<String>, b: &Option<String>| Some(a.as_ref()? == b.as_ref()?);
    match (compare(&a.serial, &b.serial), compare(&a.uuid, &b.uuid)) {
        (None, None) => a.bus_id == b.bus_id,
        (serial, uuid) => serial.unwrap_or(true) && uuid.unwrap_or(true),
    }
}

pub fn changes(before: &Details, after: &Details) -> Vec<GpuChange> {
    let (old, new) = (&before.inventory.gpus, &after.inventory.gpus);
    let gone = old.iter().filter(|gpu| !new.iter().any(|other| same(gpu, other)));
    let mut changes: Vec<GpuChange> = gone.map(|gpu| GpuChange { gpu: GpuName::of(gpu), what: What::Gone }).collect();
    for gpu in new {
        let name = GpuName::of(gpu);
        match old.iter().find(|other| same(other, gpu)) {
            None => changes.push(GpuChange { gpu: name, what: What::Appeared }),
            Some(known) => {
                changes.extend(changed(known, gpu).into_iter().map(|what| GpuChange { gpu: name.clone(), what }))
            }
        }
    }
    changes
}

fn changed(before: &InventoryGpu, after: &InventoryGpu) -> Vec<What> {
    let mut changes = Vec::new();
    if (&before.bus_id, &before.slot) != (&after.bus_id, &after.slot) {
        changes.push(What::Moved { from: GpuName::of(before) });
    }
    for (property, before, after) in [
        ("VBIOS", &before.vbios, &after.vbios),
        ("memory", &before.memory, &after.memory),
        ("model", &before.name, &after.name),
        ("UUID", &before.uuid, &after.uuid),
        ("serial", &before.serial, &after.serial),
    ] {
        if before != after {
            changes.push(What::Changed { property, before: before.clone(), after: after.clone() });
        }
    }
    changes
}
