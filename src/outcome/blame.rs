//! Who is to blame: from a return code to grade, action and advice.

use super::{Action, Finding, Grade};
use crate::ident::Subject;
use crate::reading::Code;

/// The finding for a question that the machine did not answer with a value.
///
/// `question` is what was asked, for people (`ECC mode`); the table decides grade and action.
pub fn unanswered(subject: &Subject, question: &str, code: Code) -> Finding {
    Finding::new(Grade::Undecided, "unreadable", subject.clone(), "Could not be read", Action::Investigate)
        .compared(format!("an answer to: {question}"), code)
}
