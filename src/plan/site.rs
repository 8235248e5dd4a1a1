//! The site file: what belongs to a place and not to a kind of host.
//!
//! It holds data only. A secret is never in it: the file names the path of another file that
//! only its owner can read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use jiff::civil::Date;

use crate::check::Kind;
use crate::decision::Stage;
use crate::ident::{BusId, Digest, FindingCode, StepId, printable};
use crate::predicate::Waiver;
use crate::wire::{Address, Proxy};

use super::class;
use super::document::{Document, Problems, nearest};
use super::section::{self, At, Section};
use super::suite::Suite;

/// Where the site file is looked for.
pub const SITE_PATH: &str = "/etc/nodegate/site.toml";

/// Checks whose findings nobody can waive: without them it is not known what was judged.
pub const UNWAIVABLE: [&str; 2] = ["driver", "gpu-inventory"];

/// A commented example, as `nodegate site init` writes it.
pub const EXAMPLE: &str = include_str!("../../docs/site-examples/commented.toml");

/// What belongs to a place.
#[derive(Clone, Debug)]
pub struct Site {
    /// The file, for messages.
    pub name: String,
    pub digest: Digest,
    /// A built-in class.
    pub class: Option<String>,
    pub stage: Option<Stage>,
    pub expect: Expect,
    pub collector: Collector,
    pub paths: Paths,
    pub overrides: Vec<At<Override>>,
    pub waivers: Vec<At<SiteWaiver>>,
    /// What is written on the chassis, by PCI address.
    pub slots: BTreeMap<BusId, String>,
}

/// What this host should have.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    pub gpu_count: Option<At<u32>>,
    pub hostname: Option<At<String>>,
}

/// Where records go.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    pub url: Option<Address>,
    /// The collector's public key, by which its receipts are checked.
    pub receipt_key: Option<PathBuf>,
    /// A file that only its owner can read (0600), with what the collector asks for.
    pub credential: Option<PathBuf>,
    /// Certificates of the authority that signed the collector's; with it no other is trusted.
    pub ca: Option<PathBuf>,
    /// What this host shows in TLS, and the key of it (0600). Both or none.
    pub client_certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    /// The way to the collector; without it the caller's `HTTPS_PROXY`.
    pub proxy: Option<Proxy>,
    /// Whether a key that the collector does not know is introduced to it on the way.
    pub first_use: bool,
}

/// Paths by purpose.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// Records, spool and lock.
    pub state: Option<PathBuf>,
    /// The private key that signs (0600).
    pub key: Option<PathBuf>,
    /// Libraries and root folders that `--nvml`, `--cuda` and `--root` may name here.
    pub approved: Vec<PathBuf>,
}

/// A parameter that this place sets otherwise than the class.
#[derive(Clone, Debug)]
pub struct Override {
    pub step: StepId,
    pub parameter: String,
    pub value: toml::Value,
    pub reason: String,
    pub who: String,
}

/// A waiver with its last day as a day.
#[derive(Clone, Debug)]
pub struct SiteWaiver {
    pub waiver: Waiver,
    /// The last day on which it holds.
    pub until: Date,
}

/// What a site file means.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn load(document: &Document, suite: &Suite, kinds: &[Kind]) -> Result<Site, Problems> {
    section::read(document, &KEYS, |file| {
        let class: Option<At<String>> = file.get("class");
        if let Some(class) = &class
            && !class::BUILTIN.iter().any(|(stem, _)| *stem == class.value)
        {
            let found = printable(&class.value, 60);
            let hint = nearest(&found, class::BUILTIN.iter().map(|(stem, _)| *stem));
            file.note(class.line, format!("there is no class `{found}`{hint}"));
        }
        let stage = file.choice("stage", &[Stage::Rack, Stage::Image, Stage::Service]);
        Some(Site {
            name: document.name.clone(),
            digest: document.digest,
            class: class.map(|class| class.value),
            stage: stage.map(|stage| stage.value),
            expect: file.section("expect").map(|table| expect(&table)).unwrap_or_default(),
            collector: file.section("collector").map(|table| collector(&table)).unwrap_or_default(),
            paths: file.section("paths").map(|table| paths(&table)).unwrap_or_default(),
            overrides: overrides(file, suite, kinds),
            waivers: file.sections("waiver").iter().filter_map(|table| waiver(table, suite)).collect(),
            slots: file.section("slots").map(|table| slots(&table)).unwrap_or_default(),
        })
    })
}

/// What a site file says of its collector, whatever the suite is that the rest of it is for.
///
/// # Errors
///
/// Everything that is wrong with that part.
pub fn load_collector(document: &Document) -> Result<Collector, Problems> {
    let read = |file: &Section<'_>| file.section("collector").map(|table| collector(&table)).unwrap_or_default();
    section::read(document, &KEYS, |file| Some(read(file)))
}

const KEYS: [&str; 9] = ["format", "class", "stage", "expect", "collector", "paths", "override", "waiver", "slots"];

fn expect(table: &Section<'_>) -> Expect {
    table.only(&["gpu-count", "hostname"]);
    let hostname = table.get::<String>("hostname");
    if let Some(name) = hostname.as_ref().filter(|name| name.value.is_empty() || !is_plain(&name.value)) {
        table.note(name.line, "`hostname` is no host name; leave it out where any host may be tested");
    }
    Expect { gpu_count: table.number("gpu-count", 1), hostname }
}

fn collector(table: &Section<'_>) -> Collector {
    table.only(&["url", "receipt-key", "credential", "ca", "client-certificate", "client-key", "proxy", "enroll"]);
    table.require("url");
    let (client_certificate, client_key) = (path(table, "client-certificate"), path(table, "client-key"));
    if client_certificate.is_some() != client_key.is_some() {
        table.note(table.line, "`client-certificate` and `client-key` go together: write both or neither");
    }
    let proxy = table.get::<Proxy>("proxy");
    if let Some(proxy) = proxy.as_ref().filter(|proxy| proxy.value.has_password()) {
        table.note(
            proxy.line,
            "`proxy` holds a password, which does not belong here; set HTTPS_PROXY where nodegate starts",
        );
    }
    Collector {
        url: table.get::<Address>("url").map(|url| url.value),
        receipt_key: path(table, "receipt-key"),
        credential: path(table, "credential"),
        ca: path(table, "ca"),
        client_certificate,
        client_key,
        proxy: proxy.map(|proxy| proxy.value),
        first_use: table
            .choice("enroll", &[Enroll::FirstUse, Enroll::Never])
            .is_some_and(|at| at.value == Enroll::FirstUse),
    }
}

/// What `enroll` can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enroll {
    FirstUse,
    Never,
}

impl std::fmt::Display for Enroll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Enroll::FirstUse => "first-use",
            Enroll::Never => "never",
        })
    }
}

fn paths(table: &Section<'_>) -> Paths {
    table.only(&["state", "key", "approved"]);
    let approved: Vec<At<Absolute>> = table.list("approved");
    let approved = approved.into_iter().map(|path| path.value.0).collect();
    Paths { state: path(table, "state"), key: path(table, "key"), approved }
}

fn path(table: &Section<'_>, key: &str) -> Option<PathBuf> {
    table.get::<Absolute>(key).map(|path| path.value.0)
}

fn slots(table: &Section<'_>) -> BTreeMap<BusId, String> {
    let mut slots = BTreeMap::new();
    for (key, at) in table.values() {
        let bus_id = key.parse::<BusId>().map_err(|error| table.note(at.line, error.to_string())).ok();
        match (bus_id, at.value.as_str().map(str::trim)) {
            (Some(bus_id), Some(name)) if !name.is_empty() => {
                if slots.insert(bus_id, printable(name, 60)).is_some() {
                    table.note(at.line, format!("{bus_id} stands in [slots] twice"));
                }
            }
            (Some(_), _) => table.note(at.line, format!("the slot of {key} must be a text in quotes")),
            (None, _) => {}
        }
    }
    slots
}

fn overrides(file: &Section<'_>, suite: &Suite, kinds: &[Kind]) -> Vec<At<Override>> {
    let mut overrides: Vec<At<Override>> = Vec::new();
    for table in file.sections("override") {
        let Some(read) = read_override(&table, suite, kinds) else { continue };
        let same = |other: &&At<Override>| {
            (&other.value.step, &other.value.parameter) == (&read.value.step, &read.value.parameter)
        };
        if let Some(first) = overrides.iter().find(same) {
            let (step, parameter) = (&read.value.step, &read.value.parameter);
            table.note(
                read.line,
                format!("`{parameter}` of step `{step}` is overridden on line {} already", first.line),
            );
        }
        overrides.push(read);
    }
    overrides
}

fn read_override(table: &Section<'_>, suite: &Suite, kinds: &[Kind]) -> Option<At<Override>> {
    table.only(&["step", "parameter", "value", "reason", "who"]);
    table.require("value");
    let step = known_step(table, suite);
    let parameter: Option<At<String>> = table.need("parameter");
    let (reason, who) = (table.need_words("reason"), table.need_words("who"));
    let value = table.any("value");
    let (step, parameter) = (step?, parameter?);
    let check = suite.step(step.value.as_str()).map(|step| step.check.as_str());
    let kind = kinds.iter().find(|kind| Some(kind.id) == check);
    if let Some(kind) = kind.filter(|kind| !kind.parameters.contains(&parameter.value.as_str())) {
        let found = printable(&parameter.value, 60);
        let hint = nearest(&found, kind.parameters.iter().copied());
        table.note(parameter.line, format!("step `{}` has no parameter `{found}`{hint}", step.value));
        return None;
    }
    let value = value?;
    Some(At {
        line: value.line,
        value: Override {
            step: step.value,
            parameter: parameter.value,
            value: value.value,
            reason: printable(&reason?.value, 300),
            who: printable(&who?.value, 100),
        },
    })
}

fn waiver(table: &Section<'_>, suite: &Suite) -> Option<At<SiteWaiver>> {
    table.only(&["step", "finding", "subject", "reason", "who", "until"]);
    table.require("until");
    let step = known_step(table, suite);
    let finding = table.need::<FindingCode>("finding");
    let (subject, reason, who) = (table.need_words("subject"), table.need_words("reason"), table.need_words("who"));
    let until = until(table);
    let step = step?;
    let check = suite.step(step.value.as_str()).map(|step| step.check.as_str());
    if check.is_some_and(|check| UNWAIVABLE.contains(&check)) {
        let text = format!("findings of step `{}` cannot be waived: they say what was judged at all", step.value);
        table.note(step.line, text);
    }
    let until = until?;
    let waiver = Waiver {
        step: step.value.to_string(),
        finding: finding?.value.to_string(),
        subject: printable(&subject?.value, 200),
        reason: printable(&reason?.value, 300),
        who: printable(&who?.value, 100),
        until: until.to_string(),
    };
    Some(At { value: SiteWaiver { waiver, until }, line: table.line })
}

/// A day, as a TOML date or in quotes.
fn until(table: &Section<'_>) -> Option<Date> {
    let at = table.any("until")?;
    let text = match &at.value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Datetime(time) => time.to_string(),
        other => other.to_string(),
    };
    // Only a whole day is meant: what also has a time or an offset is refused.
    let day = (text.len() == 10).then(|| text.parse::<Date>().ok()).flatten();
    if day.is_none() {
        let found = printable(&text, 40);
        table.note(at.line, format!("`until` must be the last day of the waiver, e.g. 2031-12-31, not `{found}`"));
    }
    day
}

fn known_step(table: &Section<'_>, suite: &Suite) -> Option<At<StepId>> {
    let step = table.need::<StepId>("step")?;
    if suite.step(step.value.as_str()).is_none() {
        let hint = nearest(step.value.as_str(), suite.names());
        table.note(step.line, format!("the suite has no step `{}`{hint}", step.value));
        return None;
    }
    Some(step)
}

/// Whether the text prints as it is, without anything that could play tricks on a terminal.
fn is_plain(text: &str) -> bool {
    printable(text, usize::MAX) == text
}

/// A path from the root. What was found instead is not shown: it may be a secret in the wrong place.
struct Absolute(PathBuf);

#[derive(Debug, thiserror::Error)]
#[error("write the absolute path of a file, never a secret itself")]
struct NotAbsolute;

impl FromStr for Absolute {
    type Err = NotAbsolute;

    fn from_str(text: &str) -> Result<Self, NotAbsolute> {
        let path = Path::new(text);
        if path.is_absolute() && is_plain(text) { Ok(Absolute(path.to_owned())) } else { Err(NotAbsolute) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, KINDS};
    use super::*;

    const SITE: &str = r#"format = 1
class = "hgx-h100-8"
stage = "image"
[expect]
gpu-count = 4
hostname = "gpu-r12-u07"
[collector]
url = "https://collector.example:8443"
receipt-key = "/etc/nodegate/collector.pem"
credential = "/etc/nodegate/collector.token"
[[override]]
step = "power"
parameter = "samples"
value = 5
reason = "noisy supply"
who = "R. Roe"
[[waiver]]
step = "power"
finding = "too-hot"
subject = "0000:1b:00.0"
reason = "fan ordered"
who = "R. Roe"
until = 2031-12-31
[slots]
"00000000:1B:00.0" = "slot 3"
"#;

    fn read(text: &str) -> Result<Site, Problems> {
        load(&Document::new("site.toml", text.as_bytes()).unwrap(), &testing::suite(), KINDS)
    }

    #[test]
    fn a_site_reads_what_it_says() {
        let site = read(SITE).unwrap();
        assert_eq!(site.stage, Some(Stage::Image));
        assert_eq!(site.overrides[0].value.value.as_integer(), Some(5));
        assert_eq!(site.waivers[0].value.waiver.until, "2031-12-31");
        assert_eq!(site.slots.get(&"1b:00.0".parse().unwrap()).map(String::as_str), Some("slot 3"));
        assert!(read("format = 1\n").is_ok());
    }

    #[test]
    fn everything_that_is_wrong_with_a_site_is_said_at_once() {
        let text = SITE
            .replace("class = \"hgx-h100-8\"", "class = \"hgx-h100\"")
            .replace("stage = \"image\"", "stage = \"images\"")
            .replace("gpu-count = 4", "gpu-count = 0")
            .replace("parameter = \"samples\"", "parameter = \"sample\"")
            .replace("until = 2031-12-31", "until = \"31.12.2031\"")
            .replace("\"/etc/nodegate/collector.token\"", "\"hunter2\"")
            .replace("https://", "ftp://")
            .replace("00000000:1B:00.0", "slot three");
        let problems = read(&text).unwrap_err().to_string();
        for text in [
            "site.toml:2: there is no class `hgx-h100`; did you mean `hgx-h100-8`?",
            "site.toml:3: `stage` cannot be `images`; did you mean `image`?",
            "site.toml:5: `gpu-count` in [expect] must be a whole number from 1, not 0",
            "step `power` has no parameter `sample`; did you mean `samples`?",
            "not `31.12.2031`",
            "never a secret itself",
            "begins with https://",
            "`slot three` is not a PCI address",
        ] {
            assert!(problems.contains(text), "{text} is not in:\n{problems}");
        }
        assert!(!problems.contains("hunter2"), "a misplaced secret must not be shown");
    }

    #[test]
    fn a_collector_is_read_with_all_that_leads_to_it() {
        let more = r#"credential = "/etc/nodegate/collector.token"
ca = "/etc/nodegate/fleet-ca.pem"
client-certificate = "/etc/nodegate/client.pem"
client-key = "/etc/nodegate/client.key"
proxy = "http://proxy.example:3128"
enroll = "first-use"
"#;
        let text = SITE.replace("credential = \"/etc/nodegate/collector.token\"\n", more);
        let collector = read(&text).unwrap().collector;
        assert!(collector.first_use && collector.ca.is_some() && collector.client_key.is_some());
        assert_eq!(collector.proxy.unwrap().to_string(), "http://proxy.example:3128");
        // A delivery reads this part alone, whatever steps the rest is about.
        let other = text.replace("step = \"power\"", "step = \"step-of-another-suite\"");
        let document = Document::new("site.toml", other.as_bytes()).unwrap();
        assert!(load_collector(&document).unwrap().first_use);
        for (from, to, says) in [
            ("client-key = \"/etc/nodegate/client.key\"\n", "", "write both or neither"),
            ("http://proxy", "http://me:hunter2@proxy", "set HTTPS_PROXY"),
            ("http://proxy", "socks5://proxy", "plain HTTP"),
            ("\"first-use\"", "\"first\"", "did you mean `first-use`?"),
            ("\"/etc/nodegate/fleet-ca.pem\"", "\"hunter2\"", "absolute path"),
        ] {
            let problems = read(&text.replace(from, to)).unwrap_err().to_string();
            assert!(problems.contains(says) && !problems.contains("hunter2"), "{says}: {problems}");
        }
    }

    #[test]
    fn what_says_which_gpus_there_are_cannot_be_waived() {
        let text = SITE.replace("step = \"power\"\nfinding", "step = \"driver\"\nfinding");
        assert!(read(&text).unwrap_err().to_string().contains("findings of step `driver` cannot be waived"));
    }

    #[test]
    fn a_waiver_ends_on_a_real_day() {
        for until in ["2031-02-30", "2031-12-31T10:00:00", "\"soon\"", "7"] {
            let text = SITE.replace("until = 2031-12-31", &format!("until = {until}"));
            assert!(read(&text).is_err(), "{until}");
        }
        assert!(read(&SITE.replace("until = 2031-12-31", "until = \"2031-12-31\"")).is_ok());
    }
}
