//! The one line that ends every run on standard error, for logs and tickets.

use crate::decision::Require;
use crate::ident::Digest;
use crate::outcome::Status;
use crate::predicate::Details;

/// `nodegate: rejected stage=rack level=quick class=… failed=a,b run=… record=sha256:… delivered=no`;
/// `delivered` is none where there was no collector.
pub fn line(details: &Details, record: Option<Digest>, delivered: Option<bool>) -> String {
    let mut line = format!(
        "nodegate: {} stage={} level={} class={}",
        details.decision, details.stage, details.level, details.plan.class.id
    );
    for (word, statuses) in [
        ("failed", &[Status::Failed][..]),
        ("undecided", &[Status::Undecided, Status::Skipped]),
        ("waived", &[Status::Waived]),
    ] {
        let required = details.steps.iter().filter(|step| step.require == Require::Must);
        let names: Vec<&str> =
            required.filter(|step| statuses.contains(&step.outcome.status())).map(|step| step.id.as_str()).collect();
        if !names.is_empty() {
            line.push_str(&format!(" {word}={}", names.join(",")));
        }
    }
    for (marked, word) in
        [(details.simulated, " simulated"), (details.overridden, " overridden"), (details.partial, " partial")]
    {
        if marked {
            line.push_str(word);
        }
    }
    line.push_str(&format!(" run={}", details.run_id));
    if let Some(record) = record {
        line.push_str(&format!(" record={record}"));
    }
    if let Some(delivered) = delivered {
        line.push_str(if delivered { " delivered=yes" } else { " delivered=no" });
    }
    line
}
