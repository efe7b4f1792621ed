"""The files of /opt/ml/input/config and beside the channels: what an instance is told, byte for byte."""

import json

import pytest
from yard import channel

COPY_CONFIG = """
mkdir "/opt/ml/model/$(hostname)"
cp /opt/ml/input/config/* "/opt/ml/model/$(hostname)/"
"""


@pytest.fixture
def config(yard):
    """Runs a job that hands its configuration files back, and returns them by host and name."""

    def run(**members):
        ended = yard.run(yard.job(yard.sh(COPY_CONFIG), **members))
        files = {}
        for path, content in ended.files().items():
            host, name = path.split("/")
            files.setdefault(host, {})[name] = content.decode()
        return files

    return run


@pytest.mark.every_user
def test_the_usual_config_files_are_there_and_no_others(config):
    assert sorted(config()["algo-1"]) == [
        "hyperparameters.json",
        "init-config.json",
        "inputdataconfig.json",
        "metric-definition-regex.json",
        "resourceconfig.json",
        "trainingjobconfig.json",
        "upstreamoutputdataconfig.json",
    ]


def test_config_files_are_compact_json_without_a_final_newline(config):
    for name, text in config(HyperParameters={"a": "1"})["algo-1"].items():
        assert json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) == text, name


def test_hyperparameters_arrive_value_for_value_in_order(config):
    sent = {"z": "5", "arg2": '"hello"', "flag": "false", "list": '["a"]', "empty": "", "a": "äöü €"}
    text = config(HyperParameters=sent)["algo-1"]["hyperparameters.json"]
    assert text == json.dumps(sent, separators=(",", ":"), ensure_ascii=False)


def test_a_job_without_hyperparameters_has_an_empty_object(config):
    assert config()["algo-1"]["hyperparameters.json"] == "{}"


def test_inputdataconfig_says_how_each_channel_arrives(yard, config):
    yard.put("in", "train/a", "1")
    yard.put("in", "valid/b", "2")
    channels = [
        channel("train", "s3://in/train/", ContentType="text/csv"),
        channel("valid", "s3://in/valid/", "ShardedByS3Key"),
    ]
    assert config(InputDataConfig=channels)["algo-1"]["inputdataconfig.json"] == (
        '{"train":{"ContentType":"text/csv","TrainingInputMode":"File",'
        '"S3DistributionType":"FullyReplicated","RecordWrapperType":"None"},'
        '"valid":{"TrainingInputMode":"File",'
        '"S3DistributionType":"ShardedByS3Key","RecordWrapperType":"None"}}'
    )


def test_a_job_without_channels_has_an_empty_inputdataconfig(config):
    assert config()["algo-1"]["inputdataconfig.json"] == "{}"


def test_resourceconfig_has_the_members_of_2022_in_order(config):
    files = config(ResourceConfig={"InstanceType": "ml.c5.xlarge", "InstanceCount": 2})
    for host in ("algo-1", "algo-2"):
        assert files[host]["resourceconfig.json"] == (
            f'{{"current_host":"{host}","current_instance_type":"ml.c5.xlarge",'
            '"current_group_name":"homogeneousCluster","hosts":["algo-1","algo-2"],'
            '"instance_groups":[{"instance_group_name":"homogeneousCluster",'
            '"instance_type":"ml.c5.xlarge","hosts":["algo-1","algo-2"]}],"network_interface_name":"eth0"}'
        )


def test_hosts_are_in_number_order_and_the_same_on_each(config):
    files = config(ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 12})
    expected = [f"algo-{number}" for number in range(1, 13)]
    assert sorted(files) == sorted(expected)
    for host in expected:
        resources = json.loads(files[host]["resourceconfig.json"])
        assert resources["hosts"] == expected
        assert resources["current_host"] == host


def test_init_config_names_cluster_size_and_host_number(yard, config):
    yard.put("in", "data/a", "1")
    yard.put("in", "data/b", "1")
    files = config(
        InputDataConfig=[channel("data", "s3://in/data/", "ShardedByS3Key")],
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )
    for number in (1, 2):
        init = json.loads(files[f"algo-{number}"]["init-config.json"])
        assert init["inputMode"] == "FILE"
        assert init["hostConfig"] == {"clusterSize": 2, "hostNumber": number}
        assert init["checkpointChannel"] is None
        source = init["channels"]["data"]
        assert source["sharded"] is True
        assert source["s3DataSource"]["s3Uri"] == "s3://in/data/"
        assert source["s3DataSource"]["s3DataType"] == "S3_PREFIX"
        assert source["s3DataSource"]["s3DataDistributionType"] == "SHARDED_BY_S3_KEY"
        assert (source["compressionType"], source["recordWrapper"]) == ("NONE", "NONE")


def test_trainingjobconfig_is_the_request_without_our_own_settings(config):
    text = config(TrainingJobName="Mixed-Case", HyperParameters={"k": "v"}, Trainyard={"GraceInSeconds": 5})
    request = json.loads(text["algo-1"]["trainingjobconfig.json"])
    assert request["TrainingJobName"] == "Mixed-Case"
    assert request["HyperParameters"] == {"k": "v"}
    assert request["ResourceConfig"]["InstanceCount"] == 1
    assert request["TrainingJobArn"].endswith("training-job/mixed-case")
    assert "Trainyard" not in request


def test_files_of_no_use_are_empty_lists(config):
    files = config()["algo-1"]
    assert files["metric-definition-regex.json"] == "[]"
    assert files["upstreamoutputdataconfig.json"] == "[]"


def test_metric_definitions_are_passed_on(yard, config):
    definitions = [{"Name": "loss", "Regex": "loss=(.*)"}]
    image = yard.image(yard.sh(COPY_CONFIG))
    algorithm = {"TrainingImage": image, "TrainingInputMode": "File", "MetricDefinitions": definitions}
    files = config(AlgorithmSpecification=algorithm)["algo-1"]
    assert json.loads(files["metric-definition-regex.json"]) == definitions


@pytest.mark.every_user
def test_a_manifest_lists_all_objects_on_every_host(yard):
    for name in ("b", "a", "c"):
        yard.put("in", f"path/input/{name}", name)
    program = yard.sh('cp /opt/ml/input/data/words-manifest "/opt/ml/model/$(hostname)"')
    channels = [channel("words", "s3://in/path/input", "ShardedByS3Key")]
    ended = yard.run(yard.job(program, instances=2, channels=channels))
    expected = b"path/input\ns3://in/path/input/a\ns3://in/path/input/b\ns3://in/path/input/c\n"
    assert ended.files() == {"algo-1": expected, "algo-2": expected}
