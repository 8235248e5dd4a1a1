//! What people and programs see. Passive: facts and events in, text out.

pub mod columns;
pub mod inventory;
pub mod topology;
pub mod topology_svg;
