//! The object `predicate.nodegate` of a record: everything that a run has to say, as data.
//!
//! `--format json` prints exactly this. The JSON Schema under `docs/schema/` is made from
//! these types. Numbers past 2^53 are strings, since in-toto readers turn numbers into doubles.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::decision::{Decision, Level, Require, Stage};
use crate::facts::topology::Topology;
use crate::ident::{CheckId, ClassId, Digest, StepId, SuiteId};
use crate::outcome::{Flat, Outcome};

/// The version of this object. A newer agent may add fields; an older one that reads a larger
/// number refuses the record by name.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    pub schema: u32,
    /// UUIDv7.
    pub run_id: String,
    pub decision: Decision,
    /// Why, in one line, where the steps alone do not say it (`interrupted`, `class generic cannot accept`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub stage: Stage,
    pub level: Level,
    /// The host was a recording.
    pub simulated: bool,
    /// `--nvml`, `--cuda` or `--root` named where to read.
    pub overridden: bool,
    /// `--only` or `--skip` left steps out.
    pub partial: bool,
    pub agent: Agent,
    pub host: Host,
    #[serde(default, skip_serializing_if = "Operator::is_nobody")]
    pub operator: Operator,
    pub plan: PlanReference,
    /// Position in this key's chain, from 1, and the digest of its previous payload.
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<Digest>,
    /// The collector's nonce, or `none`.
    pub challenge: String,
    /// Boot ids before the first and after the last step.
    pub boot_ids: Vec<String>,
    pub clock: Clock,
    /// RFC 3339, UTC.
    pub started_at: String,
    pub finished_at: String,
    pub inventory: Inventory,
    /// How the GPUs and network devices are connected; peer-to-peer capabilities are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    pub steps: Vec<Step>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waivers: Vec<Waiver>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Privileges that were missing, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub version: String,
    /// SHA-256 of our own executable.
    pub digest: Digest,
}

/// The host for people; what binds the record is in the subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    pub hostname: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_image: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Operator {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Operator {
    pub fn is_nobody(&self) -> bool {
        *self == Operator::default()
    }
}

/// What was planned, by name, revision and digest of the file as read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanReference {
    pub suite: SuiteReference,
    pub class: ClassReference,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Digest>,
    /// Digest of the policies (`checks/policy`), concatenated in name order.
    pub policy: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteReference {
    pub id: SuiteId,
    pub revision: u32,
    pub digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassReference {
    pub id: ClassId,
    pub revision: u32,
    pub digest: Digest,
    /// `auto`, `named` (by option) or `site`.
    pub chosen: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Clock {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronised: Option<bool>,
    /// Microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_error: Option<i64>,
    /// Number of the kernel log's last record that this run saw. What comes after it in the same
    /// boot is new, whatever has been done to the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_end: Option<u64>,
}

/// What the host has, short: the full readings are evidence beside the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_library: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    pub gpus: Vec<InventoryGpu>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryGpu {
    pub bus_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vbios: Option<String>,
    /// Bytes, as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// One step with its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub id: StepId,
    pub check: CheckId,
    pub require: Require,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// RFC 3339, UTC.
    pub started_at: String,
    pub duration_ms: u64,
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut flat = Flat::deserialize(deserializer)?;
        let outcome = flat.take_outcome();
        let Flat { id, check, require, started_at, duration_ms, .. } = flat;
        Ok(Step { id, check, require, outcome, started_at, duration_ms })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Waiver {
    pub step: String,
    pub finding: String,
    pub subject: String,
    pub reason: String,
    pub who: String,
    /// RFC 3339 date, the last day on which it holds.
    pub until: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Override {
    pub step: String,
    pub parameter: String,
    pub value: serde_json::Value,
    pub reason: String,
    pub who: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    pub name: String,
    pub digest: Digest,
    #[serde(rename = "where")]
    pub place: String,
}
