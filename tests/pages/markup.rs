//! A reader of HTML that knows only what our templates write: anything else in a page came in through
//! a text, and is an error.

use std::collections::BTreeSet;

const ELEMENTS: [&str; 62] = [
    "a",
    "b",
    "body",
    "br",
    "button",
    "caption",
    "circle",
    "code",
    "dd",
    "desc",
    "details",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "head",
    "header",
    "html",
    "input",
    "label",
    "li",
    "line",
    "link",
    "main",
    "meta",
    "nav",
    "ol",
    "option",
    "p",
    "path",
    "pre",
    "rect",
    "section",
    "select",
    "span",
    "strong",
    "summary",
    "svg",
    "table",
    "tbody",
    "td",
    "text",
    "th",
    "thead",
    "time",
    "title",
    "tr",
    "ul",
    "style",
    "em",
    "g",
    "sub",
    "sup",
    "small",
    "hr",
];

const VOID: [&str; 5] = ["br", "input", "link", "meta", "hr"];

/// None of them runs anything, and none styles anything by itself.
const ATTRIBUTES: [&str; 62] = [
    "aria-current",
    "aria-hidden",
    "aria-label",
    "aria-labelledby",
    "autocomplete",
    "charset",
    "class",
    "colspan",
    "content",
    "cx",
    "cy",
    "d",
    "data-label",
    "datetime",
    "download",
    "focusable",
    "for",
    "height",
    "href",
    "http-equiv",
    "id",
    "lang",
    "method",
    "action",
    "name",
    "open",
    "r",
    "rel",
    "role",
    "rx",
    "scope",
    "selected",
    "spellcheck",
    "stroke-width",
    "tabindex",
    "title",
    "type",
    "value",
    "viewbox",
    "width",
    "x",
    "x1",
    "x2",
    "xmlns",
    "y",
    "y1",
    "y2",
    "fill",
    "stroke",
    "points",
    "transform",
    "rowspan",
    "headers",
    "placeholder",
    "min",
    "max",
    "step",
    "pattern",
    "checked",
    "disabled",
    "hidden",
    "inert",
];

/// What was read of a page.
#[derive(Debug, Default)]
pub struct Markup {
    pub elements: BTreeSet<String>,
    pub ids: Vec<String>,
    pub hrefs: Vec<String>,
    /// All text, as it stands.
    pub text: String,
}

/// Reads a page, and fails where it is not what a template of ours writes.
pub fn read(page: &str) -> Markup {
    let rest = page.strip_prefix("<!doctype html>").expect("begins with its doctype");
    let mut markup = Markup::default();
    let mut open: Vec<String> = Vec::new();
    let mut rest = rest;
    while let Some((text, after)) = rest.split_once('<') {
        markup.text.push_str(text);
        let (tag, after) = tag(after);
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closes what is not open: {tag}");
            continue;
        }
        let name = element(tag, &mut markup);
        if name == "style" {
            rest = rest.split_once("</style>").expect("the stylesheet ends").1;
        } else if !VOID.contains(&name.as_str()) && !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    markup.text.push_str(rest);
    let unique: BTreeSet<&String> = markup.ids.iter().collect();
    assert_eq!(unique.len(), markup.ids.len(), "an id stands twice: {:?}", markup.ids);
    let bad = markup.text.chars().find(|c| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c));
    assert_eq!(bad, None, "a character that nobody sees");
    markup
}

/// The tag up to its `>`, quotation marks observed.
fn tag(text: &str) -> (&str, &str) {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '>' if !quoted => return (&text[..at], &text[at + 1..]),
            '<' => panic!("a tag in a tag: {}", &text[..at.min(200)]),
            _ => {}
        }
    }
    panic!("a tag without an end")
}

fn element(tag: &str, markup: &mut Markup) -> String {
    let (name, mut rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
    let name = name.trim_end_matches('/');
    assert!(ELEMENTS.contains(&name), "element <{name}>");
    markup.elements.insert(name.to_owned());
    loop {
        rest = rest.trim_start().trim_end_matches('/');
        if rest.is_empty() {
            return name.to_owned();
        }
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (attribute, after) = rest.split_at(end);
        assert!(ATTRIBUTES.contains(&attribute.to_ascii_lowercase().as_str()), "attribute `{attribute}` of <{name}>");
        let Some(after) = after.strip_prefix("=\"") else {
            rest = after;
            continue;
        };
        let (value, after) = after.split_once('"').expect("a value ends");
        match attribute {
            "id" => markup.ids.push(value.to_owned()),
            "href" => markup.hrefs.push(value.to_owned()),
            _ => {}
        }
        rest = after;
    }
}
