//! `hyperparameters.json`.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{FieldError, compact};

/// The string map of the request, value for value and in its order.
///
/// Values are text and nothing else: what `"5"` or `"\"hello\""` means is for `train` to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hyperparameters(#[serde(deserialize_with = "strings")] pub IndexMap<String, String>);

impl Hyperparameters {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The text of `hyperparameters.json`.
    pub fn to_json(&self) -> String {
        compact(self)
    }
}

fn strings<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<IndexMap<String, String>, D::Error> {
    let members = Map::deserialize(deserializer)?;
    members.into_iter().map(string).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

fn string((name, value): (String, Value)) -> Result<(String, String), FieldError> {
    match value {
        Value::String(text) => Ok((name, text)),
        other => {
            let text = Value::String(other.to_string());
            Err(FieldError::new(&name, format!("{other} is not a string, {text} would be")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_order_survive_reading_and_writing() {
        let text = r#"{"z":"5","arg2":"\"hello\"","a":"é\n","":" "}"#;
        let hyperparameters: Hyperparameters = serde_json::from_str(text).unwrap();
        assert_eq!(hyperparameters.get("arg2"), Some("\"hello\""));
        assert_eq!(hyperparameters.to_json(), text);
    }

    #[test]
    fn none_is_an_empty_object() {
        assert_eq!(Hyperparameters::default().to_json(), "{}");
    }

    #[test]
    fn a_value_that_is_no_string_is_named_with_what_it_should_be() {
        let error = serde_json::from_str::<Hyperparameters>(r#"{"a":"1","top_k":10}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("field `top_k`: 10 is not a string, \"10\" would be"),
            "{error}"
        );
    }
}
