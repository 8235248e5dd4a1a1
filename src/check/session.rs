//! What a driver session that does not answer means, for every check that needs one.

use crate::facts::Snapshot;
use crate::facts::snapshot::{SessionState, Wedge};
use crate::ident::Subject;
use crate::outcome::{Action, Finding, Grade, Outcome, blame};

/// The finding of the host whose session is not answering; `None` while it answers.
pub fn fault(session: &SessionState) -> Option<Finding> {
    Some(match session {
        SessionState::Answering => return None,
        SessionState::NoLibrary { searched } => no_library(searched),
        SessionState::Refused { path, reason } => refused(path, reason),
        SessionState::InitFailed { code, message } => {
            let finding = blame::unanswered(&Subject::host(), "nvmlInit", *code);
            let code = code.to_string();
            // The library's own refusal is the code again, and says nothing beside it.
            let found =
                if message.is_empty() || message.ends_with(&code) { code } else { format!("{code}: {message}") };
            finding.compared("nvmlInit to succeed", found)
        }
        SessionState::Hung(wedge) => hung(wedge),
        SessionState::Died { question, how } => died(question, how),
        SessionState::NotStarted => {
            Finding::new(Grade::Undecided, "not-asked", Subject::host(), "Driver never asked", Action::Investigate)
                .compared("a driver session", "none was started")
                .advise("Run again; if it stays, report it: the agent did not open the driver.")
        }
    })
}

/// The outcome of a step that needs the driver while it does not answer. The driver step
/// carries the finding; repeating it in each step would only hide it.
pub fn silent(snapshot: &Snapshot) -> Option<Outcome> {
    let finding = fault(&snapshot.driver.session)?;
    Some(Outcome::undecided(&format!("the driver does not answer: {}", lower_first(&finding.title))))
}

fn no_library(searched: &[String]) -> Finding {
    let places = match searched {
        [] => "no known place".to_owned(),
        [first] => first.clone(),
        [first, rest @ ..] => format!("{first} or {} other places", rest.len()),
    };
    Finding::new(Grade::Failed, "library-missing", Subject::host(), "Driver library missing", Action::Configure)
        .compared("libnvidia-ml.so.1 in one of the known places", format!("none in {places}"))
        .advise("Install the NVIDIA driver with its user-space libraries (in a container: NVIDIA_DRIVER_CAPABILITIES=utility,compute); run again.")
}

fn refused(path: &str, reason: &str) -> Finding {
    Finding::new(Grade::Failed, "library-untrusted", Subject::host(), "Driver library not trusted", Action::Configure)
        .compared("a driver library that root owns", format!("{path}: {reason}"))
        .advise("Remove that file and install the driver from its package; run again.")
}

fn hung(wedge: &Wedge) -> Finding {
    let mut found = format!("{} unanswered after {:.1} s", wedge.question, wedge.waited);
    if !wedge.process_state.is_empty() {
        found += &format!("; process {} in state {}", wedge.pid, wedge.process_state);
    }
    if !wedge.wait_channel.is_empty() && wedge.wait_channel != "0" {
        found += &format!(" at {}", wedge.wait_channel);
    }
    if wedge.abandoned {
        found += ", survived SIGKILL and was abandoned";
    }
    Finding::new(Grade::Undecided, "driver-hung", Subject::host(), "Driver hung", Action::Reboot)
        .compared("an answer within the deadline", found)
        .advise("Keep dmesg (Xid 119 or 120?) for the ticket; reboot, power-cycle if the reboot hangs; run again.")
}

fn died(question: &str, how: &str) -> Finding {
    Finding::new(Grade::Undecided, "driver-died", Subject::host(), "Driver library crashed", Action::Investigate)
        .compared(format!("an answer to {question}"), how)
        .advise("Keep dmesg; reinstall the driver's libraries or reboot; run again.")
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Status;
    use crate::reading::Code;

    #[test]
    fn a_hang_names_question_state_wait_channel_and_the_abandoned_process() {
        let wedge = Wedge {
            question: "nvmlDeviceGetTemperature(3,0)".to_owned(),
            pid: 4242,
            process_state: "D".to_owned(),
            wait_channel: "request_wait_answer".to_owned(),
            abandoned: true,
            waited: 5.0,
            ..Wedge::default()
        };
        let finding = fault(&SessionState::Hung(wedge)).unwrap();
        assert_eq!((finding.grade, finding.code.as_str()), (Grade::Undecided, "driver-hung"));
        for part in ["nvmlDeviceGetTemperature(3,0)", "5.0 s", "4242", "state D", "request_wait_answer", "abandoned"] {
            assert!(finding.found.contains(part), "{part}: {}", finding.found);
        }
    }

    #[test]
    fn each_way_not_to_answer_is_judged_by_who_is_to_blame() {
        let init = |code| SessionState::InitFailed { code, message: String::new() };
        for (state, grade, code) in [
            (SessionState::NoLibrary { searched: vec![] }, Grade::Failed, "library-missing"),
            (SessionState::Refused { path: String::new(), reason: String::new() }, Grade::Failed, "library-untrusted"),
            (init(Code::DRIVER_NOT_LOADED), Grade::Failed, "driver-not-loaded"),
            (init(Code::LIB_RM_VERSION_MISMATCH), Grade::Failed, "library-mismatch"),
            (init(Code::NO_PERMISSION), Grade::Undecided, "no-permission"),
            (init(Code::UNKNOWN), Grade::Undecided, "unreadable"),
            (SessionState::Died { question: String::new(), how: String::new() }, Grade::Undecided, "driver-died"),
            (SessionState::NotStarted, Grade::Undecided, "not-asked"),
        ] {
            let finding = fault(&state).unwrap();
            assert_eq!((finding.grade, finding.code.as_str()), (grade, code), "{state:?}");
        }
        assert_eq!(fault(&SessionState::Answering), None);
    }

    #[test]
    fn a_step_without_a_driver_is_undecided_and_repeats_no_finding() {
        let outcome = silent(&Snapshot::default()).unwrap();
        assert_eq!((outcome.status(), outcome.findings.len()), (Status::Undecided, 0));
    }
}
