//! Reading one JSON object member by member, so that an error can name the member.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A member of a configuration file is missing or is not what the contract says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}`: {problem}")]
pub struct FieldError {
    /// The member's name; a dot separates the names of members inside members.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FieldError {
    pub(super) fn new(field: &str, problem: impl ToString) -> Self {
        Self { field: field.to_owned(), problem: problem.to_string() }
    }
}

/// The members of one JSON object that are still to be read.
pub(super) struct Fields(pub(super) Map<String, Value>);

impl Fields {
    /// A member that may be left out; `null` counts as left out.
    pub(super) fn optional<T: DeserializeOwned>(&mut self, field: &str) -> Result<Option<T>, FieldError> {
        match self.0.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value).map(Some).map_err(|e| FieldError::new(field, e)),
        }
    }

    /// A member that has to be there.
    pub(super) fn required<T: DeserializeOwned>(&mut self, field: &str) -> Result<T, FieldError> {
        self.optional(field)?.ok_or_else(|| FieldError::new(field, "is missing"))
    }
}
