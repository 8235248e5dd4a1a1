//! Keys on the screen, and as JSON.

use std::io::{self, Write};

use crate::collector::model::{Key, KeyState};
use crate::host::clock;
use crate::ident::printable;
use crate::report::columns::align;

/// One line a key, pending ones first, newest first within each.
pub(super) fn list(keys: &[Key], json: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut keys: Vec<&Key> = keys.iter().collect();
    keys.sort_by_key(|key| (key.state != KeyState::Pending, std::cmp::Reverse(key.enrolled_at)));
    if json {
        return writeln!(out, "{}", serde_json::to_string_pretty(&keys)?);
    }
    if keys.is_empty() {
        return writeln!(out, "no keys");
    }
    let head = ["STATE", "TIER", "HOST", "SERIAL", "AGE", "KEY", "NOTE"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    rows.extend(keys.into_iter().map(row));
    align(&rows).into_iter().try_for_each(|line| writeln!(out, "{line}"))
}

pub(super) fn one(key: &Key, json: bool, out: &mut dyn Write) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", serde_json::to_string_pretty(key)?);
    }
    let or_none = |text: &Option<String>| text.as_ref().map_or_else(|| "-".to_owned(), |text| printable(text, 200));
    let rows = [
        ("key", key.keyid.clone()),
        ("state", key.state.as_str().to_owned()),
        ("tier", key.tier.to_string()),
        ("host", printable(&key.hostname, 253)),
        ("host.json", key.host.to_string()),
        ("serial", or_none(&key.serial)),
        ("enrolled", format!("{:.0}", key.enrolled_at)),
        ("decided", key.decided_at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"))),
        ("by", or_none(&key.decided_by)),
        ("reason", or_none(&key.reason)),
        ("replaces", or_none(&key.replaces)),
        ("replaced by", or_none(&key.replaced_by)),
        ("records", key.seq.to_string()),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    align(&rows).into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
    write!(out, "\n{}", key.public_key)
}

fn row(key: &Key) -> Vec<String> {
    vec![
        key.state.as_str().to_owned(),
        key.tier.to_string(),
        printable(&key.hostname, 40),
        key.serial.as_ref().map_or_else(|| "-".to_owned(), |serial| printable(serial, 30)),
        age(clock::now().duration_since(key.enrolled_at)),
        key.keyid.clone(),
        key.reason.as_ref().map_or_else(String::new, |reason| printable(reason, 100)),
    ]
}

fn age(age: jiff::SignedDuration) -> String {
    let minutes = age.as_mins().max(0);
    match minutes {
        0..60 => format!("{minutes} min"),
        60..2880 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1440),
    }
}
