//! JSON objects with duplicate keys.
//!
//! A map silently keeps the last of two values with one key, so readers could disagree about a file. Objects
//! are therefore parsed as lists, and converted to maps by [`unique`].

use super::Flaw;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::marker::PhantomData;

/// The keys and values of an object, in order.
#[derive(Debug)]
pub(super) struct Pairs<V>(pub(super) Vec<(String, V)>);

impl<V> Default for Pairs<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
            type Value = Pairs<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Pairs<V>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = object.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

/// Converts to a map, or fails if a key is used twice.
pub(super) fn unique<V>(pairs: impl IntoIterator<Item = (String, V)>) -> Result<BTreeMap<String, V>, Flaw> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        match map.entry(key) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(taken) => return Err(Flaw::Duplicate { name: taken.key().as_str().into() }),
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_is_once_too_often() {
        let pairs: Pairs<u8> = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3}"#).unwrap();
        assert_eq!(pairs.0, [("b".into(), 1), ("a".into(), 2), ("b".into(), 3)]);
        let flaw = unique(pairs.0).unwrap_err();
        assert_eq!(flaw.to_string(), "the name `b` is used twice");
        let pairs: Pairs<u8> = serde_json::from_str(r#"{"b": 1, "a": 2}"#).unwrap();
        assert_eq!(unique(pairs.0).unwrap().into_keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(serde_json::from_str::<Pairs<u8>>("[1]").is_err());
    }
}
