//! What people and pipelines see of a run. Reporters listen to events and print; they never
//! change what happens.

pub mod checks;
pub mod jsonl;
pub mod live;
pub mod plan;
pub mod screen;
pub mod summary;
pub mod typeface;

use crate::event::Event;

/// Listens to a run.
pub trait Reporter {
    fn hear(&mut self, event: &Event);
}
