//! From a run to the object that its record carries.

use crate::facts::topology::Topology;
use crate::facts::{HostFacts, Snapshot};
use crate::gate::Verdict;
use crate::host::{Origin, clock};
use crate::ident::{BusId, printable};
use crate::plan::Plan;
use crate::predicate::{Agent, Clock, Details, Host, Inventory, InventoryGpu, Operator, SCHEMA};
use crate::reading::Reading;

/// What a run knows of itself besides its steps.
#[derive(Debug)]
pub struct Account {
    pub run_id: String,
    pub agent: Agent,
    pub origin: Origin,
    pub operator: Operator,
    pub started_at: String,
    /// Boot id before the first and after the last step, where readable.
    pub boot_ids: Vec<String>,
    /// Number of the kernel log's last record that the run saw.
    pub log_end: Option<u64>,
    /// The collector's nonce; none becomes `none`.
    pub challenge: Option<String>,
    pub notices: Vec<String>,
}

/// The record's details, still without a place in the key's chain: `seq` and `prev` are the store's.
pub fn account(plan: &Plan, opening: &Snapshot, verdict: Verdict, account: Account) -> Details {
    Details {
        schema: SCHEMA,
        run_id: account.run_id,
        decision: verdict.decision,
        reason: verdict.reason,
        stage: plan.stage,
        level: plan.level,
        simulated: account.origin == Origin::Simulated,
        overridden: account.origin == Origin::Overridden,
        partial: plan.partial,
        agent: account.agent,
        host: host(&opening.host),
        operator: account.operator,
        plan: plan.reference.clone(),
        seq: 0,
        prev: None,
        challenge: account.challenge.unwrap_or_else(|| "none".to_owned()),
        boot_ids: account.boot_ids,
        clock: Clock {
            synchronised: opening.host.clock.synchronised.value().copied(),
            maximum_error: opening.host.clock.maximum_error.value().copied(),
            log_end: account.log_end,
        },
        started_at: account.started_at,
        finished_at: clock::utc_now(),
        inventory: inventory(opening),
        topology: topology(opening),
        steps: verdict.steps,
        waivers: plan.waivers.clone(),
        overrides: plan.overrides.clone(),
        evidence: Vec::new(),
        notices: account.notices,
    }
}

fn text(reading: &Reading<String>) -> Option<String> {
    reading.value().map(|text| printable(text, 120))
}

fn host(facts: &HostFacts) -> Host {
    Host {
        hostname: text(&facts.hostname).unwrap_or_else(|| "unknown".to_owned()),
        vendor: text(&facts.dmi.vendor),
        product: text(&facts.dmi.product),
        serial: text(&facts.dmi.product_serial),
        kernel: text(&facts.kernel.release),
        os_image: text(&facts.os.pretty_name),
    }
}

/// None where there is no GPU to place.
fn topology(opening: &Snapshot) -> Option<Topology> {
    let topology = Topology { p2p: Vec::new(), ..Topology::of(opening) };
    (!topology.gpus.is_empty()).then_some(topology)
}

fn inventory(opening: &Snapshot) -> Inventory {
    let driver = &opening.driver;
    let mut addresses: Vec<BusId> = opening.gpus_on_bus();
    addresses.extend(opening.gpus_by_bus_id().keys());
    addresses.sort();
    addresses.dedup();
    Inventory {
        driver: text(&driver.driver_version),
        nvml: text(&driver.nvml_version),
        nvml_library: driver.library.as_ref().map(|library| library.digest),
        cuda: driver.cuda_version.value().map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        cpu: text(&opening.host.cpu.model),
        gpus: addresses.into_iter().map(|bus_id| inventory_gpu(bus_id, opening)).collect(),
    }
}

fn inventory_gpu(bus_id: BusId, opening: &Snapshot) -> InventoryGpu {
    let gpus = opening.gpus_by_bus_id();
    let gpu = gpus.get(&bus_id);
    let of = |reading: fn(&crate::facts::Gpu) -> &Reading<String>| gpu.and_then(|gpu| text(reading(gpu)));
    let function = opening.host.pci.get(&bus_id);
    InventoryGpu {
        bus_id: bus_id.to_string(),
        slot: opening.slot_of(bus_id).map(|slot| printable(&slot, 64)),
        model: function.and_then(|function| function.model.value()).map(ToString::to_string),
        name: of(|gpu| &gpu.name),
        uuid: of(|gpu| &gpu.uuid),
        serial: of(|gpu| &gpu.serial),
        vbios: of(|gpu| &gpu.vbios),
        memory: gpu.and_then(|gpu| gpu.memory.value()).map(|memory| memory.total.to_string()),
    }
}
