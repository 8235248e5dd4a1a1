#![doc = include_str!("gpu_idle.md")]

use serde::Deserialize;

use super::look::{Held, Look, each_gpu_and};
use super::{Check, Context, session};
use crate::facts::gpu::GpuProcess;
use crate::facts::{Gpu, Snapshot};
use crate::ident::Subject;
use crate::outcome::{Action, Finding, Grade, Outcome};
use crate::units::Bytes;

/// What counts as idle.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GpuIdle {
    /// Whether a display server may hold the GPU.
    pub allow_graphics: bool,
    /// Memory that an idle GPU of this class may have in use, beside what the driver reserves.
    pub memory_used: Bytes,
}

impl Check for GpuIdle {
    fn run(&self, context: &mut Context<'_>) -> Outcome {
        self.judge(context.opening)
    }
}

impl GpuIdle {
    /// Judges each GPU, and whether we could see who uses it.
    pub fn judge(&self, facts: &Snapshot) -> Outcome {
        if let Some(silent) = session::silent(facts) {
            return silent;
        }
        let host = Some(Subject::host()).filter(|_| !facts.gpus.is_empty());
        let mut judgement = each_gpu_and(host.clone(), facts, |look, gpu| self.judge_gpu(gpu, look));
        if let Some(host) = host {
            let mut look = Look::at(&mut judgement, host);
            judge_view(facts, &mut look);
            look.end();
        }
        judgement.close("nothing else uses the GPUs")
    }

    fn judge_gpu(&self, gpu: &Gpu, look: &mut Look<'_>) {
        let compute = look.require(&gpu.compute_processes, "compute processes").cloned().unwrap_or_default();
        let graphics = look.require(&gpu.graphics_processes, "graphics processes").cloned().unwrap_or_default();
        let unwelcome: Vec<GpuProcess> =
            if self.allow_graphics { compute } else { compute.into_iter().chain(graphics).collect() };
        let used = look.require(&gpu.memory, "memory in use").map(|memory| memory.used as f64);
        if let Some(used) = used {
            look.measure(look.number("memory-used", used, "B").at_most(self.memory_used.number()));
        }
        if !unwelcome.is_empty() {
            look.find(in_use(look.subject(), &processes(&unwelcome)));
        } else if let Some(used) = used.filter(|used| *used > self.memory_used.number()) {
            let found = format!("{:.0} MiB in use and no process shown", used / 1_048_576.0);
            look.find(in_use(look.subject(), &found));
        }
    }
}

fn in_use(subject: Subject, found: &str) -> Finding {
    let advice = format!(
        "Drain the node; stop what holds the GPU (nvidia-smi -q -d PIDS -i {subject}; fuser -v /dev/nvidia*); run again."
    );
    Finding::new(Grade::Undecided, "gpu-in-use", subject, "GPU in use", Action::Investigate)
        .compared("no process and no memory in use", found)
        .advise(&advice)
}

fn processes(list: &[GpuProcess]) -> String {
    let pids = list.iter().take(8).map(|process| process.pid.to_string()).collect::<Vec<_>>().join(", ");
    let more = list.len().saturating_sub(8);
    if more == 0 { format!("process {pids}") } else { format!("process {pids} and {more} more") }
}

/// Whether we would see a process if there were one: NVML lists only those of PID namespaces
/// that it can see.
fn judge_view(facts: &Snapshot, look: &mut Look<'_>) {
    if let Some(true) = look.require(&facts.host.foreign_pid_namespace, "PID namespace") {
        look.find(
            Finding::new(Grade::Undecided, "processes-hidden", look.subject(), "Processes hidden", Action::Configure)
                .compared("a view of every process of the host", "another PID namespace than the host's")
                .advise(
                    "Run on the host itself, or with the host's PID namespace (docker run --pid=host, hostPID: true).",
                ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{self, assert_never_passes_unread, assert_outcome, unread};
    use crate::reading::Reading;

    const GPU: &str = "0000:1b:00.0";

    fn check(allow_graphics: bool) -> GpuIdle {
        GpuIdle { allow_graphics, memory_used: "64 MiB".parse().unwrap() }
    }

    fn process() -> Reading<Vec<GpuProcess>> {
        Reading::Value(vec![GpuProcess { pid: 4242, used_gpu_memory: u64::MAX }])
    }

    #[track_caller]
    fn after(change: impl FnOnce(&mut Snapshot), status: &str, findings: &[(&str, &str)]) {
        let mut facts = sample::host(1);
        change(&mut facts);
        assert_outcome(&check(false).judge(&facts), status, findings);
    }

    #[test]
    fn an_idle_host_passes() {
        after(|_| {}, "passed", &[]);
    }

    #[test]
    fn a_process_or_taken_memory_makes_it_undecided() {
        let busy: &[(&str, &str)] = &[("gpu-in-use", GPU)];
        after(|facts| facts.gpus[0].compute_processes = process(), "undecided", busy);
        after(|facts| facts.gpus[0].graphics_processes = process(), "undecided", busy);
        let take = |bytes| {
            move |facts: &mut Snapshot| {
                if let Reading::Value(memory) = &mut facts.gpus[0].memory {
                    memory.used = bytes;
                }
            }
        };
        after(take(64 << 20), "passed", &[]);
        after(take((64 << 20) + 1), "undecided", busy);
    }

    #[test]
    fn a_display_is_allowed_where_the_class_says_so() {
        let mut facts = sample::host(1);
        facts.gpus[0].graphics_processes = process();
        assert_outcome(&check(true).judge(&facts), "passed", &[]);
        facts.gpus[0].compute_processes = process();
        assert_outcome(&check(true).judge(&facts), "undecided", &[("gpu-in-use", GPU)]);
    }

    #[test]
    fn an_empty_list_from_inside_a_container_proves_nothing() {
        let hide = |facts: &mut Snapshot| facts.host.foreign_pid_namespace = Reading::Value(true);
        after(hide, "undecided", &[("processes-hidden", "host")]);
    }

    #[test]
    fn nothing_unread_and_no_empty_host_ever_passes() {
        macro_rules! never {
            ($field:ident) => {
                assert_never_passes_unread(stringify!($field), unread(), |state| {
                    let mut facts = sample::host(1);
                    facts.gpus[0].$field = state;
                    check(false).judge(&facts)
                })
            };
        }
        never!(compute_processes);
        never!(graphics_processes);
        never!(memory);
        assert_never_passes_unread("foreign_pid_namespace", unread(), |state| {
            let mut facts = sample::host(1);
            facts.host.foreign_pid_namespace = state;
            check(false).judge(&facts)
        });
        assert_outcome(&check(false).judge(&sample::host(0)), "undecided", &[]);
    }
}
