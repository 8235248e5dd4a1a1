//! The house rules that a compiler does not know: layers, doorways, words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules by layer, lowest first (docs/architecture.md). A module uses only lower layers.
const LAYERS: &[&[&str]] = &[
    &["ident", "reading", "units"],
    &["facts", "outcome", "decision", "event", "predicate"],
    &["nvml", "parse"],
    &["isolate"],
    &["host", "wire"],
    &["workload"],
    &["check"],
    &["plan"],
    &["gate", "record", "report"],
    &["deliver", "collector"],
    &["exit", "cli"],
];

/// Layers in which modules may use each other: names build on names, data on data.
const OPEN_LAYERS: &[usize] = &[0, 1, 10];

fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("src"), &mut found);
    found.sort();
    assert!(found.len() > 30, "the source tree was not found: {found:?}");
    found
}

fn module_of(path: &Path) -> String {
    let first = path.strip_prefix("src").unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Product code of a file: everything before its tests.
fn product_code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    product.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Modules named after `crate::`, also inside `use crate::{a::…, b}`.
fn uses(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut name = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => used.push(std::mem::take(&mut name)),
                    _ if depth == 0 => name.push(c),
                    _ => {}
                }
            }
            used.push(name);
        } else {
            used.push(rest.to_owned());
        }
    }
    let head =
        |text: String| text.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned();
    used.into_iter().map(head).filter(|name| !name.is_empty()).collect()
}

#[test]
fn a_module_uses_only_lower_layers() {
    let mut wrong = Vec::new();
    for path in sources() {
        let module = module_of(&path);
        if ["lib", "main"].contains(&module.as_str()) {
            continue;
        }
        let Some(layer) = layer_of(&module) else {
            wrong.push(format!("{}: module `{module}` stands in no layer", path.display()));
            continue;
        };
        for used in uses(&product_code(&path)) {
            if used == module {
                continue;
            }
            match layer_of(&used) {
                Some(other) if other < layer || (other == layer && OPEN_LAYERS.contains(&layer)) => {}
                Some(_) => wrong.push(format!("{}: `{module}` may not use `{used}`", path.display())),
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_begins_by_saying_what_it_is_for() {
    let silent: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap();
            !text.starts_with("//!") && !text.starts_with("#![doc")
        })
        .collect();
    assert!(silent.is_empty(), "without a module header: {silent:?}");
}

#[test]
fn nothing_is_called_utils_common_helpers_or_manager() {
    let vague: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|path| {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            ["util", "utils", "common", "helper", "helpers", "manager"].contains(&stem.as_str())
        })
        .collect();
    assert!(vague.is_empty(), "{vague:?}");
}

#[test]
fn only_the_doorways_and_the_ffi_hold_unsafe_code() {
    let allowed = ["nvml", "isolate", "host"];
    let mut wrong = Vec::new();
    for path in sources() {
        let code = product_code(&path);
        let lines: Vec<&str> = code.lines().collect();
        let holds = lines.iter().any(|line| line.contains("unsafe {") || line.contains("unsafe impl"));
        if holds && !allowed.contains(&module_of(&path).as_str()) {
            wrong.push(path.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "unsafe outside {allowed:?}: {wrong:?}");
}

#[test]
fn each_unsafe_block_has_its_proof() {
    let mut wrong = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let begins = line.contains("unsafe {") || line.contains("unsafe impl");
            if !begins || line.trim_start().starts_with("//") {
                continue;
            }
            let above = &lines[number.saturating_sub(6)..=number];
            if !above.iter().any(|line| line.contains("SAFETY:")) {
                wrong.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe without SAFETY: {wrong:?}");
}

#[test]
fn the_layer_map_of_the_documentation_is_this_one() {
    let text = fs::read_to_string("docs/architecture.md").unwrap();
    let documented: BTreeMap<usize, Vec<String>> = text
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let layer = cells.next()?.parse().ok()?;
            let modules = cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            Some((layer, modules))
        })
        .collect();
    for (layer, modules) in documented {
        for module in modules {
            assert_eq!(layer_of(&module), Some(layer), "docs/architecture.md puts `{module}` in layer {layer}");
        }
    }
}
