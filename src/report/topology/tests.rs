//! The recorded hosts, read with the live code and shown.

use super::*;
use crate::host::replay;

const H200: &str = "\
\x20    GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7
GPU0 X    NV18 NV18 NV18 NV18 NV18 NV18 NV18
GPU1 NV18 X    NV18 NV18 NV18 NV18 NV18 NV18
GPU2 NV18 NV18 X    NV18 NV18 NV18 NV18 NV18
GPU3 NV18 NV18 NV18 X    NV18 NV18 NV18 NV18
GPU4 NV18 NV18 NV18 NV18 X    NV18 NV18 NV18
GPU5 NV18 NV18 NV18 NV18 NV18 X    NV18 NV18
GPU6 NV18 NV18 NV18 NV18 NV18 NV18 X    NV18
GPU7 NV18 NV18 NV18 NV18 NV18 NV18 NV18 X
NIC0 NODE NODE PIX  NODE SYS  SYS  SYS  SYS
NIC1 NODE PIX  NODE NODE SYS  SYS  SYS  SYS
NIC2 SYS  SYS  SYS  SYS  NODE NODE NODE PIX
NIC3 NODE NODE NODE PIX  SYS  SYS  SYS  SYS
NIC4 PIX  NODE NODE NODE SYS  SYS  SYS  SYS
NIC5 SYS  SYS  SYS  SYS  NODE NODE PIX  NODE
NIC6 SYS  SYS  SYS  SYS  PIX  NODE NODE NODE
NIC7 SYS  SYS  SYS  SYS  NODE PIX  NODE NODE

     NIC0 NIC1 NIC2 NIC3 NIC4 NIC5 NIC6 NIC7
GPU0 NODE NODE SYS  NODE PIX  SYS  SYS  SYS
GPU1 NODE PIX  SYS  NODE NODE SYS  SYS  SYS
GPU2 PIX  NODE SYS  NODE NODE SYS  SYS  SYS
GPU3 NODE NODE SYS  PIX  NODE SYS  SYS  SYS
GPU4 SYS  SYS  NODE SYS  SYS  NODE PIX  NODE
GPU5 SYS  SYS  NODE SYS  SYS  NODE NODE PIX
GPU6 SYS  SYS  NODE SYS  SYS  PIX  NODE NODE
GPU7 SYS  SYS  PIX  SYS  SYS  NODE NODE NODE
NIC0 X    NODE SYS  NODE NODE SYS  SYS  SYS
NIC1 NODE X    SYS  NODE NODE SYS  SYS  SYS
NIC2 SYS  SYS  X    SYS  SYS  NODE NODE NODE
NIC3 NODE NODE SYS  X    NODE SYS  SYS  SYS
NIC4 NODE NODE SYS  NODE X    SYS  SYS  SYS
NIC5 SYS  SYS  NODE SYS  SYS  X    NODE NODE
NIC6 SYS  SYS  NODE SYS  SYS  NODE X    NODE
NIC7 SYS  SYS  NODE SYS  SYS  NODE NODE X
";

const RTX_4090: &str = "\
\x20    GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7
GPU0 X    NODE NODE NODE SYS  SYS  SYS  SYS
GPU1 NODE X    NODE NODE SYS  SYS  SYS  SYS
GPU2 NODE NODE X    NODE SYS  SYS  SYS  SYS
GPU3 NODE NODE NODE X    SYS  SYS  SYS  SYS
GPU4 SYS  SYS  SYS  SYS  X    NODE NODE NODE
GPU5 SYS  SYS  SYS  SYS  NODE X    NODE NODE
GPU6 SYS  SYS  SYS  SYS  NODE NODE X    NODE
GPU7 SYS  SYS  SYS  SYS  NODE NODE NODE X
";

#[test]
fn recorded_hosts_say_what_their_topo_m_says() {
    let h200 = text(&Topology::of(&replay::snapshot("hgx-h200-8")));
    assert!(h200.starts_with(H200), "{h200}");
    let row = "GPU5  module 3  0000:a3:00.0";
    assert!(h200.lines().any(|line| line.starts_with(row) && line.contains("64-127,192-255  NIC7 mlx5_7")), "{h200}");
    let rtx_4090 = text(&Topology::of(&replay::snapshot("rtx-4090-8")));
    assert!(rtx_4090.starts_with(RTX_4090), "{rtx_4090}");
    let rtx_5090 = text(&Topology::of(&replay::snapshot("rtx-5090-2")));
    assert!(rtx_5090.starts_with("     GPU0 GPU1\nGPU0 X    PHB\nGPU1 PHB  X\n"), "{rtx_5090}");
    assert!(rtx_5090.contains("every pair GNS: read"), "{rtx_5090}");
}

#[test]
fn sysfs_alone_places_the_recorded_gpus_as_the_driver_does() {
    for host in ["rtx-4090-8", "rtx-5090-2", "hgx-h200-8"] {
        let mut snapshot = replay::snapshot(host);
        assert_eq!(Topology::of(&snapshot).disagreements, [], "{host}");
        snapshot.pairs.clear();
        snapshot.gpus.iter_mut().for_each(|gpu| gpu.nvlinks.clear());
        let topology = Topology::of(&snapshot);
        let level = topology.matrix[0][1];
        assert_eq!(level, if host == "rtx-5090-2" { Level::Phb } else { Level::Node }, "{host}");
    }
}

#[test]
fn every_line_fits_a_terminal_and_every_healthy_host_has_no_remark() {
    for host in replay::healthy_hosts() {
        let shown = text(&Topology::of(&replay::snapshot(&host)));
        for line in shown.lines() {
            assert!(unicode_width::UnicodeWidthStr::width(line) <= LINE, "{host}: {line}");
        }
        assert!(!shown.lines().any(|line| line.starts_with('!')), "{host}\n{shown}");
    }
}

#[test]
fn a_gpu_with_links_down_and_one_that_is_hidden_are_remarked() {
    let mut snapshot = replay::snapshot("hgx-h200-8");
    snapshot.gpus[2].nvlinks[5].state = Reading::Value(0);
    snapshot.gpus.remove(7);
    let shown = text(&Topology::of(&snapshot));
    assert!(shown.contains("! GPU2: 17 of 18 NVLinks are active"), "{shown}");
    assert!(shown.contains("! PCI0: on the PCI bus, but not shown by the driver"), "{shown}");
}

#[test]
fn pairs_that_differ_in_a_capability_show_a_matrix_once() {
    let mut snapshot = replay::snapshot("rtx-5090-2");
    assert!(!text(&Topology::of(&snapshot)).contains("X    GNS"));
    for index in [0, 1] {
        snapshot.pairs[0].p2p[index] = Reading::Value(0);
    }
    let shown = text(&Topology::of(&snapshot));
    assert!(shown.contains("peer to peer  read, write\n      GPU0  GPU1\nGPU0  X     OK\nGPU1  GNS   X\n"), "{shown}");
}

#[test]
fn a_host_without_gpu_says_so() {
    assert!(text(&Topology::default()).starts_with("no NVIDIA GPU"));
}

#[test]
fn the_json_carries_the_matrix_and_the_places() {
    let json = json(&Topology::of(&replay::snapshot("rtx-5090-2"))).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["format"], 1);
    assert_eq!(value["matrix"], serde_json::json!([["X", "PHB"], ["PHB", "X"]]));
    assert_eq!(value["gpus"][1]["name"], "GPU1");
}
