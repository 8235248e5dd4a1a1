//! What a driver message of a given number means: `checks/policy/xid.toml`, parsed.
//!
//! The table is data, so that a number's weight can be changed and read without code. A
//! number that is not in it is not harmless: the judge that meets one during a run cannot
//! decide ([`XidPolicy::xid`] and [`XidPolicy::sxid`] give `None`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::ident::Digest;
use crate::outcome::Action;

/// The newest `format` of a policy file that this agent reads.
pub const FORMAT: u32 = 1;

/// `checks/policy/xid.toml`, as built in.
pub const BUILTIN: &str = include_str!("../../checks/policy/xid.toml");

/// What the message does to the host's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The machine is wrong.
    Reject,
    /// Worth knowing.
    Warn,
    /// No bearing on health.
    Ignore,
    /// Follows from another message, or from NVML's recovery action, which is judged instead.
    Consequence,
}

/// One number with its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Entry {
    pub code: u32,
    /// NVIDIA's mnemonic, or a short name of ours where there is none.
    pub name: String,
    pub verdict: Verdict,
    pub action: Action,
    /// Whether a warning counts as a rejection when our own workload alone can have raised it.
    #[serde(default)]
    pub ours: bool,
    /// One sentence for people.
    pub reason: String,
}

/// Why a text is not a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("the Xid policy does not parse")]
    Syntax(#[from] toml::de::Error),
    #[error("the Xid policy has format {found}, newer than {FORMAT}, the newest that this nodegate reads")]
    Newer { found: u32 },
    #[error("the Xid policy lists {kind} {code} twice")]
    Twice { kind: &'static str, code: u32 },
}

/// The meanings by number: GPU messages (Xid) and NVSwitch messages (SXid).
#[derive(Clone, Debug)]
pub struct XidPolicy {
    pub revision: u32,
    pub digest: Digest,
    xid: BTreeMap<u32, Entry>,
    sxid: BTreeMap<u32, Entry>,
}

impl XidPolicy {
    /// The policy that is built in.
    pub fn builtin() -> &'static XidPolicy {
        static POLICY: LazyLock<XidPolicy> = LazyLock::new(|| {
            XidPolicy::parse(BUILTIN).expect("the embedded policy is parsed by a unit test of this file")
        });
        &POLICY
    }

    /// Reads a policy.
    ///
    /// # Errors
    ///
    /// If the text is not TOML of this shape, has a newer `format`, or lists a number twice.
    pub fn parse(text: &str) -> Result<XidPolicy, PolicyError> {
        let Format { format } = toml::from_str(text)?;
        if format > FORMAT {
            return Err(PolicyError::Newer { found: format });
        }
        let raw: Raw = toml::from_str(text)?;
        Ok(XidPolicy {
            revision: raw.revision,
            digest: Digest::of(text.as_bytes()),
            xid: by_code("Xid", raw.xid)?,
            sxid: by_code("SXid", raw.sxid)?,
        })
    }

    /// The meaning of a GPU's message; `None` for a number that nobody graded.
    pub fn xid(&self, code: u32) -> Option<&Entry> {
        self.xid.get(&code)
    }

    /// The meaning of an NVSwitch's message; `None` for a number that nobody graded.
    pub fn sxid(&self, code: u32) -> Option<&Entry> {
        self.sxid.get(&code)
    }

    /// How many numbers are graded, Xid and SXid.
    pub fn len(&self) -> (usize, usize) {
        (self.xid.len(), self.sxid.len())
    }

    /// Whether nothing is graded at all.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }
}

/// The first look at a file, which must not fail on what a newer format adds.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[expect(dead_code, reason = "read before, by `Format`; named here so that it is not refused as unknown")]
    format: u32,
    revision: u32,
    xid: Vec<Entry>,
    sxid: Vec<Entry>,
}

fn by_code(kind: &'static str, entries: Vec<Entry>) -> Result<BTreeMap<u32, Entry>, PolicyError> {
    let mut map = BTreeMap::new();
    for entry in entries {
        let code = entry.code;
        if map.insert(code, entry).is_some() {
            return Err(PolicyError::Twice { kind, code });
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_policy_grades_every_published_number() {
        let policy = XidPolicy::parse(BUILTIN).unwrap();
        assert_eq!(policy.len(), (173, 92));
        assert!((1..=173).all(|code| policy.xid(code).is_some()));
        assert!(policy.xid(0).is_none() && policy.xid(174).is_none() && policy.sxid(79).is_none());
    }

    #[test]
    fn numbers_that_the_field_knows_have_their_weight() {
        let policy = XidPolicy::builtin();
        let verdict = |code| policy.xid(code).map(|entry| (entry.verdict, entry.action));
        assert_eq!(verdict(79), Some((Verdict::Reject, Action::Reseat)));
        assert_eq!(verdict(48), Some((Verdict::Reject, Action::ResetGpu)));
        assert_eq!(verdict(64), Some((Verdict::Reject, Action::Replace)));
        assert_eq!(verdict(13), Some((Verdict::Warn, Action::Investigate)));
        assert_eq!(verdict(45), Some((Verdict::Consequence, Action::None)));
        assert_eq!(verdict(106), Some((Verdict::Ignore, Action::None)));
        assert!(policy.xid(13).is_some_and(|entry| entry.ours));
        assert_eq!(policy.sxid(22003).map(|entry| entry.action), Some(Action::Reboot));
    }

    #[test]
    fn a_rejecting_or_warning_entry_says_what_to_do_and_an_ignored_one_does_not() {
        let policy = XidPolicy::builtin();
        for entry in policy.xid.values().chain(policy.sxid.values()) {
            let idle = matches!(entry.verdict, Verdict::Ignore | Verdict::Consequence);
            assert_eq!(entry.action == Action::None, idle, "{entry:?}");
            assert!(entry.reason.ends_with('.') && !entry.name.is_empty(), "{entry:?}");
            assert!(!entry.ours || entry.verdict == Verdict::Warn, "{entry:?}");
        }
    }

    #[test]
    fn a_newer_format_and_a_number_given_twice_are_refused_by_name() {
        let error = XidPolicy::parse("format = 2\nnew = true").unwrap_err();
        assert!(error.to_string().contains('2') && error.to_string().contains('1'), "{error}");
        let entry = "[[xid]]\ncode = 1\nname = \"A\"\nverdict = \"warn\"\naction = \"monitor\"\nreason = \"B.\"\n";
        let error = XidPolicy::parse(&format!("format = 1\nrevision = 1\nsxid = []\n{entry}{entry}")).unwrap_err();
        assert!(error.to_string().contains("Xid 1 twice"), "{error}");
    }
}
