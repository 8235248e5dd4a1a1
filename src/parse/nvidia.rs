//! `/proc/driver/nvidia/version` and `/proc/driver/nvidia/params`.

use std::collections::BTreeMap;

use crate::ident::printable;

/// The first line of the version file, and whether it is the open kernel module.
///
/// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15 …` is the open one,
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03 …` the proprietary one;
/// none if the line is neither.
pub fn version(text: &str) -> (String, Option<bool>) {
    let line = text.lines().next().unwrap_or_default().trim();
    let open = line.starts_with("NVRM version:").then(|| line.contains("Open Kernel Module"));
    let known = open.filter(|open| *open || line.contains("Kernel Module"));
    (printable(line, 200), known)
}

/// `EnableGpuFirmware: 18`, one a line; values may be quoted.
pub fn parameters(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (printable(name.trim(), 100), printable(value.trim().trim_matches('"'), 200))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flavour_of_the_module_stands_in_its_version_line() {
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version: 12\n";
        assert_eq!(version(open).1, Some(true));
        assert_eq!(version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19").1, Some(false));
        assert_eq!(version("NVRM version: NVID").1, None);
        assert_eq!(version(""), (String::new(), None));
    }

    #[test]
    fn parameters_read_by_name() {
        let read = parameters("EnableGpuFirmware: 18\nRegistryDwords: \"a=1;b=2\"\nhalf\n");
        assert_eq!(read["EnableGpuFirmware"], "18");
        assert_eq!(read["RegistryDwords"], "a=1;b=2");
        assert_eq!(read.len(), 2);
    }
}
