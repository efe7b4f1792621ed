//! Nothing of a request is swallowed: each member is honoured, or refused by name.

use serde_json::{Value, json};

use super::model::{Slot, Step, sample, shape, slots};
use super::{merge, request, spec};
use crate::spec::{Capabilities, unsupported};

/// The members that any backend honours, or that need nothing to be done. All others are refused
/// without their capability.
const HONOURED: &[&str] = &[
    "TrainingJobName",
    "HyperParameters",
    "AlgorithmSpecification.TrainingImage",
    "AlgorithmSpecification.MetricDefinitions",
    "AlgorithmSpecification.MetricDefinitions.Name",
    "AlgorithmSpecification.MetricDefinitions.Regex",
    "AlgorithmSpecification.ContainerEntrypoint",
    "AlgorithmSpecification.ContainerArguments",
    // Checked and shown again; nothing here asks for a role.
    "RoleArn",
    "InputDataConfig.ChannelName",
    "InputDataConfig.ContentType",
    "InputDataConfig.DataSource.S3DataSource.S3Uri",
    "InputDataConfig.DataSource.S3DataSource.S3DataDistributionType",
    "OutputDataConfig.S3OutputPath",
    // Checked and shown again; the machine is the user's own.
    "ResourceConfig.InstanceType",
    "ResourceConfig.InstanceCount",
    "ResourceConfig.VolumeSizeInGB",
    "ResourceConfig.InstancePreferences.InstanceType",
    "ResourceConfig.InstancePreferences.InstanceCount",
    "StoppingCondition.MaxRuntimeInSeconds",
    "Tags.Key",
    "Tags.Value",
    "Environment",
    // Alone it names nothing to be saved; Amazon's SDK sends it with every job.
    "DebugHookConfig.S3OutputPath",
];

/// A request in which one member asks for more than nothing.
fn asking(slot: &Slot) -> Value {
    let mut request = request();
    merge(&mut request, &companions(&slot.members()));
    if slot.members().starts_with("InputDataConfig.DataSource.FileSystem") {
        request["InputDataConfig"][0]["DataSource"].as_object_mut().unwrap().remove("S3DataSource");
    }
    if slot.members().starts_with("InputDataConfig.DataSource.DatasetSource") {
        request["InputDataConfig"][0]["DataSource"].as_object_mut().unwrap().remove("S3DataSource");
    }
    slot.put(&mut request, demand(slot));
    if slot.members().ends_with(".AttributeNames") {
        request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3DataType"] =
            json!("AugmentedManifestFile");
    }
    request
}

/// A value that asks for more than the plain path.
fn demand(slot: &Slot) -> Value {
    match slot.shape {
        // This one switches something off.
        "DisableProfiler" => json!(false),
        "ProfilingIntervalInMilliseconds" => json!(100),
        "InstanceGroupName" => json!("group"),
        "InstanceGroupNames" => json!(["group"]),
        "TrainingInputMode" => json!("FastFile"),
        "S3DataType" => json!("ManifestFile"),
        "S3DataDistribution" => json!("ShardedByS3Key"),
        "CompressionType" => json!("Gzip"),
        "RecordWrapper" => json!("RecordIO"),
        "OutputCompressionType" => json!("NONE"),
        "TrainingRepositoryAccessMode" => json!("Vpc"),
        _ => sample(slot.shape),
    }
}

/// What else a request needs so that a member may be set in it.
fn companions(member: &str) -> Value {
    let groups = json!([{"InstanceType": "local", "InstanceCount": 1, "InstanceGroupName": "group"}]);
    let groups =
        json!({"ResourceConfig": {"InstanceType": null, "InstanceCount": null, "InstanceGroups": groups}});
    let vpc = json!({"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}});
    let pipe = json!({"AlgorithmSpecification": {"TrainingInputMode": "Pipe"}});
    match member {
        "AlgorithmSpecification.AlgorithmName" => json!({"AlgorithmSpecification": {"TrainingImage": null}}),
        "EnableManagedSpotTraining" => json!({"StoppingCondition": {"MaxWaitTimeInSeconds": 86_400}}),
        "StoppingCondition.MaxWaitTimeInSeconds" => {
            json!({"EnableManagedSpotTraining": true, "StoppingCondition": {"MaxRuntimeInSeconds": 1}})
        }
        "InputDataConfig.CompressionType"
        | "InputDataConfig.RecordWrapperType"
        | "InputDataConfig.DataSource.S3DataSource.AttributeNames" => pipe,
        "InputDataConfig.DataSource.S3DataSource.InstanceGroupNames" => groups,
        _ if member.starts_with("ResourceConfig.InstanceGroups") => groups,
        _ if member.starts_with("ResourceConfig.InstancePreferences") => json!({"ResourceConfig": {
            "InstanceType": null, "InstanceCount": null,
            "InstancePreferences": [{"InstanceType": "local", "InstanceCount": 1}]
        }}),
        _ if member.starts_with("InputDataConfig.DataSource.FileSystemDataSource") => vpc,
        _ if member.starts_with("AlgorithmSpecification.TrainingImageConfig") => vpc,
        _ => json!({}),
    }
}

/// Every member that holds a value of its own, or a list or map of values.
fn members() -> impl Iterator<Item = Slot> {
    let last = |slot: &Slot| matches!(slot.path.last(), Some(Step::Member(..)));
    let structure = |name: &str| shape(name)["type"] == "structure";
    slots().into_iter().filter(move |slot| {
        let element = shape(slot.shape)["member"].as_str();
        let inner = structure(slot.shape) || element.is_some_and(structure);
        // A list of structures that is honoured as a whole is asked for by its members.
        last(slot) && !inner
    })
}

/// Names of the members that are refused on the plain path.
fn refused(request: &Value) -> Vec<String> {
    let spec = spec(request).unwrap_or_else(|violations| panic!("{violations}\n{request}"));
    unsupported(&spec, &Capabilities::none()).into_iter().map(|refused| refused.member).collect()
}

#[test]
fn every_member_is_honoured_or_refused_by_name() {
    let mut refusals = 0;
    let mut wrong = Vec::new();
    for slot in members() {
        let member = slot.members();
        let refused = refused(&asking(&slot));
        let named = refused.iter().any(|name| member == *name || member.starts_with(&format!("{name}.")));
        if named == HONOURED.contains(&member.as_str()) {
            wrong.push((member, refused));
        }
        refusals += usize::from(named);
    }
    assert_eq!(wrong, [], "neither honoured nor refused, or both");
    assert!(refusals > 60, "only {refusals} members were refused");
}

#[test]
fn what_is_called_honoured_is_a_member() {
    let members: Vec<String> = slots().iter().map(Slot::members).collect();
    for honoured in HONOURED {
        assert!(members.iter().any(|member| member == honoured), "{honoured}");
    }
}

#[test]
fn the_plain_path_needs_no_capability() {
    assert_eq!(refused(&request()), [""; 0]);
}

#[test]
fn a_member_that_is_switched_off_asks_for_nothing() {
    let request = super::patched(&json!({
        "AlgorithmSpecification": {
            "EnableSageMakerMetricsTimeSeries": false,
            "TrainingImageConfig": {"TrainingRepositoryAccessMode": "Platform"}
        },
        "InputDataConfig": [{
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {
                "S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data/", "S3DataDistributionType": "FullyReplicated",
                "AttributeNames": [], "InstanceGroupNames": [], "ModelAccessConfig": {"AcceptEula": false}
            }},
            "CompressionType": "None", "RecordWrapperType": "None", "InputMode": "File"
        }],
        "OutputDataConfig": {"KmsKeyId": "", "CompressionType": "GZIP"},
        "ResourceConfig": {"VolumeKmsKeyId": "", "KeepAlivePeriodInSeconds": 0, "InstanceGroups": []},
        "EnableNetworkIsolation": false,
        "EnableInterContainerTrafficEncryption": false,
        "EnableManagedSpotTraining": false,
        "DebugHookConfig": {"S3OutputPath": "s3://bucket/debug", "CollectionConfigurations": []},
        "DebugRuleConfigurations": [],
        "ProfilerConfig": {"DisableProfiler": true},
        "ProfilerRuleConfigurations": [],
        "RemoteDebugConfig": {"EnableRemoteDebug": false},
        "InfraCheckConfig": {"EnableInfraCheck": false},
        "SessionChainingConfig": {"EnableSessionTagChaining": false}
    }));
    assert_eq!(refused(&request), [""; 0]);
}

#[test]
fn a_refusal_says_which_value_of_which_channel() {
    let channel = |name: &str, mode: Value| {
        let source = request()["InputDataConfig"][0]["DataSource"].take();
        let mut channel = json!({"ChannelName": name, "DataSource": source});
        merge(&mut channel, &mode);
        channel
    };
    let request = super::patched(&json!({
        "AlgorithmSpecification": {"TrainingInputMode": "Pipe"},
        "InputDataConfig": [
            channel("a", json!({})), channel("b", json!({"InputMode": "FastFile"})),
            channel("c", json!({"InputMode": "File", "ShuffleConfig": {"Seed": 1}}))
        ],
        "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"}
    }));
    let refused: Vec<String> = unsupported(&spec(&request).unwrap(), &Capabilities::none())
        .into_iter()
        .map(|refused| refused.to_string())
        .collect();
    assert_eq!(
        refused,
        [
            "CheckpointConfig: not supported yet",
            "AlgorithmSpecification.TrainingInputMode: Pipe is not supported yet (channel 'a')",
            "InputDataConfig.InputMode: FastFile is not supported yet (channel 'b')",
            "InputDataConfig.ShuffleConfig: not supported yet (channel 'c')",
        ]
    );
    let able = Capabilities {
        checkpoints: true,
        pipe: true,
        fast_file: true,
        shuffle: true,
        ..Capabilities::none()
    };
    assert_eq!(unsupported(&spec(&request).unwrap(), &able), []);
}
