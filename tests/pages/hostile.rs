//! Every text that a record or a row can hold, hostile: what an attacker's host would call itself.

use nodegate::predicate::Details;
use serde_json::Value;

/// Markup, ends of attributes and elements, a bell, a zero, a text that runs backwards.
pub const TEXT: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}</style></title>\0\u{7}\u{1b}[31m\u{202e}&amp;`${x}`";

/// The same and longer than any page may show.
pub fn long() -> String {
    format!("{TEXT}{}", "A".repeat(10_000))
}

/// These details with every text replaced that a record can have: what does not read back then, such
/// as an outcome's name, is no text.
pub fn details(details: &Details) -> Details {
    let mut value = serde_json::to_value(details).unwrap();
    let mut texts = Vec::new();
    pointers(&value, String::new(), &mut texts);
    let mut replaced = 0;
    for pointer in texts {
        let place = value.pointer_mut(&pointer).unwrap();
        let before = std::mem::replace(place, Value::String(long()));
        if serde_json::from_value::<Details>(value.clone()).is_ok() {
            replaced += 1;
        } else {
            *value.pointer_mut(&pointer).unwrap() = before;
        }
    }
    assert!(replaced > 100, "only {replaced} texts");
    serde_json::from_value(value).unwrap()
}

/// Every string, and every place of a list once: a list of eight GPUs proves no more than one of two.
fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .take(if at.ends_with("measurements") { 2 } else { 12 })
            .for_each(|(index, item)| pointers(item, format!("{at}/{index}"), found)),
        Value::Object(members) => {
            members.iter().for_each(|(name, item)| pointers(item, format!("{at}/{}", name.replace('/', "~1")), found));
        }
        _ => {}
    }
}
