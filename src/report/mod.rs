//! What people and pipelines see of a run. Reporters listen to events and print; they never
//! change what happens.

pub mod checks;
pub mod columns;
pub mod diff;
pub mod html;
pub mod inventory;
pub mod jsonl;
pub mod live;
pub mod plan;
pub mod problem;
pub mod quantity;
pub mod record;
pub mod screen;
pub mod summary;
pub mod topology;
pub mod topology_svg;
pub mod typeface;

use crate::event::Event;

/// Listens to a run.
pub trait Reporter {
    fn hear(&mut self, event: &Event);
}
