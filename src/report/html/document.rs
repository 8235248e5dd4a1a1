//! The page of one record as one file: for a USB stick, a ticket, a mail. It loads nothing.

use askama::Template;

use super::verify::Signed;
use super::{Body, Markup, STYLESHEET, Verdict, markup};
use crate::predicate::Details;

#[derive(Template)]
#[template(path = "document.html")]
struct Document<'a> {
    details: &'a Details,
    stylesheet: Markup,
    body: Markup,
    word: &'a str,
    version: &'static str,
}

/// The record as a self-contained HTML file.
pub fn document(details: &Details, signed: &Signed) -> String {
    let body = Body::new(details, signed, Verdict::of(details));
    let document = Document {
        details,
        stylesheet: markup(STYLESHEET.to_owned()),
        body: body.markup(),
        word: &body.verdict().word,
        version: env!("CARGO_PKG_VERSION"),
    };
    document.render().expect("writing to a String cannot fail")
}
