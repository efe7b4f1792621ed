"""What the endpoint takes on: settings in tags, room on the machine, configured limits, rates, keys, sizes."""

import json
import os
import resource
import socket
import time
import urllib.parse

import botocore.exceptions
import pytest
import yard as yards
from endpoint import Endpoint, SageMaker, refused

pytestmark = pytest.mark.one_user


@pytest.fixture
def start(yard):
    """Starts endpoints that are stopped at the end."""
    started = []

    def start(*flags):
        started.append(Endpoint(yard, *flags))
        return SageMaker(yard, started[-1])

    yield start
    for endpoint in started:
        endpoint.stop()


def tag(setting, value):
    return {"Key": f"trainyard:{setting}", "Value": value}


def test_our_own_settings_are_tags_and_wrong_ones_are_told_by_their_keys(yard, start):
    sagemaker = start()
    program = yard.sh("printf 'id,v\\n%s,1\\n' $(hostname | tr -dc 0-9) > /opt/ml/model/part-$(hostname).csv\n")
    name = sagemaker.create(
        program, 2, Tags=[tag("Merge.Output", "all.csv"), tag("Merge.Glob", "part-*.csv"), tag("Output.Level", "0")]
    )
    ended = sagemaker.ended(name)
    assert ended["TrainingJobStatus"] == "Completed", ended["FailureReason"]
    merged = yard.resolve(f"s3://results/out/{name}/output/all.csv").read_text()
    assert sorted(merged.split()) == ["1,1", "2,1", "id,v"]
    yard.give_away()
    for wrong, words in [
        (tag("GraceInSeconds", "-1"), "tag trainyard:GraceInSeconds"),
        (tag("GraceInSecond", "1"), "did you mean `GraceInSeconds`"),
        (tag("Output.Level", "ten"), "trainyard:Output.Level"),
        (tag("priority", "high"), "whole number"),
    ]:
        answered, message = refused(sagemaker.api.create_training_job, **sagemaker.job(program, Tags=[wrong]))
        assert answered == "ValidationException" and words in message, message


def test_more_jobs_wait_than_a_process_usually_has_files_open(yard, start):
    usual, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The server inherits it; this process needs its open files and some more to start one.
    few = max(int(file) for file in os.listdir("/proc/self/fd")) + 24
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, allowed))
    try:
        sagemaker = start("--max-instances", "1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, allowed))
    gate = yard.file("gate")
    program = yard.sh(f"until [ -s {gate} ]; do sleep 0.05; done\n")
    yard.give_away()
    names = [sagemaker.create(program) for _ in range(few + 12)]
    for name in reversed(names):
        sagemaker.api.stop_training_job(TrainingJobName=name)
    assert {sagemaker.ended(name)["TrainingJobStatus"] for name in names} == {"Stopped"}


def test_jobs_are_counted_by_what_their_types_have_where_limits_are_enforced(yard, start):
    sagemaker = start("--limits", "enforce", "--max-instances", "50")
    gate = yard.file("gate")
    program = yard.sh(f"until [ -s {gate} ]; do sleep 0.05; done\n")
    resources = {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}
    yard.give_away()
    too_large = {**resources, "InstanceType": "ml.m5.24xlarge", "InstanceCount": 9}
    answered, message = refused(
        sagemaker.api.create_training_job, **sagemaker.job(program, ResourceConfig=too_large)
    )
    assert answered == "ValidationException" and "would need" in message and "864 CPUs" in message, message
    # Of these the machine can have only as many at once as it has memory for.
    small = {**resources, "InstanceType": "ml.t3.medium"}
    names = [sagemaker.create(program, ResourceConfig=small) for _ in range(12)]
    yards.wait_until(
        lambda: [name for name in names if sagemaker.describe(name)["SecondaryStatus"] == "Training"], "the first to train"
    )
    waiting = [name for name in names if sagemaker.describe(name)["SecondaryStatus"] == "Pending"]
    assert waiting, "not all of them fit at once"
    gate.write_text("open")
    for name in names:
        assert sagemaker.ended(name)["TrainingJobStatus"] == "Completed"


def test_configured_limits_are_resource_limits(yard, start):
    config = yard.file("limits.toml")
    config.write_text("[serve]\nmax_jobs = 2\nmax_instances_per_job = 1\n")
    sagemaker = start("--config", config, "--max-instances-per-job", "2")
    gate = yard.file("gate")
    program = yard.sh(f"until [ -s {gate} ]; do sleep 0.05; done\n")
    yard.give_away()
    answered, message = refused(sagemaker.api.create_training_job, **sagemaker.job(program, 3))
    assert answered == "ResourceLimitExceeded" and "'--max-instances-per-job' is 2 Instances" in message, message
    names = [sagemaker.create(program, 2) for _ in range(2)]
    answered, message = refused(sagemaker.api.create_training_job, **sagemaker.job(program))
    assert answered == "ResourceLimitExceeded" and "current utilization of 2 Jobs" in message, message
    gate.write_text("open")
    for name in names:
        assert sagemaker.ended(name)["TrainingJobStatus"] == "Completed"
    sagemaker.ended(sagemaker.create(program))


def test_keys_count_as_soon_as_they_are_made_and_no_longer_than_they_are_kept(yard, start):
    sagemaker = start()
    access, secret = yard.command("keys", "add", "--data-dir", yard.data).stdout.split()
    keys = {"aws_access_key_id": access, "aws_secret_access_key": secret}
    other = sagemaker.endpoint.client("sagemaker", **keys)
    s3 = sagemaker.endpoint.client("s3", **keys)
    assert other.list_training_jobs()["TrainingJobSummaries"] == [] and s3.list_buckets()["Buckets"] is not None
    yard.command("keys", "remove", access, "--data-dir", yard.data)
    assert refused(other.list_training_jobs)[0] == "UnrecognizedClientException"
    assert refused(s3.list_buckets)[0] == "InvalidAccessKeyId"
    assert sagemaker.api.list_training_jobs()["TrainingJobSummaries"] == []


def test_who_asks_too_often_is_slowed_down_and_others_are_not(yard, start):
    sagemaker = start("--max-request-rate", "5")
    access, secret = yard.command("keys", "add", "--data-dir", yard.data).stdout.split()

    def until_slowed(call):
        for _ in range(200):
            try:
                call()
            except botocore.exceptions.ClientError as error:
                return error.response["Error"]["Code"]
        return None

    assert until_slowed(sagemaker.api.list_training_jobs) == "ThrottlingException"
    other = {"aws_access_key_id": access, "aws_secret_access_key": secret}
    s3 = sagemaker.endpoint.client("s3", **other)
    s3.list_buckets()
    assert until_slowed(s3.list_buckets) == "SlowDown"
    yards.wait_until(lambda: until_slowed_once(sagemaker.api.list_training_jobs), "the rate to be free again")


def until_slowed_once(call):
    try:
        call()
    except botocore.exceptions.ClientError:
        return False
    return True


def test_headers_and_bodies_have_a_largest_size(yard, start):
    sagemaker = start()
    address = urllib.parse.urlsplit(sagemaker.endpoint.url)

    def answered(head, body=b""):
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            try:
                connection.sendall(head + b"\r\n" + body)
            except ConnectionError:
                # The answer comes before the end of a body that is too large.
                pass
            return connection.recv(100).split(b" ")[1]

    start_line = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: SageMaker.Search\r\n"
    assert answered(start_line + b"X-Large: " + b"x" * 100_000 + b"\r\n") == b"431"
    body = b"{" + b" " * (5 << 20) + b"}"
    assert answered(start_line + b"Content-Length: %d\r\n" % len(body), body) == b"413"
    deep = b"[" * 100_000
    assert answered(start_line + b"Content-Length: %d\r\n" % len(deep), deep) == b"403", "it is not even read"
    began = time.monotonic()
    assert sagemaker.api.list_training_jobs()["TrainingJobSummaries"] == [] and time.monotonic() - began < 5


def test_connections_beyond_the_most_wait_and_are_served_then(yard, start):
    sagemaker = start("--max-connections", "1")
    address = urllib.parse.urlsplit(sagemaker.endpoint.url)
    holder = socket.create_connection((address.hostname, address.port))
    waiting = socket.create_connection((address.hostname, address.port), timeout=20)
    waiting.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    holder.close()
    assert waiting.recv(12).startswith(b"HTTP/1.1 403")
    waiting.close()


def test_jobs_are_found_in_all_orders_whatever_leaves_them_out(yard, start):
    sagemaker = start("--max-instances", "4")
    program = yard.sh("true\n")
    names = [
        sagemaker.create(
            program, TrainingJobName=f"found-{i}", HyperParameters={"k": str(i), "word": "even" if i % 2 == 0 else "odd"},
            Tags=[{"Key": "Tags.x", "Value": str(i % 3)}],
        )
        for i in range(7)
    ]
    for name in names:
        sagemaker.ended(name)

    def found(expression, size=3, **request):
        pages = sagemaker.api.get_paginator("search").paginate(
            Resource="TrainingJob", SearchExpression=expression, PaginationConfig={"PageSize": size}, **request
        )
        pages = list(pages)
        assert pages[-1]["TotalHits"]["Relation"] == "EqualTo"
        all_names = [result["TrainingJob"]["TrainingJobName"] for page in pages for result in page["Results"]]
        assert pages[-1]["TotalHits"]["Value"] == len(all_names)
        return all_names

    def filters(*triples, **more):
        return {"Filters": [dict(zip(("Name", "Operator", "Value"), each, strict=False)) for each in triples], **more}

    even = ("HyperParameters.word", "Equals", "even")
    for by in ("CreationTime", "TrainingJobName", "HyperParameters.k", None):
        order = {"SortBy": by, "SortOrder": "Ascending"} if by else {}
        expected = [names[i] for i in (0, 2, 4, 6)]
        answer = found(filters(even), **order)
        assert answer == expected if by else sorted(answer) == expected
        assert sorted(found(filters(even, ("HyperParameters.k", "GreaterThan", "2")), **order)) == [names[4], names[6]]
    assert sorted(found(filters(("Tags.Tags.x", "Equals", "0")))) == [names[0], names[3], names[6]]
    assert found(filters(("TrainingJobName", "Equals", "found-3"))) == ["found-3"]
    assert sorted(found(filters(("TrainingJobName", "Contains", "nd-5"), even, Operator="Or"))) == [
        names[0], names[2], names[4], names[5], names[6]
    ]
    middle = sagemaker.describe(names[3])["CreationTime"]
    later = filters(("CreationTime", "GreaterThan", middle.strftime("%Y-%m-%dT%H:%M:%S.%fZ")))
    assert sorted(found(later)) == names[4:]
    assert refused(sagemaker.api.search, Resource="TrainingJob", NextToken="x")[0] == "ValidationException"
    assert json.dumps(found({})) and len(found({}, size=100)) == 7
