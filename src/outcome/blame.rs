//! Who is to blame: from a return code to grade, finding code, action and advice.
//!
//! One table for every check. A code by which the driver *states a defect* fails the machine;
//! every code that only says that there is no answer is undecided and accuses nobody. The
//! meaning of NVML's codes is `nvml.h`'s; which faults answer with them was collected from
//! public reports (NVIDIA/open-gpu-kernel-modules #387, #626, #1333; nvidia-docker #1523).

use super::{Action, Finding, Grade};
use crate::ident::Subject;
use crate::reading::{Code, Reading};

/// The finding for a question that the machine did not answer with a value.
///
/// `question` is what was asked, for people (`ECC mode`); the table decides grade and action.
pub fn unanswered(subject: &Subject, question: &str, code: Code) -> Finding {
    let row = row_of(code);
    let expected = match code {
        Code::CORRUPTED_INFOROM => "a valid InfoROM checksum".to_owned(),
        _ => readable(question),
    };
    Finding::new(row.grade, row.code, subject.clone(), row.title, row.action)
        .compared(expected, code)
        .advise(&row.advice.replace("{subject}", subject.as_str()))
}

/// The value of a reading without which nothing can be decided, or the finding that says why
/// there is none. "Not supported" is no value either: a class that knows better does not ask.
#[expect(clippy::result_large_err, reason = "a finding is the answer here, not an exception")]
pub fn require<'r, T>(reading: &'r Reading<T>, subject: &Subject, question: &str) -> Result<&'r T, Finding> {
    match reading {
        Reading::Value(value) => Ok(value),
        Reading::Unsupported => Err(unanswered(subject, question, Code::NOT_SUPPORTED)),
        Reading::Unasked => Err(not_asked(subject, question)),
        Reading::Failed(code) => Err(unanswered(subject, question, *code)),
    }
}

/// The value of a reading that not every machine offers: `None` where the machine says that it
/// has no such thing, a finding where we could not find out.
#[expect(clippy::result_large_err, reason = "a finding is the answer here, not an exception")]
pub fn optional<'r, T>(reading: &'r Reading<T>, subject: &Subject, question: &str) -> Result<Option<&'r T>, Finding> {
    match reading {
        Reading::Unsupported => Ok(None),
        Reading::Failed(code) if is_not_offered(*code) => Ok(None),
        other => require(other, subject, question).map(Some),
    }
}

/// Whether the code says that this driver has no such question: a symbol that it lacks, a
/// structure version that it does not know, a call that it no longer serves.
pub fn is_not_offered(code: Code) -> bool {
    [
        Code::NOT_SUPPORTED,
        Code::FUNCTION_NOT_FOUND,
        Code::ARGUMENT_VERSION_MISMATCH,
        Code::DEPRECATED,
        Code::VGPU_ECC_NOT_SUPPORTED,
    ]
    .contains(&code)
}

/// One line of the table.
struct Row {
    grade: Grade,
    code: &'static str,
    title: &'static str,
    action: Action,
    /// `{subject}` stands for the subject; `nvidia-smi -i` takes a bus address.
    advice: &'static str,
}

const fn failed(code: &'static str, title: &'static str, action: Action, advice: &'static str) -> Row {
    Row { grade: Grade::Failed, code, title, action, advice }
}

const fn undecided(code: &'static str, title: &'static str, action: Action, advice: &'static str) -> Row {
    Row { grade: Grade::Undecided, code, title, action, advice }
}

fn readable(question: &str) -> String {
    format!("{question} to be readable")
}

fn not_asked(subject: &Subject, question: &str) -> Finding {
    Finding::new(Grade::Undecided, "not-asked", subject.clone(), "Never read", Action::Investigate)
        .compared(readable(question), "nobody asked")
        .advise("Run again; if it stays, report it: the agent left a question out.")
}

/// The table.
fn row_of(code: Code) -> Row {
    match code {
        Code::INSUFFICIENT_POWER => failed(
            "external-power",
            "External power missing",
            Action::Reseat,
            "Power off; plug and seat the power cables of the GPU at {subject}; power on and run again.",
        ),
        Code::DRIVER_NOT_LOADED => failed(
            "driver-not-loaded",
            "Driver not loaded",
            Action::Configure,
            "modprobe nvidia; if that fails, dmesg | grep -i nvrm says why (no driver for this kernel, Secure Boot, nouveau in the way). Run again.",
        ),
        Code::IRQ_ISSUE => failed(
            "interrupt-issue",
            "Interrupts do not arrive",
            Action::Reboot,
            "Reboot; if it returns, look for pci=nomsi on the kernel command line and at the firmware's interrupt settings, then reseat the GPU at {subject}.",
        ),
        Code::LIBRARY_NOT_FOUND => failed(
            "library-missing",
            "Driver library missing",
            Action::Configure,
            "Install the driver's user-space package of the kernel module's version (cat /sys/module/nvidia/version); run again.",
        ),
        Code::CORRUPTED_INFOROM => failed(
            "inforom-corrupt",
            "InfoROM corrupt",
            Action::Replace,
            "Power-cycle and run again; if it stays, replace the GPU at {subject}: its serial, ECC and remap history cannot be trusted.",
        ),
        Code::GPU_IS_LOST => failed(
            "gpu-lost",
            "GPU lost",
            Action::Reseat,
            "Keep dmesg | grep -i xid for the ticket; power off, reseat the GPU at {subject} and its power; if it is lost again, replace it.",
        ),
        Code::RESET_REQUIRED => failed(
            "reset-required",
            "GPU needs a reset",
            Action::ResetGpu,
            "nvidia-smi -r -i {subject} on the drained host, or reboot; run again.",
        ),
        Code::LIB_RM_VERSION_MISMATCH => failed(
            "library-mismatch",
            "Library and kernel module differ",
            Action::Reboot,
            "The driver was changed under a loaded module. Reboot (or unload and reload the nvidia modules); run again.",
        ),
        Code::NO_PERMISSION => undecided(
            "no-permission",
            "Not permitted to read",
            Action::Configure,
            "Run as root, and in a container with the GPU device nodes; run again.",
        ),
        Code::OPERATING_SYSTEM => undecided(
            "no-permission",
            "Access blocked by the system",
            Action::Configure,
            "The operating system or a device cgroup keeps us from {subject}: run on the host itself as root; run again.",
        ),
        Code::IN_USE => undecided(
            "in-use",
            "In use by another client",
            Action::Investigate,
            "Stop what holds it (nvidia-smi -q -d PIDS; fuser -v /dev/nvidia*); run again.",
        ),
        Code::NOT_READY => undecided(
            "not-ready",
            "Not ready yet",
            Action::Investigate,
            "Wait for the driver to settle and run again, or give the run --wait-ready 10m.",
        ),
        Code::TIMEOUT => undecided(
            "timed-out",
            "Driver timed out",
            Action::Investigate,
            "dmesg | grep -i xid: an Xid 119 or 120 means that the GPU's firmware hangs; then reboot. Run again.",
        ),
        Code::NOT_SUPPORTED | Code::VGPU_ECC_NOT_SUPPORTED => undecided(
            "unsupported",
            "Not offered by this machine",
            Action::Investigate,
            "The class expects what the machine says it does not have: name the right class (nodegate run --class ID), or look for MIG or a virtual GPU.",
        ),
        Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION_MISMATCH | Code::DEPRECATED => undecided(
            "not-offered",
            "Not offered by this driver",
            Action::Configure,
            "This driver does not have the question: install a driver that the class is written for; run again.",
        ),
        Code::NOT_RECORDED => undecided(
            "not-recorded",
            "Not recorded",
            Action::Investigate,
            "The recording has no answer to this question: capture the host again with this version (nodegate capture DIR).",
        ),
        Code::HUNG => undecided(
            "driver-hung",
            "Driver hung",
            Action::Reboot,
            "The driver did not answer in time: keep dmesg for the ticket, reboot, run again.",
        ),
        Code::DIED => undecided(
            "driver-died",
            "Driver library crashed",
            Action::Investigate,
            "The process that asked the driver died: keep dmesg, reinstall the driver or reboot, run again.",
        ),
        Code::WEDGED => undecided(
            "driver-wedged",
            "Not asked, the driver was stuck",
            Action::Reboot,
            "An earlier question hung or crashed the driver: see the driver step; reboot and run again.",
        ),
        Code::GARBLED => undecided(
            "garbled",
            "Answer makes no sense",
            Action::Investigate,
            "The answer has an unexpected shape: run again; if it stays, report it with nodegate capture DIR.",
        ),
        _ => undecided(
            "unreadable",
            "Could not be read",
            Action::Investigate,
            "Run again; if it stays, dmesg | grep -i -e nvrm -e xid, then reboot.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grade(code: Code) -> (Grade, Action) {
        let finding = unanswered(&Subject::named("0000:1b:00.0"), "ECC mode", code);
        (finding.grade, finding.action)
    }

    #[test]
    fn only_a_stated_defect_accuses_the_machine() {
        let accused: Vec<u32> =
            (0..31).chain([999]).chain(10_000..10_010).filter(|code| grade(Code(*code)).0 == Grade::Failed).collect();
        assert_eq!(accused, [8, 9, 11, 12, 14, 15, 16, 18]);
    }

    #[test]
    fn the_table_says_what_the_design_says() {
        for (code, expected) in [
            (Code::GPU_IS_LOST, (Grade::Failed, Action::Reseat)),
            (Code::RESET_REQUIRED, (Grade::Failed, Action::ResetGpu)),
            (Code::CORRUPTED_INFOROM, (Grade::Failed, Action::Replace)),
            (Code::DRIVER_NOT_LOADED, (Grade::Failed, Action::Configure)),
            (Code::LIB_RM_VERSION_MISMATCH, (Grade::Failed, Action::Reboot)),
            (Code::NO_PERMISSION, (Grade::Undecided, Action::Configure)),
            (Code::HUNG, (Grade::Undecided, Action::Reboot)),
            (Code::IN_USE, (Grade::Undecided, Action::Investigate)),
            (Code::NOT_RECORDED, (Grade::Undecided, Action::Investigate)),
            (Code(4711), (Grade::Undecided, Action::Investigate)),
        ] {
            assert_eq!(grade(code), expected, "{code:?}");
        }
    }

    #[test]
    fn every_row_tells_the_technician_what_to_do_at_which_gpu() {
        for code in (1..31).chain([999]).chain(10_001..10_007) {
            let finding = unanswered(&Subject::named("0000:1b:00.0"), "ECC mode", Code(code));
            assert!(finding.advice.ends_with('.') && !finding.advice.contains('{'), "{code}: {}", finding.advice);
        }
        let reset = unanswered(&Subject::named("0000:1b:00.0"), "ECC mode", Code::RESET_REQUIRED);
        assert!(reset.advice.contains("nvidia-smi -r -i 0000:1b:00.0"), "{}", reset.advice);
    }

    #[test]
    fn a_required_reading_has_no_way_around_its_value() {
        let subject = Subject::host();
        let code = |reading: Reading<u32>| {
            require(&reading, &subject, "it").map_err(|finding| finding.code.to_string()).copied()
        };
        assert_eq!(code(Reading::Value(0)), Ok(0));
        assert_eq!(code(Reading::Unsupported), Err("unsupported".to_owned()));
        assert_eq!(code(Reading::Unasked), Err("not-asked".to_owned()));
        assert_eq!(code(Reading::Failed(Code::NO_PERMISSION)), Err("no-permission".to_owned()));
    }

    #[test]
    fn an_optional_reading_is_silent_only_where_there_is_nothing_to_read() {
        let subject = Subject::host();
        for silent in
            [Reading::Unsupported, Reading::Failed(Code::FUNCTION_NOT_FOUND), Reading::Failed(Code::DEPRECATED)]
        {
            assert!(matches!(optional::<u32>(&silent, &subject, "it"), Ok(None)), "{silent:?}");
        }
        for loud in [Reading::Unasked, Reading::Failed(Code::UNKNOWN), Reading::Failed(Code::GPU_IS_LOST)] {
            assert!(optional::<u32>(&loud, &subject, "it").is_err(), "{loud:?}");
        }
    }
}
