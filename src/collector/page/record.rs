//! One record: what the collector holds of it, and all that it says.

use askama::Template;
use jiff::Timestamp;

use super::link::{diff_address, node_address};
use super::standing::{is_weak, tier_meaning, verdict};
use super::{Frame, written};
use crate::collector::model::{Kept, Key, Record};
use crate::collector::policy::{Policy, standing};
use crate::ident::Digest;
use crate::record::{Algorithm, PublicKey, Verified};
use crate::report::html::age::{Moment, exact};
use crate::report::html::{Body, File, Markup, Signed, Verdict, Where, stem};

/// All that the page of a record shows.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    pub kept: &'a Kept,
    /// What its bytes verified as; none after retention.
    pub verified: Option<&'a Verified>,
    pub key: Option<&'a Key>,
    pub policy: &'a Policy,
    /// The host's record before this one.
    pub before: Option<&'a Digest>,
    pub now: Timestamp,
}

pub fn record(view: &RecordView<'_>) -> String {
    let record = &view.kept.record;
    let verdict = verdict(record, standing(record, view.policy, view.now));
    let body = view.verified.map(|verified| {
        let signed = signed(view, verified);
        Body::new(&verified.details, &signed, verdict.clone().with(&verified.details)).markup()
    });
    written(&Page {
        frame: Frame::new(&format!("Record of {}", record.hostname), ""),
        view: *view,
        record,
        received: Moment::of(record.received_at, view.now),
        verdict,
        body,
    })
}

#[derive(Template)]
#[template(path = "record.html")]
struct Page<'a> {
    frame: Frame,
    view: RecordView<'a>,
    record: &'a Record,
    received: Moment,
    /// For a record whose payload is gone; otherwise the body has it.
    verdict: Verdict,
    body: Option<Markup>,
}

impl Page<'_> {
    fn node(&self) -> String {
        node_address(&self.record.host)
    }

    fn diff(&self) -> Option<String> {
        Some(diff_address(self.view.before?, &self.record.payload))
    }

    fn tier_meaning(&self) -> &'static str {
        tier_meaning(self.record.tier)
    }

    fn weak(&self) -> bool {
        is_weak(self.record.tier)
    }

    fn finished(&self) -> String {
        exact(self.record.finished_at)
    }
}

fn signed(view: &RecordView<'_>, verified: &Verified) -> Signed {
    let key = view.key.and_then(|key| PublicKey::parse(&key.public_key).ok());
    let raw = view.kept.raw.as_deref().unwrap_or_default();
    let is_bundle =
        serde_json::from_slice::<serde_json::Value>(raw).is_ok_and(|value| value.get("dsseEnvelope").is_some());
    Signed {
        keyid: verified.keyid.clone(),
        p256: key.as_ref().is_some_and(|key| key.algorithm() == Algorithm::P256),
        public_key: key.as_ref().map(PublicKey::to_pem),
        payload: verified.payload,
        host: verified.host,
        node: verified.node,
        bundle: is_bundle,
        files: files(view, verified, key.as_ref(), is_bundle),
    }
}

fn files(view: &RecordView<'_>, verified: &Verified, key: Option<&PublicKey>, is_bundle: bool) -> Vec<File> {
    let stem = stem(&verified.details.run_id);
    let address = format!("/v1/records/{}", verified.payload.hex());
    let record_name = if is_bundle { format!("{stem}.sigstore.json") } else { format!("{stem}.json") };
    let mut files =
        vec![File { name: record_name, what: "the signed record, as it came", place: Where::Link(address.clone()) }];
    if view.kept.receipt.is_some() {
        let place = Where::Link(format!("{address}/receipt"));
        files.push(File { name: format!("{stem}.receipt.json"), what: "this collector's signed receipt", place });
    }
    if let Some(key) = key {
        let name = if verified.details.simulated { format!("{stem}.pub") } else { "node.pub".to_owned() };
        let place = Where::Here { media_type: "application/octet-stream", bytes: key.to_pem().into_bytes() };
        files.push(File { name, what: "the public key, as this collector knows it", place });
    }
    files
}
