//! Stand-in for the Xid policy, to be replaced by the one that reads `checks/policy/xid.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::outcome::Action;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Reject,
    Warn,
    Ignore,
    Consequence,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub code: u32,
    pub name: String,
    pub verdict: Verdict,
    pub action: Action,
    pub ours: bool,
    pub reason: String,
}

#[derive(Clone, Debug)]
pub struct XidPolicy {
    xid: BTreeMap<u32, Entry>,
    sxid: BTreeMap<u32, Entry>,
}

impl XidPolicy {
    pub fn builtin() -> &'static XidPolicy {
        static POLICY: LazyLock<XidPolicy> = LazyLock::new(|| {
            let entry = |code, verdict, action, ours, reason: &str| {
                (code, Entry { code, name: String::new(), verdict, action, ours, reason: reason.to_owned() })
            };
            XidPolicy {
                xid: BTreeMap::from([
                    entry(13, Verdict::Warn, Action::Investigate, true, "A kernel faulted."),
                    entry(45, Verdict::Consequence, Action::None, false, "Follows."),
                    entry(48, Verdict::Reject, Action::ResetGpu, false, "Double-bit ECC error."),
                    entry(79, Verdict::Reject, Action::Reseat, false, "The GPU has fallen off the bus."),
                    entry(106, Verdict::Ignore, Action::None, false, "Harmless."),
                ]),
                sxid: BTreeMap::from([entry(22003, Verdict::Reject, Action::Reboot, false, "Switch fault.")]),
            }
        });
        &POLICY
    }

    pub fn xid(&self, code: u32) -> Option<&Entry> {
        self.xid.get(&code)
    }

    pub fn sxid(&self, code: u32) -> Option<&Entry> {
        self.sxid.get(&code)
    }
}
