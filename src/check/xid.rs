//! Stand-in for the Xid policy, to be replaced by the one that reads `checks/policy/xid.toml`.

use crate::outcome::Action;

/// What an Xid does to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    Reject,
    Warn,
    Ignore,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XidVerdict {
    pub consequence: Consequence,
    pub action: Action,
    pub reason: String,
}

#[derive(Debug)]
pub struct XidPolicy(Vec<(u32, XidVerdict)>);

impl XidPolicy {
    pub fn builtin() -> XidPolicy {
        let verdict = |consequence, action, reason: &str| XidVerdict { consequence, action, reason: reason.to_owned() };
        XidPolicy(vec![
            (13, verdict(Consequence::Warn, Action::Monitor, "graphics engine exception, usually the application's")),
            (43, verdict(Consequence::Ignore, Action::None, "the application was stopped")),
            (48, verdict(Consequence::Reject, Action::ResetGpu, "double-bit ECC error")),
            (79, verdict(Consequence::Reject, Action::Reseat, "GPU has fallen off the bus")),
        ])
    }

    pub fn verdict(&self, code: u32) -> Option<&XidVerdict> {
        self.0.iter().find(|(known, _)| *known == code).map(|(_, verdict)| verdict)
    }
}
