//! A record on its way in: bytes from the network, a verified record or a refusal out.
//!
//! What a record is, is said by `record::verify` alone. Here is what a collector asks beyond that:
//! a key that it knows, the host of that key, and simulated records from simulated keys only. The
//! key id of an envelope is a hint to find the key by; which key signed, is decided by verifying.

use jiff::Timestamp;

use super::model::{KeyState, Problem, Refusal};
use crate::decision::{Decision, Level, Stage};
use crate::ident::{Digest, printable};
use crate::outcome::{Finding, Grade, Status};
use crate::predicate::{Details, InventoryGpu};
use crate::record::standing::Tier;
use crate::record::{PublicKey, Verified, VerifyError, verify};

/// Findings of one record that are kept beside it for questions; all of them are in the record.
pub const MAXIMUM_PROBLEMS: usize = 20;
/// Numbers of a chain and times past this would be rounded by other readers of the record.
const LARGEST_NUMBER: u64 = 1 << 53;
/// Characters of a name that is shown.
const NAME: usize = 200;
/// Signatures whose key is looked up.
const HINTS: usize = 4;

/// What intake must know of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Signer {
    pub key: PublicKey,
    pub tier: Tier,
    pub state: KeyState,
    /// Why it is revoked.
    pub reason: Option<String>,
    pub host: Digest,
}

/// A record that was verified and waits to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The bytes as they came.
    pub raw: Vec<u8>,
    pub payload: Digest,
    pub keyid: String,
    pub run_id: String,
    pub host: Digest,
    pub node: Digest,
    pub hostname: String,
    pub serial: Option<String>,
    pub class: String,
    pub class_digest: Digest,
    pub suite_digest: Digest,
    pub decision: Decision,
    pub stage: Stage,
    pub level: Level,
    pub simulated: bool,
    pub overridden: bool,
    pub partial: bool,
    pub waived: bool,
    pub seq: u64,
    pub prev: Option<Digest>,
    pub challenge: Option<String>,
    pub finished_at: Timestamp,
    /// Models and count.
    pub gpus: String,
    pub gpu_serials: Vec<String>,
    /// Worst first.
    pub problems: Vec<Problem>,
}

/// Verifies a record with the key that `known` has for it.
///
/// # Errors
///
/// The refusal that the sender gets.
pub fn read(
    raw: Vec<u8>,
    accept_simulated: bool,
    mut known: impl FnMut(&str) -> Result<Option<Signer>, Refusal>,
) -> Result<Taken, Refusal> {
    let opened = verify::open(&raw).map_err(|error| refusal(&error))?;
    let mut found = None;
    for hint in opened.hints().take(HINTS) {
        if let Some(signer) = known(hint)? {
            found = Some(signer);
            break;
        }
    }
    let Some(signer) = found else {
        let name = opened.hints().next().unwrap_or_default();
        return Err(Refusal::UnknownKey(if name.is_empty() { "(none named)".to_owned() } else { printable(name, 80) }));
    };
    let verified = opened.verify(std::slice::from_ref(&signer.key)).map_err(|error| refusal(&error))?;
    if signer.state == KeyState::Revoked {
        let reason = signer.reason.unwrap_or_default();
        return Err(Refusal::Revoked { keyid: verified.keyid, reason: printable(&reason, NAME) });
    }
    check_origin(&verified, &signer, accept_simulated)?;
    taken(raw, verified)
}

/// Reads a record again that was taken in before: what was asked of it then is not asked again.
pub fn read_again(raw: Vec<u8>, key: &PublicKey) -> Result<Taken, Refusal> {
    let verified = verify::verify(&raw, std::slice::from_ref(key)).map_err(|error| refusal(&error))?;
    taken(raw, verified)
}

/// Whether this key may say this of this host.
fn check_origin(verified: &Verified, signer: &Signer, accept_simulated: bool) -> Result<(), Refusal> {
    let simulated = verified.details.simulated;
    let why = if verified.host != signer.host {
        format!("the record is about host {}, and its key belongs to host {}", verified.host, signer.host)
    } else if simulated && signer.tier != Tier::Simulated {
        "the record is of a recorded host, and its key is a machine's".to_owned()
    } else if !simulated && signer.tier == Tier::Simulated {
        "the record is of a machine, and its key is a recorded host's".to_owned()
    } else if simulated && !accept_simulated {
        "records of recorded hosts are not accepted here (`--accept-simulated`)".to_owned()
    } else {
        return Ok(());
    };
    Err(Refusal::Unprocessable(why))
}

fn taken(raw: Vec<u8>, verified: Verified) -> Result<Taken, Refusal> {
    let Verified { details, keyid, payload, host, node, .. } = verified;
    if details.seq > LARGEST_NUMBER {
        return Err(Refusal::Malformed(format!("seq {} is past 2^53", details.seq)));
    }
    if details.run_id.len() != 36 || uuid::Uuid::parse_str(&details.run_id).is_err() {
        return Err(Refusal::Malformed("runId is not a UUID".to_owned()));
    }
    let finished_at = details.finished_at.parse();
    let finished_at = finished_at.map_err(|_| Refusal::Malformed("finishedAt is not a time by RFC 3339".to_owned()))?;
    let shown = |text: &str| printable(text.trim(), NAME);
    Ok(Taken {
        payload,
        keyid,
        host,
        node,
        hostname: shown(&details.host.hostname),
        serial: details.host.serial.as_deref().map(shown).filter(|serial| !serial.is_empty()),
        class: details.plan.class.id.to_string(),
        class_digest: details.plan.class.digest,
        suite_digest: details.plan.suite.digest,
        decision: details.decision,
        stage: details.stage,
        level: details.level,
        simulated: details.simulated,
        overridden: details.overridden,
        partial: details.partial,
        waived: details.steps.iter().any(|step| step.outcome.status() == Status::Waived),
        seq: details.seq,
        prev: details.prev,
        challenge: challenge(&details.challenge),
        finished_at,
        gpus: gpus(&details.inventory.gpus),
        gpu_serials: details.inventory.gpus.iter().filter_map(|gpu| gpu.serial.as_deref().map(shown)).collect(),
        problems: problems(&details),
        run_id: details.run_id,
        raw,
    })
}

fn challenge(text: &str) -> Option<String> {
    (!text.is_empty() && text != "none").then(|| printable(text, NAME))
}

/// `8 × NVIDIA H100 80GB HBM3`, one part for each model.
fn gpus(gpus: &[InventoryGpu]) -> String {
    let mut models: Vec<(&str, usize)> = Vec::new();
    for gpu in gpus {
        let name = gpu.name.as_deref().or(gpu.model.as_deref()).unwrap_or("GPU of unknown model");
        match models.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => models.push((name, 1)),
        }
    }
    let parts: Vec<String> = models.iter().map(|(name, count)| format!("{count} × {name}")).collect();
    printable(&parts.join(", "), NAME)
}

/// What is wrong and not waived, worst first.
fn problems(details: &Details) -> Vec<Problem> {
    let mut found: Vec<(&str, &Finding)> = details
        .steps
        .iter()
        .flat_map(|step| step.outcome.findings.iter().map(|finding| (step.id.as_str(), finding)))
        .filter(|(_, finding)| finding.waived_by.is_none())
        .collect();
    found.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.grade));
    found.into_iter().take(MAXIMUM_PROBLEMS).map(|(step, finding)| problem(step, finding)).collect()
}

fn problem(step: &str, finding: &Finding) -> Problem {
    let place = finding.place.clone().unwrap_or_default();
    Problem {
        grade: finding.grade,
        step: step.to_owned(),
        code: finding.code.to_string(),
        title: printable(&finding.title, NAME),
        subject: printable(finding.subject.as_str(), NAME),
        slot: place.slot.map(|slot| printable(&slot, NAME)),
        serial: place.serial.map(|serial| printable(&serial, NAME)),
        action: finding.action.as_str().to_owned(),
        repeated: 0,
    }
}

fn refusal(error: &VerifyError) -> Refusal {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    match error {
        VerifyError::TooLarge { .. } => Refusal::TooLarge(text),
        _ => Refusal::Malformed(printable(&text, 400)),
    }
}

/// Whether a finding of this grade keeps a host out.
pub fn is_blocking(grade: Grade) -> bool {
    grade > Grade::Warned
}
