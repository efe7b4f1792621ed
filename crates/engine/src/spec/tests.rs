//! The promises of the spec.

use serde_json::{Value, json};

use super::{TrainingJobSpec, Violations, pattern};
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

#[test]
fn a_small_request_is_valid() {
    let spec = spec(&request()).unwrap();
    assert_eq!((spec.name.as_str(), spec.resources.instance_count()), ("job", 2));
}

#[test]
fn every_pattern_can_be_read() {
    for pattern in pattern::ALL {
        pattern.holds("");
    }
}
