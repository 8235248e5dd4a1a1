//! The in-toto Statement v1 with a test-result v0.1 predicate around a run's details.
//!
//! Sources: in-toto/attestation `spec/v1/statement.md`, `spec/predicates/test-result.md`. Go
//! verifiers refuse anything unknown at statement or subject level, so all that is ours
//! stands in `predicate.nodegate` and in `annotations`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::identity::Documents;
use crate::decision::{Decision, Require};
use crate::ident::Digest;
use crate::outcome::Status;
use crate::predicate::{Details, Step};

mod numbers;

pub const TYPE: &str = "https://in-toto.io/Statement/v1";
pub const PREDICATE_TYPE: &str = "https://in-toto.io/attestation/test-result/v0.1";

/// Base64 grows by a third, and the envelope must stay below its own limit.
const MAXIMUM_PAYLOAD: usize = super::dsse::MAXIMUM_BYTES / 4 * 3 - 8 * 1024;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    #[serde(rename = "_type")]
    pub kind: String,
    pub subject: Vec<ResourceDescriptor>,
    pub predicate_type: String,
    pub predicate: Predicate,
}

/// What a record is about, or what a run was configured with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceDescriptor {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uri: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub digest: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Predicate {
    pub result: TestResult,
    pub configuration: Vec<ResourceDescriptor>,
    #[serde(default)]
    pub passed_tests: Vec<String>,
    #[serde(default)]
    pub warned_tests: Vec<String>,
    #[serde(default)]
    pub failed_tests: Vec<String>,
    pub nodegate: Details,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TestResult {
    Passed,
    Warned,
    Failed,
}

/// A statement that waits for its signature, by who may give it.
pub enum Unsigned {
    Live(Live),
    Simulated(Simulated),
}

/// The payload of a run on a machine.
pub struct Live(Vec<u8>);

/// The payload of a run on a recording.
pub struct Simulated(Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    #[error("record of {bytes} bytes: at most {MAXIMUM_PAYLOAD} can be verified by others")]
    TooLarge { bytes: usize },
    #[error("{field}: {number} is past 2^53, where other readers of the record would round it")]
    Number { field: String, number: String },
}

impl Live {
    pub(super) fn payload(&self) -> &[u8] {
        &self.0
    }
}

impl Simulated {
    pub(super) fn payload(&self) -> &[u8] {
        &self.0
    }
}

impl Unsigned {
    /// The statement about this run. Numbers that JSON or other readers cannot hold are taken
    /// out first, each with a notice; so are all measurements of a record that grew too large.
    pub fn new(mut details: Details, documents: &Documents) -> Result<Unsigned, StatementError> {
        numbers::tame(&mut details);
        let mut payload = encode(&details, documents)?;
        if payload.len() > MAXIMUM_PAYLOAD {
            details.steps.iter_mut().for_each(|step| step.outcome.measurements.clear());
            details.notices.push("measurements left out: the record would have been too large".to_owned());
            payload = encode(&details, documents)?;
        }
        if payload.len() > MAXIMUM_PAYLOAD {
            return Err(StatementError::TooLarge { bytes: payload.len() });
        }
        Ok(if details.simulated { Unsigned::Simulated(Simulated(payload)) } else { Unsigned::Live(Live(payload)) })
    }

    /// The bytes that will be signed.
    pub fn payload(&self) -> &[u8] {
        match self {
            Unsigned::Live(Live(payload)) | Unsigned::Simulated(Simulated(payload)) => payload,
        }
    }
}

impl Statement {
    pub fn of(details: &Details, documents: &Documents) -> Statement {
        Statement {
            kind: TYPE.to_owned(),
            subject: subjects(documents),
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate::of(details),
        }
    }

    /// The digest of the subject with this name (`host.json`, `node.json`).
    pub fn subject_digest(&self, name: &str) -> Option<Digest> {
        let subject = self.subject.iter().find(|subject| subject.name == name)?;
        format!("sha256:{}", subject.digest.get("sha256")?).parse().ok()
    }
}

impl Predicate {
    fn of(details: &Details) -> Predicate {
        let mut tests = Tests::default();
        details.steps.iter().for_each(|step| tests.sort(step));
        tests.add_scope(details);
        Predicate {
            result: result_of(details, &tests),
            configuration: configuration(details),
            passed_tests: tests.passed,
            warned_tests: tests.warned,
            failed_tests: tests.failed,
            nodegate: details.clone(),
        }
    }
}

#[derive(Default)]
struct Tests {
    passed: Vec<String>,
    warned: Vec<String>,
    failed: Vec<String>,
}

impl Tests {
    /// A policy must ask for names in `passedTests`; what is not known to be good is not there.
    fn sort(&mut self, step: &Step) {
        let list = match (step.outcome.status(), step.require) {
            (Status::Absent, _) => return,
            (Status::Passed, _) => &mut self.passed,
            (Status::Warned | Status::Waived, _) => &mut self.warned,
            (_, Require::Must) => &mut self.failed,
            (_, Require::Should) => &mut self.warned,
            (_, Require::Inform) => return,
        };
        list.push(step.id.to_string());
    }

    /// `stage:…`, `level:…` and `class:…@sha256:…`, so that a stock policy engine can ask for
    /// them. A run that says less than it seems carries that in the name.
    fn add_scope(&mut self, details: &Details) {
        self.warned.extend(details.overrides.iter().map(|it| format!("override:{}.{}", it.step, it.parameter)));
        let (qualifier, list) = match details {
            Details { simulated: true, decision: Decision::Accepted, .. } => ("simulated:", &mut self.passed),
            Details { simulated: true, .. } => ("simulated:", &mut self.failed),
            Details { decision: Decision::Rejected | Decision::Undecided, .. } => ("", &mut self.failed),
            Details { overridden: true, .. } => ("overridden:", &mut self.warned),
            Details { partial: true, .. } => ("partial:", &mut self.warned),
            _ => ("", &mut self.passed),
        };
        let class = &details.plan.class;
        list.push(format!("{qualifier}stage:{}", details.stage));
        list.push(format!("{qualifier}level:{}", details.level));
        list.push(format!("{qualifier}class:{}@{}", class.id, class.digest));
    }
}

fn result_of(details: &Details, tests: &Tests) -> TestResult {
    match details.decision {
        Decision::Rejected | Decision::Undecided => TestResult::Failed,
        Decision::Accepted if !tests.warned.is_empty() || details.overridden => TestResult::Warned,
        Decision::Accepted => TestResult::Passed,
    }
}

fn subjects(documents: &Documents) -> Vec<ResourceDescriptor> {
    let identity = documents.host.identity.as_str().to_owned();
    [("host.json", documents.host.digest()), ("node.json", documents.node.digest())]
        .into_iter()
        .map(|(name, digest)| ResourceDescriptor {
            annotations: BTreeMap::from([("identity".to_owned(), identity.clone())]),
            ..ResourceDescriptor::digested(name, digest)
        })
        .collect()
}

/// What the run was made with; each has a digest or a package URL.
fn configuration(details: &Details) -> Vec<ResourceDescriptor> {
    let plan = &details.plan;
    let mut list = vec![
        ResourceDescriptor::digested(&format!("suite:{}@{}", plan.suite.id, plan.suite.revision), plan.suite.digest),
        ResourceDescriptor::digested(&format!("class:{}@{}", plan.class.id, plan.class.revision), plan.class.digest),
        ResourceDescriptor::digested("policy", plan.policy),
        ResourceDescriptor {
            uri: package_url("nodegate", &details.agent.version),
            ..ResourceDescriptor::digested("agent", details.agent.digest)
        },
    ];
    list.extend(plan.site.map(|digest| ResourceDescriptor::digested("site", digest)));
    list.extend(details.inventory.nvml_library.map(|digest| ResourceDescriptor::digested("nvml-library", digest)));
    let packages = [
        ("driver", "nvidia-driver", &details.inventory.driver),
        ("nvml", "nvidia-ml", &details.inventory.nvml),
        ("kernel", "linux", &details.host.kernel),
        ("os-image", "os-image", &details.host.os_image),
    ];
    list.extend(packages.into_iter().filter_map(|(name, package, version)| {
        let uri = package_url(package, version.as_deref()?);
        Some(ResourceDescriptor { name: name.to_owned(), uri, ..ResourceDescriptor::default() })
    }));
    list
}

impl ResourceDescriptor {
    fn digested(name: &str, digest: Digest) -> Self {
        ResourceDescriptor {
            name: name.to_owned(),
            digest: BTreeMap::from([("sha256".to_owned(), digest.hex())]),
            ..ResourceDescriptor::default()
        }
    }
}

/// `pkg:generic/NAME@VERSION` with the version percent-encoded (package-url/purl-spec).
fn package_url(name: &str, version: &str) -> String {
    let mut url = format!("pkg:generic/{name}@");
    for byte in version.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => url.push(char::from(byte)),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

fn encode(details: &Details, documents: &Documents) -> Result<Vec<u8>, StatementError> {
    let statement = Statement::of(details, documents);
    let value = serde_json::to_value(&statement).expect("a statement has string keys only");
    numbers::check(&value)?;
    Ok(serde_json::to_vec(&statement).expect("a statement that became a value becomes bytes"))
}
