//! The stylesheet's colours are computed, not believed: WCAG 2.2, relative luminance and contrast.

use std::collections::BTreeMap;

use super::STYLESHEET;

const TEXTS: [&str; 8] = ["text", "quiet", "link", "good", "bad", "doubt", "warn", "void"];
const GROUNDS: [&str; 3] = ["ground", "surface", "sunken"];

/// The variables of the nth block that begins with `:root {`.
fn variables(block: usize) -> BTreeMap<String, [f64; 3]> {
    let begin = STYLESHEET.match_indices(":root {").nth(block).unwrap().0;
    let body = STYLESHEET[begin..].split_once('{').unwrap().1.split_once('}').unwrap().0;
    let declarations = body.lines().filter_map(|line| line.trim().strip_prefix("--")?.split_once(": "));
    declarations.map(|(name, value)| (name.to_owned(), colour(value.trim_end_matches(';')))).collect()
}

fn colour(hex: &str) -> [f64; 3] {
    let digits = hex.strip_prefix('#').unwrap();
    [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0)
}

fn luminance(colour: [f64; 3]) -> f64 {
    let linear = |part: f64| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) };
    0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn contrast_is_computed_as_others_compute_it() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 0.01);
    // The grey that is known to be just enough on white.
    assert!((contrast(colour("#767676"), [1.0; 3]) - 4.54).abs() < 0.01);
}

#[test]
fn every_text_can_be_read_on_every_ground_by_day_and_by_night() {
    let light = variables(0);
    let mut dark = light.clone();
    dark.extend(variables(1));
    let mut paper = light.clone();
    paper.extend(variables(2));
    for (scheme, variables) in [("light", &light), ("dark", &dark), ("print", &paper)] {
        for ground in GROUNDS {
            for text in TEXTS {
                let found = contrast(variables[text], variables[ground]);
                assert!(found >= 4.5, "{scheme}: {text} on {ground} is {found:.2} to 1");
            }
            // The line around what is typed into.
            let found = contrast(variables["edge"], variables[ground]);
            assert!(found >= 3.0, "{scheme}: the edge on {ground} is {found:.2} to 1");
        }
        // The mark inside a filled sign, and the text of a button, which has the colours swapped.
        for tone in ["good", "bad", "doubt", "warn"] {
            let found = contrast(variables["inside"], variables[tone]);
            assert!(found >= 4.5, "{scheme}: the mark on {tone} is {found:.2} to 1");
        }
    }
}

#[test]
fn no_colour_stands_outside_the_variables() {
    let rules: String = STYLESHEET
        .lines()
        .filter(|line| !line.trim_start().starts_with("--") && !line.trim_start().starts_with(":root { --"))
        .collect();
    let code = rules.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect::<String>();
    for word in ["#", "rgb", "hsl", "white", "black", "red", "green", "blue", "grey", "gray"] {
        let stray = code.match_indices(word).find(|(at, _)| {
            let before = code[..*at].chars().next_back().unwrap_or(' ');
            let after = code[at + word.len()..].chars().next().unwrap_or(' ');
            word == "#" || (!before.is_alphanumeric() && before != '-' && !after.is_alphanumeric() && after != '-')
        });
        assert!(stray.is_none(), "`{word}` in: {}", &code[stray.unwrap().0.saturating_sub(40)..][..80]);
    }
}
