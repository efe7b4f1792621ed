//! The rules across members, and the exact texts of what is wrong.

use serde_json::{Value, json};

use super::{patched, request, spec, wrong};

/// The exact text of each violation of a patched small request.
#[track_caller]
fn check(patch: &Value, expected: &[&str]) {
    assert_eq!(wrong(patch), expected);
}

/// A patch that changes the only channel.
fn channel(patch: &Value) -> Value {
    let mut channel = request()["InputDataConfig"][0].take();
    super::merge(&mut channel, patch);
    json!({ "InputDataConfig": [channel] })
}

/// Two patches in one; what either takes out stays out.
fn with(mut patch: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        let both = match &patch[name] {
            Value::Object(_) if value.is_object() => with(patch[name].take(), value),
            _ => value.clone(),
        };
        patch[name] = both;
    }
    patch
}

fn s3(patch: &Value) -> Value {
    channel(&json!({"DataSource": {"S3DataSource": patch}}))
}

/// Channels of these names, all of the same objects.
fn channels(names: &[&str]) -> Value {
    let source = request()["InputDataConfig"][0]["DataSource"].take();
    let channel = |name| json!({"ChannelName": name, "DataSource": source});
    json!({"InputDataConfig": names.iter().map(channel).collect::<Vec<_>>()})
}

#[test]
fn exactly_one_of_image_and_algorithm_name() {
    let name = json!({"AlgorithmSpecification": {"TrainingImage": null, "AlgorithmName": "forest"}});
    check(&name, &[]);
    check(
        &json!({"AlgorithmSpecification": {"AlgorithmName": "forest"}}),
        &[
            "AlgorithmSpecification has both TrainingImage and AlgorithmName: exactly one of them must be given",
        ],
    );
    let neither = "AlgorithmSpecification has neither TrainingImage nor AlgorithmName: exactly one of them must be given";
    check(&json!({"AlgorithmSpecification": {"TrainingImage": null}}), &[neither]);
    check(&json!({"AlgorithmSpecification": {"TrainingImage": ""}}), &[neither]);
}

#[test]
fn only_a_job_without_instances_could_leave_out_what_runs_where() {
    let nothing = json!({"AlgorithmSpecification": null, "ResourceConfig": null});
    check(
        &nothing,
        &[
            "Value null at 'algorithmSpecification' failed to satisfy constraint: Member must not be null",
            "Value null at 'resourceConfig' failed to satisfy constraint: Member must not be null",
        ],
    );
    let arn = "arn:aws:sagemaker:eu-west-1:aws:hub-content/hub/Model/m";
    let serverless = json!({"ServerlessJobConfig": {"BaseModelArn": arn, "JobType": "FineTuning"}});
    check(&serverless, &[]);
    check(
        &with(serverless, &nothing),
        &[
            "ServerlessJobConfig stands without AlgorithmSpecification: a job runs on instances here, so AlgorithmSpecification must be given",
            "ServerlessJobConfig stands without ResourceConfig: a job runs on instances here, so ResourceConfig must be given",
        ],
    );
}

#[test]
fn instances_are_given_by_type_and_count_or_by_groups() {
    let missing = |member| {
        format!(
            "Value null at 'resourceConfig.{member}' failed to satisfy constraint: Member must not be null"
        )
    };
    let none = json!({"ResourceConfig": {"InstanceType": null, "InstanceCount": null}});
    check(&none, &[&missing("instanceType"), &missing("instanceCount")]);
    check(
        &json!({"ResourceConfig": {"InstanceCount": 0}}),
        &[
            "Value '0' at 'resourceConfig.instanceCount' failed to satisfy constraint: Member must have value greater than or equal to 1",
        ],
    );
    let group = |name| json!({"InstanceType": "local", "InstanceCount": 1, "InstanceGroupName": name});
    let groups = json!({"ResourceConfig": {"InstanceGroups": [group("a"), group("b")]}});
    check(&with(none.clone(), &groups), &[]);
    // An answer of Amazon's has a count of none beside the groups.
    check(&with(with(none, &groups), &json!({"ResourceConfig": {"InstanceCount": 0}})), &[]);
    let either = "give either InstanceGroups or InstanceType and InstanceCount";
    check(
        &groups,
        &[
            &format!("ResourceConfig has InstanceGroups and also InstanceType: {either}"),
            &format!("ResourceConfig has InstanceGroups and also InstanceCount: {either}"),
        ],
    );
}

#[test]
fn a_job_has_at_most_ten_thousand_instances() {
    check(&json!({"ResourceConfig": {"InstanceCount": 10_000}}), &[]);
    let text = "ResourceConfig asks for 10001 instances: a job has at most 10000";
    check(&json!({"ResourceConfig": {"InstanceCount": 10_001}}), &[text]);
    let group =
        |name, count| json!({"InstanceType": "local", "InstanceCount": count, "InstanceGroupName": name});
    let groups = |count| {
        let groups = [group("a", 5_000), group("b", count)];
        json!({"ResourceConfig": {"InstanceType": null, "InstanceCount": null, "InstanceGroups": groups}})
    };
    check(&groups(5_000), &[]);
    check(&groups(5_001), &[text]);
}

#[test]
fn waiting_needs_interruptible_capacity_and_the_reverse() {
    let job = |spot: bool, stopping: Value| json!({"EnableManagedSpotTraining": spot, "StoppingCondition": stopping});
    check(
        &job(false, json!({"MaxWaitTimeInSeconds": 7200})),
        &["Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"],
    );
    let text = "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds";
    check(&job(true, json!({})), &[text]);
    check(&job(true, json!({"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 59})), &[text]);
    check(&job(true, json!({"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60})), &[]);
    // Without a runtime, the default of a day counts.
    check(&job(true, json!({"MaxWaitTimeInSeconds": 86_399})), &[text]);
    check(&job(true, json!({"MaxWaitTimeInSeconds": 86_400})), &[]);
}

#[test]
fn instances_are_not_kept_with_spot_or_groups() {
    let keep = json!({"ResourceConfig": {"KeepAlivePeriodInSeconds": 60}});
    check(&keep, &[]);
    let spot =
        json!({"EnableManagedSpotTraining": true, "StoppingCondition": {"MaxWaitTimeInSeconds": 86_400}});
    check(
        &with(keep.clone(), &spot),
        &["Invalid KeepAlivePeriodInSeconds. It is not supported together with EnableManagedSpotTraining"],
    );
    check(&with(json!({"ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}), &spot), &[]);
    let groups = json!([{"InstanceType": "local", "InstanceCount": 1, "InstanceGroupName": "a"}]);
    let groups =
        json!({"ResourceConfig": {"InstanceType": null, "InstanceCount": null, "InstanceGroups": groups}});
    check(
        &with(keep, &groups),
        &["Invalid KeepAlivePeriodInSeconds. It is not supported together with InstanceGroups"],
    );
}

#[test]
fn what_must_be_unique_is_reported_once_however_often_it_comes() {
    check(
        &channels(&["a", "b", "a", "a"]),
        &["ChannelName 'a' is given more than once in InputDataConfig: each must be unique"],
    );
    let tag = |key| json!({"Key": key, "Value": ""});
    check(
        &json!({"Tags": [tag("a"), tag("a")]}),
        &["Key 'a' is given more than once in Tags: each must be unique"],
    );
    let metric = |name| json!({"Name": name, "Regex": "(.)"});
    check(
        &json!({"AlgorithmSpecification": {"MetricDefinitions": [metric("a"), metric("b"), metric("a")]}}),
        &[
            "Name 'a' is given more than once in AlgorithmSpecification.MetricDefinitions: each must be unique",
        ],
    );
    let group = json!({"InstanceType": "local", "InstanceCount": 1, "InstanceGroupName": "g"});
    check(
        &json!({"ResourceConfig": {"InstanceType": null, "InstanceCount": null, "InstanceGroups": [group, group]}}),
        &[
            "InstanceGroupName 'g' is given more than once in ResourceConfig.InstanceGroups: each must be unique",
        ],
    );
}

#[test]
fn a_channel_never_takes_the_place_of_another_file() {
    check(&channels(&["..."]), &[]);
    check(&channels(&[".."]), &["ChannelName '..' can not be the name of a folder"]);
    check(&channels(&["."]), &["ChannelName '.' can not be the name of a folder"]);
    check(
        &channels(&["a", "a-manifest"]),
        &["ChannelName 'a-manifest' is the name of a file that channel 'a' needs beside its folder"],
    );
    check(&channels(&["a", "a_0"]), &[]);
    let pipe = json!({"AlgorithmSpecification": {"TrainingInputMode": "Pipe"}});
    check(
        &with(channels(&["a", "a_0", "a_", "a_x", "a-manifest"]), &pipe),
        &["ChannelName 'a_0' is the name of a file that channel 'a' needs beside its folder"],
    );
}

#[test]
fn a_channel_has_exactly_one_source() {
    let rest = "exactly one of S3DataSource, FileSystemDataSource and DatasetSource must be given";
    check(
        &channel(&json!({"DataSource": {"S3DataSource": null}})),
        &[&format!("channel 'train' has 0 sources in its DataSource: {rest}")],
    );
    let dataset = json!({"DatasetArn": "arn:aws:sagemaker:eu-west-1:aws:hub-content/hub/DataSet/d"});
    check(
        &channel(&json!({"DataSource": {"DatasetSource": dataset}})),
        &[&format!("channel 'train' has 2 sources in its DataSource: {rest}")],
    );
}

#[test]
fn some_values_need_an_input_mode() {
    check(&channel(&json!({"CompressionType": "None", "RecordWrapperType": "None"})), &[]);
    check(
        &channel(&json!({"CompressionType": "Gzip", "RecordWrapperType": "RecordIO"})),
        &[
            "channel 'train': CompressionType Gzip needs InputMode Pipe, but it is File",
            "channel 'train': RecordWrapperType RecordIO needs InputMode Pipe, but it is File",
        ],
    );
    check(&channel(&json!({"CompressionType": "Gzip", "InputMode": "Pipe"})), &[]);
    check(
        &s3(&json!({"S3DataType": "AugmentedManifestFile", "AttributeNames": ["a"]})),
        &["channel 'train': S3DataType AugmentedManifestFile needs InputMode Pipe, but it is File"],
    );
    let fast = json!({"AlgorithmSpecification": {"TrainingInputMode": "FastFile"}});
    check(
        &with(s3(&json!({"S3DataType": "ManifestFile"})), &fast),
        &["channel 'train': InputMode FastFile needs S3DataType S3Prefix, but it is ManifestFile"],
    );
    check(&with(s3(&json!({})), &fast), &[]);
}

#[test]
fn a_shared_file_system_is_read_as_files_in_a_private_network() {
    let source = json!({
        "FileSystemId": "fs-01234567", "FileSystemAccessMode": "ro", "FileSystemType": "EFS", "DirectoryPath": "/d"
    });
    let vpc = json!({"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}});
    let file = channel(&json!({"DataSource": {"S3DataSource": null, "FileSystemDataSource": source}}));
    check(&with(file.clone(), &vpc), &[]);
    check(&file, &["FileSystemDataSource of channel 'train' needs VpcConfig"]);
    check(
        &with(with(file, &vpc), &json!({"AlgorithmSpecification": {"TrainingInputMode": "Pipe"}})),
        &["channel 'train': FileSystemType EFS needs InputMode File, but it is Pipe"],
    );
}

#[test]
fn attributes_belong_to_augmented_manifests() {
    check(
        &s3(&json!({"AttributeNames": ["a"]})),
        &["channel 'train': AttributeNames need S3DataType AugmentedManifestFile"],
    );
    let pipe = json!({"AlgorithmSpecification": {"TrainingInputMode": "Pipe"}});
    check(
        &with(s3(&json!({"S3DataType": "AugmentedManifestFile"})), &pipe),
        &["channel 'train': S3DataType AugmentedManifestFile needs AttributeNames"],
    );
}

#[test]
fn channels_name_instance_groups_that_exist_all_or_none_of_them() {
    let groups = json!({"ResourceConfig": {
        "InstanceType": null, "InstanceCount": null,
        "InstanceGroups": [{"InstanceType": "local", "InstanceCount": 1, "InstanceGroupName": "g"}]
    }});
    let mut two = with(channels(&["a", "b"]), &groups);
    check(&two, &[]);
    two["InputDataConfig"][0]["DataSource"]["S3DataSource"]["InstanceGroupNames"] = json!(["g", "h"]);
    check(
        &two,
        &[
            "channel 'a': there is no instance group 'h' in ResourceConfig",
            "some channels have InstanceGroupNames (a), others have none (b): give them for all channels or for none",
        ],
    );
    check(
        &s3(&json!({"InstanceGroupNames": ["g"]})),
        &["channel 'train': there is no instance group 'g' in ResourceConfig"],
    );
}

#[test]
fn a_private_registry_needs_a_private_network() {
    let vpc =
        json!({"AlgorithmSpecification": {"TrainingImageConfig": {"TrainingRepositoryAccessMode": "Vpc"}}});
    check(&vpc, &["TrainingRepositoryAccessMode Vpc needs VpcConfig"]);
    check(
        &json!({"AlgorithmSpecification": {"TrainingImageConfig": {"TrainingRepositoryAccessMode": "Platform"}}}),
        &[],
    );
}

#[test]
fn a_disk_of_the_instance_takes_no_key() {
    let key =
        |instance_type| json!({"ResourceConfig": {"VolumeKmsKeyId": "k", "InstanceType": instance_type}});
    check(&key("ml.m5.large"), &[]);
    check(&key("ml.c5n.xlarge"), &[]);
    check(
        &key("ml.g4dn.xlarge"),
        &["VolumeKmsKeyId can not be given for ml.g4dn.xlarge, whose volume is a disk of its own"],
    );
}

#[test]
fn a_value_that_is_no_string_is_reported_with_the_string_that_was_meant() {
    let parameters = json!({
        "rate": 0.5, "verbose": false, "layers": ["a", 2], "nothing": null, "right": "0.5"
    });
    let mut request = request();
    request["HyperParameters"] = parameters;
    request["Environment"] = json!({"THREADS": 8});
    let violations = spec(&request).unwrap_err();
    let texts: Vec<String> = violations.into_iter().map(|violation| violation.to_string()).collect();
    assert_eq!(
        texts,
        [
            r#"the value of 'rate' at 'hyperParameters' must be a string: write "0.5" instead of 0.5"#,
            r#"the value of 'verbose' at 'hyperParameters' must be a string: write "false" instead of false"#,
            r#"the value of 'layers' at 'hyperParameters' must be a string: write "[\"a\",2]" instead of ["a",2]"#,
            r#"the value of 'nothing' at 'hyperParameters' must be a string: write "null" instead of null"#,
            r#"the value of 'THREADS' at 'environment' must be a string: write "8" instead of 8"#,
        ]
    );
}

#[test]
fn a_uri_that_has_the_form_but_points_nowhere_is_reported_with_its_member() {
    check(
        &s3(&json!({"S3Uri": "https://example.com/x"})),
        &["S3Uri of channel 'train': 'https://example.com/x' is not an address of S3: write s3://BUCKET/KEY"],
    );
    check(
        &json!({"OutputDataConfig": {"S3OutputPath": "s3://../x"}, "CheckpointConfig": {"S3Uri": "s3://a b/x"}}),
        &[
            "OutputDataConfig.S3OutputPath: '..' in 's3://../x' is not the name of a bucket: letters, digits, '.', '-', '_' and ':'",
            "CheckpointConfig.S3Uri: 'a b' in 's3://a b/x' is not the name of a bucket: letters, digits, '.', '-', '_' and ':'",
        ],
    );
    check(
        &json!({"OutputDataConfig": {"S3OutputPath": "out"}}),
        &[
            "Value 'out' at 'outputDataConfig.s3OutputPath' failed to satisfy constraint: Member must satisfy regular expression pattern: (https|s3)://([^/]+)/?(.*)|file:///(.*)",
        ],
    );
}

#[test]
fn the_profiler_samples_at_few_intervals() {
    let interval =
        |milliseconds| json!({"ProfilerConfig": {"ProfilingIntervalInMilliseconds": milliseconds}});
    check(&interval(60_000), &[]);
    check(
        &interval(300),
        &[
            "Value '300' at 'profilerConfig.profilingIntervalInMilliseconds' failed to satisfy constraint: Member must satisfy enum value set: [100, 200, 500, 1000, 5000, 60000]",
        ],
    );
}

#[test]
fn a_merged_file_is_a_plain_file_of_a_known_format() {
    let merged = |output| json!({"Trainyard": {"Merge": {"Output": output}}});
    for output in ["pairs.parquet", "a b.csv", "..jsonl", "x.y.npy"] {
        check(&merged(output), &[]);
    }
    for output in ["pairs.txt", ".csv", "a/b.csv", "model.tar.gz"] {
        let text = format!(
            "Trainyard.Merge.Output '{output}' must be the name of a file that ends in .parquet, .csv, .jsonl, .arrow, .npy or .npz"
        );
        check(&merged(output), &[&text]);
    }
}

#[test]
fn a_compression_of_the_archive_and_a_model_of_plain_files_exclude_each_other() {
    let asked = |form| {
        let output = json!({"CompressionType": form});
        json!({"Trainyard": {"Output": {"Compression": "zstd"}}, "OutputDataConfig": output})
    };
    check(&asked("GZIP"), &[]);
    check(
        &asked("NONE"),
        &[
            "Trainyard.Output.Compression 'zstd' is about the archive, which OutputDataConfig.CompressionType NONE does not make: leave out one of them",
        ],
    );
}

#[test]
fn a_merge_and_a_model_of_plain_files_exclude_each_other() {
    let asked = |compression| {
        let output = json!({"CompressionType": compression});
        json!({"Trainyard": {"Merge": {"Output": "all.csv"}}, "OutputDataConfig": output})
    };
    check(&asked("GZIP"), &[]);
    check(
        &asked("NONE"),
        &[
            "Trainyard.Merge reads model.tar.gz, which OutputDataConfig.CompressionType NONE does not make: leave out one of them",
        ],
    );
}

#[test]
fn a_pattern_of_parts_that_can_not_be_read_is_refused_before_anything_starts() {
    let merged = |glob| json!({"Trainyard": {"Merge": {"Output": "all.csv", "Glob": glob}}});
    for glob in ["part-*.csv", "**/part-?.csv", "[ab]*.csv"] {
        check(&merged(glob), &[]);
    }
    check(
        &merged("[a"),
        &[
            "Trainyard.Merge.Glob '[a' is not a pattern of file names such as part-*.csv: invalid range pattern",
        ],
    );
}

#[test]
fn several_violations_are_one_text_in_amazons_words() {
    let name = "x".repeat(64) + "_";
    let patch = json!({"TrainingJobName": name, "ResourceConfig": {"InstanceCount": -1}});
    let shown = spec(&patched(&patch)).unwrap_err().to_string();
    assert_eq!(
        shown,
        format!(
            "3 validation errors detected: Value '{name}' at 'trainingJobName' failed to satisfy constraint: \
             Member must satisfy regular expression pattern: ^[a-zA-Z0-9](-*[a-zA-Z0-9]){{0,62}}; \
             Value '{name}' at 'trainingJobName' failed to satisfy constraint: \
             Member must have length less than or equal to 63; \
             Value '-1' at 'resourceConfig.instanceCount' failed to satisfy constraint: \
             Member must have value greater than or equal to 0"
        )
    );
    let shown = |patch| spec(&patched(&patch)).unwrap_err().to_string();
    assert_eq!(
        shown(json!({"OutputDataConfig": null})),
        "1 validation error detected: Value null at 'outputDataConfig' failed to satisfy constraint: \
         Member must not be null"
    );
    assert_eq!(
        shown(json!({"StoppingCondition": {"MaxWaitTimeInSeconds": 1}})),
        "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
    );
    assert_eq!(
        shown(json!({"TrainingJobName": "_", "StoppingCondition": {"MaxWaitTimeInSeconds": 1}})),
        "2 validation errors detected: Value '_' at 'trainingJobName' failed to satisfy constraint: \
         Member must satisfy regular expression pattern: ^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}; \
         Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
    );
}

#[test]
fn an_element_of_a_list_is_named_by_its_number() {
    let mut two = channels(&["a", "b c"]);
    two["VpcConfig"] = json!({"SecurityGroupIds": [], "Subnets": ["a", "b_c"]});
    check(
        &two,
        &[
            "Value 'b c' at 'inputDataConfig.2.member.channelName' failed to satisfy constraint: Member must satisfy regular expression pattern: [A-Za-z0-9\\.\\-_]+",
            "Value '[0 entries]' at 'vpcConfig.securityGroupIds' failed to satisfy constraint: Member must have length greater than or equal to 1",
            "Value 'b_c' at 'vpcConfig.subnets.2.member' failed to satisfy constraint: Member must satisfy regular expression pattern: [-0-9a-zA-Z]+",
        ],
    );
}

#[test]
fn a_map_names_the_entry_but_never_a_secret() {
    check(
        &json!({"HyperParameters": {"a": "b\nc"}}),
        &[
            "Value '{a=b\\nc}' at 'hyperParameters' failed to satisfy constraint: Map value must satisfy constraint: [Member must have length less than or equal to 2500, Member must have length greater than or equal to 0, Member must satisfy regular expression pattern: .*]",
        ],
    );
    check(
        &json!({"Environment": {"1A": "secret", "KEY": "secret".repeat(100)}}),
        &[
            "Value '{1A=…}' at 'environment' failed to satisfy constraint: Map keys must satisfy constraint: [Member must have length less than or equal to 512, Member must have length greater than or equal to 0, Member must satisfy regular expression pattern: [a-zA-Z_][a-zA-Z0-9_]*]",
            "Value '{KEY=…}' at 'environment' failed to satisfy constraint: Map value must satisfy constraint: [Member must have length less than or equal to 512, Member must have length greater than or equal to 0, Member must satisfy regular expression pattern: [\\S\\s]*]",
        ],
    );
}

#[test]
fn a_long_value_is_cut_in_the_message() {
    let text = wrong(&json!({"OutputDataConfig": {"S3OutputPath": "ä".repeat(5_000)}})).remove(0);
    assert!(text.starts_with(&format!("Value '{}…' at", "ä".repeat(300))), "{text}");
}
