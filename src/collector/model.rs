//! What the store gives and takes: plain rows, and the questions that the pages and the API ask.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::decision::{Decision, Level, Stage};
use crate::ident::Digest;
use crate::outcome::Grade;
use crate::record::receipt::LedgerPlace;
use crate::record::standing::{Flag, Tier};

/// What a key is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyState {
    /// It waits for an operator's approval; its records are kept and do not count.
    Pending,
    Approved,
    /// Replaced by a newer key of the same host; what it signed before stays as it is.
    Retired,
    /// What it signs is refused, and what it signed does not count any more.
    Revoked,
}

impl KeyState {
    pub const ALL: [KeyState; 4] = [KeyState::Pending, KeyState::Approved, KeyState::Retired, KeyState::Revoked];

    pub const fn as_str(self) -> &'static str {
        match self {
            KeyState::Pending => "pending",
            KeyState::Approved => "approved",
            KeyState::Retired => "retired",
            KeyState::Revoked => "revoked",
        }
    }
}

/// A key that the collector knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub keyid: String,
    /// SPKI PEM.
    pub public_key: String,
    pub tier: Tier,
    pub state: KeyState,
    /// SHA-256 of `host.json`: the one host that this key may sign for.
    pub host: Digest,
    pub hostname: String,
    /// Serial numbers of product, board and chassis as enrolled, where known.
    pub serial: Option<String>,
    /// The key that it replaced, and the key that replaced it.
    pub replaces: Option<String>,
    pub replaced_by: Option<String>,
    pub enrolled_at: Timestamp,
    pub decided_at: Option<Timestamp>,
    /// Who approved or revoked it, and why.
    pub decided_by: Option<String>,
    pub reason: Option<String>,
    /// The head of its chain here: number and digest of the last record in order.
    pub seq: u64,
    pub head: Option<Digest>,
}

/// A record's row: what pages and API show without reading the payload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// SHA-256 of the payload, the record's name.
    pub payload: Digest,
    pub run_id: String,
    pub keyid: String,
    /// The key's tier and state now; the tier of then stands in the receipt.
    pub tier: Tier,
    pub key_state: KeyState,
    pub host: Digest,
    pub node: Digest,
    pub hostname: String,
    pub class: String,
    pub class_digest: Digest,
    pub suite_digest: Digest,
    pub decision: Decision,
    pub stage: Stage,
    pub level: Level,
    pub waived: bool,
    pub seq: u64,
    pub prev: Option<Digest>,
    /// Whether it carries a nonce.
    pub challenged: bool,
    /// By the host's clock.
    pub finished_at: Timestamp,
    /// By ours.
    pub received_at: Timestamp,
    pub ledger: LedgerPlace,
    /// As of its receipt, and `revoked-key` or `pending-key` as of now.
    pub flags: Vec<Flag>,
    /// What the acceptance policy misses, in one line.
    pub policy: Option<String>,
    /// Whether payload, envelope and receipt are still here (retention).
    pub kept: bool,
}

/// What is thought of a node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Its newest record accepted it, and nothing speaks against that record.
    Accepted,
    /// Its newest record rejected it.
    Rejected,
    /// Its newest record could not decide.
    Undecided,
    /// Accepted, longer ago than the policy lets count.
    Expired,
    /// Accepted, by a record that does not count: its flags say why.
    Uncounted,
}

impl Standing {
    /// In the order of [`Sort::Worst`].
    pub const ALL: [Standing; 5] =
        [Standing::Rejected, Standing::Undecided, Standing::Uncounted, Standing::Expired, Standing::Accepted];

    pub const fn as_str(self) -> &'static str {
        match self {
            Standing::Accepted => "accepted",
            Standing::Rejected => "rejected",
            Standing::Undecided => "undecided",
            Standing::Expired => "expired",
            Standing::Uncounted => "uncounted",
        }
    }
}

/// A node by its newest record. A partial or overridden run that rejects nothing changes no standing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub standing: Standing,
    pub record: Record,
    /// GPU models and count, e.g. `8 × NVIDIA H100 80GB HBM3`.
    pub gpus: String,
    /// Runs and rejections that are known of it, and rejections within the last 30 days.
    pub runs: u64,
    pub rejections: u64,
    pub recent_rejections: u64,
    /// Current problems, worst first, at most 20.
    pub problems: Vec<Problem>,
}

/// A finding of a node's newest record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub grade: Grade,
    pub step: String,
    pub code: String,
    pub title: String,
    pub subject: String,
    pub slot: Option<String>,
    pub serial: Option<String>,
    pub action: String,
    /// In how many rejected runs of this host this finding stood on this subject within 30 days.
    #[serde(default)]
    pub repeated: u64,
}

/// What the fleet page asks for. Everything empty: the whole fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetQuery {
    /// Part of a host name, serial number or host digest.
    #[serde(rename = "q")]
    pub text: String,
    pub standing: Option<Standing>,
    pub class: Option<String>,
    pub tier: Option<Tier>,
    /// Finding code.
    pub finding: Option<String>,
    pub sort: Sort,
    /// From 1.
    pub page: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Rejected first, then undecided, uncounted, expired, accepted; newest first within each.
    #[default]
    Worst,
    Name,
    Newest,
    Oldest,
}

/// One page of the fleet with the numbers of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    pub nodes: Vec<Node>,
    /// Nodes that the query fits.
    pub found: u64,
    pub page: u32,
    pub pages: u32,
    /// Of the whole fleet, whatever was asked for.
    pub total: u64,
    pub standings: BTreeMap<Standing, u64>,
    /// Finding code → nodes that have it now, most first.
    pub findings: Vec<(String, u64)>,
    pub classes: Vec<(String, u64)>,
    pub tiers: Vec<(Tier, u64)>,
}

/// A record with its bytes; none of them after retention.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub record: Record,
    /// The bytes as they came.
    pub raw: Option<Vec<u8>>,
    /// The signed receipt.
    pub receipt: Option<Vec<u8>>,
}

/// What became of a record that was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// False: it was here already, and the receipt is the one of then.
    pub created: bool,
    /// The signed receipt, a DSSE envelope.
    pub receipt: Vec<u8>,
    pub flags: Vec<Flag>,
}

/// Why a record, an enrolment or a question is refused. The text is for the sender and for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// 400
    #[error("{0}")]
    Malformed(String),
    /// 401: the key is not enrolled. The agent keeps the record and enrols.
    #[error("key {0} is not enrolled here")]
    UnknownKey(String),
    /// 401: a token is missing or wrong.
    #[error("{0}")]
    Unauthorised(String),
    /// 403
    #[error("key {keyid} is revoked: {reason}")]
    Revoked { keyid: String, reason: String },
    /// 403: an enrolment whose proof does not hold.
    #[error("{0}")]
    Forbidden(String),
    /// 404
    #[error("{0}")]
    NotFound(String),
    /// 409: the same run id, or the same enrolment, with other content.
    #[error("{0}")]
    Conflict(String),
    /// 413
    #[error("{0}")]
    TooLarge(String),
    /// 422: well formed and signed, and not to be had here (simulated, another host's key).
    #[error("{0}")]
    Unprocessable(String),
    /// 429, with Retry-After in seconds.
    #[error("too many requests: try again in {0} s")]
    TooMany(u64),
    /// 503, with Retry-After in seconds.
    #[error("too busy, or the store is not to be had: try again in {0} s")]
    Busy(u64),
}

impl Refusal {
    /// The HTTP status and a stable code for machines.
    pub fn status(&self) -> (u16, &'static str) {
        match self {
            Refusal::Malformed(_) => (400, "malformed"),
            Refusal::UnknownKey(_) => (401, "unknown-key"),
            Refusal::Unauthorised(_) => (401, "unauthorised"),
            Refusal::Revoked { .. } => (403, "revoked-key"),
            Refusal::Forbidden(_) => (403, "forbidden"),
            Refusal::NotFound(_) => (404, "not-found"),
            Refusal::Conflict(_) => (409, "conflict"),
            Refusal::TooLarge(_) => (413, "too-large"),
            Refusal::Unprocessable(_) => (422, "unprocessable"),
            Refusal::TooMany(_) => (429, "too-many"),
            Refusal::Busy(_) => (503, "busy"),
        }
    }

    /// Seconds, where trying again later helps.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Refusal::TooMany(seconds) | Refusal::Busy(seconds) => Some(*seconds),
            _ => None,
        }
    }
}
