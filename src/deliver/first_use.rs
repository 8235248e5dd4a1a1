//! A key that the collector does not know introduces itself, where the site says `enroll =
//! "first-use"`. The one place in which a delivery reaches into the enrolment.

use std::path::Path;

use super::target::Target;

/// Introduces the key of this state folder. An error says why that could not be.
pub(super) fn introduce(_folder: &Path, _target: &Target) -> Result<(), String> {
    Err("introduce it with nodegate enroll".to_owned())
}
