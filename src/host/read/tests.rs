//! One small host in a folder, and what becomes of it when parts are missing or hostile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::facts::host::LogKind;
use crate::ident::BusId;

const GPU: &str = "0000:18:00.0";

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn link(folder: &Path, links: &[(&str, &str)]) {
    for (path, target) in links {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
}

fn host() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let chain = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0";
    write(
        folder.path(),
        &[
            ("proc/sys/kernel/hostname", "gpu-r12-u07\n"),
            ("proc/sys/kernel/osrelease", "5.15.0-112-generic\n"),
            ("proc/uptime", "1234.56 100.00\n"),
            ("proc/modules", "nvidia 1 0 - Live 0x0\n"),
            ("proc/meminfo", "MemTotal: 1024 kB\n"),
            ("proc/cpuinfo", "processor: 0\nmodel name: Test\nphysical id: 0\n"),
            ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08\n"),
            ("proc/driver/nvidia/params", "EnableGpuFirmware: 18\n"),
            ("etc/os-release", "PRETTY_NAME=\"Ubuntu 22.04\"\nID=ubuntu\n"),
            ("sys/class/dmi/id/sys_vendor", "Supermicro\n"),
            ("sys/class/dmi/id/product_serial", "S\x1b[2J1\n"),
            ("sys/devices/system/node/node1/cpulist", "1\n"),
            ("sys/devices/system/node/node0/cpulist", "0\n"),
            ("sys/devices/system/node/node0/distance", "10 21\n"),
            ("sys/module/nvidia/version", "580.105.08\n"),
            ("sys/bus/pci/slots/6/address", "0000:18:00\n"),
            ("dev/nvidia0", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-uvm", ""),
            ("dev/kmsg", "5,0,0,-;Linux\n4,1,2,-;NVRM: Xid (PCI:0000:18:00): 63, Row Remapper\n"),
            (&format!("{chain}/{GPU}/vendor"), "0x10de\n"),
            (&format!("{chain}/{GPU}/device"), "0x2330\n"),
            (&format!("{chain}/{GPU}/class"), "0x030200\n"),
            (&format!("{chain}/{GPU}/numa_node"), "0\n"),
            (&format!("{chain}/{GPU}/current_link_speed"), "32.0 GT/s PCIe\n"),
            (&format!("{chain}/{GPU}/current_link_width"), "16\n"),
            (&format!("{chain}/{GPU}/max_link_speed"), "Unknown\n"),
            (&format!("{chain}/{GPU}/aer_dev_fatal"), "Undefined 0\nTOTAL_ERR_FATAL 2\n"),
            (&format!("{chain}/class"), "0x060400\n"),
            (&format!("{chain}/current_link_width"), "8\n"),
            ("sys/devices/pci0000:00/0000:00:1f.2/class", "0x010601\n"),
            ("sys/devices/pci0000:00/0000:00:1f.2/current_link_width", "4\n"),
            ("sys/devices/pci0000:00/0000:00:02.0/net/eth0/address", "02:00:00:00:00:01\n"),
        ],
    );
    link(
        folder.path(),
        &[
            ("sys/bus/pci/devices/0000:17:00.0", &format!("../../../../{chain}")),
            ("sys/bus/pci/devices/0000:18:00.0", &format!("../../../../{chain}/{GPU}")),
            ("sys/bus/pci/devices/0000:00:1f.2", "../../../../sys/devices/pci0000:00/0000:00:1f.2"),
            ("sys/class/net/eth0", "../../devices/pci0000:00/0000:00:02.0/net/eth0"),
            ("sys/devices/pci0000:00/0000:00:02.0/net/eth0/device", "../.."),
            (&format!("{chain}/{GPU}/driver"), "../../../../../../bus/pci/drivers/nvidia"),
        ],
    );
    folder
}

fn bus_id(text: &str) -> BusId {
    text.parse().unwrap()
}

#[test]
fn a_whole_host_reads() {
    let folder = host();
    let facts = host_facts(&Root::new(folder.path()));
    assert_eq!(facts.hostname, Reading::Value("gpu-r12-u07".into()));
    assert_eq!(facts.kernel.uptime, Reading::Value(1234.56));
    assert_eq!(facts.memory_total, Reading::Value(1024 * 1024));
    assert_eq!((facts.cpu.sockets, facts.cpu.online), (Reading::Value(1), Reading::Value(1)));
    assert_eq!(facts.numa.iter().map(|node| node.id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(facts.numa[0].distances, Reading::Value(vec![10, 21]));
    assert_eq!(facts.driver.open_module, Reading::Value(true));
    assert_eq!((facts.driver.device_nodes, facts.driver.control_node), (vec![0], Reading::Value(true)));
    assert_eq!(facts.slots[&bus_id(GPU)], "6");
    assert_eq!((facts.nics[0].name.as_str(), facts.nics[0].bus_id), ("eth0", bus_id("0000:00:02.0")));
    assert!(matches!(facts.kernel_log.entries[0].kind, LogKind::Xid { code: 63, .. }));
    assert_eq!(facts.os.pretty_name, Reading::Value("Ubuntu 22.04".into()));
    assert_eq!(facts.os.image_id, Reading::Unsupported);
}

#[test]
fn a_gpu_knows_the_bridges_above_it() {
    let folder = host();
    let facts = host_facts(&Root::new(folder.path()));
    let gpu = &facts.pci[&bus_id(GPU)];
    assert!(gpu.is_nvidia_gpu());
    assert_eq!(gpu.upstream, ["0000:15:01.0", "0000:16:00.0", "0000:17:00.0"].map(bus_id));
    assert_eq!(gpu.root, "pci0000:15");
    assert_eq!(gpu.driver, Reading::Value("nvidia".into()));
    assert_eq!((&gpu.link.speed, &gpu.link.width), (&Reading::Value(32.0), &Reading::Value(16)));
    assert_eq!(gpu.link.max_speed, Reading::Failed(Code::UNREADABLE));
    assert_eq!((&gpu.link.fatal, &gpu.link.nonfatal), (&Reading::Value(2), &Reading::Unsupported));
}

#[test]
fn links_are_read_for_gpus_and_their_bridges_alone() {
    let folder = host();
    let facts = host_facts(&Root::new(folder.path()));
    assert_eq!(facts.pci[&bus_id("0000:17:00.0")].link.width, Reading::Value(8));
    assert_eq!(facts.pci[&bus_id("0000:00:1f.2")].link.width, Reading::Unasked);
}

#[test]
fn what_a_host_says_of_itself_becomes_harmless() {
    let folder = host();
    let facts = host_facts(&Root::new(folder.path()));
    assert_eq!(facts.dmi.product_serial, Reading::Value("S\\u{1b}[2J1".into()));
}

#[test]
fn an_empty_folder_is_a_host_that_offers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let facts = host_facts(&Root::new(folder.path()));
    assert_eq!(facts.hostname, Reading::Unsupported);
    assert_eq!(facts.kernel.modules, Reading::Unsupported);
    assert_eq!(facts.driver.control_node, Reading::Value(false));
    assert_eq!(facts.clock.synchronised, Reading::Failed(Code::NOT_RECORDED));
    assert_eq!(facts.foreign_pid_namespace, Reading::Value(false));
}

#[test]
fn a_recording_taken_inside_a_container_says_so() {
    let folder = host();
    link(folder.path(), &[("proc/self", "77"), ("proc/77/ns/pid", "pid:[4026532837]")]);
    assert_eq!(system::foreign_pid_namespace(&Root::new(folder.path())), Reading::Value(true));
}

#[test]
fn garbled_text_is_not_absence() {
    let folder = host();
    write(folder.path(), &[("proc/uptime", "soon\n"), ("proc/meminfo", "MemTotal: much\n")]);
    let facts = host_facts(&Root::new(folder.path()));
    assert_eq!(facts.kernel.uptime, Reading::Failed(Code::GARBLED));
    assert_eq!(facts.memory_total, Reading::Failed(Code::GARBLED));
}

#[test]
fn this_very_machine_reads() {
    let facts = host_facts(&Root::new("/"));
    assert!(facts.kernel.release.value().is_some());
    assert!(facts.clock.synchronised.value().is_some());
    assert!(facts.foreign_pid_namespace.value().is_some());
}

#[test]
fn what_a_recording_root_remembers_reads_the_same_again() {
    let folder = host();
    let root = Root::recording(folder.path());
    let facts = host_facts(&root);
    let recorded = root.recorded();
    assert!(recorded.contains_key("dev/nvidia0") && recorded.contains_key(&format!("sys/bus/pci/devices/{GPU}")));
    assert!(!recorded.contains_key("dev/nvidia-uvm"));
    assert_eq!(facts, host_facts(&Root::new(folder.path())));
}

#[test]
fn the_host_job_says_first_who_the_host_is() {
    let folder = host();
    let mut answers = Vec::new();
    serve_host_job(serde_json::json!({ "root": folder.path() }), &mut |answer| answers.push(answer.unwrap()));
    let whole = host_facts(&Root::new(folder.path()));
    assert_eq!(answers.len(), HOST_ANSWERS);
    assert_eq!((&answers[0].dmi, &answers[0].os, &answers[0].hostname), (&whole.dmi, &whole.os, &whole.hostname));
    assert_eq!(answers[0].kernel, Default::default());
    assert_eq!(answers[1], whole);
}

#[test]
fn the_host_job_names_what_is_wrong_with_its_request() {
    for request in
        [serde_json::json!({}), serde_json::json!({"root": "relative"}), serde_json::json!({"root": "/nowhere/at/all"})]
    {
        let mut answers = Vec::new();
        serve_host_job(request, &mut |answer| answers.push(answer));
        let [Err(error)] = &answers[..] else { panic!("{answers:?}") };
        assert!(error.contains("root"), "{error}");
    }
}
