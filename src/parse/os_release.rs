//! `os-release`: shell-like assignments with the quoting rules of os-release(5).

use std::collections::BTreeMap;

use crate::ident::printable;

/// The assignments by name; a later one wins, a line that is none is left out.
pub fn os_release(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(assignment).collect()
}

fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let (name, value) = line.split_once('=')?;
    let valid = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    if name.is_empty() || !name.bytes().all(valid) {
        return None;
    }
    Some((name.to_owned(), printable(&unquote(value)?, 200)))
}

/// Single quotes keep everything; double quotes and bare words take a backslash before
/// `$ " \ backtick`; a quote that is never closed makes the line void.
fn unquote(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        return rest.strip_suffix('\'').filter(|inner| !inner.contains('\'')).map(str::to_owned);
    }
    let quoted = value.strip_prefix('"');
    let mut plain = String::new();
    let mut characters = quoted.unwrap_or(value).chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => plain.push(characters.next()?),
            '"' if quoted.is_some() => return characters.next().is_none().then_some(plain),
            '"' | '\'' if quoted.is_none() => return None,
            c => plain.push(c),
        }
    }
    quoted.is_none().then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_follows_the_manual() {
        let read = os_release(
            "PRETTY_NAME=\"Ubuntu 22.04.5 LTS\"\nID=ubuntu\nVERSION_ID='22.04'\n# comment=1\n\
             VENDOR_NAME=\"a \\\"b\\\" \\$c\"\nIMAGE_ID=gpu\\ image\n",
        );
        assert_eq!(read["PRETTY_NAME"], "Ubuntu 22.04.5 LTS");
        assert_eq!(read["ID"], "ubuntu");
        assert_eq!(read["VERSION_ID"], "22.04");
        assert_eq!(read["VENDOR_NAME"], "a \"b\" $c");
        assert_eq!(read["IMAGE_ID"], "gpu image");
        assert_eq!(read.len(), 5);
    }

    #[test]
    fn a_quote_that_is_never_closed_gives_nothing() {
        for line in ["ID=\"ubuntu", "ID='ubuntu", "ID=\"a\"b", "ID=a\"b\"", "ID='a'b'", "ID=\"a\\", "id=x", "=x", "ID"]
        {
            assert_eq!(os_release(line), BTreeMap::new(), "{line}");
        }
    }

    #[test]
    fn control_characters_in_a_name_become_harmless() {
        assert_eq!(os_release("NAME=\"a\x1b[2Jb\"")["NAME"], "a\\u{1b}[2Jb");
    }
}
