//! The promises of the spec.

mod building;
mod conflicts;
mod coverage;
mod limits;
mod model;
mod preferences;
mod uris;

use serde_json::{Value, json};

use super::{TrainingJobSpec, Violations};
use crate::wire::{CreateTrainingJobRequest, parse_json};

/// A small valid request: what each test changes.
fn request() -> Value {
    json!({
        "TrainingJobName": "job",
        "AlgorithmSpecification": {"TrainingImage": "host:train", "TrainingInputMode": "File"},
        "InputDataConfig": [{
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data/"}}
        }],
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2}
    })
}

fn parsed(request: &Value) -> CreateTrainingJobRequest {
    parse_json(&request.to_string()).unwrap()
}

fn spec(request: &Value) -> Result<TrainingJobSpec, Violations> {
    TrainingJobSpec::try_from(parsed(request))
}

/// The small request, with the members of the patch put in, and those that are null there taken out.
fn patched(patch: &Value) -> Value {
    let mut request = request();
    merge(&mut request, patch);
    request
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let target = into.as_object_mut().unwrap();
    for (name, value) in members {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// What is wrong with the patched small request, each violation alone.
fn wrong(patch: &Value) -> Vec<String> {
    match spec(&patched(patch)) {
        Ok(_) => Vec::new(),
        Err(violations) => violations.into_iter().map(|violation| violation.to_string()).collect(),
    }
}
