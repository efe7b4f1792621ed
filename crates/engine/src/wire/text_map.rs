//! The string maps of the API, read leniently so that a wrong value can be named with its key.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::members;

/// A map of the API whose values have to be strings, in the order in which it was sent.
///
/// The values are kept as they came, because a number or a list here is a mistake that
/// [`crate::spec`] reports with the key and with the string that was meant.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct TextMap(pub IndexMap<String, Value>);

impl TextMap {
    /// The entries whose values are strings; all of them in a valid request.
    pub fn texts(&self) -> IndexMap<String, String> {
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        self.0.iter().filter_map(text).collect()
    }
}

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EachKeyOnce)
    }
}

/// Reads a map and refuses a key that comes twice: one of the two values would be lost in silence.
struct EachKeyOnce;

impl<'de> Visitor<'de> for EachKeyOnce {
    type Value = TextMap;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object whose values are strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<TextMap, A::Error> {
        let mut entries = IndexMap::new();
        while let Some((key, value)) = access.next_entry::<String, Value>()? {
            if entries.contains_key(&key) {
                return Err(members::twice(&key));
            }
            entries.insert(key, value);
        }
        Ok(TextMap(entries))
    }
}
