//! A key that the collector does not know introduces itself, where the site says `enroll =
//! "first-use"`. The one place in which a delivery reaches into the enrolment.

use std::path::Path;

use super::enrol;
use super::target::Target;
use crate::ident::printable;

/// Introduces the key of this state folder. An error says why that could not be.
pub(super) fn introduce(folder: &Path, target: &Target) -> Result<(), String> {
    let enrolled = enrol::first_use(folder, target);
    enrolled.map(|_| ()).map_err(|error| printable(&format!("{error}; nodegate enroll does it by hand"), 400))
}
