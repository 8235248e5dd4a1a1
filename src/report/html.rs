//! One record as a web page: what a technician carries on a USB stick, and the body of the
//! collector's page of a record.
//!
//! Templates are compiled in. Every text that they show goes through [`Printed`]; what is markup
//! already has the type [`Markup`], which only our own drawings and templates are given.

pub mod age;
mod body;
mod difference;
mod document;
mod escape;
pub mod measured;
mod shape;
mod strip;
mod verdict;
mod verify;

pub use body::{Body, drawing};
pub use difference::{DifferenceBody, SideView};
pub use document::document;
pub use escape::{LONGEST, Markup, Printed};
pub use shape::Shape;
pub use verdict::{Against, Verdict};
pub use verify::{File, Signed, Where, stem};

pub use escape::escaped;
use escape::markup;

/// The stylesheet of every page. The document carries it along; the collector serves it as a file.
pub const STYLESHEET: &str = include_str!("html/nodegate.css");

#[cfg(test)]
mod contrast;
