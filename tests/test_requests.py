"""Requests that are refused: in which words, all at once, before anything starts, with nothing left behind."""

import json

import pytest
from yard import AS_ROOT, channel


@pytest.fixture
def train(yard):
    return yard.sh("exit 0")


def test_wrong_json_names_line_and_column(yard):
    error = yard.refused('{\n  "TrainingJobName": "a",\n  "RoleArn": oops\n}')
    assert "line 3" in error
    assert "column 14" in error


def test_wrong_yaml_names_the_line(yard):
    error = yard.refused(yard.file("job.yaml", "TrainingJobName: a\nRoleArn: [\n"))
    assert "line" in error


def test_all_violations_come_at_once_in_the_words_of_the_api(yard, train):
    job = yard.job(train, TrainingJobName="not_valid_", ResourceConfig={"InstanceType": "ml.none", "InstanceCount": 1})
    error = yard.refused(job)
    assert "2 validation errors detected: " in error
    assert (
        "Value 'not_valid_' at 'trainingJobName' failed to satisfy constraint: "
        "Member must satisfy regular expression pattern: ^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
    ) in error
    assert "Value 'ml.none' at 'resourceConfig.instanceType' failed to satisfy constraint: " in error


def test_a_name_that_is_too_long_breaks_two_rules(yard, train):
    name = "a" * 64
    error = yard.refused(yard.job(train, TrainingJobName=name))
    assert "Member must have length less than or equal to 63" in error


@pytest.mark.parametrize("value", [False, 10, ["a"], None])
def test_a_hyperparameter_that_is_no_string_is_named_with_what_it_should_be(yard, train, value):
    error = yard.refused(yard.job(train, HyperParameters={"top_k": value}))
    assert "top_k" in error
    assert json.dumps(json.dumps(value)) in error


def test_an_unknown_member_is_named(yard, train):
    error = yard.refused(yard.job(train, StopingCondition={"MaxRuntimeInSeconds": 1}))
    assert "StopingCondition" in error
    assert "StoppingCondition" in error, "what was meant"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("CheckpointConfig", {"S3Uri": "s3://results/checkpoints"}),
        ("RetryStrategy", {"MaximumRetryAttempts": 2}),
    ],
)
def test_what_is_not_built_yet_is_refused_by_name(yard, train, member, value):
    error = yard.refused(yard.job(train, **{member: value}))
    assert member in error
    assert "not supported yet" in error


@pytest.mark.parametrize(
    ("data_type", "members", "expected"),
    [
        ("S3Prefix", {"InputMode": "File", "CompressionType": "Gzip"}, "CompressionType Gzip needs InputMode Pipe"),
        ("S3Prefix", {"InputMode": "FastFile", "RecordWrapperType": "RecordIO"}, "RecordIO needs InputMode Pipe"),
        ("ManifestFile", {"InputMode": "FastFile"}, "FastFile needs S3DataType S3Prefix"),
        ("AugmentedManifestFile", {"InputMode": "File"}, "AugmentedManifestFile needs InputMode Pipe"),
        ("AugmentedManifestFile", {"InputMode": "Pipe"}, "AugmentedManifestFile needs AttributeNames"),
        ("AugmentedManifestFile", {}, "AugmentedManifestFile needs InputMode Pipe"),
        ("Converse", {"InputMode": "File"}, "not supported yet"),
    ],
)
def test_an_input_mode_that_does_not_fit_its_channel_is_never_replaced(yard, train, data_type, members, expected):
    yard.put("in", "list", '[{"prefix":"s3://in/"},"list"]')
    error = yard.refused(yard.job(train, channels=[channel("data", "s3://in/list", data_type=data_type, **members)]))
    assert expected in error
    assert "'data'" in error


def test_the_input_mode_of_the_algorithm_has_to_fit_channels_without_one(yard, train):
    source = {
        "FileSystemId": "fs-0123456789abcdef0", "FileSystemAccessMode": "ro", "FileSystemType": "EFS",
        "DirectoryPath": "/",
    }
    job = yard.job(
        train, channels=[{"ChannelName": "data", "DataSource": {"FileSystemDataSource": source}}],
        VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    )
    job["AlgorithmSpecification"]["TrainingInputMode"] = "Pipe"
    assert "FileSystemType EFS needs InputMode File, but it is Pipe" in yard.refused(job)


def test_two_channels_of_one_name_are_refused(yard, train):
    yard.put("in", "a", "1")
    error = yard.refused(yard.job(train, channels=[channel("same", "s3://in/"), channel("same", "s3://in/a")]))
    assert "same" in error


@pytest.mark.parametrize("uri", ["s3://in/nothing/", "s3://no-such-bucket/", "file:///no/such/folder/"])
def test_a_channel_that_selects_nothing_fails_before_train_starts_with_its_uri(yard, train, uri):
    yard.put("in", "a", "1")
    ended = yard.run(yard.job(train, channels=[channel("data", uri, "ShardedByS3Key")]), expect=None)
    assert ended.exit_code in (2, 10)
    assert ended.of_kind("log") == []
    assert uri in ended.stderr + "".join(event["failure_reason"] or "" for event in ended.of_kind("ended"))


@pytest.mark.parametrize("key", ["data/a//b", "../outside", "data/../../outside"])
def test_no_uri_leads_out_of_its_bucket(yard, train, key):
    yard.file("s3/outside", "secret")
    yard.put("in", "data/a", "1")
    ended = yard.run(yard.job(train, channels=[channel("data", f"s3://in/{key}")]), expect=None)
    assert ended.exit_code in (2, 10)
    assert ended.of_kind("log") == []


def test_an_image_of_a_job_file_can_be_mapped_to_a_program(yard):
    program = yard.sh("exit 0")
    image = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/rows:1"
    yard.run(yard.job(image), "--image", f"{image}=host:{program}")


def test_a_program_that_is_not_there_is_named(yard):
    ended = yard.run(yard.job("host:/no/such/program"), expect=None)
    assert ended.exit_code in (2, 10)
    assert "/no/such/program" in ended.stderr + ended.stdout


def test_a_job_file_that_is_not_there_is_named(yard):
    ended = yard.command("run", "/no/such/job.json", "--data-dir", yard.data, expect=None)
    assert ended.exit_code in (1, 2)
    assert ended.stderr.startswith("error: ")
    assert "/no/such/job.json" in ended.stderr


def test_an_output_that_can_not_be_written_is_told_before_the_job_starts(yard, train):
    yard.file("s3/results-file", "in the way")
    path = f"file://{yard.root}/s3/results-file/out"
    ended = yard.run(yard.job(train, OutputDataConfig={"S3OutputPath": path}), expect=None)
    assert ended.exit_code in (1, 2, 10)
    assert "results-file" in ended.stderr + "".join(event["failure_reason"] or "" for event in ended.of_kind("ended"))
    (yard.root / "s3/results-file").unlink()


@pytest.mark.parametrize("flag", ["--bucket", "--image"])
def test_a_mapping_without_its_equals_sign_is_refused(yard, train, flag):
    error = yard.command("run", "-", flag, "nothing", expect=2, stdin=json.dumps(yard.job(train))).stderr
    assert flag in error


def test_an_unknown_command_is_a_wrong_use(yard):
    assert yard.command("no-such-command", expect=2).stderr.startswith("error: ")


def test_yaml_may_come_from_standard_input(yard, train):
    members = [f"{name}: {json.dumps(value)}" for name, value in yard.job(train).items()]
    yard.run("\n".join(members))


def test_a_job_file_may_be_yaml(yard, train):
    lines = json.dumps(yard.job(train), indent=1)
    # JSON is YAML; one unquoted line shows that it was read as such.
    yaml = lines.replace('"TrainingInputMode": "File"', '"TrainingInputMode": File')
    yard.run(yard.file("job.yaml", yaml))


def test_role_and_volume_size_may_be_left_out(yard, train):
    yard.run(yard.job(train, ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1}))


@pytest.mark.skipif(not AS_ROOT, reason="needs a folder of a second user")
def test_a_folder_of_somebody_else_is_named(yard, train):
    if yard.uid == 0:
        pytest.skip("root may write everywhere")
    ended = yard.run(yard.job(train, OutputDataConfig={"S3OutputPath": "file:///var/out"}), expect=None)
    assert ended.exit_code in (1, 2, 10)
    assert "/var/out" in ended.stderr + "".join(event["failure_reason"] or "" for event in ended.of_kind("ended"))
