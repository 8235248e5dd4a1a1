//! The checks for people: the table of all, and one explained.

use std::io::{self, Write};

use crate::check::{KINDS, Kind, cost, needs};
use crate::report::typeface::Typeface;

/// All checks with what a pass proves.
///
/// # Errors
///
/// If `out` cannot be written to.
pub fn list(out: &mut dyn Write) -> io::Result<()> {
    let width = KINDS.iter().map(|kind| kind.id.len()).max().unwrap_or(0);
    for kind in KINDS {
        let (head, hanging) = (format!("{:width$}  ", kind.id), " ".repeat(width + 2));
        writeln!(out, "{}", Typeface::PLAIN.wrap(kind.proves, &head, &hanging).join("\n"))?;
    }
    writeln!(out, "\nnodegate checks explain ID says how each is measured and when it misleads.")
}

/// One check with all that there is to say about it.
///
/// # Errors
///
/// If `out` cannot be written to.
pub fn explain(kind: &Kind, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}\n", kind.id, kind.proves)?;
    for line in kind.explanation.trim_end().lines() {
        writeln!(out, "{}", line.strip_prefix("### ").unwrap_or(line))?;
    }
    writeln!(out, "\nA class sets\n")?;
    for name in kind.parameters {
        writeln!(out, "  {name}")?;
    }
    writeln!(out, "\nNeeds {}; takes {}.", needs(kind), cost(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(print: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
        let mut bytes = Vec::new();
        print(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_list_names_every_check_within_eighty_columns() {
        let list = text(list);
        assert!(KINDS.iter().all(|kind| list.lines().any(|line| line.starts_with(kind.id))));
        assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    }

    #[test]
    fn an_explanation_has_its_parameters_and_no_markup() {
        let kind = crate::check::kind("pcie-link").unwrap();
        let explanation = text(|out| explain(kind, out));
        assert!(explanation.contains("  idle-states\n") && !explanation.contains('#'), "{explanation}");
    }
}
