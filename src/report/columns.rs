//! Aligned columns of text, by the width that a terminal gives them.

use unicode_width::UnicodeWidthStr;

/// Width of a terminal line that every screen of ours fits into.
pub const LINE: usize = 80;

/// Rows with every column as wide as its widest cell, two spaces between; nothing trails.
pub fn align(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
    let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| pad(cell, *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The text with spaces up to `width` columns.
pub fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// The text cut to `width` columns, with `…` where something was cut.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        let with = format!("{short}{c}");
        if with.width() + 1 > width {
            break;
        }
        short = with;
    }
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_what_a_terminal_shows() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["漢字".to_owned(), String::new()]];
        assert_eq!(align(&rows), ["a     b", "漢字"]);
    }

    #[test]
    fn a_text_that_is_cut_says_so() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("漢字漢字", 4), "漢…");
    }
}
