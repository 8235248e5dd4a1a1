//! Standings, flags and tiers as words and shapes.

use crate::collector::model::{KeyState, Node, Record, Standing};
use crate::record::standing::{Flag, Tier};
use crate::report::html::{Against, Shape, Verdict};

/// What is thought of a node. The word is its newest record's, with everything that stands against it.
pub fn of_node(node: &Node) -> Verdict {
    verdict(&node.record, node.standing)
}

/// What is thought of a record that has this standing.
pub fn verdict(record: &Record, standing: Standing) -> Verdict {
    let against = against(record);
    match standing {
        // A policy may let a run count that was told where to read; nothing else that is flagged counts.
        Standing::Accepted if record.flags.iter().all(|flag| *flag == Flag::Overridden) && counts(record) => {
            Verdict { against, ..Verdict::new(record.decision, Vec::new()) }
        }
        Standing::Expired => Verdict::expired(against),
        Standing::Accepted | Standing::Uncounted => Verdict::uncounted(against),
        Standing::Rejected | Standing::Undecided => Verdict::new(record.decision, against),
    }
}

/// What key and policy say, apart from the flags.
fn counts(record: &Record) -> bool {
    record.policy.is_none()
        && record.tier != Tier::Simulated
        && matches!(record.key_state, KeyState::Approved | KeyState::Retired)
}

/// Everything that is to be known of a record besides its decision, each once.
fn against(record: &Record) -> Vec<Against> {
    let mut list: Vec<Against> = Vec::new();
    for flag in &record.flags {
        let meaning = match (flag, &record.policy) {
            (Flag::Policy, Some(policy)) => policy.as_str(),
            _ => flag.meaning(),
        };
        list.push(Against::new(flag.as_str(), meaning));
    }
    let flagged = |flag: Flag| record.flags.contains(&flag);
    if record.key_state == KeyState::Pending && !flagged(Flag::PendingKey) {
        list.push(Against::new(Flag::PendingKey.as_str(), Flag::PendingKey.meaning()));
    }
    if record.key_state == KeyState::Revoked && !flagged(Flag::RevokedKey) {
        list.push(Against::new(Flag::RevokedKey.as_str(), Flag::RevokedKey.meaning()));
    }
    if record.tier == Tier::Simulated && !flagged(Flag::Simulated) {
        list.push(Against::new(Flag::Simulated.as_str(), Flag::Simulated.meaning()));
    }
    if let Some(policy) = record.policy.as_ref().filter(|_| !flagged(Flag::Policy)) {
        list.push(Against::new(Flag::Policy.as_str(), policy));
    }
    if record.waived {
        list.push(Against::new("waived", "findings were waived by the site"));
    }
    list
}

pub fn standing_shape(standing: Standing) -> Shape {
    match standing {
        Standing::Accepted => Shape::Good,
        Standing::Rejected => Shape::Bad,
        Standing::Undecided => Shape::Doubt,
        Standing::Expired => Shape::Expired,
        Standing::Uncounted => Shape::Void,
    }
}

/// As a filter and a count name it.
pub fn standing_words(standing: Standing) -> &'static str {
    match standing {
        Standing::Uncounted => "does not count",
        standing => standing.as_str(),
    }
}

/// What a tier proves, for people.
pub fn tier_meaning(tier: Tier) -> &'static str {
    match tier {
        Tier::Simulated => "throw-away key of a recording",
        Tier::FirstUse => "trusted on first use, approved by an operator",
        Tier::Token => "showed a one-time token made for this serial number",
        Tier::SshHostKey => "vouched for by the host's known SSH key",
        Tier::X509 => "vouched for by a certificate of the fleet",
        Tier::Tpm => "held in the host's TPM",
    }
}

/// Whether a tier rests on what the host said of itself.
pub fn is_weak(tier: Tier) -> bool {
    tier <= Tier::FirstUse
}
