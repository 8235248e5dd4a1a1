//! The fleet as a table for spreadsheets (RFC 4180).

use crate::collector::model::Node;
use crate::ident::printable;
use crate::record::standing::Flag;

const HEAD: &str = "hostname,host,standing,decision,stage,level,class,tier,key_state,flags,policy,finished_at,\
received_at,gpus,runs,rejections,recent_rejections,problem,slot,action,problems,run_id,record,keyid\r\n";

/// Characters of a cell.
const LONGEST: usize = 500;

pub fn csv(nodes: &[Node]) -> String {
    let mut text = HEAD.to_owned();
    for node in nodes {
        let cells: Vec<String> = cells(node).iter().map(|cell| quoted(cell)).collect();
        text.push_str(&cells.join(","));
        text.push_str("\r\n");
    }
    text
}

fn cells(node: &Node) -> Vec<String> {
    let record = &node.record;
    let first = node.problems.first();
    let flags: Vec<&str> = record.flags.iter().map(|flag| Flag::as_str(*flag)).collect();
    vec![
        record.hostname.clone(),
        record.host.to_string(),
        node.standing.as_str().to_owned(),
        record.decision.to_string(),
        record.stage.to_string(),
        record.level.to_string(),
        record.class.clone(),
        record.tier.to_string(),
        record.key_state.as_str().to_owned(),
        flags.join(" "),
        record.policy.clone().unwrap_or_default(),
        record.finished_at.to_string(),
        record.received_at.to_string(),
        node.gpus.clone(),
        node.runs.to_string(),
        node.rejections.to_string(),
        node.recent_rejections.to_string(),
        first.map(|problem| problem.title.clone()).unwrap_or_default(),
        first.and_then(|problem| problem.slot.clone()).unwrap_or_default(),
        first.map(|problem| problem.action.clone()).unwrap_or_default(),
        node.problems.len().to_string(),
        record.run_id.clone(),
        record.payload.to_string(),
        record.keyid.clone(),
    ]
}

/// Always quoted. What a spreadsheet would take for a formula has an apostrophe before it.
fn quoted(cell: &str) -> String {
    let cell = printable(cell, LONGEST);
    let formula = cell.starts_with(['=', '+', '-', '@', '|', '%']);
    format!("\"{}{}\"", if formula { "'" } else { "" }, cell.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_neither_a_formula_nor_two_cells() {
        assert_eq!(quoted("=HYPERLINK(\"http://x\",\"y\")"), "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"");
        assert_eq!(quoted("a,b\r\nc"), "\"a,b\\u{d}\\u{a}c\"");
        assert_eq!(quoted("@SUM(A1)"), "\"'@SUM(A1)\"");
    }
}
