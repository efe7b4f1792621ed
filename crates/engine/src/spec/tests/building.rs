//! What a valid request becomes.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{Slot, Step, sample, shape, slots};
use super::{merge, parsed, patched, request, spec};
use crate::spec::{
    AlgorithmSpec, Capabilities, ChannelSource, Compression, Distribution, InputMode, MergeSpec, ONE_GROUP,
    OutputCompression, RecordWrapper, S3DataType, Settings, ShardBy, TrainingJobSpec, Violations,
    unsupported,
};
use crate::wire::parse_json;

#[test]
fn a_small_request_gets_the_defaults() {
    let spec = spec(&request()).unwrap();
    assert_eq!(spec.name, "job");
    assert_eq!(
        spec.algorithm,
        AlgorithmSpec {
            image: "host:train".to_owned(),
            by_name: false,
            input_mode: InputMode::File,
            metrics: Vec::new(),
            entrypoint: None,
            arguments: None,
        }
    );
    let [channel] = spec.channels.as_slice() else { panic!("{:?}", spec.channels) };
    assert_eq!((channel.name.as_str(), channel.input_mode), ("train", InputMode::File));
    assert_eq!(channel.distribution, Distribution::FullyReplicated);
    assert_eq!((channel.compression, channel.record_wrapper), (Compression::None, RecordWrapper::None));
    assert_eq!(spec.output.compression, OutputCompression::Gzip);
    assert_eq!(spec.resources.groups[0].name, ONE_GROUP);
    assert_eq!((spec.resources.instance_count(), spec.resources.heterogeneous), (2, false));
    assert_eq!(spec.stopping.max_runtime, Duration::from_secs(86_400));
    assert_eq!((spec.stopping.max_wait, spec.stopping.max_pending), (None, None));
    assert!(!spec.network_isolation && !spec.traffic_encryption && !spec.managed_spot);
    let settings = Settings {
        merge: None,
        shard_by: ShardBy::Key,
        grace: None,
        shm_size_gb: None,
        pids_limit: None,
        output_level: None,
        output_ignore: Vec::new(),
        output_warn_above_gb: None,
    };
    assert_eq!(spec.settings, settings);
    assert!(spec.hyperparameters.is_empty() && spec.environment.is_empty() && spec.tags.is_empty());
    assert_eq!((spec.role_arn, spec.checkpoint, spec.retries), (None, None, None));
}

/// The members of the blog post that this program began with, brought together in one request.
#[test]
fn the_request_of_the_blog_post_is_valid() {
    let request = json!({
        "TrainingJobName": "my-training-job",
        "AlgorithmSpecification": {"TrainingImage": "my-image", "TrainingInputMode": "File"},
        "InputDataConfig": [{
            "ChannelName": "my-input-data",
            "DataSource": {"S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": "s3://my-bucket/training-data/",
                "S3DataDistributionType": "ShardedByS3Key"
            }}
        }],
        "OutputDataConfig": {"S3OutputPath": "s3://my-sagemaker-output/output-path"},
        "ResourceConfig": {"InstanceType": "ml.c5.4xlarge", "InstanceCount": 10, "VolumeSizeInGB": 5}
    });
    let spec = spec(&request).unwrap();
    assert_eq!((spec.resources.instance_count(), spec.resources.volume_size_gb), (10, Some(5)));
    assert_eq!(spec.channels[0].distribution, Distribution::ShardedByS3Key);
    assert_eq!(spec.output.uri.key(), Some("output-path"));
    assert_eq!(unsupported(&spec, &Capabilities::none()), []);
}

#[test]
fn a_model_may_be_asked_for_as_plain_files() {
    let request = patched(&json!({"OutputDataConfig": {"CompressionType": "NONE"}}));
    assert_eq!(spec(&request).unwrap().output.compression, OutputCompression::None);
}

#[test]
fn all_that_is_sent_arrives() {
    let request = patched(&json!({
        "RoleArn": "arn:aws:iam::123456789012:role/job",
        "HyperParameters": {"z": "1", "a": "\"quoted\"", "m": ""},
        "Environment": {"Z": "line\nline", "A": ""},
        "AlgorithmSpecification": {
            "TrainingInputMode": "FastFile",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
            "ContainerEntrypoint": ["python3", "run.py"],
            "ContainerArguments": ["--fast"]
        },
        "OutputDataConfig": {"KmsKeyId": "key", "CompressionType": "GZIP"},
        "ResourceConfig": {"VolumeSizeInGB": 30, "KeepAlivePeriodInSeconds": 60},
        "StoppingCondition": {"MaxRuntimeInSeconds": 5, "MaxPendingTimeInSeconds": 7200},
        "Tags": [{"Key": "team", "Value": "pairs"}],
        "EnableNetworkIsolation": true,
        "EnableInterContainerTrafficEncryption": true,
        "CheckpointConfig": {"S3Uri": "file:///checkpoints"},
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "Trainyard": {
            "Merge": {"Glob": "part-*.parquet", "Output": "pairs.parquet", "OrderBy": "row"},
            "ShardBy": "size", "GraceInSeconds": 0, "ShmSizeInGB": 2, "PidsLimit": 100, "Output": {"Level": 6, "Ignore": ["*.tmp"], "WarnAboveInGB": 4}
        }
    }));
    let spec = spec(&request).unwrap();
    assert_eq!(format!("{:?}", spec.hyperparameters), r#"{"z": "1", "a": "\"quoted\"", "m": ""}"#);
    assert_eq!(format!("{:?}", spec.environment), r#"{"Z": "line\nline", "A": ""}"#);
    assert_eq!(spec.algorithm.metrics[0].regex, "loss=(.*)");
    assert_eq!(spec.algorithm.entrypoint.as_deref(), Some(&["python3".to_owned(), "run.py".to_owned()][..]));
    assert_eq!(spec.algorithm.arguments.as_deref(), Some(&["--fast".to_owned()][..]));
    assert_eq!(spec.channels[0].input_mode, InputMode::FastFile);
    let (key, compression) = (spec.output.kms_key_id.as_deref(), spec.output.compression);
    assert_eq!((key, compression), (Some("key"), OutputCompression::Gzip));
    assert_eq!(spec.resources.keep_alive, Some(Duration::from_secs(60)));
    assert_eq!(spec.stopping.max_runtime, Duration::from_secs(5));
    assert_eq!((spec.tags[0].key.as_str(), spec.tags[0].value.as_str()), ("team", "pairs"));
    assert!(spec.network_isolation && spec.traffic_encryption);
    let checkpoint = spec.checkpoint.unwrap();
    assert_eq!(
        (checkpoint.uri.to_string(), checkpoint.local_path),
        ("file:///checkpoints".into(), "/opt/ml/checkpoints/".into())
    );
    assert_eq!((spec.retries, spec.stopping.max_pending), (Some(3), Some(Duration::from_secs(7200))));
    assert_eq!(
        spec.settings,
        Settings {
            merge: Some(MergeSpec {
                glob: Some("part-*.parquet".to_owned()),
                output: "pairs.parquet".to_owned(),
                order_by: Some("row".to_owned()),
            }),
            shard_by: ShardBy::Size,
            grace: Some(Duration::ZERO),
            shm_size_gb: Some(2),
            pids_limit: Some(100),
            output_level: Some(6),
            output_ignore: vec!["*.tmp".to_owned()],
            output_warn_above_gb: Some(4),
        }
    );
    assert_eq!(serde_json::to_value(&spec.request).unwrap(), request);
}

#[test]
fn the_mode_of_a_channel_goes_before_that_of_the_algorithm() {
    let mut request = request();
    request["AlgorithmSpecification"]["TrainingInputMode"] = json!("Pipe");
    let channel = &mut request["InputDataConfig"][0];
    merge(
        channel,
        &json!({
            "InputMode": "Pipe", "CompressionType": "Gzip", "RecordWrapperType": "RecordIO",
            "ContentType": "text/csv", "ShuffleConfig": {"Seed": -1},
            "DataSource": {"S3DataSource": {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["b", "a"]}}
        }),
    );
    let mut second = self::request()["InputDataConfig"][0].take();
    merge(&mut second, &json!({"ChannelName": "second", "InputMode": "File"}));
    request["InputDataConfig"].as_array_mut().unwrap().push(second);
    let spec = spec(&request).unwrap();
    let [first, second] = spec.channels.as_slice() else { panic!("{:?}", spec.channels) };
    assert_eq!((first.input_mode, second.input_mode), (InputMode::Pipe, InputMode::File));
    assert_eq!((first.compression, first.record_wrapper), (Compression::Gzip, RecordWrapper::RecordIo));
    assert_eq!((first.content_type.as_deref(), first.shuffle_seed), (Some("text/csv"), Some(-1)));
    let ChannelSource::S3 { data_type, attribute_names, .. } = &first.source else { panic!("{first:?}") };
    assert_eq!(*data_type, S3DataType::AugmentedManifestFile);
    assert_eq!(*attribute_names, ["b", "a"]);
}

#[test]
fn groups_are_counted_together() {
    let group = |name: &str, count: u32| json!({"InstanceType": "local", "InstanceCount": count, "InstanceGroupName": name});
    let spec = spec(&patched(&json!({
        "ResourceConfig": {"InstanceType": null, "InstanceCount": null, "InstanceGroups": [group("a", 2), group("b", 3)]}
    })))
    .unwrap();
    let names: Vec<&str> = spec.resources.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!((names, spec.resources.instance_count()), (vec!["a", "b"], 5));
    assert!(spec.resources.heterogeneous);
}

#[test]
fn a_metric_that_gives_no_values_is_a_warning_and_no_violation() {
    let metrics = json!([
        {"Name": "right", "Regex": "loss=([0-9.]+)"},
        {"Name": "no-group", "Regex": "loss=.*"},
        {"Name": "unreadable", "Regex": "(?<=loss=)(.*"}
    ]);
    let spec = spec(&patched(&json!({"AlgorithmSpecification": {"MetricDefinitions": metrics}}))).unwrap();
    assert_eq!(
        spec.warnings(),
        [
            "metric 'no-group': the regular expression has no group (…), so it gives no values",
            "metric 'unreadable': the regular expression can not be read, so it gives no values: \
             look-around, including look-ahead and look-behind, is not supported",
        ]
    );
}

#[test]
fn a_request_without_anything_says_all_that_it_needs() {
    let texts: Vec<String> = match TrainingJobSpec::try_from(parsed(&json!({}))) {
        Ok(_) => Vec::new(),
        Err(violations) => violations.into_iter().map(|violation| violation.to_string()).collect(),
    };
    let missing =
        |member| format!("Value null at '{member}' failed to satisfy constraint: Member must not be null");
    let members = ["trainingJobName", "outputDataConfig", "algorithmSpecification", "resourceConfig"];
    assert_eq!(texts, members.map(missing));
}

/// Any JSON, not too large.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,80}".prop_map(Value::from),
        "(s3|file|https)://[\\PC]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[A-Za-z]{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Reads a text as far as it goes; whatever comes of it must be of use.
fn digest(text: &str) -> Result<(), TestCaseError> {
    let Ok(request) = parse_json(text) else { return Ok(()) };
    let again = parse_json(&serde_json::to_string(&request).unwrap()).unwrap();
    prop_assert_eq!(&again, &request);
    match TrainingJobSpec::try_from(request) {
        Ok(spec) => {
            prop_assert!(spec.resources.instance_count() >= 1);
            spec.warnings();
            unsupported(&spec, &Capabilities::none());
        }
        Err(Violations(list)) => prop_assert!(!list.is_empty()),
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}|[\\[\\]{}\",:A-Za-z0-9. ]{0,200}") {
        digest(&text)?;
    }

    #[test]
    fn no_value_in_any_place_panics(places in prop::collection::vec(any_place(), 1..6)) {
        let mut request = request();
        for (slot, value) in places {
            // A key has to be a text, and nothing can be put below a value of another type.
            if request_allows(&request, &slot) {
                slot.put(&mut request, value);
            }
        }
        digest(&request.to_string())?;
    }
}

/// A place of the request and what is put there: a sample, something of the same type, or anything.
fn any_place() -> impl Strategy<Value = (Slot, Value)> {
    (prop::sample::select(slots()), any_json(), "\\PC{0,40}", any::<i32>(), 0..6).prop_map(
        |(slot, anything, text, number, choice)| {
            let value = match (choice, shape(slot.shape)["type"].as_str()) {
                (0, _) => anything,
                (1 | 2, Some("string")) => json!(text),
                (1 | 2, Some("integer" | "long")) => json!(number),
                _ => sample(slot.shape),
            };
            (slot, value)
        },
    )
}

/// Whether the way to a place leads through objects and lists only.
fn request_allows(request: &Value, slot: &Slot) -> bool {
    let mut at = request;
    for step in &slot.path {
        match (step, at) {
            (_, Value::Null) => return *slot.path.last().unwrap() != Step::Key,
            (Step::Member(name, _), Value::Object(members)) => {
                at = members.get(*name).unwrap_or(&Value::Null)
            }
            (Step::Element, Value::Array(list)) if !list.is_empty() => at = &list[0],
            (Step::Value, Value::Object(_)) => return true,
            _ => return false,
        }
    }
    true
}
