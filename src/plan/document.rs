//! A file as it was given: its text, where its lines are, and everything that is wrong with it.
//!
//! All problems of a file are collected and reported together, each with its line, so that
//! a person mends a file once and not once per mistake.

use std::fmt;

use crate::ident::{Digest, printable, printable_bytes};

/// The largest file that is read, in bytes: a suite, class or site file is a few kilobytes.
pub const MAXIMUM: usize = 1 << 20;

/// The newest `format` of suite, class and site files that this agent reads.
pub const FORMAT: i64 = 1;

/// One thing that is wrong with a file or an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, or the option that was misused.
    pub place: String,
    /// From 1; none where the file as a whole is wrong.
    pub line: Option<usize>,
    /// What is wrong, and the nearest thing that would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.text),
            None => write!(f, "{}: {}", self.place, self.text),
        }
    }
}

/// Everything that is wrong, one line each. Nothing was run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// A single problem of an option or of a file as a whole.
    pub fn one(place: &str, text: impl Into<String>) -> Self {
        Problems(vec![Problem { place: place.to_owned(), line: None, text: text.into() }])
    }

    /// The value, unless something is wrong.
    pub fn or<T>(self, value: T) -> Result<T, Problems> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The text of a file with its name and digest.
#[derive(Clone, Debug)]
pub struct Document {
    /// How messages name it: the path as given, or `built-in …`.
    pub name: String,
    pub text: String,
    pub digest: Digest,
}

impl Document {
    /// Takes the bytes of a file.
    ///
    /// # Errors
    ///
    /// If there are more than [`MAXIMUM`], or they are not UTF-8.
    pub fn new(name: &str, bytes: &[u8]) -> Result<Document, Problems> {
        if bytes.len() > MAXIMUM {
            let text = format!("larger than {} KiB, too large for such a file", MAXIMUM / 1024);
            return Err(Problems::one(name, text));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = line_of(bytes, error.valid_up_to());
            let rest = bytes.get(error.valid_up_to()..).unwrap_or_default();
            let text = format!("not UTF-8 at `{}`", printable_bytes(rest, 8));
            Problems(vec![Problem { place: printable(name, 300), line: Some(line), text }])
        })?;
        Ok(Document { name: printable(name, 300), text: text.to_owned(), digest: Digest::of(bytes) })
    }

    /// The line, from 1, of a byte offset.
    pub fn line(&self, offset: usize) -> usize {
        line_of(self.text.as_bytes(), offset)
    }

    /// The file's name without folder and `.toml`.
    pub fn stem(&self) -> &str {
        let file = self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name);
        file.strip_suffix(".toml").unwrap_or(file)
    }
}

/// ` (did you mean `x`?)`, ` (one of a, b)`, or nothing where neither would help.
pub fn nearest<'a>(found: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    let valid: Vec<&str> = valid.into_iter().collect();
    let distance = |name: &&str| (strsim::normalized_damerau_levenshtein(found, name) * 1000.0) as u32;
    match valid.iter().copied().max_by_key(distance) {
        Some(name) if distance(&name) >= 500 => format!("; did you mean `{name}`?"),
        Some(_) if valid.len() <= 16 => format!("; it is one of {}", valid.join(", ")),
        _ => String::new(),
    }
}

fn line_of(bytes: &[u8], offset: usize) -> usize {
    bytes.iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_file_and_one_that_is_not_text_are_refused_by_name() {
        let error = Document::new("site.toml", &vec![b' '; MAXIMUM + 1]).unwrap_err();
        assert!(error.to_string().starts_with("site.toml: larger than 1024 KiB"), "{error}");
        let error = Document::new("site.toml", b"a = 1\nb = \"\xff\"\n").unwrap_err();
        assert!(error.to_string().starts_with("site.toml:2: not UTF-8"), "{error}");
        assert!(Document::new("site.toml", &vec![b' '; MAXIMUM]).is_ok());
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest_and_a_strange_one_gets_the_list() {
        let names = ["driver", "gpu-idle", "pcie-link"];
        assert_eq!(nearest("pci-link", names), "; did you mean `pcie-link`?");
        assert_eq!(nearest("zzz", names), "; it is one of driver, gpu-idle, pcie-link");
        assert_eq!(nearest("zzz", []), "");
    }

    #[test]
    fn a_file_is_named_by_its_stem() {
        let stem = |name| Document::new(name, b"").map(|document| document.stem().to_owned());
        assert_eq!(stem("/etc/x/l4.toml").unwrap(), "l4");
        assert_eq!(stem("l4").unwrap(), "l4");
    }
}
