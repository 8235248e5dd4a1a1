//! Kinds of check for the tests of this layer: they take their parameters and do nothing.

use serde::Deserialize;

use crate::check::{Check, Context, Kind};
use crate::decision::Level;
use crate::ident::Subject;
use crate::outcome::{Judgement, Outcome};
use crate::units::Watts;

use super::class::{self, Choice, Class};
use super::document::Document;
use super::suite::{self, Suite};
use super::{Inputs, Plan};

/// The kinds by id.
pub const KINDS: &[Kind] =
    &[stub("driver", &["minimum"]), stub("gpu-inventory", &["count", "models"]), POWER, stub("aftermath", &["xid"])];

/// The kind of this id.
pub fn kind(id: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.id == id).unwrap()
}

const POWER: Kind =
    Kind { build: |table| Ok(Box::new(table.try_into::<Power>()?)), ..stub("power", &["limit", "samples"]) };

const fn stub(id: &'static str, parameters: &'static [&'static str]) -> Kind {
    Kind {
        id,
        proves: "Nothing; it stands in for a check.",
        cost: [0.1, 0.1, 0.1],
        idle: false,
        privileges: "",
        parameters,
        explanation: "",
        build: |table| Ok(Box::new(Anything(table))),
    }
}

#[derive(Debug)]
struct Anything(#[expect(dead_code, reason = "shown by Debug")] toml::Table);

impl Check for Anything {
    fn run(&self, _context: &mut Context<'_>) -> Outcome {
        Judgement::expecting([Subject::host()]).close("")
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Power {
    #[expect(dead_code, reason = "read for its unit only")]
    limit: Watts,
    #[expect(dead_code, reason = "read for its type only")]
    samples: u32,
}

impl Check for Power {
    fn run(&self, _context: &mut Context<'_>) -> Outcome {
        Judgement::expecting([Subject::host()]).close("")
    }
}

/// A suite over [`KINDS`].
pub const SUITE: &str = r#"format = 1
id = "small"
revision = 1
[[step]]
id = "driver"
check = "driver"
require = "must"
stage = "rack"
level = "quick"
timeout = "30 s"
[[step]]
id = "gpu-inventory"
check = "gpu-inventory"
require = "must"
stage = "rack"
level = "quick"
timeout = "10 s"
needs = ["driver"]
[[step]]
id = "power"
check = "power"
require = "should"
stage = "image"
level = "quick" # power
timeout = "20 s"
needs = ["driver"] # power
[[step]]
id = "aftermath"
check = "aftermath"
require = "must"
stage = "rack"
level = "quick"
timeout = "10 s"
needs = ["driver"]
"#;

/// A class that answers [`SUITE`].
pub const CLASS: &str = r#"format = 1
id = "small"
revision = 2
title = "A small host"
[match]
gpus = ["10de:2330"]
[limits.driver]
minimum = "535.129.03"
[sources.driver]
minimum = "somewhere"
[limits.gpu-inventory]
count = { min = 1, max = 8 }
[sources.gpu-inventory]
count = "somewhere"
[limits.power]
limit = "700 W"
samples = 3
[sources.power]
limit = "somewhere"
samples = "somewhere"
[absent]
aftermath = "not in this test"
"#;

/// [`SUITE`], read.
pub fn suite() -> Suite {
    suite::load(&Document::new("suite.toml", SUITE.as_bytes()).unwrap(), KINDS).unwrap()
}

/// [`CLASS`], read.
pub fn class() -> Class {
    class::load(&Document::new("small.toml", CLASS.as_bytes()).unwrap(), &suite(), KINDS).unwrap()
}

/// [`SUITE`] under [`CLASS`], without a site.
pub fn plan() -> Plan {
    let (suite, choice) = (suite(), Choice { class: class(), chosen: "named", because: None });
    let inputs = Inputs {
        suite: &suite,
        choice: &choice,
        site: None,
        stage: None,
        level: Level::Quick,
        only: &[],
        skip: &[],
        hostname: None,
        today: "2030-06-01".parse().unwrap(),
    };
    Plan::resolve(&inputs, KINDS).unwrap()
}
