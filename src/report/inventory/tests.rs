//! Tests of the inventory on facts made for them.

use super::*;
use crate::facts::gpu::{Memory, Mode, PciInfo};
use crate::facts::host::PciFunction;
use crate::ident::PciModel;
use crate::reading::Code;
use crate::report::columns::LINE;

fn bus_id(bus: u8) -> BusId {
    BusId { domain: 0, bus, device: 0, function: 0 }
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.host.hostname = Reading::Value("gpu-r12-u07".into());
    snapshot.host.dmi.vendor = Reading::Value("Supermicro".into());
    snapshot.host.dmi.product = Reading::Value("SYS-821GE-TNHR".into());
    snapshot.host.dmi.product_serial = Reading::Failed(Code::NO_PERMISSION);
    snapshot.host.memory_total = Reading::Value(2_113_513_212 * 1024);
    snapshot.driver.session = SessionState::Answering;
    snapshot.driver.driver_version = Reading::Value("580.105.08".into());
    snapshot.driver.cuda_version = Reading::Value(13010);
    for index in 0..2u8 {
        let bus = 0x1b + index;
        let model = PciModel { vendor: 0x10de, device: 0x2330 };
        let function =
            PciFunction { model: Reading::Value(model), class: Reading::Value(0x03_0200), ..PciFunction::default() };
        snapshot.host.pci.insert(bus_id(bus), function);
        snapshot.host.slots.insert(bus_id(bus), (index + 1).to_string());
        snapshot.gpus.push(Gpu {
            index: index.into(),
            name: Reading::Value("NVIDIA H100 80GB HBM3".into()),
            serial: Reading::Value(format!("165052300901{index}")),
            pci: Reading::Value(PciInfo {
                bus_id: bus_id(bus).to_string(),
                pci_device_id: 0x2330_10de,
                pci_sub_system_id: 0,
            }),
            memory: Reading::Value(Memory { total: 85_520_809_984, reserved: 0, free: 0, used: 0 }),
            vbios: Reading::Value("96.00.74.00.0D".into()),
            link_generation: Reading::Value(5),
            link_width: Reading::Value(16),
            power_usage: Reading::Value(72_400),
            power_limit: Reading::Value(700_000),
            temperature: Reading::Value(31),
            ecc_mode: Reading::Value(Mode { current: 1, pending: 1 }),
            mig_mode: Reading::Unsupported,
            ..Gpu::default()
        });
    }
    snapshot
}

fn text(snapshot: &Snapshot) -> String {
    Inventory::of(snapshot).to_text()
}

#[test]
fn a_healthy_host_reads_at_a_glance() {
    let text = text(&snapshot());
    for line in [
        "gpu-r12-u07 · Supermicro SYS-821GE-TNHR · serial ? (insufficient permissions)",
        "  driver  580.105.08 · CUDA 13.1",
        "  memory  2.0 TiB",
        "2 × NVIDIA H100 80GB HBM3 · 79.6 GiB · VBIOS 96.00.74.00.0D",
        "  slot  bus           serial         link      power     temp  ECC  MIG",
        "  1     0000:1b:00.0  1650523009010  gen5 x16  72/700 W  31 C  on   –",
    ] {
        assert!(text.lines().any(|shown| shown.starts_with(line)), "{line}\n{text}");
    }
}

#[test]
fn a_gpu_that_only_the_bus_or_only_the_driver_shows_is_marked() {
    let mut snapshot = snapshot();
    let lost = snapshot.gpus.remove(1);
    assert!(text(&snapshot).contains("not shown by the driver\n! slot 2 · bus 0000:1c:00.0 · 10de:2330\n"));
    snapshot.gpus.push(lost);
    snapshot.host.pci.remove(&bus_id(0x1c));
    let text = text(&snapshot);
    assert!(text.contains("not on the PCI bus\n! slot 2 · bus 0000:1c:00.0 · 10de:2330\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("! 2     0000:1c:00.0")), "{text}");
}

#[test]
fn a_card_of_another_model_stands_in_a_block_of_its_own() {
    let mut snapshot = snapshot();
    snapshot.gpus[1].name = Reading::Value("NVIDIA H200".into());
    let text = text(&snapshot);
    assert!(text.contains("1 × NVIDIA H100 80GB HBM3") && text.contains("1 × NVIDIA H200"), "{text}");
}

#[test]
fn what_could_not_be_found_out_says_why() {
    let mut snapshot = snapshot();
    snapshot.gpus[1].temperature = Reading::Failed(Code::GPU_IS_LOST);
    let text = text(&snapshot);
    assert!(text.contains("72/700 W  ?     on"), "{text}");
    assert!(text.contains("? GPU is lost (NVML 15): temperature of 0000:1c:00.0"), "{text}");
}

#[test]
fn a_host_without_gpu_or_driver_says_so() {
    let mut snapshot = Snapshot::default();
    snapshot.driver.session = SessionState::NoLibrary { searched: Vec::new() };
    let text = text(&snapshot);
    assert!(text.contains("! no NVIDIA GPU on the PCI bus"), "{text}");
    assert!(text.contains("! driver  libnvidia-ml.so.1 was not found"), "{text}");
}

#[test]
fn hostile_names_stay_harmless_and_lines_short() {
    let mut snapshot = snapshot();
    snapshot.gpus[0].name = Reading::Value(format!("\x1b[2J\u{202e}{}", "x".repeat(500)));
    snapshot.gpus[0].serial = Reading::Value("a\nb".into());
    let text = text(&snapshot);
    assert!(!text.contains('\x1b') && !text.contains('\u{202e}') && !text.contains("a\nb"), "{text}");
    for line in text.lines() {
        assert!(unicode_width::UnicodeWidthStr::width(line) <= LINE, "{line}");
    }
}

#[test]
fn the_json_has_nulls_and_the_reasons_for_them() {
    let json = Inventory::of(&snapshot()).to_json().unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["format"], 1);
    assert_eq!(value["gpus"][0]["busId"], "0000:1b:00.0");
    assert_eq!(value["gpus"][0]["mig"], serde_json::Value::Null);
    assert_eq!(value["gpus"][0]["notRead"]["mig"], "not supported");
    assert_eq!(value["host"]["notRead"]["serial"], "insufficient permissions");
}

#[test]
fn every_recorded_host_fits_a_terminal_and_has_no_mark() {
    for host in crate::host::replay::healthy_hosts() {
        let text = text(&crate::host::replay::snapshot(&host));
        for line in text.lines() {
            assert!(unicode_width::UnicodeWidthStr::width(line) <= LINE && !line.ends_with('…'), "{host}: {line}");
        }
        assert!(!text.contains("! ") && !text.contains("? "), "{host}\n{text}");
    }
}
