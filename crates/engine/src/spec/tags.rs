//! Our own settings as tags, such as `trainyard:GraceInSeconds`: the only way for clients that know no members but
//! Amazon's.

use serde_json::{Map, Value, json};

use super::{Conflict, Rule, Violation};
use crate::wire::{CreateTrainingJobRequest, TrainyardSettings};

/// What the keys of such tags begin with; a member of a member follows after a dot, as in `trainyard:Merge.Output`.
const PREFIX: &str = "trainyard:";
/// Jobs of a higher number start first; it is no setting of a job file, for there only one job is run.
const PRIORITY: &str = "trainyard:priority";

/// What the tag `trainyard:priority` says; 0 without it.
pub(crate) fn priority<'a>(mut tags: impl Iterator<Item = (&'a str, &'a str)>) -> i64 {
    tags.find(|(key, _)| *key == PRIORITY).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Puts the settings of tags into `Trainyard`; returns their paths there, as violations have them, with their keys.
///
/// # Errors
/// Tags that are no settings, each by its key.
pub(super) fn take(request: &mut CreateTrainingJobRequest) -> Result<Vec<(String, String)>, Vec<Conflict>> {
    let mut settings = json!(request.trainyard);
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for tag in request.tags.iter().flatten() {
        let (Some(key), Some(value)) = (&tag.key, &tag.value) else { continue };
        let Some(path) = key.strip_prefix(PREFIX) else { continue };
        let taken = match key.as_str() {
            PRIORITY => value.parse::<i64>().map(drop).map_err(|_| "it is a whole number".to_owned()),
            _ => put(&mut settings, path, value),
        };
        match taken {
            Ok(()) => found.push((in_violations(path), key.clone())),
            Err(why) => wrong.push(Conflict::SettingTag { key: key.clone(), value: value.clone(), why }),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    // What was put together of parts that could be read can be read.
    request.trainyard = serde_json::from_value(settings).unwrap_or_default();
    Ok(found)
}

fn put(settings: &mut Value, path: &str, text: &str) -> Result<(), String> {
    let steps: Vec<&str> = path.split('.').collect();
    let value = meant(&steps, text)?;
    let mut at = settings;
    for step in &steps {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let members = at.as_object_mut().ok_or_else(twice)?;
        at = members.entry(*step).or_insert(Value::Null);
    }
    if !at.is_null() {
        return Err(twice());
    }
    *at = value;
    Ok(())
}

fn twice() -> String {
    "the setting is given twice, in Trainyard or by another tag".to_owned()
}

/// The value as the setting takes it: as the text that it is, else as what it stands for.
fn meant(steps: &[&str], text: &str) -> Result<Value, String> {
    let as_text = Value::String(text.to_owned());
    let Err(wrong) = reads(steps, &as_text) else { return Ok(as_text) };
    let Ok(value) = serde_json::from_str::<Value>(text) else { return Err(wrong) };
    reads(steps, &value).map(|()| value)
}

fn reads(steps: &[&str], value: &Value) -> Result<(), String> {
    let alone = steps.iter().rev().fold(value.clone(), |inner, step| json!({ *step: inner }));
    serde_json::from_value::<TrainyardSettings>(alone).map(drop).map_err(|error| error.to_string())
}

/// The path of a setting as violations write it.
fn in_violations(path: &str) -> String {
    let lower = |step: &str| {
        let mut letters = step.chars();
        letters
            .next()
            .map(|first| first.to_lowercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    };
    let steps: Vec<_> = path.split('.').map(lower).collect();
    format!("trainyard.{}", steps.join("."))
}

/// Names the tag of a setting that breaks a limit. Of the values of such tags Amazon's pattern is not asked, which has no
/// room for an asterisk.
pub(super) fn by_key(
    violations: Vec<Violation>,
    request: &CreateTrainingJobRequest,
    keys: &[(String, String)],
) -> Vec<Violation> {
    let numbered = request.tags.iter().flatten().zip(1_usize..);
    let ours = numbered.filter(|(tag, _)| tag.key.as_ref().is_some_and(|key| key.starts_with(PREFIX)));
    let ours: Vec<String> = ours.map(|(_, number)| format!("tags.{number}.member.value")).collect();
    let kept = violations.into_iter().filter(|violation| match violation {
        Violation::Constraint { member, rule: Rule::Pattern(_), .. } => !ours.contains(member),
        _ => true,
    });
    let named = kept.map(|violation| match violation {
        Violation::Constraint { member, value, rule } => {
            let key = keys.iter().find(|(path, _)| *path == member).map(|(_, key)| format!("tag {key}"));
            Violation::Constraint { member: key.unwrap_or(member), value, rule }
        }
        conflict => conflict,
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ShardBy, TrainingJobSpec};
    use crate::wire::parse_json;

    fn spec(tags: &[(&str, &str)], more: &Value) -> Result<TrainingJobSpec, String> {
        let tags: Vec<_> = tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
        let mut request = json!({
            "TrainingJobName": "job",
            "AlgorithmSpecification": {"TrainingImage": "host:train", "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
            "Tags": tags
        });
        if !more.is_null() {
            request["Trainyard"] = more.clone();
        }
        let request = parse_json(&request.to_string()).unwrap();
        TrainingJobSpec::try_from(request).map_err(|violations| violations.to_string())
    }

    #[test]
    fn every_setting_can_be_a_tag() {
        let tags = [
            ("team", "blue"),
            ("trainyard:ShardBy", "size"),
            ("trainyard:GraceInSeconds", "7"),
            ("trainyard:ShmSizeInGB", "2"),
            ("trainyard:PidsLimit", "100"),
            ("trainyard:Output.Level", "9"),
            ("trainyard:Merge.Output", "123.csv"),
            ("trainyard:Merge.Glob", "part-*.csv"),
            ("trainyard:priority", "-3"),
        ];
        let settings = spec(&tags, &Value::Null).unwrap().settings;
        assert_eq!((settings.shard_by, settings.grace.unwrap().as_secs()), (ShardBy::Size, 7));
        assert_eq!(
            (settings.shm_size_gb, settings.pids_limit, settings.output_level),
            (Some(2), Some(100), Some(9))
        );
        let merge = settings.merge.unwrap();
        assert_eq!((merge.output.as_str(), merge.glob.as_deref()), ("123.csv", Some("part-*.csv")));
        assert_eq!(priority([("a", "1"), ("trainyard:priority", "-3")].into_iter()), -3);
    }

    #[test]
    fn tags_and_the_object_go_together_unless_they_say_the_same_setting() {
        let object = json!({"Merge": {"Output": "a.csv"}});
        let both = spec(&[("trainyard:Merge.OrderBy", "id")], &object).unwrap().settings.merge.unwrap();
        assert_eq!((both.output.as_str(), both.order_by.as_deref()), ("a.csv", Some("id")));
        let error = spec(&[("trainyard:Merge.Output", "b.csv")], &object).unwrap_err();
        assert!(error.contains("trainyard:Merge.Output") && error.contains("twice"), "{error}");
    }

    #[test]
    fn a_wrong_setting_is_told_by_the_key_of_its_tag() {
        let table = [
            (("trainyard:GraceInSecond", "7"), "did you mean `GraceInSeconds`"),
            (("trainyard:GraceInSeconds", "soon"), "soon"),
            (("trainyard:GraceInSeconds", "-1"), "greater than or equal to 0"),
            (("trainyard:ShardBy", "colour"), "[key, size]"),
            (("trainyard:Output.Level", "10"), "less than or equal to 9"),
            (("trainyard:Output", "x"), "object"),
            (("trainyard:priority", "high"), "whole number"),
            (("trainyard:", "1"), "no member"),
            (("trainyard:Merge.Output.Deep", "1"), "trainyard:Merge.Output.Deep"),
        ];
        for (tag, words) in table {
            let error = spec(&[tag], &Value::Null).unwrap_err();
            assert!(error.contains(tag.0) && error.contains(words), "{tag:?}: {error}");
        }
    }
}
