//! What people see in a browser: fleet, node, record, difference. Pages are made of rows of the model
//! and of records, purely; they need no script, and work on paper, on a phone and read aloud.
//!
//! Nothing that does not count looks accepted: [`standing`] is the one place where a record's or a
//! node's standing becomes a word and a shape.

mod csv;
mod difference;
mod failure;
mod fleet;
mod link;
mod node;
mod record;
mod standing;
mod trend;

pub use csv::csv;
pub use difference::{Compared, difference};
pub use failure::{failure, refusal};
pub use fleet::fleet;
pub use link::{diff_address, fleet_address, node_address, record_address};
pub use node::{NodeView, node};
pub use record::{RecordView, record};

use crate::report::html::STYLESHEET;

/// What a page may do: load the stylesheet and the sign from here, send forms here, nothing else.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The sign in a browser's tab.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 20 20\"><path fill=\"#12602b\" \
    d=\"M10 .8a9.2 9.2 0 1 0 .01 0z\"/><path fill=\"none\" stroke=\"#fff\" stroke-width=\"2.2\" \
    d=\"M5.5 10.4l3 3.1 6-6.9\"/></svg>\n";

/// A file under `/static/`: its media type and its bytes.
pub fn asset(name: &str) -> Option<(&'static str, &'static [u8])> {
    match name {
        "nodegate.css" => Some(("text/css; charset=utf-8", STYLESHEET.as_bytes())),
        "icon.svg" => Some(("image/svg+xml", ICON.as_bytes())),
        _ => None,
    }
}

/// What every page has around its content.
struct Frame {
    title: String,
    /// The entry of the navigation that this page is.
    here: &'static str,
}

impl Frame {
    fn new(title: &str, here: &'static str) -> Frame {
        Frame { title: title.to_owned(), here }
    }
}

/// The text of a template.
fn written(template: &impl askama::Template) -> String {
    template.render().expect("writing to a String cannot fail")
}
