//! What a run says while it runs. The gate emits; reporters only listen.

use serde::{Deserialize, Serialize};

use crate::decision::{Level, Stage};
use crate::ident::{ClassId, StepId};
use crate::predicate::{Details, Step};

/// One thing that happened in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "event")]
pub enum Event {
    /// The plan stands and the run begins; the driver has not been opened yet.
    RunStarted {
        run_id: String,
        hostname: String,
        class: ClassId,
        stage: Stage,
        level: Level,
        steps: Vec<StepId>,
        at: String,
    },
    /// One line for people before the first step, some only once the driver is open: missing privileges, no site file, a simulated host.
    Notice {
        text: String,
    },
    /// The machine is not ready yet and the run waits for it.
    Waiting {
        reason: String,
        attempt: u32,
    },
    StepStarted {
        id: StepId,
        index: usize,
        at: String,
    },
    /// Progress of long work: what is done now, and the share of the whole from 0 to 1.
    StepProgress {
        id: StepId,
        text: String,
        share: f64,
    },
    StepEnded {
        step: Box<Step>,
    },
    /// The run has ended and its record is made; nothing follows but delivery.
    RunEnded {
        details: Box<Details>,
    },
}
