//! `/proc/cpuinfo` of x86 and Arm, and the kernel's CPU lists (`0-63,128-191`).

use std::collections::BTreeSet;

use crate::ident::printable;

/// Arm's implementer and part numbers of server cores (Arm's MIDR_EL1 tables; NVIDIA Grace is Neoverse V2).
const ARM_CORES: &[(u32, u32, &str)] = &[
    (0x41, 0xd0c, "Arm Neoverse N1"),
    (0x41, 0xd40, "Arm Neoverse V1"),
    (0x41, 0xd49, "Arm Neoverse N2"),
    (0x41, 0xd4f, "Arm Neoverse V2"),
    (0x41, 0xd84, "Arm Neoverse V3"),
    (0x41, 0xd85, "Arm Cortex-X925"),
    (0xc0, 0xac3, "Ampere-1"),
    (0xc0, 0xac4, "Ampere-1A"),
];

/// What `/proc/cpuinfo` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    pub model: Option<String>,
    /// Distinct physical packages; none where the file does not name them (Arm).
    pub sockets: Option<u32>,
    /// Logical CPUs listed.
    pub processors: u32,
}

/// Reads `/proc/cpuinfo`.
pub fn cpuinfo(text: &str) -> CpuInfo {
    let fields = || text.lines().filter_map(|line| line.split_once(':')).map(|(k, v)| (k.trim(), v.trim()));
    let first = |name: &str| fields().find(|(key, _)| *key == name).map(|(_, value)| value);
    let processors = fields().filter(|(key, value)| *key == "processor" && value.parse::<u32>().is_ok()).count();
    let packages: BTreeSet<&str> = fields().filter(|(key, _)| *key == "physical id").map(|(_, value)| value).collect();
    let model = first("model name").map(|name| printable(name, 100)).or_else(|| {
        let core = arm_core(first("CPU implementer")?, first("CPU part")?);
        Some(core)
    });
    CpuInfo {
        model,
        sockets: u32::try_from(packages.len()).ok().filter(|count| *count > 0),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
    }
}

/// How many CPUs a list names; none if it does not read as one. An empty list names none: 0.
pub fn list_length(list: &str) -> Option<u32> {
    let list = list.trim();
    if list.is_empty() {
        return Some(0);
    }
    list.split(',').try_fold(0u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn arm_core(implementer: &str, part: &str) -> String {
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let known = ARM_CORES.iter().find(|(i, p, _)| Some(*i) == number(implementer) && Some(*p) == number(part));
    match known {
        Some((_, _, name)) => (*name).to_owned(),
        None => printable(&format!("Arm core {implementer}:{part}"), 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_x86_host_has_a_model_name_and_packages() {
        let text = "processor\t: 0\nmodel name\t: INTEL(R) XEON(R) PLATINUM 8480+\nphysical id\t: 0\n\n\
                    processor\t: 1\nmodel name\t: INTEL(R) XEON(R) PLATINUM 8480+\nphysical id\t: 1\n";
        let read = cpuinfo(text);
        assert_eq!(read.model.as_deref(), Some("INTEL(R) XEON(R) PLATINUM 8480+"));
        assert_eq!((read.sockets, read.processors), (Some(2), 2));
    }

    #[test]
    fn an_arm_host_is_named_by_its_core() {
        let read = cpuinfo("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n");
        assert_eq!(read.model.as_deref(), Some("Arm Neoverse V2"));
        assert_eq!((read.sockets, read.processors), (None, 1));
        let strange = cpuinfo("CPU implementer: 0x99\nCPU part: 0xabc\n");
        assert_eq!(strange.model.as_deref(), Some("Arm core 0x99:0xabc"));
    }

    #[test]
    fn an_empty_or_truncated_file_gives_nothing() {
        assert_eq!(cpuinfo(""), CpuInfo::default());
        assert_eq!(cpuinfo("proces"), CpuInfo::default());
    }

    #[test]
    fn a_list_of_cpus_counts_or_is_refused() {
        assert_eq!(list_length("0-63,128-191\n"), Some(128));
        assert_eq!(list_length("7"), Some(1));
        assert_eq!(list_length(""), Some(0));
        for list in ["3-1", "a", "0-", "0-4294967295", "1,,2", "0-4294967294,0-4294967294"] {
            assert_eq!(list_length(list), None, "{list}");
        }
    }
}
