"""CloudWatch: what jobs print and what their instances take, in all protocols that clients speak."""

import datetime
import os

import boto3
import botocore.config
import botocore.session
import pytest
import yard as yards
from endpoint import Endpoint, SageMaker, fits_model, refused

NAMESPACE = "/aws/sagemaker/TrainingJobs"


NVIDIA_SMI = """#!/bin/sh
echo '0, GPU-8a56a4bc-e184-a047-2620-be19fdf913d5, 87, 8192, 32768'
echo '1, GPU-29c96fd6-8c23-4e11-b8f3-6f0f5a6b7c11, 12, 32768, 32768'
"""


def test_gpus_are_measured_by_what_nvidias_program_tells_of_those_of_the_instance(yard, described):
    program = yard.file("bin/nvidia-smi", NVIDIA_SMI, mode=0o755)
    endpoint = Endpoint(yard, env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    resources = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1}
    name, ended = run(yard, SageMaker(yard, endpoint), "sleep 2\n", ResourceConfig=resources)
    cloudwatch = endpoint.client("cloudwatch")
    for host, busy, memory in (("algo-1", 87, 25), ("algo-2", 12, 100)):
        for metric, value in (("GPUUtilization", busy), ("GPUMemoryUtilization", memory)):
            points = cloudwatch.get_metric_statistics(
                Namespace=NAMESPACE, MetricName=metric, Dimensions=[{"Name": "Host", "Value": f"{name}/{host}"}], Period=60,
                Statistics=["Maximum"], **hours(ended),
            )["Datapoints"]
            assert [point["Maximum"] for point in points] and {point["Maximum"] for point in points} == {value}, (host, metric)
    endpoint.stop()


@pytest.fixture
def sagemaker(yard):
    endpoint = Endpoint(yard)
    yield SageMaker(yard, endpoint)
    endpoint.stop()


def client(endpoint, protocol):
    """A client that speaks only one of the protocols of its model, as older ones do."""
    session = botocore.session.get_session()
    loader = session.get_component("data_loader")
    load = loader.load_service_model

    def patched(*arguments, **named):
        model = load(*arguments, **named)
        if model.get("metadata", {}).get("serviceId") == "CloudWatch":
            model = {**model, "metadata": {**model["metadata"], "protocol": protocol, "protocols": [protocol]}}
        return model

    loader.load_service_model = patched
    made = boto3.Session(botocore_session=session).client(
        "cloudwatch", endpoint_url=endpoint.url, region_name="us-east-1",
        aws_access_key_id=endpoint.variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=endpoint.variables["AWS_SECRET_ACCESS_KEY"],
        config=botocore.config.Config(retries={"total_max_attempts": 1}),
    )
    made.meta.events.register("after-call", fits_model)
    return made


def run(yard, sagemaker, script, instances=1, **members):
    program = yard.sh(script)
    algorithm = {
        "TrainingImage": f"host:{program}", "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}, {"Name": "never", "Regex": "never=(.*)"}],
    }
    name = sagemaker.create(program, instances, AlgorithmSpecification=algorithm, **members)
    ended = sagemaker.ended(name)
    assert ended["TrainingJobStatus"] == "Completed", ended
    return name, ended


def hours(ended):
    """From before a job to after it."""
    hour = datetime.timedelta(hours=1)
    return {"StartTime": ended["CreationTime"] - hour, "EndTime": ended["TrainingEndTime"] + hour}


@pytest.mark.parametrize("protocol", ["smithy-rpc-v2-cbor", "json", "query"])
def test_printed_metrics_are_read_by_every_protocol(yard, sagemaker, protocol):
    script = "for v in 4 1 1e1 3.5; do echo loss=$v; done\n"
    name, ended = run(yard, sagemaker, script, 2)
    cloudwatch = client(sagemaker.endpoint, protocol)
    dimensions = [{"Name": "TrainingJobName", "Value": name}]
    request = {"Namespace": NAMESPACE, "MetricName": "loss", "Dimensions": dimensions, "Period": 3600, **hours(ended)}
    statistics = ["SampleCount", "Average", "Sum", "Minimum", "Maximum"]
    answer = cloudwatch.get_metric_statistics(**request, Statistics=statistics)
    assert answer["Label"] == "loss"
    values = [4, 1, 10, 3.5] * 2
    # The hour may change in between.
    points = answer["Datapoints"]
    assert sum(point["SampleCount"] for point in points) == len(values) and sum(point["Sum"] for point in points) == sum(values)
    assert min(point["Minimum"] for point in points) == 1 and max(point["Maximum"] for point in points) == 10
    assert all(point["Unit"] == "None" and point["Timestamp"].minute == 0 for point in points)
    extended = cloudwatch.get_metric_statistics(**request, ExtendedStatistics=["p100"])
    assert max(point["ExtendedStatistics"]["p100"] for point in extended["Datapoints"]) == 10
    queries = [
        {"Id": "l", "MetricStat": {"Metric": {"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": dimensions},
                                   "Period": 60, "Stat": "Sum"}, "Label": "mine"}
        for metric in ["loss"]
    ]
    (result,) = cloudwatch.get_metric_data(MetricDataQueries=queries, **hours(ended))["MetricDataResults"]
    assert (result["Id"], result["Label"], result["StatusCode"]) == ("l", "mine", "Complete")
    assert sum(result["Values"]) == sum(values)
    listed = cloudwatch.list_metrics(Namespace=NAMESPACE, Dimensions=dimensions)["Metrics"]
    assert [metric["MetricName"] for metric in listed] == ["loss"], "one that was never seen is no metric"
    answered, message = refused(cloudwatch.get_metric_statistics, **{**request, "Period": 7}, Statistics=["Sum"])
    assert answered == "InvalidParameterValue" and "Period is 7" in message
    assert refused(cloudwatch.get_metric_statistics, **request)[0] == "MissingParameter"
    assert refused(cloudwatch.put_metric_data, Namespace="x", MetricData=[{"MetricName": "m", "Value": 1}])[0] == "InvalidAction"


def test_what_instances_take_is_measured_while_they_run(yard, sagemaker):
    # Busy for about two seconds, and 64 MiB.
    script = (
        "head -c 67108864 /dev/zero > /dev/shm/held\n"
        "end=$(( $(date +%s) + 3 )); while [ $(date +%s) -lt $end ]; do :; done\n"
    )
    name, ended = run(yard, sagemaker, script, 2)
    cloudwatch = sagemaker.endpoint.client("cloudwatch")
    listed = cloudwatch.list_metrics(Dimensions=[{"Name": "Host", "Value": f"{name}/algo-2"}])["Metrics"]
    assert [metric["MetricName"] for metric in listed] == ["CPUUtilization", "MemoryUtilization", "DiskUtilization"]
    everything = cloudwatch.get_paginator("list_metrics").paginate(Namespace=NAMESPACE)
    assert sum(len(page["Metrics"]) for page in everything) == 6

    def highest(metric, host="algo-1", unit=None):
        points = cloudwatch.get_metric_statistics(
            Namespace=NAMESPACE, MetricName=metric, Dimensions=[{"Name": "Host", "Value": f"{name}/{host}"}], Period=60,
            Statistics=["Maximum"], **hours(ended) if unit is None else {**hours(ended), "Unit": unit},
        )["Datapoints"]
        assert all(point["Unit"] == "Percent" for point in points)
        return max((point["Maximum"] for point in points), default=None)

    for host in ("algo-1", "algo-2"):
        assert highest("CPUUtilization", host) > 10
        assert 0 < highest("MemoryUtilization", host) < 100
        assert 0 < highest("DiskUtilization", host) <= 100
    assert highest("GPUUtilization") is None and highest("CPUUtilization", "algo-3") is None
    assert highest("CPUUtilization", unit="Bytes") is None


def test_pages_of_data_have_every_point_once_in_both_directions(yard, sagemaker):
    name, ended = run(yard, sagemaker, "for i in 1 2 3 4; do echo loss=$i; sleep 1.1; done\n")
    cloudwatch = sagemaker.endpoint.client("cloudwatch")

    def query(identity, metric, dimension):
        metric = {"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": [dimension]}
        return {"Id": identity, "MetricStat": {"Metric": metric, "Period": 1, "Stat": "Average"}}

    job = {"Name": "TrainingJobName", "Value": name}
    host = {"Name": "Host", "Value": f"{name}/algo-1"}
    queries = [
        query("a", "loss", job), query("none", "never", job), query("b", "CPUUtilization", host),
        {**query("hidden", "loss", job), "ReturnData": False},
    ]
    minutes = {"StartTime": ended["CreationTime"], "EndTime": ended["TrainingEndTime"] + datetime.timedelta(seconds=5)}

    def all_points(**request):
        found = {}
        pages = cloudwatch.get_paginator("get_metric_data").paginate(MetricDataQueries=queries, **minutes, **request)
        for page in pages:
            for result in page["MetricDataResults"]:
                assert len(result["Timestamps"]) == len(result["Values"])
                found.setdefault(result["Id"], []).extend(zip(result["Timestamps"], result["Values"], strict=True))
        return found

    whole = all_points()
    assert set(whole) == {"a", "none", "b"} and whole["none"] == []
    assert len(whole["a"]) == 4 and len(whole["b"]) >= 3
    assert [time for time, _ in whole["a"]] == sorted((time for time, _ in whole["a"]), reverse=True)
    for room in (1, 2, 4, 5):
        assert all_points(MaxDatapoints=room) == whole
    ascending = {identity: points[::-1] for identity, points in whole.items()}
    for room in (1, 3, 4, 1000):
        assert all_points(MaxDatapoints=room, ScanBy="TimestampAscending") == ascending
    first = cloudwatch.get_metric_data(MetricDataQueries=queries, **minutes, MaxDatapoints=2)
    assert [result["StatusCode"] for result in first["MetricDataResults"]] == ["PartialData"] and first["NextToken"]


def test_what_can_not_be_computed_is_refused_by_name(yard, sagemaker):
    cloudwatch = sagemaker.endpoint.client("cloudwatch")
    now = datetime.datetime.now(datetime.UTC)
    times = {"StartTime": now - datetime.timedelta(days=2), "EndTime": now}
    metric = {"Namespace": NAMESPACE, "MetricName": "loss"}
    stat = {"Id": "a", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}}
    table = [
        ([{"Id": "e", "Expression": "SUM(METRICS())"}], "Expression of e: not supported"),
        ([stat, stat], "Id a is given twice"),
        ([{**stat, "Id": "A"}], "lowercase letter"),
        ([{"Id": "a"}], "either MetricStat or Expression"),
        ([{**stat, "MetricStat": {**stat["MetricStat"], "Stat": "IQM"}}], "IQM is no statistic"),
    ]
    for queries, words in table:
        answered, message = refused(cloudwatch.get_metric_data, MetricDataQueries=queries, **times)
        assert answered in ("ValidationError", "InvalidParameterValue") and words in message, message
    request = {**metric, "Period": 60, "Statistics": ["Sum"]}
    answered, message = refused(cloudwatch.get_metric_statistics, **request, **times)
    assert answered == "InvalidParameterCombination" and "2881 datapoints, which exceeds the limit of 1,440" in message
    assert refused(cloudwatch.get_metric_statistics, **request, StartTime=now, EndTime=now)[0] == "InvalidParameterValue"
    assert refused(cloudwatch.list_metrics, NextToken="x")[0] == "InvalidNextToken"
    assert cloudwatch.list_metrics()["Metrics"] == []


def test_what_is_measured_is_there_before_a_job_ends(yard, sagemaker):
    gate = yard.file("gate")
    name = sagemaker.create(yard.sh(f"until [ -s {gate} ]; do sleep 0.05; done\n"))
    cloudwatch = sagemaker.endpoint.client("cloudwatch")

    def listed():
        return cloudwatch.list_metrics(Dimensions=[{"Name": "Host", "Value": f"{name}/algo-1"}])["Metrics"]

    yards.wait_until(listed, "the first measurement")
    gate.write_text("open")
    sagemaker.ended(name)


def test_clients_get_a_password_for_images(yard, sagemaker):
    ecr = sagemaker.endpoint.client("ecr")
    (token,) = ecr.get_authorization_token(registryIds=["123456789012"])["authorizationData"]
    assert token["proxyEndpoint"] == "https://123456789012.dkr.ecr.us-east-1.amazonaws.com"
    assert token["expiresAt"] > datetime.datetime.now(datetime.UTC)
    assert refused(ecr.get_authorization_token, registryIds=["me"])[0] == "InvalidParameterException"
    assert refused(ecr.describe_repositories)[0] == "UnknownOperationException"
