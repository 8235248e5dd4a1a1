//! One table of a file, read key by key with the line of each value.
//!
//! A [`Section`] never stops at a mistake: it writes the mistake down in the ledger that all
//! sections of a file share, gives `None`, and reading goes on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use toml::de::{DeTable, DeValue};

use super::document::{Document, FORMAT, Problem, Problems, nearest};
use crate::ident::printable;

/// A value with the line where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    pub value: T,
    pub line: usize,
}

/// One table of a file.
pub struct Section<'d> {
    table: &'d DeTable<'d>,
    ledger: &'d Ledger<'d>,
    /// How messages call it: `[limits.ecc]`, `step 2`, `the file`.
    name: String,
    /// Where it begins, from 1.
    pub line: usize,
}

/// What has been found wrong in a file so far.
struct Ledger<'d> {
    document: &'d Document,
    problems: RefCell<Vec<Problem>>,
}

impl Ledger<'_> {
    fn note(&self, line: usize, text: String) {
        let place = self.document.name.clone();
        self.problems.borrow_mut().push(Problem { place, line: Some(line), text });
    }

    fn line(&self, span: Range<usize>) -> usize {
        self.document.line(span.start)
    }

    fn into_problems(self) -> Problems {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.line);
        problems.dedup();
        Problems(problems)
    }
}

/// Reads a file whose top level may have these keys.
///
/// # Errors
///
/// Every problem that the syntax, the `format`, an unknown key or `read` itself turned up.
pub fn read<T>(
    document: &Document,
    keys: &[&str],
    read: impl FnOnce(&Section<'_>) -> Option<T>,
) -> Result<T, Problems> {
    let (table, errors) = DeTable::parse_recoverable(&document.text);
    let ledger = Ledger { document, problems: RefCell::default() };
    for error in &errors {
        ledger.note(error.span().map_or(1, |span| ledger.line(span)), printable(error.message(), 300));
    }
    if !errors.is_empty() {
        return Err(ledger.into_problems());
    }
    let value = {
        let section = Section { table: table.get_ref(), ledger: &ledger, name: "the file".to_owned(), line: 1 };
        if section.is_readable_format() {
            section.only(keys);
            read(&section)
        } else {
            None
        }
    };
    let problems = ledger.into_problems();
    match value {
        Some(value) => problems.or(value),
        None if problems.0.is_empty() => Err(Problems::one(&document.name, "cannot be read as such a file")),
        None => Err(problems),
    }
}

impl<'d> Section<'d> {
    /// Writes a problem down.
    pub fn note(&self, line: usize, text: impl Into<String>) {
        self.ledger.note(line, text.into());
    }

    /// Refuses every key that is not one of these.
    pub fn only(&self, keys: &[&str]) {
        for key in self.table.keys() {
            let found = printable(key.get_ref(), 60);
            if !keys.contains(&key.get_ref().as_ref()) {
                let hint = nearest(&found, keys.iter().copied());
                self.note(self.ledger.line(key.span()), format!("unknown key `{found}` in {}{hint}", self.name));
            }
        }
    }

    /// A text of the type `T`, if the key is there. A wrong one is written down.
    pub fn get<T: FromStr<Err: Display>>(&self, key: &str) -> Option<At<T>> {
        let (value, line) = self.value(key)?;
        let Some(text) = value.as_str() else {
            self.wrong_type(line, key, "a text in quotes", value);
            return None;
        };
        match text.parse() {
            Ok(value) => Some(At { value, line }),
            Err(error) => {
                self.note(line, format!("`{key}`: {}", printable(&error.to_string(), 300)));
                None
            }
        }
    }

    /// A text of the type `T`. A missing or wrong one is written down.
    pub fn need<T: FromStr<Err: Display>>(&self, key: &str) -> Option<At<T>> {
        self.require(key);
        self.get(key)
    }

    /// A text with something in it.
    pub fn need_words(&self, key: &str) -> Option<At<String>> {
        let text: At<String> = self.need(key)?;
        if text.value.trim().is_empty() {
            self.note(text.line, format!("`{key}` is empty in {}", self.name));
            return None;
        }
        Some(text)
    }

    /// A whole number of at least `minimum`.
    pub fn number(&self, key: &str, minimum: i64) -> Option<At<u32>> {
        let (value, line) = self.value(key)?;
        let number = whole(value).filter(|number| *number >= minimum).and_then(|number| u32::try_from(number).ok());
        if number.is_none() {
            self.wrong_type(line, key, &format!("a whole number from {minimum}"), value);
        }
        number.map(|value| At { value, line })
    }

    /// One of some words.
    pub fn choice<T: Copy + Display>(&self, key: &str, words: &[T]) -> Option<At<T>> {
        let text: At<String> = self.get(key)?;
        let names: Vec<String> = words.iter().map(T::to_string).collect();
        match names.iter().position(|name| *name == text.value) {
            Some(index) => words.get(index).map(|word| At { value: *word, line: text.line }),
            None => {
                let found = printable(&text.value, 60);
                let hint = nearest(&found, names.iter().map(String::as_str));
                self.note(text.line, format!("`{key}` cannot be `{found}`{hint}"));
                None
            }
        }
    }

    /// A list of texts of the type `T`; an empty list where the key is missing.
    pub fn list<T: FromStr<Err: Display>>(&self, key: &str) -> Vec<At<T>> {
        let Some((value, line)) = self.value(key) else { return Vec::new() };
        let Some(array) = value.as_array() else {
            self.wrong_type(line, key, "a list of texts", value);
            return Vec::new();
        };
        let mut list = Vec::new();
        for item in array.iter() {
            let line = self.ledger.line(item.span());
            match item.get_ref().as_str().map(T::from_str) {
                Some(Ok(value)) => list.push(At { value, line }),
                Some(Err(error)) => self.note(line, format!("`{key}`: {}", printable(&error.to_string(), 300))),
                None => self.wrong_type(line, key, "a list of texts", item.get_ref()),
            }
        }
        list
    }

    /// The table of this name, if it is there.
    pub fn section(&self, key: &str) -> Option<Section<'d>> {
        let (value, line) = self.value(key)?;
        match value.as_table() {
            Some(table) => Some(self.below(table, format!("[{key}]"), line)),
            None => {
                self.wrong_type(line, key, "a table", value);
                None
            }
        }
    }

    /// The tables of an array `[[key]]`, called `key 1`, `key 2` and so on.
    pub fn sections(&self, key: &str) -> Vec<Section<'d>> {
        let Some((value, line)) = self.value(key) else { return Vec::new() };
        let tables = value.as_array().map(|array| {
            let table = |item: &'d toml::Spanned<DeValue<'d>>| {
                item.get_ref().as_table().map(|table| (table, self.ledger.line(item.span())))
            };
            array.iter().map(table).collect::<Option<Vec<_>>>()
        });
        let Some(Some(tables)) = tables else {
            self.wrong_type(line, key, &format!("written as [[{key}]]"), value);
            return Vec::new();
        };
        let below = |(index, (table, line))| self.below(table, format!("{key} {}", index + 1), line);
        tables.into_iter().enumerate().map(below).collect()
    }

    /// The tables below this one, by name: `[limits.ecc]` of `limits`.
    pub fn tables(&self) -> BTreeMap<String, Section<'d>> {
        let outer = self.name.trim_matches(['[', ']']);
        let mut tables = BTreeMap::new();
        for (key, value) in self.table.iter() {
            let name = printable(key.get_ref(), 60);
            match value.get_ref().as_table() {
                Some(table) => {
                    let section = self.below(table, format!("[{outer}.{name}]"), self.ledger.line(key.span()));
                    tables.insert(name, section);
                }
                None => self.wrong_type(self.ledger.line(key.span()), &name, "a table", value.get_ref()),
            }
        }
        tables
    }

    /// All values of this table as plain TOML, in the order of the file.
    pub fn values(&self) -> Vec<(String, At<toml::Value>)> {
        let mut values: Vec<_> = self.table.iter().collect();
        values.sort_by_key(|(key, _)| key.span().start);
        let plain = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
            let (key, line): (&std::borrow::Cow<'_, str>, _) = (key.get_ref(), self.ledger.line(key.span()));
            Some((printable(key, 60), At { value: self.plain(value)?, line }))
        };
        values.into_iter().filter_map(plain).collect()
    }

    /// The value of a key as plain TOML.
    pub fn any(&self, key: &str) -> Option<At<toml::Value>> {
        let value = self.table.get(key)?;
        Some(At { value: self.plain(value)?, line: self.ledger.line(value.span()) })
    }

    /// Writes it down if the key is missing.
    pub fn require(&self, key: &str) {
        if !self.table.contains_key(key) {
            self.note(self.line, format!("`{key}` is missing in {}", self.name));
        }
    }

    fn is_readable_format(&self) -> bool {
        let Some((value, line)) = self.value("format") else {
            self.note(1, format!("`format` is missing; write `format = {FORMAT}` first"));
            return false;
        };
        match whole(value) {
            Some(FORMAT) => true,
            Some(newer) if newer > FORMAT => {
                let ours = env!("CARGO_PKG_VERSION");
                self.note(
                    line,
                    format!(
                        "format {newer} is newer than {FORMAT}, the newest that nodegate {ours} reads; \
                         update nodegate, or write the file in format {FORMAT}"
                    ),
                );
                false
            }
            _ => {
                self.wrong_type(line, "format", &format!("{FORMAT}"), value);
                false
            }
        }
    }

    fn value(&self, key: &str) -> Option<(&'d DeValue<'d>, usize)> {
        let value = self.table.get(key)?;
        Some((value.get_ref(), self.ledger.line(value.span())))
    }

    fn below(&self, table: &'d DeTable<'d>, name: String, line: usize) -> Section<'d> {
        Section { table, ledger: self.ledger, name, line }
    }

    fn wrong_type(&self, line: usize, key: &str, expected: &str, found: &DeValue<'_>) {
        let found = match found {
            DeValue::Integer(number) => printable(&number.to_string(), 30),
            DeValue::Float(number) => printable(&number.to_string(), 30),
            other => other.type_str().to_owned(),
        };
        self.note(line, format!("`{key}` in {} must be {expected}, not {found}", self.name));
    }

    fn plain(&self, value: &toml::Spanned<DeValue<'_>>) -> Option<toml::Value> {
        let outside = |what: &str| {
            self.note(self.ledger.line(value.span()), format!("{what} is out of range"));
            None
        };
        Some(match value.get_ref() {
            DeValue::String(text) => toml::Value::String(text.to_string()),
            DeValue::Integer(number) => match whole(value.get_ref()) {
                Some(number) => toml::Value::Integer(number),
                None => return outside(&printable(&number.to_string(), 30)),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => toml::Value::Float(number),
                Err(_) => return outside(&printable(&number.to_string(), 30)),
            },
            DeValue::Boolean(value) => toml::Value::Boolean(*value),
            DeValue::Datetime(time) => toml::Value::Datetime(*time),
            DeValue::Array(array) => {
                toml::Value::Array(array.iter().map(|item| self.plain(item)).collect::<Option<_>>()?)
            }
            DeValue::Table(table) => {
                let entry = |(key, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| {
                    Some((key.get_ref().to_string(), self.plain(value)?))
                };
                toml::Value::Table(table.iter().map(entry).collect::<Option<_>>()?)
            }
        })
    }
}

fn whole(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Watts;

    fn problems_of(text: &str, read_it: impl FnOnce(&Section<'_>)) -> String {
        let document = Document::new("f.toml", text.as_bytes()).unwrap();
        let result = read(&document, &["format", "a", "b", "t"], |section| {
            read_it(section);
            Some(())
        });
        result.err().map(|problems| problems.to_string()).unwrap_or_default()
    }

    #[test]
    fn all_problems_come_together_and_in_the_order_of_the_lines() {
        let text = "format = 1\na = 7\nb = \"5 F\"\nc = 1\n";
        let problems = problems_of(text, |section| {
            section.need::<Watts>("b");
            section.need::<String>("a");
            section.need::<String>("t");
        });
        let lines: Vec<&str> = problems.lines().map(|line| line.split(": ").next().unwrap_or_default()).collect();
        assert_eq!(lines, ["f.toml:1", "f.toml:2", "f.toml:3", "f.toml:4"], "{problems}");
        assert!(problems.contains("`t` is missing") && problems.contains("must be a text in quotes, not 7"));
        assert!(problems.contains("`5 F` is not a power") && problems.contains("unknown key `c`"), "{problems}");
    }

    #[test]
    fn a_newer_format_is_named_and_nothing_else_is_said() {
        let problems = problems_of("format = 3\nnovelty = true\n", |_| ());
        assert!(problems.contains("format 3 is newer than 1") && problems.contains("update nodegate"), "{problems}");
        assert_eq!(problems.lines().count(), 1);
        for text in ["a = \"x\"\n", "format = 0\n", "format = \"1\"\n"] {
            assert!(problems_of(text, |_| ()).contains("`format`"), "{text}");
        }
    }

    #[test]
    fn broken_syntax_is_reported_with_its_lines_and_a_hostile_key_is_harmless() {
        let problems = problems_of("format = 1\na = = 2\n[t\n", |_| ());
        assert!(problems.contains("f.toml:2: ") && problems.contains("f.toml:3: "), "{problems}");
        let problems = problems_of("format = 1\n\"\\u001b[31m\" = 1\n", |_| ());
        assert!(problems.contains("\\u{1b}[31m") && !problems.contains('\u{1b}'), "{problems}");
    }

    #[test]
    fn plain_values_keep_their_kind_and_order() {
        let text = "format = 1\n[t]\nz = 0x10\ny = 1.5\nx = [true, 2026-12-31]\nw = { v = \"u\" }\n";
        problems_of(text, |section| {
            let values = section.section("t").map(|table| table.values()).unwrap_or_default();
            let shown: Vec<String> = values.iter().map(|(key, at)| format!("{key}={} {}", at.value, at.line)).collect();
            assert_eq!(shown, ["z=16 3", "y=1.5 4", "x=[true, 2026-12-31] 5", "w={ v = \"u\" } 6"]);
        });
    }
}
