//! The merge step as a job file declares it, under `Trainyard.Merge`.

use serde::{Deserialize, Deserializer, de};

use crate::format::Format;
use crate::options::{MergeOptions, Order};
use crate::select::Selection;

/// Settings of a job's last step, checked when they are read:
/// `{"Glob": "part-*.parquet", "Output": "result.parquet", "OrderBy": "row"}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct MergeSettings {
    /// Which files are parts, see [`MergeOptions::glob`].
    #[serde(default, deserialize_with = "glob", skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// Name of the merged file, which lies beside the artifact. A bare name with the ending of a [`Format`].
    #[serde(deserialize_with = "output")]
    pub output: String,
    /// The column that orders the rows; without one they are ordered by host.
    #[serde(default, deserialize_with = "order_by", skip_serializing_if = "Option::is_none")]
    pub order_by: Option<String>,
}

impl MergeSettings {
    /// The settings as options of [`crate::merge`].
    pub fn options(&self) -> MergeOptions {
        let order = self.order_by.clone().map_or(Order::Host, Order::Column);
        MergeOptions { glob: self.glob.clone(), order, ..MergeOptions::default() }
    }
}

fn glob<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let glob = Option::<String>::deserialize(deserializer)?;
    match Selection::new(glob.as_deref()) {
        Ok(_) => Ok(glob),
        Err(_) => Err(de::Error::custom(InvalidSetting::Glob { glob: glob.unwrap_or_default() })),
    }
}

fn output<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked_output(String::deserialize(deserializer)?).map_err(de::Error::custom)
}

fn order_by<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let order_by = Option::<String>::deserialize(deserializer)?;
    if order_by.as_deref() == Some("") {
        return Err(de::Error::custom(InvalidSetting::OrderBy));
    }
    Ok(order_by)
}

fn checked_output(output: String) -> Result<String, InvalidSetting> {
    if output.contains(['/', '\\', '\0']) {
        return Err(InvalidSetting::OutputPath { output });
    }
    if Format::of_name(&output).is_none() {
        return Err(InvalidSetting::OutputFormat { output });
    }
    Ok(output)
}

/// Why a setting is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum InvalidSetting {
    /// The output is not a bare file name.
    #[error("Output {output:?} must be a bare file name such as \"result.parquet\", without folders")]
    OutputPath {
        /// The name as given.
        output: String,
    },
    /// The output's ending is not that of a format.
    #[error("Output {output:?} must end in .parquet, .csv, .jsonl or .npy")]
    OutputFormat {
        /// The name as given.
        output: String,
    },
    /// The pattern is no pattern.
    #[error("Glob {glob:?} is not a pattern such as \"part-*.parquet\"")]
    Glob {
        /// The pattern as given.
        glob: String,
    },
    /// The column to order by has no name.
    #[error("OrderBy must name a column; leave it out to order by host")]
    OrderBy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_their_names_in_a_job_file() {
        let text = r#"{"Glob": "part-*.parquet", "Output": "result.parquet", "OrderBy": "row"}"#;
        let settings: MergeSettings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.output, "result.parquet");
        let options = settings.options();
        assert_eq!(options.glob.as_deref(), Some("part-*.parquet"));
        assert_eq!(options.order, Order::Column("row".to_owned()));
        assert_eq!(serde_json::to_string(&settings).unwrap(), text.replace(": ", ":").replace(", ", ","));
    }

    #[test]
    fn only_the_output_must_be_given() {
        let settings: MergeSettings = serde_json::from_str(r#"{"Output": "all.csv"}"#).unwrap();
        assert_eq!(settings.options(), MergeOptions::default());
    }

    #[test]
    fn a_wrong_setting_is_refused_with_what_would_be_right() {
        let table = [
            (r#"{"Output": "a/b.csv"}"#, "bare file name"),
            (r#"{"Output": "..\\b.csv"}"#, "bare file name"),
            (r#"{"Output": ".."}"#, "must end in"),
            (r#"{"Output": "result.txt"}"#, "must end in .parquet, .csv, .jsonl or .npy"),
            (r#"{"Output": "a.csv", "Glob": "x["}"#, "not a pattern such as"),
            (r#"{"Output": "a.csv", "OrderBy": ""}"#, "must name a column"),
            (r#"{"Output": "a.csv", "Order": "row"}"#, "unknown field `Order`, expected one of"),
            (r#"{"Glob": "*.csv"}"#, "missing field `Output`"),
        ];
        for (text, expected) in table {
            let error = serde_json::from_str::<MergeSettings>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
