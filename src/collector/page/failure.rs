//! Pages that say why there is nothing to see, and where to go from there.

use askama::Template;

use super::{Frame, written};
use crate::collector::model::Refusal;

#[derive(Template)]
#[template(path = "failure.html")]
struct Page<'a> {
    frame: Frame,
    status: u16,
    heading: &'a str,
    detail: &'a str,
    next: &'a str,
}

/// The page for a refusal; its status is [`Refusal::status`].
pub fn refusal(refusal: &Refusal) -> String {
    failure(refusal.status().0, &refusal.to_string())
}

/// The page for an HTTP status. `detail` may hold anything.
pub fn failure(status: u16, detail: &str) -> String {
    let (heading, next) = match status {
        400 => ("This question makes no sense here", "Check the address, or begin at the fleet."),
        401 => ("Who are you?", "Give a reader's token as the password; the operator of this collector makes one."),
        403 => ("Not allowed", "Ask the operator of this collector for a token that may."),
        404 => ("Not here", "It may have another name, or retention has dropped it. Search the fleet for the host."),
        429 | 503 => ("Too busy", "Wait a moment and load this page again."),
        _ => ("This did not work", "Load this page again; the collector's log says more."),
    };
    written(&Page { frame: Frame::new(heading, ""), status, heading, detail, next })
}
