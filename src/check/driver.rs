#![doc = include_str!("driver.md")]

use std::collections::BTreeMap;

use serde::Deserialize;

use super::look::Look;
use super::version::Version;
use super::{Check, Context, session};
use crate::facts::host::Module;
use crate::facts::snapshot::{Library, SessionState};
use crate::facts::{Gpu, Snapshot};
use crate::host::Origin;
use crate::ident::Subject;
use crate::outcome::{Action, Finding, Grade, Judgement, Outcome};
use crate::reading::{Code, Reading};

/// What a class may ask of the driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Driver {
    /// The oldest version that may run.
    pub minimum: Version,
    /// Versions that may not, and why.
    #[serde(default)]
    pub denied: Vec<Denied>,
    /// The CUDA version that the driver must serve, `12.2`.
    pub minimum_cuda: Version,
    pub persistence: Persistence,
    pub gsp: Demand,
    pub open_module: Demand,
}

/// A driver version that is known to be bad.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Denied {
    pub version: Version,
    pub reason: String,
}

/// Whether persistence mode must be on, should be, or is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    Required,
    Recommended,
    Ignored,
}

/// Whether something must be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    Required,
    Ignored,
}

impl Check for Driver {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        let mut outcome = self.judge(context.opening, context.machine.source.origin);
        outcome.attempts = context.openings;
        outcome
    }
}

impl Driver {
    /// Judges the host's driver, and what of it is set for each GPU.
    pub fn judge(&self, facts: &Snapshot, origin: Origin) -> Outcome {
        // A session that stopped half-way says nothing of the GPUs that is worth a finding each.
        let gpus = if facts.driver.is_answering() { facts.gpus_by_bus_id() } else { BTreeMap::new() };
        let subjects = gpus.keys().map(|bus_id| Subject::gpu(*bus_id)).chain([Subject::host()]);
        let mut judgement = Judgement::expecting(subjects);
        let mut look = Look::at(&mut judgement, Subject::host());
        judge_modules(facts, &mut look);
        match session::fault(&facts.driver.session) {
            Some(fault) if fault.code.as_str() == "library-mismatch" => look.find(name_versions(fault, facts)),
            Some(fault) if fault.grade == Grade::Failed => look.find(fault),
            Some(fault) => {
                look.unread::<()>(fault);
            }
            None => self.judge_session(facts, origin, &mut look),
        }
        look.end();
        for (bus_id, gpu) in gpus {
            let mut look = Look::at(&mut judgement, Subject::gpu(bus_id));
            self.judge_gpu(facts, gpu, &mut look);
            look.end();
        }
        let version = facts.driver.driver_version.value().map_or("", String::as_str);
        judgement.close(&format!("{version}, library and module agree"))
    }

    fn judge_session(&self, facts: &Snapshot, origin: Origin, look: &mut Look<'_>) {
        judge_library(facts.driver.library.as_ref(), origin, look);
        judge_cuda_library(facts.driver.cuda_library.as_ref(), origin, look);
        judge_control_node(&facts.host.driver.control_node, look);
        let text = look.require(&facts.driver.driver_version, "driver version").cloned();
        if let Some(driver) = text.and_then(|text| read_version(&text, "driver version", look)) {
            judge_agreement(facts, &driver, look);
            self.judge_version(&driver, look);
        }
        self.judge_cuda_version(&facts.driver.cuda_version, look);
        if self.open_module == Demand::Required {
            judge_flavour(&facts.host.driver.open_module, look);
        }
    }

    fn judge_version(&self, driver: &Version, look: &mut Look<'_>) {
        if *driver < self.minimum {
            look.find(
                Finding::new(Grade::Failed, "driver-too-old", look.subject(), "Driver too old", Action::Configure)
                    .compared(format!("{} or newer", self.minimum), driver)
                    .advise(&format!("Install driver {} or newer, reboot, run again.", self.minimum)),
            );
        }
        if let Some(denied) = self.denied.iter().find(|denied| denied.version == *driver) {
            look.find(
                Finding::new(
                    Grade::Failed,
                    "driver-denied",
                    look.subject(),
                    "Driver version denied",
                    Action::Configure,
                )
                .compared("a version that is not on the deny list", format!("{driver}: {}", denied.reason))
                .advise("Install another driver version, reboot, run again."),
            );
        }
    }

    fn judge_cuda_version(&self, reading: &Reading<u32>, look: &mut Look<'_>) {
        let Some(number) = look.require(reading, "CUDA driver version") else { return };
        let found = Version::of_cuda(*number);
        if found < self.minimum_cuda {
            look.find(
                Finding::new(Grade::Failed, "cuda-too-old", look.subject(), "CUDA version too old", Action::Configure)
                    .compared(format!("{} or newer", self.minimum_cuda), found)
                    .advise(&format!("Install a driver that serves CUDA {}, reboot, run again.", self.minimum_cuda)),
            );
        }
    }

    fn judge_gpu(&self, facts: &Snapshot, gpu: &Gpu, look: &mut Look<'_>) {
        self.judge_persistence(gpu, look);
        if self.gsp == Demand::Required
            && let Some(mode) = look.require(&gpu.gsp_mode, "GSP firmware mode")
            && mode.is_enabled == 0
        {
            look.find(
                Finding::new(Grade::Failed, "gsp-off", look.subject(), "GSP firmware off", Action::Configure)
                    .compared("GSP firmware on", "off")
                    .advise("Remove NVreg_EnableGpuFirmware=0 from /etc/modprobe.d, rebuild the initramfs, reboot."),
            );
        }
        judge_node(facts, gpu, look);
    }

    fn judge_persistence(&self, gpu: &Gpu, look: &mut Look<'_>) {
        let grade = match self.persistence {
            Persistence::Required => Grade::Failed,
            Persistence::Recommended => Grade::Warned,
            Persistence::Ignored => return,
        };
        if let Some(0) = look.require(&gpu.persistence, "persistence mode") {
            look.find(
                Finding::new(grade, "persistence-off", look.subject(), "Persistence mode off", Action::Configure)
                    .compared("persistence mode on", "off")
                    .advise("systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1 until the next boot."),
            );
        }
    }
}

/// A mismatch with the versions of both sides, as far as they are known without a session.
fn name_versions(fault: Finding, facts: &Snapshot) -> Finding {
    let library = facts.driver.library.as_ref().and_then(|library| Version::of_file(&library.resolved));
    let module = facts.host.driver.module_version.value();
    let known =
        [library.map(|version| format!("library {version}")), module.map(|version| format!("kernel module {version}"))];
    let known: Vec<String> = known.into_iter().flatten().collect();
    if known.is_empty() {
        return fault;
    }
    let found = format!("{}, {}", known.join(", "), fault.found);
    fault.compared("library and kernel module of one version", found)
}

fn judge_modules(facts: &Snapshot, look: &mut Look<'_>) {
    if is_without_modules(facts) {
        return look.find(
            module_missing(look.subject())
                .compared("kernel module nvidia loaded", "a kernel without loadable modules, and no driver in it")
                .advise("Boot a kernel that can load modules, with NVIDIA's driver for it; run again."),
        );
    }
    let Some(modules) = look.require(&facts.host.kernel.modules, "/proc/modules") else { return };
    judge_nouveau(modules, look);
    match modules.get("nvidia").map(|module| module.state.as_str()) {
        Some("Live") => {}
        Some(state) => {
            look.unread::<()>(
                Finding::new(
                    Grade::Undecided,
                    "not-ready",
                    look.subject(),
                    "Driver still loading",
                    Action::Investigate,
                )
                .compared("kernel module nvidia live", state)
                .advise("Wait and run again, or give the run --wait-ready 10m."),
            );
        }
        None if facts.driver.session == SessionState::Answering => {
            look.unread::<()>(
                Finding::new(
                    Grade::Undecided,
                    "module-unseen",
                    look.subject(),
                    "Driver without module",
                    Action::Investigate,
                )
                .compared("kernel module nvidia in /proc/modules", "NVML answers, but the module is not listed")
                .advise("Run on the host itself, with its own /proc; run again."),
            );
        }
        None => look.find(module_missing(look.subject())),
    }
}

/// A kernel built without modules has no `/proc/modules`; the driver could then only be built in, and
/// would show its version.
fn is_without_modules(facts: &Snapshot) -> bool {
    let (kernel, driver) = (&facts.host.kernel, &facts.host.driver);
    [
        kernel.modules.as_ref().map(|_| ()),
        driver.module_version.as_ref().map(|_| ()),
        driver.version_text.as_ref().map(|_| ()),
    ]
    .iter()
    .all(|reading| *reading == Reading::Unsupported)
        && facts.driver.session != SessionState::Answering
}

fn module_missing(host: Subject) -> Finding {
    Finding::new(Grade::Failed, "driver-not-loaded", host, "Driver not loaded", Action::Configure)
        .compared("kernel module nvidia loaded", "not in /proc/modules")
        .advise("modprobe nvidia; if that fails, dmesg | grep -i nvrm says why (no driver for this kernel, Secure Boot, no GPU). Run again.")
}

fn judge_nouveau(modules: &BTreeMap<String, Module>, look: &mut Look<'_>) {
    if modules.contains_key("nouveau") {
        look.find(
            Finding::new(Grade::Failed, "nouveau-loaded", look.subject(), "nouveau loaded", Action::Configure)
                .compared("no kernel module nouveau", "loaded")
                .advise("Write \"blacklist nouveau\" to /etc/modprobe.d/nouveau.conf, rebuild the initramfs, reboot."),
        );
    }
}

/// The library that the session opened must be the driver's own, unless the run says otherwise
/// (`--fixture` uses the simulated one, `--nvml` a named one).
fn judge_library(library: Option<&Library>, origin: Origin, look: &mut Look<'_>) {
    match library {
        None => {
            look.unread::<()>(
                Finding::new(Grade::Undecided, "unreadable", look.subject(), "Library unknown", Action::Investigate)
                    .compared("path, owner and digest of the driver library", "not known")
                    .advise("Run again; if it stays, report it: the agent opened a library without noting which."),
            );
        }
        Some(library) => distrust(library, origin).into_iter().for_each(|reason| look.find(untrusted(library, reason))),
    }
}

fn judge_cuda_library(library: Option<&Library>, origin: Origin, look: &mut Look<'_>) {
    match library {
        Some(library) => distrust(library, origin).into_iter().for_each(|reason| look.find(untrusted(library, reason))),
        None => look.find(
            Finding::new(
                Grade::Failed,
                "library-missing",
                look.subject(),
                "CUDA driver library missing",
                Action::Configure,
            )
            .compared("libcuda.so.1 in one of the known places", "none")
            .advise(
                "Install the driver's CUDA library of the same version (libcuda1, nvidia-driver-cuda-libs); run again.",
            ),
        ),
    }
}

fn distrust(library: &Library, origin: Origin) -> Option<&'static str> {
    match origin {
        _ if library.stub => Some("CUDA's link-time stub, not a driver"),
        Origin::Simulated => (!library.simulated).then_some("a real driver library under a recording"),
        _ if library.simulated => Some("the simulated driver"),
        Origin::Live => (library.owner != 0).then_some("not owned by root"),
        Origin::Overridden => None,
    }
}

fn untrusted(library: &Library, reason: &str) -> Finding {
    Finding::new(Grade::Failed, "library-untrusted", Subject::host(), "Driver library not trusted", Action::Configure)
        .compared("the driver's own library, owned by root", format!("{}: {reason}", library.resolved))
        .advise("Remove that file and install the driver from its package; run again.")
}

fn judge_control_node(reading: &Reading<bool>, look: &mut Look<'_>) {
    let present = look.optional(reading, "/dev/nvidiactl").copied();
    if present == Some(false) || *reading == Reading::Unsupported {
        look.find(node_missing(look.subject(), "/dev/nvidiactl"));
    }
}

/// Each GPU needs `/dev/nvidiaN`, N its minor number. WSL has no minor numbers and no such nodes.
fn judge_node(facts: &Snapshot, gpu: &Gpu, look: &mut Look<'_>) {
    let Some(minor) = look.optional(&gpu.minor, "minor number") else { return };
    let there = facts.host.driver.device_nodes.contains(minor);
    // Where not even the control node could be looked for, no node is missing.
    if !there && look.optional(&facts.host.driver.control_node, "/dev/nvidiactl").is_none() {
        return;
    }
    if !there {
        look.find(node_missing(look.subject(), &format!("/dev/nvidia{minor}")));
    }
}

fn node_missing(subject: Subject, node: &str) -> Finding {
    Finding::new(Grade::Failed, "node-missing", subject, "Device node missing", Action::Configure)
        .compared(node, "absent")
        .advise(
            "nvidia-modprobe -u -c=0, or systemctl restart nvidia-persistenced; in a container, pass the device in.",
        )
}

fn read_version(text: &str, what: &str, look: &mut Look<'_>) -> Option<Version> {
    match text.parse() {
        Ok(version) => Some(version),
        Err(_) => look.unread(
            crate::outcome::blame::unanswered(&look.subject(), what, Code::GARBLED)
                .compared("numbers between dots", text),
        ),
    }
}

/// The driver's version as NVML gives it against the kernel module's, NVML's own and those
/// that the files carry in their names.
fn judge_agreement(facts: &Snapshot, driver: &Version, look: &mut Look<'_>) {
    let module = look.require(&facts.host.driver.module_version, "/sys/module/nvidia/version").cloned();
    let module = module.and_then(|text| read_version(&text, "kernel module's version", look));
    let nvml = look.require(&facts.driver.nvml_version, "NVML version").cloned();
    let nvml = nvml
        .and_then(|text| read_version(&text, "NVML version", look))
        .map(|nvml| nvml.without_first().unwrap_or(nvml));
    let of_file = |library: &Option<Library>| library.as_ref().and_then(|library| Version::of_file(&library.resolved));
    for (what, version) in [
        ("kernel module", module),
        ("NVML", nvml),
        ("libnvidia-ml", of_file(&facts.driver.library)),
        ("libcuda", of_file(&facts.driver.cuda_library)),
    ] {
        if let Some(version) = version.filter(|version| version != driver) {
            look.find(
                Finding::new(Grade::Failed, "library-mismatch", look.subject(), "Driver parts differ", Action::Reboot)
                    .compared(format!("{driver} everywhere"), format!("{what} is {version}"))
                    .advise(
                        "The driver was changed half-way: install all its packages in one version, reboot, run again.",
                    ),
            );
        }
    }
}

fn judge_flavour(reading: &Reading<bool>, look: &mut Look<'_>) {
    if let Some(false) = look.require(reading, "flavour of the kernel module") {
        look.find(
            Finding::new(Grade::Failed, "closed-module", look.subject(), "Closed kernel module", Action::Configure)
                .compared("the open kernel module", "the closed one")
                .advise("Install the driver's open kernel module package (nvidia-open), reboot, run again."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread, unread_optional};

    const GPU: &str = "0000:1b:00.0";

    fn check() -> Driver {
        let text = r#"
            minimum = "535.54"
            denied = [{ version = "570.1", reason = "hangs" }]
            minimum-cuda = "12.2"
            persistence = "recommended"
            gsp = "required"
            open-module = "required""#;
        toml::from_str(text).unwrap()
    }

    #[track_caller]
    fn after(change: impl FnOnce(&mut Snapshot), status: &str, findings: &[(&str, &str)]) {
        let mut facts = sample::host(1);
        change(&mut facts);
        assert_outcome(&check().judge(&facts, Origin::Live), status, findings);
    }

    #[test]
    fn a_healthy_driver_passes_and_is_named() {
        let outcome = check().judge(&sample::host(8), Origin::Live);
        assert_outcome(&outcome, "passed", &[]);
        assert_eq!(outcome.cause, "580.105.08, library and module agree");
        assert_eq!(outcome.judged().len(), 9);
    }

    #[test]
    fn an_unloaded_module_is_one_problem_even_though_nvml_says_it_too() {
        let unload = |facts: &mut Snapshot| {
            facts.host.kernel.modules = Reading::Value(BTreeMap::new());
            facts.driver.session = SessionState::InitFailed { code: Code::DRIVER_NOT_LOADED, message: String::new() };
            facts.gpus.clear();
        };
        after(unload, "failed", &[("driver-not-loaded", "host")]);
    }

    #[test]
    fn a_machine_without_any_driver_names_library_and_module() {
        let outcome = check().judge(
            &Snapshot {
                driver: crate::facts::snapshot::DriverSession {
                    session: SessionState::NoLibrary { searched: vec!["/usr/lib".to_owned()] },
                    ..Default::default()
                },
                host: crate::facts::HostFacts {
                    kernel: crate::facts::host::Kernel {
                        modules: Reading::Value(BTreeMap::new()),
                        ..Default::default()
                    },
                    ..Default::default()
                },
                ..Snapshot::default()
            },
            Origin::Live,
        );
        assert_outcome(&outcome, "failed", &[("driver-not-loaded", "host"), ("library-missing", "host")]);
    }

    #[test]
    fn nouveau_and_a_loading_module_are_seen() {
        let module = |state: &str| Module { state: state.to_owned(), used_by: vec![] };
        let set = |name: &'static str, state: &'static str| {
            move |facts: &mut Snapshot| {
                if let Reading::Value(modules) = &mut facts.host.kernel.modules {
                    modules.insert(name.to_owned(), module(state));
                }
            }
        };
        after(set("nouveau", "Live"), "failed", &[("nouveau-loaded", "host")]);
        after(set("nvidia", "Loading"), "undecided", &[("not-ready", "host")]);
        let unlist = |facts: &mut Snapshot| facts.host.kernel.modules = Reading::Value(BTreeMap::new());
        after(unlist, "undecided", &[("module-unseen", "host")]);
    }

    #[test]
    fn parts_of_different_versions_are_rejected() {
        let mismatch: &[(&str, &str)] = &[("library-mismatch", "host")];
        after(|facts| facts.host.driver.module_version = Reading::Value("580.95.05".into()), "failed", mismatch);
        after(|facts| facts.driver.nvml_version = Reading::Value("13.580.95.05".into()), "failed", mismatch);
        after(
            |facts| facts.driver.cuda_library.as_mut().unwrap().resolved = "/x/libcuda.so.570.1".into(),
            "failed",
            mismatch,
        );
        let init = |facts: &mut Snapshot| {
            facts.driver.session =
                SessionState::InitFailed { code: Code::LIB_RM_VERSION_MISMATCH, message: String::new() };
            facts.gpus.clear();
        };
        after(init, "failed", mismatch);
    }

    #[test]
    fn old_and_denied_versions_are_rejected() {
        let version = |text: &'static str| {
            move |facts: &mut Snapshot| {
                facts.driver.driver_version = Reading::Value(text.into());
                facts.driver.nvml_version = Reading::Value(format!("12.{text}"));
                facts.host.driver.module_version = Reading::Value(text.into());
                facts.driver.library.as_mut().unwrap().resolved = "/x/libnvidia-ml.so.1".into();
                facts.driver.cuda_library.as_mut().unwrap().resolved = "/x/libcuda.so.1".into();
            }
        };
        after(version("535.54"), "passed", &[]);
        after(version("535.43.02"), "failed", &[("driver-too-old", "host")]);
        after(version("570.1"), "failed", &[("driver-denied", "host")]);
        after(|facts| facts.driver.cuda_version = Reading::Value(12_010), "failed", &[("cuda-too-old", "host")]);
        after(|facts| facts.driver.driver_version = Reading::Value("5x".into()), "undecided", &[("garbled", "host")]);
    }

    #[test]
    fn a_library_that_is_not_the_drivers_own_is_not_trusted() {
        let untrusted: &[(&str, &str)] = &[("library-untrusted", "host")];
        after(|facts| facts.driver.library.as_mut().unwrap().owner = 1000, "failed", untrusted);
        after(|facts| facts.driver.library.as_mut().unwrap().simulated = true, "failed", untrusted);
        after(|facts| facts.driver.cuda_library.as_mut().unwrap().stub = true, "failed", untrusted);
        after(|facts| facts.driver.cuda_library = None, "failed", &[("library-missing", "host")]);
        let mut facts = sample::host(1);
        assert_outcome(&check().judge(&facts, Origin::Simulated), "failed", untrusted);
        for library in [&mut facts.driver.library, &mut facts.driver.cuda_library] {
            library.as_mut().unwrap().simulated = true;
            library.as_mut().unwrap().owner = 1000;
        }
        assert_outcome(&check().judge(&facts, Origin::Simulated), "passed", &[]);
        assert_outcome(&check().judge(&facts, Origin::Overridden), "failed", untrusted);
    }

    #[test]
    fn what_the_class_wants_set_is_checked_on_each_gpu() {
        let off = crate::facts::gpu::GspMode { is_enabled: 0, default_mode: 1 };
        after(|facts| facts.gpus[0].persistence = Reading::Value(0), "warned", &[("persistence-off", GPU)]);
        after(|facts| facts.gpus[0].gsp_mode = Reading::Value(off), "failed", &[("gsp-off", GPU)]);
        after(|facts| facts.host.driver.device_nodes.clear(), "failed", &[("node-missing", GPU)]);
        let unseen = |facts: &mut Snapshot| {
            facts.host.driver.device_nodes.clear();
            facts.host.driver.control_node = Reading::Failed(Code::NO_PERMISSION);
        };
        after(unseen, "undecided", &[("no-permission", "host"), ("no-permission", GPU)]);
        after(|facts| facts.host.driver.control_node = Reading::Value(false), "failed", &[("node-missing", "host")]);
        after(|facts| facts.host.driver.open_module = Reading::Value(false), "failed", &[("closed-module", "host")]);
    }

    #[test]
    fn a_hang_or_a_crash_is_undecided() {
        let hang = |facts: &mut Snapshot| {
            facts.driver.session = SessionState::Hung(Default::default());
            facts.gpus[0].persistence = Reading::Failed(Code::WEDGED);
        };
        after(hang, "undecided", &[("driver-hung", "host")]);
        let die = |facts: &mut Snapshot| {
            facts.driver.session = SessionState::Died { question: "q".into(), how: "signal 11".into() };
        };
        after(die, "undecided", &[("driver-died", "host")]);
    }

    #[test]
    fn nothing_unread_ever_passes() {
        macro_rules! never {
            ($states:expr, $($field:ident).+ $([$index:literal] . $rest:ident)?) => {
                assert_never_passes_unread(stringify!($($field).+), $states, |state| {
                    let mut facts = sample::host(1);
                    facts.$($field).+ $([$index].$rest)? = state;
                    check().judge(&facts, Origin::Live)
                })
            };
        }
        never!(unread(), host.kernel.modules);
        never!(unread(), host.driver.module_version);
        never!(unread(), host.driver.open_module);
        never!(unread(), driver.driver_version);
        never!(unread(), driver.nvml_version);
        never!(unread(), driver.cuda_version);
        never!(unread(), gpus[0].persistence);
        never!(unread(), gpus[0].gsp_mode);
        never!(unread_optional(), gpus[0].minor);
        never!(unread_optional(), host.driver.control_node);
        after(|facts| facts.driver.library = None, "undecided", &[("unreadable", "host")]);
        assert_outcome(&check().judge(&Snapshot::default(), Origin::Live), "undecided", &[("not-asked", "host")]);
    }
}
