//! The gate between texts and markup.

use std::fmt;

use askama::filters::{Escaper, Safe};

use crate::ident::printable;

/// Text that is markup already: our own drawings, and templates that were filled in.
pub type Markup = Safe<String>;

/// Characters of one text; what is longer ends in `…`. The longest text of ours is a command.
pub const LONGEST: usize = 600;

/// How every text of a template is written: printable, at most [`LONGEST`] characters, and with the
/// characters of markup as entities, which is right in elements and in quoted attributes alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct Printed;

impl Escaper for Printed {
    fn write_escaped_str<W: fmt::Write>(&self, mut dest: W, string: &str) -> fmt::Result {
        for c in printable(string, LONGEST).chars() {
            match c {
                '&' => dest.write_str("&amp;")?,
                '<' => dest.write_str("&lt;")?,
                '>' => dest.write_str("&gt;")?,
                '"' => dest.write_str("&quot;")?,
                '\'' => dest.write_str("&#39;")?,
                c => dest.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Only for what was written by [`Printed`] or by a drawing of ours.
pub(super) fn markup(text: String) -> Markup {
    Safe(text)
}

/// The text as an attribute's value or an element's content.
pub fn escaped(text: &str) -> String {
    let mut safe = String::new();
    // Writing to a String cannot fail.
    let _ = Printed.write_escaped_str(&mut safe, text);
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_can_neither_end_its_element_nor_its_attribute() {
        let hostile = "\"><script>alert('1')</script>&\0\u{202e}";
        assert_eq!(escaped(hostile), "&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;\\u{0}\\u{202e}");
    }

    #[test]
    fn a_text_ends_where_nobody_reads_on() {
        assert_eq!(escaped(&"x".repeat(10_000)).chars().count(), LONGEST + 1);
    }
}
