//! Numbers that survive other people's readers.
//!
//! An in-toto predicate passes through `google.protobuf.Struct`, where every number is a
//! double: an integer past 2^53 would silently become another one, and JSON has no NaN.

use serde_json::Value;

use super::StatementError;
use crate::ident::printable;
use crate::predicate::Details;

/// 2^53, the last integer up to which a double holds each one.
const EXACT: u64 = 1 << 53;

/// Takes out of the details what no reader could read as it is: large integers in override
/// values become strings, an absurd clock error, log number and measurements that are not finite go.
pub fn tame(details: &mut Details) {
    details.overrides.iter_mut().for_each(|it| stringify(&mut it.value));
    details.clock.maximum_error = details.clock.maximum_error.filter(|error| error.unsigned_abs() <= EXACT);
    details.clock.log_end = details.clock.log_end.filter(|end| *end <= EXACT);
    for step in &mut details.steps {
        let id = &step.id;
        step.outcome.measurements.retain(|measurement| {
            let finite = [Some(measurement.value), measurement.floor, measurement.warn, measurement.ceiling]
                .into_iter()
                .flatten()
                .all(f64::is_finite);
            if !finite {
                let name = printable(&measurement.name, 60);
                details.notices.push(format!("{id}: measurement {name} left out, it is not a finite number"));
            }
            finite
        });
    }
}

/// Refuses a statement that still holds an integer past 2^53, naming where.
pub fn check(statement: &Value) -> Result<(), StatementError> {
    walk(statement, "")
}

fn walk(value: &Value, path: &str) -> Result<(), StatementError> {
    match value {
        Value::Number(number) if is_inexact(number) => {
            Err(StatementError::Number { field: path.to_owned(), number: number.to_string() })
        }
        Value::Array(values) => {
            values.iter().enumerate().try_for_each(|(index, value)| walk(value, &format!("{path}[{index}]")))
        }
        Value::Object(object) => object.iter().try_for_each(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            walk(value, &path)
        }),
        _ => Ok(()),
    }
}

fn stringify(value: &mut Value) {
    match value {
        Value::Number(number) if is_inexact(number) => *value = Value::String(number.to_string()),
        Value::Array(values) => values.iter_mut().for_each(stringify),
        Value::Object(object) => object.values_mut().for_each(stringify),
        _ => {}
    }
}

/// A float is a double already; only integers can lose something.
fn is_inexact(number: &serde_json::Number) -> bool {
    let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    magnitude.is_some_and(|magnitude| magnitude > EXACT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_large_integer_becomes_a_string_wherever_it_stands() {
        let mut value = json!({"a": [9_007_199_254_740_993_u64, 9_007_199_254_740_992_u64], "b": i64::MIN});
        stringify(&mut value);
        assert_eq!(value, json!({"a": ["9007199254740993", 9_007_199_254_740_992_u64], "b": "-9223372036854775808"}));
        assert!(check(&value).is_ok());
    }

    #[test]
    fn a_large_integer_that_is_left_is_named_by_its_place() {
        let error = check(&json!({"steps": [{"durationMs": u64::MAX}]})).unwrap_err().to_string();
        assert!(error.starts_with("steps[0].durationMs: 18446744073709551615"), "{error}");
    }
}
