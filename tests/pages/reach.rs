//! Who cannot see the page or has no mouse: what the keyboard reaches, and what is read aloud.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::browser::Browser;

/// Everything that one can go to with the Tab key, in the order of the document.
const REACHABLE: &str =
    "return [...document.querySelectorAll('a[href], input, select, button, summary, [tabindex=\"0\"]')]
    .filter(it => it.checkVisibility({contentVisibilityAuto: true}))
    .map(it => it.outerHTML.slice(0, 120))";

const FOCUSED: &str =
    "const it = document.activeElement, box = it.getBoundingClientRect(), style = getComputedStyle(it);
    return {what: it.outerHTML.slice(0, 120), body: it === document.body, width: box.width, height: box.height,
        outline: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth)}";

/// Walks the page with Tab: everything is reached, in order, and is seen when it is.
pub fn walk(browser: &Browser, name: &str) {
    let reachable: Vec<String> = serde_json::from_value(browser.script(REACHABLE)).unwrap();
    assert!(reachable[0].contains("class=\"skip\""), "{name}: the first is {}", reachable[0]);
    for expected in &reachable {
        browser.press_tab();
        let focused = browser.script(FOCUSED);
        assert_eq!(focused["what"], *expected, "{name}: Tab goes somewhere else");
        let number = |field: &str| focused[field].as_f64().unwrap();
        assert!(number("width") > 8.0 && number("height") > 8.0, "{name}: focus on what is not seen: {expected}");
        assert!(number("outline") >= 2.0, "{name}: focus is not seen on {expected}");
    }
}

/// The skip link leads to the content.
pub fn skip(browser: &Browser) {
    browser.press_tab();
    let enter =
        |kind: &str| json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"});
    browser.devtools("Input.dispatchKeyEvent", enter("keyDown"));
    browser.devtools("Input.dispatchKeyEvent", enter("keyUp"));
    let id = browser.script("return document.activeElement.id");
    assert_eq!(id, "main", "the skip link leads nowhere");
}

/// What a screen reader gets: names for everything that needs one, headings in steps, tables as tables.
pub fn aloud(browser: &Browser, name: &str) {
    let tree = browser.devtools("Accessibility.getFullAXTree", json!({}));
    let nodes: Vec<&Value> =
        tree["nodes"].as_array().unwrap().iter().filter(|it| it["ignored"] == json!(false)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &nodes {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        *counts.entry(role).or_default() += 1;
        let named = node["name"]["value"].as_str().unwrap_or_default().trim();
        let needs_name = [
            "link",
            "button",
            "textbox",
            "searchbox",
            "combobox",
            "image",
            "img",
            "table",
            "navigation",
            "region",
            "search",
            "heading",
            "columnheader",
            "DisclosureTriangle",
        ];
        assert!(!needs_name.contains(&role) || !named.is_empty(), "{name}: a {role} without a name: {node}");
    }
    let levels =
        browser.script("return [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(it => Number(it.tagName[1]))");
    let levels: Vec<i64> = serde_json::from_value(levels).unwrap();
    assert_eq!(levels[0], 1, "{name}");
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{name}: a heading skips a level: {levels:?}");
    let count = |role: &str| counts.get(role).copied().unwrap_or(0);
    assert_eq!(count("main"), 1, "{name}: {counts:?}");
    let tables =
        browser.script("return [...document.querySelectorAll('table')].filter(it => it.checkVisibility()).length");
    assert_eq!(
        count("table"),
        usize::try_from(tables.as_u64().unwrap()).unwrap(),
        "{name}: tables that are none: {counts:?}"
    );
    assert_eq!(browser.script("return document.querySelectorAll('h1').length"), 1, "{name}");
}
