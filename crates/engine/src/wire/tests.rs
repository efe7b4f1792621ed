//! The promises of the wire types.

use serde_json::{Value, json};

use super::{CreateTrainingJobRequest, parse_json};

#[test]
fn a_text_that_is_no_request_is_refused_with_the_place_and_what_would_be_right() {
    let table = [
        ("", "line 1, column 1: not JSON: the text ends within a value"),
        ("{\n\"Tags\": [", "line 2, column 9: not JSON: the text ends within a list"),
        ("{\"Tags\": [],}", "line 1, column 13: not JSON: trailing comma"),
        ("{'Tags': []}", "line 1, column 2: not JSON: key must be a string"),
        ("{} {}", "line 1, column 4: not JSON: trailing characters"),
        ("[]", "line 1, column 1: invalid type: list, expected an object"),
        (
            "{\n  \"trainingJobName\": \"job\"\n}",
            "line 2, column 19: there is no member `trainingJobName`: did you mean `TrainingJobName`?",
        ),
        (
            "{\"ResourceConfig\": {\n  \"InstanceCnt\": 3}}",
            "line 2, column 15: ResourceConfig: there is no member `InstanceCnt`: did you mean `InstanceCount`?",
        ),
        (
            "{\"InputDataConfig\": [{\"ChannelName\": \"a\"}, {\"ChannelName\": 1}]}",
            "line 1, column 60: InputDataConfig[1].ChannelName: invalid type: integer `1`, expected a string",
        ),
        (
            "{\"RetryStrategy\": {\"Attempts\": 3}}",
            "line 1, column 29: RetryStrategy: there is no member `Attempts`, only MaximumRetryAttempts",
        ),
        (
            "{\"ResourceConfig\": {\"InstanceCount\": \"3\"}}",
            "line 1, column 40: ResourceConfig.InstanceCount: invalid type: string \"3\", expected a whole number",
        ),
        (
            "{\"ResourceConfig\": {\"InstanceCount\": 1.5}}",
            "line 1, column 40: ResourceConfig.InstanceCount: invalid type: floating point `1.5`, expected a whole number",
        ),
        (
            "{\"RetryStrategy\": [3]}",
            "line 1, column 18: RetryStrategy: invalid type: list, expected an object",
        ),
        (
            "{\"InputDataConfig\": {\"ChannelName\": \"a\"}}",
            "line 1, column 20: InputDataConfig: invalid type: object, expected a list",
        ),
        (
            "{\"EnableNetworkIsolation\": \"true\"}",
            "line 1, column 33: EnableNetworkIsolation: invalid type: string \"true\", expected a boolean",
        ),
        (
            "{\"HyperParameters\": [\"a\"]}",
            "line 1, column 20: HyperParameters: invalid type: list, expected an object whose values are strings",
        ),
        (
            "{\"HyperParameters\": {\"a\": \"1\", \"a\": \"2\"}}",
            "line 1, column 40: HyperParameters: `a` is given twice",
        ),
        (
            "{\"TrainingJobName\": \"a\", \"TrainingJobName\": \"b\"}",
            "line 1, column 42: `TrainingJobName` is given twice",
        ),
    ];
    for (text, message) in table {
        assert_eq!(parse_json(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn a_name_that_is_close_to_none_is_refused_with_all_that_there_are() {
    let long = format!("{{\"{}\": 1}}", "x".repeat(100_000));
    for text in ["{\"Nonsense\": 1}", &long] {
        let message = parse_json(text).unwrap_err().to_string();
        assert!(message.ends_with("ModelPackageConfig, Trainyard"), "{message}");
    }
}

#[test]
fn what_was_sent_is_written_again_and_nothing_else() {
    let request = json!({
        "TrainingJobName": "job",
        "HyperParameters": {"z": "1", "a": 2, "list": ["x"]},
        "InputDataConfig": [{"ChannelName": "a", "DataSource": {"S3DataSource": {"S3Uri": "s3://b"}}}],
        "ResourceConfig": {"VolumeSizeInGB": 1},
        "VpcConfig": {},
        "Tags": [],
        "EnableManagedSpotTraining": false,
        "TensorBoardOutputConfig": {"LocalPath": "/x"},
        "Trainyard": {"ShmSizeInGB": 1}
    });
    let read = parse_json(&request.to_string()).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), request.to_string());
}

#[test]
fn a_null_is_an_absent_member() {
    let read = parse_json("{\"TrainingJobName\": null, \"Tags\": null}").unwrap();
    assert_eq!(read, CreateTrainingJobRequest::default());
    assert_eq!(serde_json::to_string(&read).unwrap(), "{}");
}

#[test]
fn a_byte_order_mark_is_no_mistake() {
    assert_eq!(parse_json("\u{feff}{}").unwrap(), CreateTrainingJobRequest::default());
}

#[test]
fn yaml_reads_into_the_same_request() {
    let yaml = "
TrainingJobName: job
HyperParameters: {z: '1', a: 2, b: true}
InputDataConfig:
  - ChannelName: train
    DataSource: {S3DataSource: {S3DataType: S3Prefix, S3Uri: 's3://bucket/data/'}}
ResourceConfig: {InstanceCount: 3, VolumeSizeInGB: 5}
EnableNetworkIsolation: true
Trainyard: {Merge: {Output: pairs.csv}}
";
    let json: Value = json!({
        "TrainingJobName": "job",
        "HyperParameters": {"z": "1", "a": 2, "b": true},
        "InputDataConfig": [{
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data/"}}
        }],
        "ResourceConfig": {"InstanceCount": 3, "VolumeSizeInGB": 5},
        "EnableNetworkIsolation": true,
        "Trainyard": {"Merge": {"Output": "pairs.csv"}}
    });
    let read: CreateTrainingJobRequest = serde_saphyr::from_str(yaml).unwrap();
    assert_eq!(read, parse_json(&json.to_string()).unwrap());
    let error = serde_saphyr::from_str::<CreateTrainingJobRequest>("TrainingJobNam: job").unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("there is no member `TrainingJobNam`: did you mean `TrainingJobName`?"),
        "{message}"
    );
}
