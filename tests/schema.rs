//! The JSON Schemas under `docs/schema/` are made from the types and fit what is produced.
//! `NODEGATE_WRITE_SCHEMA=1 cargo test --test schema` writes them anew.

#[path = "record/sample.rs"]
mod sample;

use std::path::{Path, PathBuf};

use nodegate::predicate::Details;
use nodegate::record::{HostDocument, NodeDocument, Statement, Unsigned};
use schemars::{Schema, schema_for};
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema").join(name)
}

fn written(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap()
}

fn is_valid(name: &str, instance: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(&written(name)).unwrap();
    validator.validate(instance).map_err(|error| format!("{} at {}", error, error.instance_path()))
}

fn statement() -> Value {
    let unsigned = Unsigned::new(sample::details(), &sample::documents()).unwrap();
    serde_json::from_slice(unsigned.payload()).unwrap()
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let schemas: [(&str, Schema); 4] = [
        ("nodegate.schema.json", schema_for!(Details)),
        ("record.schema.json", schema_for!(Statement)),
        ("host.schema.json", schema_for!(HostDocument)),
        ("node.schema.json", schema_for!(NodeDocument)),
    ];
    for (name, schema) in schemas {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("NODEGATE_WRITE_SCHEMA").is_some() {
            std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            std::fs::write(path(name), &text).unwrap();
        }
        let found = std::fs::read_to_string(path(name)).unwrap_or_default();
        assert_eq!(found, text, "{name} is stale: run NODEGATE_WRITE_SCHEMA=1 cargo test --test schema");
    }
}

#[test]
fn what_is_produced_fits_its_schema() {
    let documents = sample::documents();
    let statement = statement();
    is_valid("record.schema.json", &statement).unwrap();
    is_valid("nodegate.schema.json", &statement["predicate"]["nodegate"]).unwrap();
    is_valid("host.schema.json", &serde_json::from_slice(&documents.host.to_json()).unwrap()).unwrap();
    is_valid("node.schema.json", &serde_json::from_slice(&documents.node.to_json()).unwrap()).unwrap();
}

#[test]
fn what_is_wrong_does_not_fit() {
    for (pointer, value) in [
        ("/predicate/nodegate/decision", "fine"),
        ("/predicate/nodegate/steps", "none"),
        ("/predicate/result", "passed"),
        ("/subject", "host.json"),
    ] {
        let mut statement = statement();
        *statement.pointer_mut(pointer).unwrap() = value.into();
        assert!(is_valid("record.schema.json", &statement).is_err(), "{pointer}");
    }
}
