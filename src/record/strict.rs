//! JSON without duplicate keys.
//!
//! Two readers that disagree on which of two equal keys counts can be shown two different
//! records under one signature, so a second key of the same name is refused at any depth.
//! [`check`] looks for that alone and builds nothing: what it lets through can be read as a type.

mod plain;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Reads one JSON text; a duplicate key or anything after the text is an error.
/// The depth is bounded by `serde_json` (128).
pub fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    check(bytes)?;
    serde_json::from_slice(bytes)
}

/// Goes once over a text and gives the names of its outermost object. What it lets through has no
/// key twice; whether it is JSON at all, reading it as a type says.
pub fn check(bytes: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    match plain::names(bytes) {
        Some(names) => Ok(names),
        None => look(bytes),
    }
}

/// The thorough look: everything is read, and nothing is kept.
fn look(bytes: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let mut names = Names { open: Vec::new(), outermost: None };
    Look(&mut names).deserialize(&mut reader)?;
    reader.end()?;
    Ok(names.outermost.unwrap_or_default())
}

/// Up to so many keys of an object are compared one by one; more go into a set.
const FEW: usize = 24;

/// The keys of the objects that are being read, the innermost last.
struct Names<'de> {
    open: Vec<Cow<'de, str>>,
    outermost: Option<Vec<String>>,
}

/// Looks at one value.
struct Look<'n, 'de>(&'n mut Names<'de>);

/// Reads one key without copying it where it has no escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        self.0.outermost.get_or_insert_default();
        while sequence.next_element_seed(Look(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let names = self.0;
        let outermost = names.outermost.is_none();
        if outermost {
            names.outermost = Some(Vec::new());
        }
        let begin = names.open.len();
        let mut many: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(key) = entries.next_key_seed(Key)? {
            let ours = names.open.get(begin..).unwrap_or_default();
            if ours.contains(&key) || many.contains(&key) {
                return Err(twice(&key));
            }
            if ours.len() < FEW {
                names.open.push(key);
            } else {
                many.insert(key);
            }
            entries.next_value_seed(Look(names))?;
        }
        if outermost {
            let keys = names.open.iter().chain(&many).map(|key| key.to_string()).collect();
            names.outermost = Some(keys);
        }
        names.open.truncate(begin);
        Ok(())
    }
}

fn twice<E: de::Error>(key: &str) -> E {
    E::custom(format_args!("key `{}` twice", crate::ident::printable(key, 60)))
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
            assert!(parse(text.as_bytes()).is_err() && look(text.as_bytes()).is_err(), "{text}");
        }
        for bytes in ["[".repeat(100_000).as_bytes(), b"\"\xff\"", b"\"\\ud800\"", b"{\"\\ud800\":1}", b"1 2"] {
            assert!(parse(bytes).is_err() && look(bytes).is_err());
        }
    }

    #[test]
    fn a_second_key_is_found_among_many_and_the_same_key_in_another_object_is_none() {
        let many: Vec<String> = (0..1000).map(|number| format!("\"k{number}\":{{\"x\":1}}")).collect();
        let text = format!("{{{}}}", many.join(","));
        assert_eq!(check(text.as_bytes()).unwrap().len(), 1000);
        for again in [0, 23, 24, 999] {
            let text = format!("{{{},\"k{again}\":0}}", many.join(","));
            assert!(check(text.as_bytes()).is_err() && parse(text.as_bytes()).is_err(), "k{again}");
        }
    }

    #[test]
    fn the_quick_look_never_says_what_the_thorough_one_does_not() {
        use proptest::prelude::*;
        // Few letters, so that keys meet; escapes, brackets and numbers in every wrong place too.
        let piece = prop_oneof![
            Just("\"a\":"),
            Just("\"b\":"),
            Just("\"a\\\"\":"),
            Just("\"\\u0061\":"),
            Just("{"),
            Just("}"),
            Just("["),
            Just("]"),
            Just(","),
            Just("\"a\""),
            Just("\"\\\\\""),
            Just("1"),
            Just("-2.5"),
            Just("1e9"),
            Just("1e999"),
            Just("null"),
            Just("\"\\ud800\""),
            Just("\"é\""),
            Just(" "),
            Just("\\"),
            Just("\""),
        ];
        let object = |inner: BoxedStrategy<String>| {
            let entry = (prop_oneof![Just("a"), Just("b"), Just("c"), Just("\\u0061")], inner);
            prop::collection::vec(entry, 0..4).prop_map(|entries| {
                let entries: Vec<String> = entries.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", entries.join(","))
            })
        };
        let leaf = prop_oneof![Just("1".to_owned()), Just("\"}\"".to_owned()), Just("[]".to_owned())].boxed();
        let valid = leaf.prop_recursive(4, 24, 4, move |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(|values| format!("[{}]", values.join(",")));
            prop_oneof![object(inner.boxed()).boxed(), list.boxed()].boxed()
        });
        let any = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
        proptest!(ProptestConfig::with_cases(4000), |(text in prop_oneof![valid, any])| {
            let is_json = serde_json::from_str::<Value>(&text).is_ok();
            match (plain::names(text.as_bytes()), look(text.as_bytes())) {
                (Some(names), Ok(thorough)) => prop_assert_eq!(names, thorough),
                // It lets no JSON through that the thorough look refuses.
                (Some(_), Err(_)) => prop_assert!(!is_json, "{}", text),
                (None, _) => {}
            }
        });
    }

    #[test]
    fn the_outermost_names_are_given_whatever_is_within() {
        assert_eq!(check(br#"{"a":{"b":1},"c":[{"d":2}]}"#).unwrap(), ["a", "c"]);
        for text in ["[1]", "[{\"a\":1}]"] {
            assert!(check(text.as_bytes()).unwrap().is_empty() && look(text.as_bytes()).unwrap().is_empty());
        }
    }

    #[test]
    fn other_json_reads_as_serde_json_reads_it() {
        let text = r#"{"a":[1,-2,3.5,null,true,"x"],"b":{"a":18446744073709551615}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }
}
