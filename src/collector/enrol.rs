//! Who may sign for a host: enrolments judged, by what the collector knew before.
//!
//! The claim proves that its sender holds the key. The proof beside it makes a tier; the tier and what
//! is known of the host make a state. Judging is pure: what it needs is gathered once, and what it
//! decides is settled by the store in one transaction.
//!
//! Nothing that is sent again changes anything: a known key gets the answer of what it is now.

mod evidence;
mod standing;

use jiff::Timestamp;

use super::model::{Key, Refusal};
use crate::ident::Digest;
use crate::record::PublicKey;
use crate::record::enrolment::certificate::FleetAuthority;
use crate::record::enrolment::tpm_public::EndorsementArea;
use crate::record::enrolment::{self, Claim, Credential, EnrolmentError, JoinToken, NO_CHALLENGE, Proof};
use crate::record::standing::Tier;
use evidence::Evidence;

/// How long a nonce of an enrolment may be on its way. A TPM takes seconds for its two rounds.
pub const CHALLENGE_AGE: std::time::Duration = std::time::Duration::from_secs(15 * 60);

/// What the operator of the collector said.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub accept_simulated: bool,
    /// Approve the first key of an unknown host without asking anybody.
    pub approve_first_use: bool,
    pub fleet_authority: FleetAuthority,
}

/// What an enrolment names, and what is therefore looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub keyid: String,
    pub replaces: Option<String>,
    pub host: Digest,
    /// Host name and serial numbers, by which SSH keys are known.
    pub names: Vec<String>,
    pub token: Option<Digest>,
    pub endorsement_key: Option<Digest>,
    pub challenge: String,
    /// Of the signed statement and the TPM's keys.
    pub mark: Digest,
}

/// What is known of it at one moment.
#[derive(Clone, Debug)]
pub struct Known {
    pub key: Option<Key>,
    pub replaced: Option<Key>,
    /// Every key that was ever enrolled for the host.
    pub of_host: Vec<Key>,
    pub token: Option<Token>,
    pub ssh_keys: Vec<PublicKey>,
    /// The host name or serial number that the endorsement key was approved for; empty for any.
    pub endorsement: Option<String>,
    /// When the challenge was given out for this key.
    pub issued: Option<Timestamp>,
    /// HMAC of the mark with the store's secret: the same every time, and nobody else's.
    pub secret: [u8; 32],
}

/// A join token that was made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub serial: String,
    pub expires_at: Timestamp,
    /// The key that it let in.
    pub used_by: Option<String>,
}

/// What is to be kept of an enrolment.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// Its `replaces` names a key to be retired.
    pub key: Key,
    /// A token to be used up in the same transaction.
    pub token: Option<Digest>,
    /// Whether the key was here before: tier, state and what they rest on are new.
    pub raises: bool,
}

/// Where enrolments are looked up and kept.
pub trait Registry {
    fn known(&self, asked: &Asked) -> Result<Known, Refusal>;

    /// Keeps what was decided, all or nothing. What has changed since it was looked up (the token is
    /// used, the key to be replaced is none any more) is a refusal.
    fn settle(&self, decided: Decided) -> Result<Key, Refusal>;
}

/// The answer to an enrolment.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// `created`: 201, otherwise 200.
    Enrolled { key: Box<Key>, created: bool },
    /// 202: the TPM is to open this and send what is in it.
    Challenge(Credential),
}

/// Judges the body of `POST /v1/enroll`.
pub fn enrol(body: &[u8], registry: &dyn Registry, settings: &Settings, now: Timestamp) -> Result<Outcome, Refusal> {
    let claim = enrolment::read(body).map_err(malformed)?;
    let known = registry.known(&asked(&claim)?)?;
    match judge(&claim, &known, settings, now)? {
        Verdict::Known(key) => Ok(Outcome::Enrolled { key, created: false }),
        Verdict::Challenge(credential) => Ok(Outcome::Challenge(credential)),
        Verdict::Decided(decided) => {
            let created = !decided.raises;
            registry.settle(*decided).map(|key| Outcome::Enrolled { key: Box::new(key), created })
        }
    }
}

#[derive(Debug)]
enum Verdict {
    /// It is known, as it stands.
    Known(Box<Key>),
    Challenge(Credential),
    Decided(Box<Decided>),
}

fn judge(claim: &Claim, known: &Known, settings: &Settings, now: Timestamp) -> Result<Verdict, Refusal> {
    let enrolment = &claim.enrolment;
    if enrolment.simulated && !settings.accept_simulated {
        return Err(Refusal::Unprocessable("recorded hosts are not taken here (--accept-simulated)".to_owned()));
    }
    if let Some(key) = &known.key {
        standing::refuse_other_host(key, enrolment)?;
        if !standing::may_rise(key, claim.proof.tier()) {
            return Ok(Verdict::Known(Box::new(key.clone())));
        }
    }
    fresh(claim, known, now)?;
    standing::refuse_bad_rotation(claim, known)?;
    match evidence::weigh(claim, known, settings, now)? {
        Evidence::Challenge(credential) => Ok(Verdict::Challenge(credential)),
        Evidence::Proven(binding) => {
            standing::decide(claim, known, settings, binding, now).map(|decided| Verdict::Decided(Box::new(decided)))
        }
    }
}

/// Whether the sender spoke to us just now. Without a nonce nothing is believed that a recording of an
/// old enrolment could say as well.
fn fresh(claim: &Claim, known: &Known, now: Timestamp) -> Result<(), Refusal> {
    let waits_anyway = matches!(claim.proof.tier(), Tier::FirstUse | Tier::Simulated) && known.replaced.is_none();
    if claim.enrolment.challenge == NO_CHALLENGE && waits_anyway {
        return Ok(());
    }
    let refused = |why: &str| Err(Refusal::Forbidden(format!("{why}: ask /v1/challenges for one and enrol again")));
    match known.issued {
        None => refused("the enrolment carries no nonce of ours for this key"),
        Some(issued) if now.duration_since(issued).unsigned_abs() > CHALLENGE_AGE => {
            refused("the enrolment's nonce is too old")
        }
        Some(_) => Ok(()),
    }
}

fn asked(claim: &Claim) -> Result<Asked, Refusal> {
    let enrolment = &claim.enrolment;
    let mut names = vec![enrolment.hostname.to_ascii_lowercase()];
    names.extend(enrolment.serials().map(str::to_owned));
    let token = match &claim.proof {
        Proof::Token { id, secret } => Some(JoinToken { id: id.clone(), secret: secret.clone() }.digest()),
        _ => None,
    };
    let (mut mark, mut endorsement_key) = (claim.digest().0.to_vec(), None);
    if let Proof::Tpm { public, endorsement_key: area, .. } = &claim.proof {
        let parsed = EndorsementArea::parse(&area.0).map_err(|error| Refusal::Malformed(error.to_string()))?;
        endorsement_key = Some(parsed.digest());
        mark.extend(Digest::of(&public.0).0);
        mark.extend(parsed.digest().0);
    }
    Ok(Asked {
        keyid: claim.keyid.clone(),
        replaces: enrolment.replaces.clone(),
        host: enrolment.host.digest(),
        names,
        token,
        endorsement_key,
        challenge: enrolment.challenge.clone(),
        mark: Digest::of(&mark),
    })
}

fn malformed(error: EnrolmentError) -> Refusal {
    let text = match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    match error {
        EnrolmentError::TooLarge { .. } => Refusal::TooLarge(text),
        EnrolmentError::Possession => Refusal::Forbidden(text),
        _ => Refusal::Malformed(crate::ident::printable(&text, 300)),
    }
}
