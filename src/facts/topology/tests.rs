//! The hosts of which a real `nvidia-smi topo -m` is known, built from their facts:
//! 8 × H200 with eight NICs, 8 × RTX 4090, 2 × RTX 5090.

use super::*;
use crate::facts::gpu::{NvLink, PciInfo};
use crate::facts::host::{Nic, NumaNode, PciFunction};
use crate::ident::PciModel;
use crate::reading::Code;

/// What a row of the matrix says.
fn rows(topology: &Topology) -> Vec<String> {
    let row = |levels: &Vec<Level>| levels.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    topology.matrix.iter().map(row).collect()
}

fn bus_id(bus: u8) -> BusId {
    BusId { domain: 0, bus, device: 0, function: 0 }
}

fn function(root: u8, upstream: &[u8], numa_node: i32, vendor: u16) -> PciFunction {
    PciFunction {
        model: Reading::Value(PciModel { vendor, device: 0x2335 }),
        class: Reading::Value(if vendor == 0x10de { 0x03_0200 } else { 0x02_0700 }),
        numa_node: Reading::Value(numa_node),
        upstream: upstream.iter().map(|bus| bus_id(*bus)).collect(),
        root: format!("pci0000:{root:02x}"),
        ..PciFunction::default()
    }
}

fn gpu(index: u32, bus: u8) -> Gpu {
    let pci = PciInfo { bus_id: bus_id(bus).to_string(), pci_device_id: 0x2335_10de, pci_sub_system_id: 0 };
    Gpu { index, handle: Reading::Value(true), pci: Reading::Value(pci), ..Gpu::default() }
}

fn to_switch() -> NvLink {
    NvLink { state: Reading::Value(1), remote_type: Reading::Value(2), ..NvLink::default() }
}

fn pairs(count: u32, level: impl Fn(u32, u32) -> u32, p2p: u32) -> Vec<Pair> {
    let all = (0..count).flat_map(|a| (0..count).map(move |b| (a, b))).filter(|(a, b)| a != b);
    all.map(|(a, b)| Pair {
        a,
        b,
        ancestor: Reading::Value(level(a, b)),
        p2p: [0, 1, 2, 3, 4].map(|_| Reading::Value(p2p)),
    })
    .collect()
}

fn two_nodes() -> Vec<NumaNode> {
    [0, 1].map(|id| NumaNode { id, ..NumaNode::default() }).into()
}

/// Eight host bridges, each with a switch below which one GPU and one NIC stand.
fn h200() -> Snapshot {
    // The NIC beside GPU 0 to 7, as the capture's PIX cells say.
    let nic_of = [4, 1, 0, 3, 6, 7, 5, 2];
    let mut snapshot = Snapshot::default();
    snapshot.host.numa = two_nodes();
    let mut nics = vec![None; 8];
    for index in 0..8u8 {
        let (root, node) = (index * 0x20, i32::from(index / 4));
        snapshot.host.pci.insert(bus_id(root + 4), function(root, &[root + 1, root + 2, root + 3], node, 0x10de));
        snapshot.host.pci.insert(bus_id(root + 6), function(root, &[root + 1, root + 2, root + 5], node, 0x15b3));
        let number: usize = nic_of[usize::from(index)];
        nics[number] = Some(Nic { name: format!("mlx5_{number}"), bus_id: bus_id(root + 6), rdma: true });
        let links = (0..18).map(|_| to_switch()).collect();
        let words = if index < 4 { [u64::MAX, 0, u64::MAX, 0] } else { [0, u64::MAX, 0, u64::MAX] };
        snapshot.gpus.push(Gpu {
            nvlinks: links,
            cpu_affinity: Reading::Value(words.into()),
            memory_affinity: Reading::Value(vec![1 << node]),
            numa_node: Reading::Unsupported,
            ..gpu(index.into(), root + 4)
        });
    }
    snapshot.host.nics = nics.into_iter().flatten().collect();
    snapshot.pairs = pairs(8, |a, b| if a / 4 == b / 4 { 40 } else { 50 }, 0);
    snapshot
}

#[test]
fn eight_h200_with_eight_nics_say_what_the_capture_says() {
    let topology = Topology::of(&h200());
    let expected = "\
X NV18 NV18 NV18 NV18 NV18 NV18 NV18 NODE NODE SYS NODE PIX SYS SYS SYS
NV18 X NV18 NV18 NV18 NV18 NV18 NV18 NODE PIX SYS NODE NODE SYS SYS SYS
NV18 NV18 X NV18 NV18 NV18 NV18 NV18 PIX NODE SYS NODE NODE SYS SYS SYS
NV18 NV18 NV18 X NV18 NV18 NV18 NV18 NODE NODE SYS PIX NODE SYS SYS SYS
NV18 NV18 NV18 NV18 X NV18 NV18 NV18 SYS SYS NODE SYS SYS NODE PIX NODE
NV18 NV18 NV18 NV18 NV18 X NV18 NV18 SYS SYS NODE SYS SYS NODE NODE PIX
NV18 NV18 NV18 NV18 NV18 NV18 X NV18 SYS SYS NODE SYS SYS PIX NODE NODE
NV18 NV18 NV18 NV18 NV18 NV18 NV18 X SYS SYS PIX SYS SYS NODE NODE NODE
NODE NODE PIX NODE SYS SYS SYS SYS X NODE SYS NODE NODE SYS SYS SYS
NODE PIX NODE NODE SYS SYS SYS SYS NODE X SYS NODE NODE SYS SYS SYS
SYS SYS SYS SYS NODE NODE NODE PIX SYS SYS X SYS SYS NODE NODE NODE
NODE NODE NODE PIX SYS SYS SYS SYS NODE NODE SYS X NODE SYS SYS SYS
PIX NODE NODE NODE SYS SYS SYS SYS NODE NODE SYS NODE X SYS SYS SYS
SYS SYS SYS SYS NODE NODE PIX NODE SYS SYS NODE SYS SYS X NODE NODE
SYS SYS SYS SYS PIX NODE NODE NODE SYS SYS NODE SYS SYS NODE X NODE
SYS SYS SYS SYS NODE PIX NODE NODE SYS SYS NODE SYS SYS NODE NODE X";
    assert_eq!(rows(&topology), expected.lines().collect::<Vec<_>>());
    let first = &topology.gpus[0];
    assert_eq!(first.cpu_affinity, Reading::Value("0-63,128-191".into()));
    assert_eq!(topology.gpus[4].cpu_affinity, Reading::Value("64-127,192-255".into()));
    assert_eq!(topology.gpus[4].numa_affinity, Reading::Value("1".into()));
    assert_eq!((&first.gpu_numa_id, &first.nvlinks), (&Reading::Unsupported, &Reading::Value((18, 18))));
    assert_eq!(first.nearest_nics, ["NIC4"]);
    assert_eq!(topology.nics[2].nearest_gpus, ["GPU7"]);
    assert_eq!(topology.p2p[0][0][..3], ["X", "OK", "OK"]);
    assert_eq!(topology.disagreements, []);
}

#[test]
fn eight_rtx_4090_without_nvlink_say_what_the_capture_says() {
    let mut snapshot = Snapshot::default();
    snapshot.host.numa = two_nodes();
    for index in 0..8u8 {
        let root = index * 0x20;
        snapshot.host.pci.insert(bus_id(root + 4), function(root, &[root + 1], i32::from(index / 4), 0x10de));
        snapshot.gpus.push(gpu(index.into(), root + 4));
    }
    snapshot.pairs = pairs(8, |a, b| if a / 4 == b / 4 { 40 } else { 50 }, 1);
    let topology = Topology::of(&snapshot);
    assert_eq!(rows(&topology)[0], "X NODE NODE NODE SYS SYS SYS SYS");
    assert_eq!(rows(&topology)[6], "SYS SYS SYS SYS NODE NODE X NODE");
    assert_eq!(topology.p2p[1][0][1], "CNS");
    // Sysfs alone says the same.
    snapshot.pairs.clear();
    assert_eq!(Topology::of(&snapshot).matrix, topology.matrix);
}

#[test]
fn two_rtx_5090_below_one_host_bridge_say_what_the_capture_says() {
    let mut snapshot = Snapshot::default();
    snapshot.host.numa = vec![NumaNode::default()];
    for index in 0..2u8 {
        snapshot.host.pci.insert(bus_id(index + 4), function(0, &[index + 1], 0, 0x10de));
        snapshot.gpus.push(gpu(index.into(), index + 4));
    }
    snapshot.pairs = pairs(2, |_, _| 30, 2);
    let topology = Topology::of(&snapshot);
    assert_eq!(rows(&topology), ["X PHB", "PHB X"]);
    assert_eq!(topology.p2p[0], [["X", "GNS"], ["GNS", "X"]]);
    snapshot.pairs.clear();
    assert_eq!(Topology::of(&snapshot).matrix, topology.matrix);
}

#[test]
fn a_gpu_whose_nvlinks_are_down_falls_back_to_its_place_on_the_bus() {
    let mut snapshot = h200();
    for link in &mut snapshot.gpus[2].nvlinks {
        link.state = Reading::Value(0);
    }
    let topology = Topology::of(&snapshot);
    assert_eq!(topology.matrix[2][..5], [Level::Node, Level::Node, Level::Own, Level::Node, Level::Sys]);
    assert_eq!(topology.matrix[0][1], Level::NvLink(18));
    assert_eq!(topology.gpus[2].nvlinks, Reading::Value((0, 18)));
}

#[test]
fn a_pair_is_as_wide_as_its_weaker_side() {
    let mut snapshot = h200();
    snapshot.gpus[2].nvlinks[7].state = Reading::Value(0);
    let topology = Topology::of(&snapshot);
    assert_eq!((topology.matrix[2][0], topology.matrix[0][2]), (Level::NvLink(17), Level::NvLink(17)));
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_a_guess() {
    let mut snapshot = h200();
    snapshot.gpus[1].nvlinks[0].state = Reading::Failed(Code::GPU_IS_LOST);
    snapshot.gpus[3].handle = Reading::Failed(Code::GPU_IS_LOST);
    let topology = Topology::of(&snapshot);
    assert_eq!(topology.matrix[0][..4], [Level::Own, Level::Unknown, Level::NvLink(18), Level::Unknown]);
    assert_eq!(topology.gpus[3].nvlinks, Reading::Failed(Code::GPU_IS_LOST));
    let mut snapshot = h200();
    snapshot.gpus[5].nvlinks.clear();
    assert_eq!(Topology::of(&snapshot).matrix[5][0], Level::Unknown, "the driver says OK for NVLink");
    let gpu = snapshot.gpus[0].bus_id().unwrap();
    snapshot.host.pci.get_mut(&gpu).unwrap().numa_node = Reading::Value(-1);
    assert_eq!(Topology::of(&snapshot).matrix[0][8], Level::Unknown);
    snapshot.host.pci.remove(&gpu);
    assert_eq!(Topology::of(&snapshot).matrix[0][8], Level::Unknown);
    assert_eq!(Level::of_ancestor(60), Level::Unknown);
}

#[test]
fn a_bridge_joins_the_two_gpus_that_it_connects() {
    let mut snapshot = Snapshot::default();
    for index in 0..3u8 {
        snapshot.host.pci.insert(bus_id(index + 4), function(0, &[index + 1], 0, 0x10de));
        let peer = PciInfo { bus_id: bus_id(5 - index.min(1)).to_string(), pci_device_id: 0, pci_sub_system_id: 0 };
        let state = Reading::Value(u32::from(index < 2));
        let link = NvLink { state, remote_type: Reading::Value(0), remote: Reading::Value(peer), ..NvLink::default() };
        snapshot.gpus.push(Gpu { nvlinks: vec![link; 4], ..gpu(index.into(), index + 4) });
    }
    snapshot.pairs = pairs(3, |_, _| 30, 0);
    assert_eq!(rows(&Topology::of(&snapshot)), ["X NV4 PHB", "NV4 X PHB", "PHB PHB X"]);
}

#[test]
fn a_second_switch_makes_several_bridges() {
    let mut snapshot = Snapshot::default();
    for (bus, upstream) in [(10, &[1, 2, 3][..]), (11, &[1, 2, 4]), (12, &[1, 2, 5, 6, 7]), (13, &[1, 2, 5, 6, 8])] {
        snapshot.host.pci.insert(bus_id(bus), function(0, upstream, 0, 0x15b3));
    }
    let level = |a, b| distance::level(&snapshot.host, bus_id(a), bus_id(b));
    assert_eq!((level(10, 11), level(12, 13)), (Level::Pix, Level::Pix));
    assert_eq!((level(10, 12), level(12, 10)), (Level::Pxb, Level::Pxb));
}

#[test]
fn a_gpu_that_the_driver_does_not_show_stands_by_its_bus() {
    let mut snapshot = h200();
    let lost = snapshot.gpus.remove(7);
    let topology = Topology::of(&snapshot);
    let hidden = &topology.gpus[7];
    assert_eq!((hidden.name.as_str(), hidden.index, hidden.bus_id), ("PCI0", None, lost.bus_id()));
    assert_eq!(topology.matrix[7][4], Level::Node);
    assert_eq!(topology.p2p[0][7][0], "?");
    assert_eq!(hidden.nearest_nics, ["NIC2"]);
}

#[test]
fn the_driver_and_the_kernel_may_disagree_and_it_shows() {
    let mut snapshot = h200();
    snapshot.pairs = pairs(
        8,
        |a, b| {
            if (a.min(b), a.max(b)) == (0, 1) {
                10
            } else if a / 4 == b / 4 {
                40
            } else {
                50
            }
        },
        0,
    );
    let expected = Disagreement { a: "GPU0".into(), b: "GPU1".into(), driver: Level::Pix, kernel: Level::Node };
    assert_eq!(Topology::of(&snapshot).disagreements, [expected]);
}

#[test]
fn a_mask_lists_as_the_kernel_does() {
    for (words, list) in
        [(&[][..], ""), (&[0, 0], ""), (&[1], "0"), (&[u64::MAX, 1], "0-64"), (&[0b1011, 1 << 63], "0-1,3,127")]
    {
        assert_eq!(place::list(words), list);
    }
}
