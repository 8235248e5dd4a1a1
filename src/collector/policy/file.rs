//! The policy's file: TOML, all of its problems reported together with their lines.

use std::time::Duration;

use super::{AllowedClass, Policy};
use crate::decision::{Level, Stage};
use crate::ident::Digest;
use crate::plan::document::{Document, Problems};
use crate::plan::section::{self, Section};
use crate::record::standing::Tier;
use crate::units::Seconds;

const KEYS: &[&str] = &[
    "format",
    "stage",
    "level",
    "tier",
    "class",
    "suites",
    "waivers",
    "overridden",
    "require-challenge",
    "challenge-age",
    "expiry",
    "recent-days",
];
const CLASS_KEYS: &[&str] = &["id", "digest"];

/// The tiers that a policy can ask for. Simulated records never count.
const TIERS: &[Tier] = &[Tier::FirstUse, Tier::Token, Tier::SshHostKey, Tier::X509, Tier::Tpm];

/// Reads a policy. What it leaves out is as in [`Policy::default`].
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn load(document: &Document) -> Result<Policy, Problems> {
    section::read(document, KEYS, |file| Some(read(file)))
}

fn read(file: &Section<'_>) -> Policy {
    let usual = Policy::default();
    let time = |key: &str| file.get::<Seconds>(key).map(|at| at.value.duration());
    Policy {
        stage: file.choice("stage", &[Stage::Rack, Stage::Image, Stage::Service]).map_or(usual.stage, |at| at.value),
        level: file.choice("level", &[Level::Quick, Level::Standard, Level::Soak]).map_or(usual.level, |at| at.value),
        tier: file.choice("tier", TIERS).map_or(usual.tier, |at| at.value),
        classes: file.sections("class").iter().filter_map(read_class).collect(),
        suites: file.list::<Digest>("suites").into_iter().map(|at| at.value).collect(),
        waivers: truth(file, "waivers").unwrap_or(usual.waivers),
        overridden: truth(file, "overridden").unwrap_or(usual.overridden),
        require_challenge: truth(file, "require-challenge").unwrap_or(usual.require_challenge),
        challenge_age: time("challenge-age").unwrap_or(usual.challenge_age),
        expiry: time("expiry").filter(|expiry| *expiry > Duration::ZERO),
        recent_days: file.number("recent-days", 1).map_or(usual.recent_days, |at| at.value),
    }
}

fn read_class(section: &Section<'_>) -> Option<AllowedClass> {
    section.only(CLASS_KEYS);
    let digest = section.get("digest").map(|at| at.value);
    Some(AllowedClass { id: section.need("id")?.value, digest })
}

fn truth(file: &Section<'_>, key: &str) -> Option<bool> {
    let at = file.any(key)?;
    if at.value.as_bool().is_none() {
        file.note(at.line, format!("`{key}` must be true or false"));
    }
    at.value.as_bool()
}
