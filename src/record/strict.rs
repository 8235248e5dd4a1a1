//! JSON without duplicate keys.
//!
//! Two readers that disagree on which of two equal keys counts can be shown two different
//! records under one signature, so a second key of the same name is refused at any depth.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one JSON text; a duplicate key or anything after the text is an error.
/// The depth is bounded by `serde_json` (128).
pub fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Seed).map(Strict)
    }
}

struct Seed;

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element_seed(Seed)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Seed)?;
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("key `{}` twice", crate::ident::printable(&key, 60))));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_key_of_the_same_name_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"c":2,"a":3}}]"#, r#"{"a":1,"\u0061":2}"#] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("`a` twice"), "{error}");
        }
    }

    #[test]
    fn what_is_not_exactly_one_json_text_is_refused() {
        for text in ["", "{", "{}{}", "nul", "\u{feff}{}", "{\"a\":1,}", "[1e999]"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn other_json_reads_as_serde_json_reads_it() {
        let text = r#"{"a":[1,-2,3.5,null,true,"x"],"b":{"a":18446744073709551615}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }
}
