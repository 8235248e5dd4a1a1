//! The kernel side of the NVIDIA driver, and its device nodes.

use super::system::numbered;
use super::{attribute, text};
use crate::facts::host::DriverFacts;
use crate::host::root::Root;
use crate::parse::nvidia;
use crate::reading::{Code, Reading};

pub fn driver_facts(root: &Root) -> DriverFacts {
    let version = text(root, "/proc/driver/nvidia/version").map(|text| nvidia::version(&text));
    DriverFacts {
        module_version: attribute(root, "/sys/module/nvidia/version"),
        version_text: version.as_ref().map(|(line, _)| line.clone()),
        open_module: match version.as_ref().map(|(_, open)| *open) {
            Reading::Value(Some(open)) => Reading::Value(open),
            Reading::Value(None) => Reading::Failed(Code::GARBLED),
            Reading::Unsupported => Reading::Unsupported,
            Reading::Unasked => Reading::Unasked,
            Reading::Failed(code) => Reading::Failed(code),
        },
        parameters: text(root, "/proc/driver/nvidia/params").map(|text| nvidia::parameters(&text)),
        device_nodes: device_nodes(root),
        control_node: root.exists("/dev/nvidiactl"),
    }
}

fn device_nodes(root: &Root) -> Vec<u32> {
    let names = root.list("/dev").value().cloned().unwrap_or_default();
    let mut minors: Vec<u32> = names.iter().filter_map(|name| numbered(name, "nvidia")).collect();
    minors.sort_unstable();
    // Each is looked at by name, so that a recording knows of it.
    minors.retain(|minor| root.exists(&format!("/dev/nvidia{minor}")) == Reading::Value(true));
    minors
}
