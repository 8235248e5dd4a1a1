#![doc = include_str!("nvlink.md")]

use serde::Deserialize;

use super::look::{Held, Look, each_gpu};
use super::{Check, Context, session};
use crate::facts::gpu::Fabric;
use crate::facts::{Gpu, Snapshot};
use crate::outcome::{Action, Finding, Grade, Outcome};
use crate::units::Bandwidth;

/// The NVLinks that a GPU of the class has.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NvLink {
    /// Active links of each GPU; 0 where it has none or they are not to be used.
    pub links: u32,
    /// What NVML gives as the speed of one link; absent: not judged.
    pub speed: Option<Bandwidth>,
    pub fabric: Registration,
}

/// Whether the GPUs register in an NVLink fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Registration {
    Registered,
    /// The GPUs have none, or do not tell.
    Ignored,
}

/// `nvmlGpuFabricState_t`: started, but not complete yet (1 not started, 2 in progress).
const UNDER_WAY: [u32; 2] = [1, 2];
/// `NVML_GPU_FABRIC_STATE_COMPLETED`.
const COMPLETED: u32 = 3;
/// `NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY` and `_LIMITED_CAPACITY`.
const UNWELL: [u32; 2] = [2, 3];
/// NVML gives the speed of a link in megabytes a second.
const MEGABYTE: f64 = 1e6;

impl Check for NvLink {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        self.judge(context.opening)
    }
}

impl NvLink {
    /// Judges the links and the fabric registration of each GPU.
    pub fn judge(&self, facts: &Snapshot) -> Outcome {
        if let Some(silent) = session::silent(facts) {
            return silent;
        }
        let judgement = each_gpu(facts, |look, gpu| {
            self.judge_links(gpu, look);
            if self.fabric == Registration::Registered
                && let Some(fabric) = look.require(&gpu.fabric, "NVLink fabric registration")
            {
                judge_fabric(fabric, look);
            }
        });
        let links = match self.links {
            0 => "no links asked for".to_owned(),
            1 => "1 link up on every GPU".to_owned(),
            links => format!("{links} links up on every GPU"),
        };
        let fabric = if self.fabric == Registration::Registered { ", fabric registered" } else { "" };
        judgement.close(&format!("{links}{fabric}"))
    }

    fn judge_links(&self, gpu: &Gpu, look: &mut Look<'_>) {
        if self.links == 0 {
            // The class or site has none here (MIG instances get none); links that are there harm nobody.
            look.optional(&gpu.nvlink_count, "count of NVLinks");
            return;
        }
        let Some(count) = look.require(&gpu.nvlink_count, "count of NVLinks").copied() else { return };
        let mut active = 0;
        let mut down = Vec::new();
        for (number, link) in gpu.nvlinks.iter().enumerate() {
            match look.require(&link.state, "NVLink state") {
                Some(0) => down.push(number.to_string()),
                Some(_) => {
                    active += 1;
                    self.judge_speed(number, link, look);
                }
                None => return,
            }
        }
        look.measure(look.number("nvlinks-active", f64::from(active), "").at_least(self.links.into()));
        if active < self.links {
            let which = if down.is_empty() { String::new() } else { format!(", down: {}", down.join(", ")) };
            look.find(
                Finding::new(Grade::Failed, "nvlink-down", look.subject(), "NVLink down", Action::ResetGpu)
                    .compared(format!("{} links active", self.links), format!("{active} of {count} active{which}"))
                    .advise("Reset the GPUs or reboot; if the links stay down, reseat the module, look for bent pins, run again."),
            );
        }
    }

    fn judge_speed(&self, number: usize, link: &crate::facts::gpu::NvLink, look: &mut Look<'_>) {
        let Some(wanted) = self.speed.map(Bandwidth::number) else { return };
        let Some(speed) = look.require(&link.speed, "NVLink speed").copied() else { return };
        if (speed as f64) * MEGABYTE < wanted {
            look.find(
                Finding::new(Grade::Failed, "nvlink-slow", look.subject(), "NVLink slow", Action::ResetGpu)
                    .compared(format!("{} MB/s", wanted / MEGABYTE), format!("{speed} MB/s on link {number}"))
                    .advise("Reset the GPUs or reboot; if the link stays slow, reseat the module, run again."),
            );
        }
    }
}

fn judge_fabric(fabric: &Fabric, look: &mut Look<'_>) {
    let wanted = "registration completed";
    if UNDER_WAY.contains(&fabric.state) {
        look.unread::<()>(
            Finding::new(
                Grade::Undecided,
                "fabric-not-ready",
                look.subject(),
                "NVLink fabric not set up",
                Action::RestartService,
            )
            .compared(wanted, format!("state {} (not started or in progress)", fabric.state))
            .advise(
                "systemctl status nvidia-fabricmanager; then run again, with --wait-ready if it is still starting.",
            ),
        );
    } else if fabric.state != COMPLETED || fabric.status != 0 {
        look.find(
            Finding::new(Grade::Failed, "fabric-failed", look.subject(), "NVLink fabric failed", Action::RestartService)
                .compared(wanted, format!("state {}, status {}", fabric.state, fabric.status))
                .advise("systemctl restart nvidia-fabricmanager; its log names the link or switch; then reset the GPUs or reboot."),
        );
    } else if UNWELL.contains(&fabric.health_summary) {
        look.find(
            Finding::new(
                Grade::Failed,
                "fabric-unhealthy",
                look.subject(),
                "NVLink fabric unhealthy",
                Action::Investigate,
            )
            .compared("health summary 1 (healthy)", format!("{} (2 unhealthy, 3 limited)", fabric.health_summary))
            .advise("nvidia-smi -q shows which part of the fabric's health mask is set; look for the switch or link."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, bus_id, unread};
    use crate::reading::Reading;

    const CHECK: NvLink = NvLink { links: 18, speed: Some(Bandwidth::new(26_562e6)), fabric: Registration::Registered };

    fn host() -> Snapshot {
        let mut facts = sample::host(2);
        for gpu in &mut facts.gpus {
            gpu.nvlink_count = Reading::Value(18);
            let link = crate::facts::gpu::NvLink {
                state: Reading::Value(1),
                speed: Reading::Value(26_562),
                ..Default::default()
            };
            gpu.nvlinks = vec![link; 18];
            gpu.fabric = Reading::Value(Fabric {
                state: 3,
                status: 0,
                clique_id: 0,
                cluster_uuid: String::new(),
                health_mask: 0,
                health_summary: 0,
            });
        }
        facts
    }

    fn with(change: impl FnOnce(&mut Gpu)) -> Outcome {
        let mut facts = host();
        change(&mut facts.gpus[1]);
        CHECK.judge(&facts)
    }

    fn fabric(change: impl FnOnce(&mut Fabric)) -> Outcome {
        with(|gpu| {
            if let Reading::Value(fabric) = &mut gpu.fabric {
                change(fabric);
            }
        })
    }

    #[test]
    fn a_healthy_host_passes_in_silence() {
        assert_outcome(&CHECK.judge(&host()), "passed", &[]);
    }

    #[test]
    fn each_fault_is_found_at_its_gpu() {
        let at = bus_id(1).to_string();
        let fires = |outcome: &Outcome, status, code| assert_outcome(outcome, status, &[(code, &at)]);
        fires(&with(|gpu| gpu.nvlinks[3].state = Reading::Value(0)), "failed", "nvlink-down");
        fires(&with(|gpu| gpu.nvlinks.truncate(17)), "failed", "nvlink-down");
        fires(&with(|gpu| gpu.nvlinks[3].speed = Reading::Value(20_000)), "failed", "nvlink-slow");
        fires(&fabric(|fabric| fabric.state = 2), "undecided", "fabric-not-ready");
        fires(&fabric(|fabric| fabric.state = 0), "failed", "fabric-failed");
        fires(&fabric(|fabric| fabric.status = 999), "failed", "fabric-failed");
        fires(&fabric(|fabric| fabric.health_summary = 3), "failed", "fabric-unhealthy");
    }

    #[test]
    fn what_cannot_be_read_never_passes() {
        assert_never_passes_unread("count", unread(), |count| with(|gpu| gpu.nvlink_count = count));
        assert_never_passes_unread("state", unread(), |state| with(|gpu| gpu.nvlinks[0].state = state));
        assert_never_passes_unread("speed", unread(), |speed| with(|gpu| gpu.nvlinks[0].speed = speed));
        assert_never_passes_unread("fabric", unread(), |fabric| with(|gpu| gpu.fabric = fabric));
    }

    #[test]
    fn without_gpus_there_is_nothing_to_pass() {
        assert_outcome(&CHECK.judge(&sample::host(0)), "undecided", &[]);
    }
}
