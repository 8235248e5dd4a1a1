//! `driver.json`: equal answers of all GPUs, pairs or links under `*`, so that a person can read it.
//!
//! `*` is used only where the whole range of an argument was asked, so that it never answers
//! a question which the machine did not; what differs from most keeps a key of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::facts::{Answer, Answers};

/// A key of `driver.json`; none stands for `*`.
type Key = Vec<Option<u32>>;
/// Answers by their literal arguments.
type Asked<'a> = BTreeMap<Vec<u32>, &'a Answer>;

/// Longest line on which a function with all its answers stands.
const LINE: usize = 110;

/// The whole file.
pub fn driver_json(answers: &Answers) -> Result<String, serde_json::Error> {
    let mut functions: BTreeMap<&str, Asked<'_>> = BTreeMap::new();
    for (question, answer) in answers.iter() {
        functions.entry(&question.function).or_default().insert(question.arguments.clone(), answer);
    }
    let gpus: BTreeSet<u32> = functions
        .iter()
        .filter(|(function, _)| function.starts_with("nvmlDevice"))
        .flat_map(|(_, asked)| asked.keys().filter_map(|arguments| arguments.first().copied()))
        .collect();
    let mut blocks = Vec::new();
    for (function, asked) in &functions {
        blocks.push(block(function, &factored(function, asked, gpus.len()))?);
    }
    Ok(format!("{{ \"format\": 1,\n  \"answers\": {{\n{}\n  }} }}\n", blocks.join(",\n")))
}

fn block(function: &str, keys: &BTreeMap<Key, &Answer>) -> Result<String, serde_json::Error> {
    let text = |key: &Key| {
        let parts = key.iter().map(|part| part.map_or_else(|| "*".to_owned(), |number| number.to_string()));
        parts.collect::<Vec<_>>().join(",")
    };
    let pairs: Result<Vec<String>, _> =
        keys.iter().map(|(key, answer)| Ok(format!("\"{}\": {}", text(key), serde_json::to_string(answer)?))).collect();
    let (pairs, name) = (pairs?, Value::String(function.to_owned()));
    let one_line = format!("    {name}: {{ {} }}", pairs.join(", "));
    if one_line.len() <= LINE {
        return Ok(one_line);
    }
    Ok(format!("    {name}: {{\n      {}\n    }}", pairs.join(",\n      ")))
}

fn factored<'a>(function: &str, asked: &Asked<'a>, gpus: usize) -> BTreeMap<Key, &'a Answer> {
    let mut keys = BTreeMap::new();
    let mut groups: BTreeMap<Key, Asked<'a>> = BTreeMap::new();
    for (arguments, answer) in asked {
        let pattern = starred(arguments, ranges(function, arguments));
        groups.entry(pattern).or_default().insert(arguments.clone(), answer);
    }
    for (pattern, members) in groups {
        if is_whole(function, &pattern, &members, gpus) && keep_most(&pattern, &members, &mut keys) {
            continue;
        }
        by_gpu(&members, gpus, &mut keys);
    }
    keys
}

/// Positions of the arguments that run over GPUs, peers or links.
fn ranges(function: &str, arguments: &[u32]) -> &'static [usize] {
    match function {
        "nvmlDeviceGetTopologyCommonAncestor" | "nvmlDeviceGetP2PStatus" => &[0, 1],
        // The NVLink speed (field 164) has the link as its scope.
        "nvmlDeviceGetFieldValues" if arguments.get(1) == Some(&164) => &[0, 2],
        _ if function.starts_with("nvmlDeviceGetNvLink") => &[0, 1],
        _ if function.starts_with("nvmlDevice") && !arguments.is_empty() => &[0],
        _ => &[],
    }
}

fn starred(arguments: &[u32], positions: &[usize]) -> Key {
    let part = |(position, argument): (usize, &u32)| (!positions.contains(&position)).then_some(*argument);
    arguments.iter().enumerate().map(part).collect()
}

/// Whether every GPU, ordered pair or link of every GPU is among the members.
fn is_whole(function: &str, pattern: &Key, members: &Asked<'_>, gpus: usize) -> bool {
    let stars: Vec<usize> = (0..pattern.len()).filter(|position| pattern[*position].is_none()).collect();
    let distinct = |position: usize| members.keys().map(|arguments| arguments[position]).collect::<BTreeSet<_>>().len();
    match stars[..] {
        [_] => gpus > 1 && members.len() == gpus,
        [_, _] if function.contains("Topology") || function.contains("P2P") => {
            gpus > 1 && members.len() == gpus * (gpus - 1)
        }
        [_, second] => members.len() > 1 && members.len() == gpus * distinct(second),
        _ => false,
    }
}

/// Writes the answer of at least half of the members under the pattern and the others by themselves.
fn keep_most<'a>(pattern: &Key, members: &Asked<'a>, keys: &mut BTreeMap<Key, &'a Answer>) -> bool {
    let count = |wanted: &Answer| members.values().filter(|answer| **answer == wanted).count();
    let Some(most) = members.values().copied().max_by_key(|answer| count(answer)) else { return false };
    if count(most) * 2 < members.len() {
        return false;
    }
    keys.insert(pattern.clone(), most);
    let others = members.iter().filter(|(_, answer)| **answer != most);
    keys.extend(others.map(|(arguments, answer)| (literal(arguments), *answer)));
    true
}

/// What is the same for all GPUs, the other arguments written out; the rest literally.
fn by_gpu<'a>(members: &Asked<'a>, gpus: usize, keys: &mut BTreeMap<Key, &'a Answer>) {
    let mut groups: BTreeMap<Key, Asked<'a>> = BTreeMap::new();
    for (arguments, answer) in members {
        groups.entry(starred(arguments, &[0])).or_default().insert(arguments.clone(), answer);
    }
    for (pattern, members) in groups {
        let same = members.values().all(|answer| Some(answer) == members.values().next());
        match members.values().next() {
            Some(answer) if same && gpus > 1 && members.len() == gpus => drop(keys.insert(pattern, answer)),
            _ => keys.extend(members.iter().map(|(arguments, answer)| (literal(arguments), *answer))),
        }
    }
}

fn literal(arguments: &[u32]) -> Key {
    arguments.iter().copied().map(Some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Question;

    fn json(asked: &[(&str, &[u32], u32)]) -> Value {
        let answers = asked.iter().map(|(f, arguments, v)| (Question::new(f, arguments), Answer::value(*v))).collect();
        serde_json::from_str::<Value>(&driver_json(&answers).unwrap()).unwrap()["answers"].clone()
    }

    #[test]
    fn what_all_gpus_say_stands_once() {
        let asked: Vec<(&str, &[u32], u32)> =
            vec![("nvmlDeviceGetBrand", &[0], 14), ("nvmlDeviceGetBrand", &[1], 14), ("nvmlDeviceGetCount_v2", &[], 2)];
        let expected = serde_json::json!({
            "nvmlDeviceGetBrand": {"*": {"v": 14}},
            "nvmlDeviceGetCount_v2": {"": {"v": 2}},
        });
        assert_eq!(json(&asked), expected);
    }

    #[test]
    fn the_one_that_differs_keeps_its_own_key() {
        let asked: Vec<(&str, &[u32], u32)> = vec![
            ("nvmlDeviceGetTemperature", &[0, 0], 30),
            ("nvmlDeviceGetTemperature", &[1, 0], 90),
            ("nvmlDeviceGetTemperature", &[2, 0], 30),
        ];
        let expected = serde_json::json!({"*,0": {"v": 30}, "1,0": {"v": 90}});
        assert_eq!(json(&asked)["nvmlDeviceGetTemperature"], expected);
    }

    #[test]
    fn an_answer_that_is_missing_for_one_gpu_is_not_given_to_it() {
        let asked: Vec<(&str, &[u32], u32)> = vec![
            ("nvmlDeviceGetBrand", &[0], 14),
            ("nvmlDeviceGetBrand", &[1], 14),
            ("nvmlDeviceGetMinorNumber", &[2], 2),
        ];
        assert_eq!(json(&asked)["nvmlDeviceGetBrand"], serde_json::json!({"0": {"v": 14}, "1": {"v": 14}}));
    }

    #[test]
    fn links_and_pairs_fold_in_both_arguments() {
        let asked: Vec<(&str, &[u32], u32)> = vec![
            ("nvmlDeviceGetNvLinkState", &[0, 0], 1),
            ("nvmlDeviceGetNvLinkState", &[0, 1], 1),
            ("nvmlDeviceGetNvLinkState", &[1, 0], 1),
            ("nvmlDeviceGetNvLinkState", &[1, 1], 0),
            ("nvmlDeviceGetP2PStatus", &[0, 1, 2], 0),
            ("nvmlDeviceGetP2PStatus", &[1, 0, 2], 0),
            ("nvmlDeviceGetFieldValues", &[0, 164, 0], 7),
            ("nvmlDeviceGetFieldValues", &[0, 164, 1], 7),
            ("nvmlDeviceGetFieldValues", &[1, 164, 0], 7),
            ("nvmlDeviceGetFieldValues", &[1, 164, 1], 7),
        ];
        let expected = serde_json::json!({
            "nvmlDeviceGetNvLinkState": {"*,*": {"v": 1}, "1,1": {"v": 0}},
            "nvmlDeviceGetP2PStatus": {"*,*,2": {"v": 0}},
            "nvmlDeviceGetFieldValues": {"*,164,*": {"v": 7}},
        });
        assert_eq!(json(&asked), expected);
    }
}
