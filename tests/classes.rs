//! The built-in data: suite, classes, policy, and the examples of site files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nodegate::check::KINDS;
use nodegate::check::xid::{self, XidPolicy};
use nodegate::ident::PciModel;
use nodegate::plan::class::{self, Answer, Class, Wish};
use nodegate::plan::suite::{self, Suite};
use nodegate::plan::{Document, site};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The files of a folder: stem and text.
fn files(name: &str) -> BTreeMap<String, String> {
    let read =
        |path: PathBuf| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap());
    fs::read_dir(folder(name)).unwrap().map(|entry| read(entry.unwrap().path())).collect()
}

fn suite() -> Suite {
    suite::builtin(KINDS).unwrap_or_else(|problems| panic!("{problems}"))
}

fn classes() -> Vec<Class> {
    class::all(&suite(), KINDS).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn each_class_answers_each_step_of_the_suite() {
    let suite = suite();
    for class in classes() {
        let answered: BTreeSet<&str> = class.answers.keys().map(|id| id.as_str()).collect();
        assert_eq!(answered, suite.names().collect(), "{}", class.id);
    }
}

#[test]
fn every_limit_has_a_source_that_says_something() {
    for class in classes() {
        for (step, answer) in &class.answers {
            match answer {
                Answer::Limits(limits) => {
                    assert!(!limits.is_empty(), "{} {step}", class.id);
                    for limit in limits {
                        assert!(limit.source.len() > 10, "{} {step} {}", class.id, limit.name);
                    }
                }
                Answer::Absent(reason) => assert!(reason.len() > 10, "{} {step}", class.id),
            }
        }
    }
}

#[test]
fn the_built_in_tables_equal_the_files_on_disk() {
    let built_in: BTreeMap<String, String> =
        class::BUILTIN.iter().map(|(stem, text)| ((*stem).to_owned(), (*text).to_owned())).collect();
    assert_eq!(files("checks/classes"), built_in);
    assert_eq!(suite::BUILTIN, fs::read_to_string(folder("checks/suite.toml")).unwrap());
    assert_eq!(files("checks/policy"), BTreeMap::from([("xid".to_owned(), xid::BUILTIN.to_owned())]));
}

#[test]
fn no_gpu_model_is_in_two_classes_and_each_finds_its_class_in_any_number() {
    let mut owners: BTreeMap<PciModel, String> = BTreeMap::new();
    for class in classes() {
        for model in &class.models {
            assert_eq!(owners.insert(*model, class.id.to_string()), None, "{model}");
        }
    }
    for (model, owner) in owners {
        for count in [1, 7, 9] {
            let choice = class::choose(&vec![model; count], None, &Wish::Auto, &suite(), KINDS).unwrap();
            assert_eq!(choice.class.id.as_str(), owner, "{count} x {model}");
        }
    }
}

#[test]
fn the_models_that_inventory_expects_are_those_that_a_class_matches() {
    for class in classes() {
        let Some(Answer::Limits(limits)) = class.answers.get(&"gpu-inventory".parse().unwrap()) else {
            panic!("{} has no inventory", class.id);
        };
        let models = limits.iter().find(|limit| limit.name == "models").and_then(|limit| limit.value.as_array());
        let models: BTreeSet<PciModel> =
            models.into_iter().flatten().map(|model| model.as_str().unwrap().parse().unwrap()).collect();
        assert_eq!(models, class.models, "{}", class.id);
    }
}

#[test]
fn only_the_generic_class_cannot_accept_and_it_is_run_where_no_class_fits() {
    for class in classes() {
        assert_eq!(class.can_accept(), class.id.as_str() != class::GENERIC, "{}", class.id);
    }
    let strange: PciModel = "10de:ffff".parse().unwrap();
    let known: PciModel = "10de:2330".parse().unwrap();
    let other: PciModel = "10de:2335".parse().unwrap();
    for bus in [vec![], vec![strange], vec![strange, known], vec![known, other]] {
        let choice = class::choose(&bus, None, &Wish::Auto, &suite(), KINDS).unwrap();
        assert_eq!(choice.class.id.as_str(), class::GENERIC);
        assert!(choice.because.is_some());
    }
}

#[test]
fn the_examples_of_site_files_are_right() {
    let examples = files("docs/site-examples");
    assert!(["dev-station", "lab", "inference-node"].iter().all(|name| examples.contains_key(*name)));
    for (name, text) in examples {
        let document = Document::new(&name, text.as_bytes()).unwrap();
        site::load(&document, &suite(), KINDS).unwrap_or_else(|problems| panic!("{problems}"));
    }
}

#[test]
fn every_entry_of_the_commented_example_is_right_too() {
    // A comment that holds an entry begins with `# ` and then a table or one key and ` = `.
    let key = |key: &str| key.starts_with('"') || !key.contains(' ');
    let entry = |line: &str| line.starts_with('[') || line.split_once(" = ").is_some_and(|(name, _)| key(name));
    let open = |line: &'static str| line.strip_prefix("# ").filter(|rest| entry(rest)).unwrap_or(line);
    let text = site::EXAMPLE.lines().map(open).collect::<Vec<_>>().join("\n");
    let document = Document::new("commented.toml", text.as_bytes()).unwrap();
    let site = site::load(&document, &suite(), KINDS).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((site.overrides.len(), site.waivers.len(), site.slots.len()), (1, 1, 1), "{text}");
    assert!(site.class.is_some() && site.collector.credential.is_some() && site.paths.key.is_some(), "{text}");
}

#[test]
fn the_policy_grades_every_published_number() {
    let policy = XidPolicy::parse(xid::BUILTIN).unwrap();
    assert_eq!(policy.len(), (173, 92));
}

#[test]
fn the_page_about_classes_shows_files_that_are_right() {
    let page = fs::read_to_string(folder("docs/classes.md")).unwrap();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let name = block.lines().next().unwrap().trim_start_matches("# ");
        let document = Document::new(name, block.as_bytes()).unwrap();
        let result = match name {
            "suite.toml" => suite::load(&document, KINDS).map(|_| ()),
            "site.toml" => site::load(&document, &suite(), KINDS).map(|_| ()),
            _ => class::load(&document, &suite(), KINDS).map(|_| ()),
        };
        result.unwrap_or_else(|problems| panic!("{problems}"));
    }
}
