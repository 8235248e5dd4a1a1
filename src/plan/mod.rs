//! What will run: the suite, the class and the site resolved for one run.
//!
//! A file is read in two steps: [`document`] and [`section`] hold it as text with lines, and
//! [`suite`], [`class`] and [`site`] hold what it means. Reading files is the edge's work
//! (`cli`); here everything is a function of texts, PCI models and the day.

pub mod class;
pub mod document;
pub mod section;
pub mod site;
pub mod suite;

mod limits;
mod resolve;
#[cfg(test)]
pub(crate) mod testing;

pub use document::{Document, Problem, Problems};
pub use resolve::{Inputs, json};

use std::time::Duration;

use crate::check::Check;
use crate::decision::{Level, Require, Stage};
use crate::ident::{CheckId, StepId};
use crate::predicate::{Override, PlanReference, Waiver};

/// Suite × class × site, resolved for one run.
#[derive(Debug)]
pub struct Plan {
    pub reference: PlanReference,
    pub stage: Stage,
    pub level: Level,
    /// False where the class may reject but not accept (`generic`).
    pub can_accept: bool,
    /// Why it cannot, for people.
    pub cannot_accept_because: Option<String>,
    /// `--only` or `--skip` left steps out.
    pub partial: bool,
    pub steps: Vec<PlannedStep>,
    pub waivers: Vec<Waiver>,
    pub overrides: Vec<Override>,
    /// The whole run must have ended by then.
    pub deadline: Duration,
    /// Lines for people: no site file, the class was guessed, a waiver ends soon.
    pub notices: Vec<String>,
}

#[derive(Debug)]
pub struct PlannedStep {
    pub id: StepId,
    pub check: CheckId,
    pub require: Require,
    pub stage: Stage,
    pub timeout: Duration,
    pub needs: Vec<StepId>,
    pub limits: Vec<Limit>,
    pub work: Work,
}

/// What the run does with a step.
#[derive(Debug)]
pub enum Work {
    Run(Box<dyn Check>),
    /// The class says that it does not apply.
    Absent {
        reason: String,
    },
    /// `--only` or `--skip` left it out.
    LeftOut {
        reason: String,
    },
}

/// One parameter with where its value comes from.
#[derive(Clone, Debug)]
pub struct Limit {
    pub name: String,
    pub value: toml::Value,
    pub source: String,
}
