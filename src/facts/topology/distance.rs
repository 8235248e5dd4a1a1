//! How near two PCI functions are by the bridges above them, as sysfs shows them.

use super::Level;
use crate::facts::HostFacts;
use crate::facts::host::PciFunction;
use crate::ident::BusId;
use crate::reading::Reading;

/// The level of two functions; unknown where one of them, or the NUMA node that decides, cannot be read.
pub fn level(host: &HostFacts, a: BusId, b: BusId) -> Level {
    if a == b {
        return Level::Own;
    }
    match (host.pci.get(&a), host.pci.get(&b)) {
        (Some(first), Some(second)) if !first.root.is_empty() && !second.root.is_empty() => {
            if first.root == second.root { below_one_root(first, second) } else { across_roots(host, first, second) }
        }
        _ => Level::Unknown,
    }
}

/// Functions below one host bridge: what they share of their chains of bridges decides. A switch
/// is an upstream port and, for each side, one downstream port; more on one side is a second switch.
fn below_one_root(a: &PciFunction, b: &PciFunction) -> Level {
    let shared = a.upstream.iter().zip(&b.upstream).take_while(|(first, second)| first == second).count();
    let own = (a.upstream.len() - shared).max(b.upstream.len() - shared);
    match (shared, own) {
        (0, _) => Level::Phb,
        (_, 0 | 1) => Level::Pix,
        _ => Level::Pxb,
    }
}

fn across_roots(host: &HostFacts, a: &PciFunction, b: &PciFunction) -> Level {
    match (&a.numa_node, &b.numa_node) {
        (Reading::Value(first), Reading::Value(second)) if *first >= 0 && *second >= 0 => {
            if first == second {
                Level::Node
            } else {
                Level::Sys
            }
        }
        // Where the host has one node, all of it is in that node, whatever the firmware leaves out.
        (Reading::Value(_), Reading::Value(_)) if host.numa.len() == 1 => Level::Node,
        _ => Level::Unknown,
    }
}
