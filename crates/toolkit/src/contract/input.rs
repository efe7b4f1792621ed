//! `inputdataconfig.json`.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::field::Fields;
use super::{FieldError, compact};

/// The channels of a job by name, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct InputDataConfig(pub IndexMap<String, ChannelConfig>);

impl InputDataConfig {
    /// The text of `inputdataconfig.json`.
    pub fn to_json(&self) -> String {
        compact(self)
    }
}

impl TryFrom<Map<String, Value>> for InputDataConfig {
    type Error = FieldError;

    fn try_from(channels: Map<String, Value>) -> Result<Self, FieldError> {
        channels
            .into_iter()
            .map(|(name, value)| Ok((name.clone(), channel(&name, value)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn channel(name: &str, value: Value) -> Result<ChannelConfig, FieldError> {
    let Value::Object(members) = value else {
        return Err(FieldError::new(name, format!("{value} is not an object")));
    };
    ChannelConfig::try_from(members)
        .map_err(|e| FieldError { field: format!("{name}.{}", e.field), problem: e.problem })
}

/// What `train` is told about one channel. The URI and the compression are not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", try_from = "Map<String, Value>")]
pub struct ChannelConfig {
    /// As in the request; never interpreted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The mode in effect: the channel's own or else the job's.
    pub training_input_mode: InputMode,
    /// Replicated also for file systems, which every instance sees as a whole.
    pub s3_distribution_type: Distribution,
    /// Whether each object is wrapped as a record.
    pub record_wrapper_type: RecordWrapper,
}

impl TryFrom<Map<String, Value>> for ChannelConfig {
    type Error = FieldError;

    /// Members that some platforms leave out get the value that they have by default.
    fn try_from(members: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields(members);
        Ok(Self {
            content_type: fields.optional("ContentType")?,
            training_input_mode: fields.required("TrainingInputMode")?,
            s3_distribution_type: fields.optional("S3DistributionType")?.unwrap_or_default(),
            record_wrapper_type: fields.optional("RecordWrapperType")?.unwrap_or_default(),
        })
    }
}

/// How a channel's objects reach `train`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputMode {
    /// All of them lie in a folder before `train` starts.
    File,
    /// One after the other through named pipes.
    Pipe,
    /// In a folder whose files are fetched when they are read.
    FastFile,
}

/// Which objects of a channel an instance gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// All of them.
    #[default]
    FullyReplicated,
    /// Its shard.
    ShardedByS3Key,
}

/// How objects are framed in a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordWrapper {
    /// Not at all.
    #[default]
    None,
    /// Each as one RecordIO record.
    RecordIO,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written_in_the_captured_order() {
        let text = concat!(
            r#"{"train":{"ContentType":"text/csv","TrainingInputMode":"File","S3DistributionType":"FullyReplicated","#,
            r#""RecordWrapperType":"None"},"a":{"TrainingInputMode":"Pipe","S3DistributionType":"ShardedByS3Key","#,
            r#""RecordWrapperType":"RecordIO"}}"#
        );
        let config: InputDataConfig = serde_json::from_str(text).unwrap();
        assert_eq!(config.0.get_index(1).unwrap().1.s3_distribution_type, Distribution::ShardedByS3Key);
        assert_eq!(config.to_json(), text);
    }

    #[test]
    fn no_channels_is_an_empty_object() {
        assert_eq!(InputDataConfig::default().to_json(), "{}");
    }

    #[test]
    fn a_channel_with_only_its_mode_is_replicated_and_not_wrapped() {
        let config: InputDataConfig = serde_json::from_str(r#"{"a":{"TrainingInputMode":"File"}}"#).unwrap();
        assert_eq!(config.0["a"].s3_distribution_type, Distribution::FullyReplicated);
        assert_eq!(config.0["a"].record_wrapper_type, RecordWrapper::None);
    }

    #[test]
    fn an_unknown_member_is_passed_over() {
        let text = r#"{"a":{"TrainingInputMode":"File","Later":1}}"#;
        assert!(serde_json::from_str::<InputDataConfig>(text).is_ok());
    }

    #[test]
    fn errors_name_channel_and_member() {
        for (text, start) in [
            (r#"{"a":{}}"#, "field `a.TrainingInputMode`: is missing"),
            (
                r#"{"a":{"TrainingInputMode":"Files"}}"#,
                "field `a.TrainingInputMode`: unknown variant `Files`",
            ),
            (r#"{"a":{"TrainingInputMode":"File","ContentType":5}}"#, "field `a.ContentType`: invalid type"),
            (r#"{"a":7}"#, "field `a`: 7 is not an object"),
        ] {
            let error = serde_json::from_str::<InputDataConfig>(text).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
