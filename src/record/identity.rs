//! Who a host is: `host.json` (what stays when a GPU is swapped) and `node.json` (host and GPUs).
//!
//! A record binds to a machine by the SHA-256 of these documents, which lie beside it. Their
//! bytes are canonical: compact JSON, keys in alphabetical order, one line feed at the end.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::gpu::Gpu;
use crate::facts::{HostFacts, Snapshot};
use crate::ident::{BusId, Digest, printable};
use crate::reading::Reading;

/// The version of both documents. Another number makes other digests, and so another host.
pub const FORMAT: u32 = 1;

/// How much the identity of a host is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// A serial number or UUID of this very board or product.
    Strong,
    /// Only what other machines may share: a chassis with several nodes, or `/etc/machine-id`,
    /// which a cloned image carries along.
    Weak,
    /// Nothing at all.
    None,
}

impl Strength {
    pub fn as_str(self) -> &'static str {
        match self {
            Strength::Strong => "strong",
            Strength::Weak => "weak",
            Strength::None => "none",
        }
    }
}

/// `host.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board_serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chassis_serial: Option<String>,
    pub format: u32,
    /// What the document is worth as an identity.
    pub identity: Strength,
    /// SHA-256 over `nodegate:machine-id:` and `/etc/machine-id`; only where nothing stronger is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<String>,
    /// Identifiers that are there and could not be read, e.g. `productSerial` without root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// `node.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDocument {
    pub format: u32,
    /// Sorted.
    pub gpus: Vec<GpuIdentity>,
    pub host: HostDocument,
}

/// One GPU of `node.json`, by what is printed on it; one without a UUID by its place on the bus.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuIdentity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<BusId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// Both documents of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    pub host: HostDocument,
    pub node: NodeDocument,
}

impl Documents {
    pub fn of(snapshot: &Snapshot) -> Self {
        let node = node_document(snapshot);
        Documents { host: node.host.clone(), node }
    }
}

impl HostDocument {
    pub fn to_json(&self) -> Vec<u8> {
        canonical(self)
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_json())
    }
}

impl NodeDocument {
    pub fn to_json(&self) -> Vec<u8> {
        canonical(self)
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_json())
    }

    /// Whether every GPU is known by its UUID and there is at least one.
    pub fn names_every_gpu(&self) -> bool {
        !self.gpus.is_empty() && self.gpus.iter().all(|gpu| gpu.uuid.is_some())
    }
}

/// The host by its serial numbers. Placeholders that firmware ships with are no identity.
pub fn host_document(facts: &HostFacts) -> HostDocument {
    let dmi = &facts.dmi;
    let mut document = HostDocument {
        board_serial: identifier(&dmi.board_serial),
        chassis_serial: identifier(&dmi.chassis_serial),
        format: FORMAT,
        identity: Strength::Strong,
        machine: None,
        product_serial: identifier(&dmi.product_serial),
        product_uuid: identifier(&dmi.product_uuid).map(|uuid| uuid.to_ascii_lowercase()),
        unread: [
            ("boardSerial", &dmi.board_serial),
            ("chassisSerial", &dmi.chassis_serial),
            ("productSerial", &dmi.product_serial),
            ("productUuid", &dmi.product_uuid),
        ]
        .into_iter()
        .filter(|(_, reading)| reading.failure().is_some())
        .map(|(name, _)| name.to_owned())
        .collect(),
    };
    // Several nodes stand in one chassis: its serial alone does not tell them apart.
    let of_this_board = [&document.board_serial, &document.product_serial, &document.product_uuid];
    if of_this_board.iter().all(|identifier| identifier.is_none()) {
        document.machine = identifier(&facts.os.machine_id)
            .map(|id| Digest::of(format!("nodegate:machine-id:{}", id.to_ascii_lowercase()).as_bytes()));
        let nothing = document.machine.is_none() && document.chassis_serial.is_none();
        document.identity = if nothing { Strength::None } else { Strength::Weak };
    }
    document
}

/// The host and its GPUs: those of the driver by UUID and serial, and those that only the bus
/// shows by their address.
pub fn node_document(snapshot: &Snapshot) -> NodeDocument {
    let mut gpus: Vec<GpuIdentity> = snapshot.gpus.iter().map(gpu_identity).collect();
    let in_driver: BTreeSet<BusId> = snapshot.gpus.iter().filter_map(Gpu::bus_id).collect();
    let on_bus_only = snapshot.gpus_on_bus().into_iter().filter(|bus_id| !in_driver.contains(bus_id));
    gpus.extend(on_bus_only.map(|bus_id| GpuIdentity { bus_id: Some(bus_id), serial: None, uuid: None }));
    gpus.sort();
    NodeDocument { format: FORMAT, gpus, host: host_document(&snapshot.host) }
}

fn gpu_identity(gpu: &Gpu) -> GpuIdentity {
    let uuid = identifier(&gpu.uuid);
    let bus_id = if uuid.is_none() { gpu.bus_id() } else { None };
    GpuIdentity { bus_id, serial: identifier(&gpu.serial), uuid }
}

fn identifier(reading: &Reading<String>) -> Option<String> {
    reading.value().filter(|text| !is_placeholder(text)).map(|text| printable(text.trim(), 200))
}

/// Whether a serial number or UUID is what firmware ships with where nobody wrote one.
fn is_placeholder(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let symbols: Vec<u8> = text.bytes().filter(u8::is_ascii_alphanumeric).collect();
    let one_symbol = symbols.iter().collect::<BTreeSet<_>>().len() < 2;
    let counting = symbols.len() >= 6 && symbols.windows(2).all(|pair| follows(pair[0], pair[1]));
    one_symbol || counting || PLACEHOLDERS.contains(&text.as_str())
}

/// `0123456789ABCDEF…` and `…890123`: each symbol is the next one in hexadecimal, or 0 after 9.
fn follows(a: u8, b: u8) -> bool {
    b == a + 1 || (a, b) == (b'9', b'0') || (a, b) == (b'9', b'a')
}

/// Lower-case. From SMBIOS tables of boards as sold (AMI, Insyde, Supermicro, QEMU defaults);
/// the two UUIDs are AMI's default in both byte orders.
const PLACEHOLDERS: &[&str] = &[
    "to be filled by o.e.m.",
    "to be filled by oem",
    "to be filled by o.e.m",
    "default string",
    "default",
    "not specified",
    "not applicable",
    "not available",
    "not present",
    "none",
    "n/a",
    "na",
    "nil",
    "null",
    "empty",
    "unknown",
    "invalid",
    "unset",
    "o.e.m.",
    "oem",
    "serial",
    "serial number",
    "serialnumber",
    "system serial number",
    "chassis serial number",
    "base board serial number",
    "board serial number",
    "system-serial",
    "chassis-serial",
    "uninitialized",
    "03000200-0400-0500-0006-000700080009",
    "00020003-0004-0005-0006-000700080009",
    "12345678-1234-5678-90ab-cddeefaabbcc",
];

/// Compact JSON and one line feed. Key order is the order of the fields, which is alphabetical.
fn canonical(document: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec(document).expect("a document of strings and numbers is JSON");
    json.push(b'\n');
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Code;

    fn value(text: &str) -> Reading<String> {
        Reading::Value(text.to_owned())
    }

    fn host(board: &str, uuid: &str) -> HostFacts {
        let mut facts = HostFacts::default();
        facts.dmi.board_serial = value(board);
        facts.dmi.product_uuid = value(uuid);
        facts.os.machine_id = value("4d1c5d0e8f2b4b7e9c3a6f1b2d3e4f50");
        facts
    }

    #[test]
    fn placeholders_of_firmware_are_no_identity() {
        for text in [
            "",
            " ",
            "To be filled by O.E.M.",
            "Default string",
            "0123456789",
            "123456789",
            "1234567890",
            "00000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "00000000-0000-0000-0000-000000000000",
            "Not Specified",
            "None",
            "....",
            "03000200-0400-0500-0006-000700080009",
            "0123456789ABCDEF",
            " System Serial Number ",
            "XXXXXXX",
        ] {
            assert!(is_placeholder(text), "{text}");
        }
        for text in ["1650523001234", "S452393X4309021", "MXQ12300AB", "4c4c4544-0044-4810-8057-b5c04f4e3333", "1234"] {
            assert!(!is_placeholder(text), "{text}");
        }
    }

    #[test]
    fn a_host_without_a_serial_of_its_own_falls_back_to_its_machine_id_and_says_so() {
        let document = host_document(&host("Default string", "00000000-0000-0000-0000-000000000000"));
        assert_eq!(document.identity, Strength::Weak);
        assert!(document.machine.is_some() && document.board_serial.is_none() && document.product_uuid.is_none());
        let text = String::from_utf8(document.to_json()).unwrap();
        assert!(!text.contains("4d1c5d0e"), "the machine id itself must not be told: {text}");
    }

    #[test]
    fn a_chassis_serial_alone_is_weak_since_several_nodes_share_it() {
        let mut facts = host("None", "None");
        facts.dmi.chassis_serial = value("C9470KM52A0116");
        assert_eq!(host_document(&facts).identity, Strength::Weak);
        facts.os.machine_id = Reading::Unsupported;
        assert_eq!(host_document(&facts).identity, Strength::Weak);
        facts.dmi.chassis_serial = value("None");
        let nothing = host_document(&facts);
        assert_eq!((nothing.identity, nothing.machine), (Strength::None, None));
    }

    #[test]
    fn a_strong_identity_does_not_depend_on_the_machine_id() {
        let facts = host("S452393X4309021", "4C4C4544-0044-4810-8057-B5C04F4E3333");
        let mut reinstalled = facts.clone();
        reinstalled.os.machine_id = value("00112233445566778899aabbccddeef0");
        assert_eq!(host_document(&facts).digest(), host_document(&reinstalled).digest());
        assert_eq!(host_document(&facts).identity, Strength::Strong);
    }

    #[test]
    fn an_identifier_that_could_not_be_read_is_named() {
        let mut facts = host("None", "None");
        facts.dmi.product_serial = Reading::Failed(Code::NO_PERMISSION);
        assert_eq!(host_document(&facts).unread, ["productSerial"]);
    }

    #[test]
    fn the_document_is_canonical() {
        let mut facts = host("S452393X4309021", "4C4C4544-0044-4810-8057-B5C04F4E3333");
        facts.dmi.chassis_serial = value("C9470KM52A0116");
        facts.dmi.product_serial = value("P1");
        let json = String::from_utf8(host_document(&facts).to_json()).unwrap();
        let sorted: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(json, serde_json::to_string(&sorted).unwrap() + "\n");
        assert_eq!(json.matches('\n').count(), 1);
    }

    fn gpu(uuid: Reading<String>) -> Gpu {
        Gpu { uuid, serial: value("1650523001234"), ..Gpu::default() }
    }

    #[test]
    fn the_node_changes_with_its_gpus_and_not_with_their_order() {
        let node = |uuids: &[&str]| {
            let gpus = uuids.iter().map(|uuid| gpu(value(uuid))).collect();
            node_document(&Snapshot { host: host("S4523", "None"), gpus, ..Snapshot::default() })
        };
        assert_eq!(node(&["GPU-a1", "GPU-b2"]).digest(), node(&["GPU-b2", "GPU-a1"]).digest());
        assert_ne!(node(&["GPU-a1", "GPU-b2"]).digest(), node(&["GPU-a1", "GPU-c3"]).digest());
        assert_eq!(node(&["GPU-a1"]).host.digest(), node(&["GPU-c3"]).host.digest());
        assert!(node(&["GPU-a1"]).names_every_gpu() && !node(&[]).names_every_gpu());
    }

    #[test]
    fn a_gpu_whose_uuid_could_not_be_read_makes_another_node() {
        let node = |uuid| node_document(&Snapshot { gpus: vec![gpu(uuid)], ..Snapshot::default() });
        let lost = node(Reading::Failed(Code::GPU_IS_LOST));
        assert!(!lost.names_every_gpu());
        assert_ne!(lost.digest(), node(value("GPU-a1")).digest());
    }
}
