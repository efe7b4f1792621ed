"""A running `trainyard serve` and its clients."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import boto3
import botocore.config
import botocore.exceptions
import botocore.validate
import pytest
import yard as yards

ROLE = "arn:aws:iam::000000000000:role/any"
GROUP = "/aws/sagemaker/TrainingJobs"


class Endpoint:
    """A running `trainyard serve` and what its clients need."""

    def __init__(self, yard, *flags, port=0, env=None):
        self.yard = yard
        self.running = yard._start(
            ["serve", "--listen", f"127.0.0.1:{port}", "--data-dir", yard.data, *yard.bucket_flags(), *flags], None, env
        )
        line = self.running._unread.get(timeout=yards.DEADLINE)
        if line is None:
            # The mark of the end, which is looked for once more.
            self.running._unread.put(None)
            raise AssertionError(f"ended before it listened: {self.running.end()}")
        self.url = line.decode().removeprefix("listening at ").strip()
        lines = yard.command("env", "--data-dir", yard.data).stdout.splitlines()
        pairs = [line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export ")]
        self.variables = {name: value.strip("'") for name, value in pairs}
        assert self.variables["AWS_ENDPOINT_URL"] == self.url

    def client(self, service="s3", **changes):
        settings = {
            "endpoint_url": self.url,
            "region_name": "us-east-1",
            "aws_access_key_id": self.variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": self.variables["AWS_SECRET_ACCESS_KEY"],
            "config": botocore.config.Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
            **changes,
        }
        client = boto3.client(service, **settings)
        client.meta.events.register("after-call", fits_model)
        return client

    def cli(self, *arguments, expect=0, seconds=120):
        """`aws`, with the variables of `trainyard env` and nothing else."""
        aws = Path(sys.executable).with_name("aws")
        environment = {**self.yard.environment, **self.variables}
        ended = subprocess.run(
            [aws, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert ended.returncode == expect, ended
        return ended.stdout

    def stop(self):
        self.running.process.send_signal(signal.SIGTERM)
        ended = self.running.end()
        assert ended.exit_code == 0, ended
        assert "panicked" not in ended.stderr, ended

    def kill(self):
        """As a machine that goes down: nothing is said, nothing cleaned up."""
        os.killpg(self.running.process.pid, signal.SIGKILL)
        self.running.process.wait()


def remove_bucket(s3, name):
    """Removes a bucket with all that is in it."""
    for upload in s3.list_multipart_uploads(Bucket=name).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
        if found := [{"Key": it["Key"], "VersionId": it["VersionId"]} for it in page.get("Versions", [])]:
            assert "Errors" not in s3.delete_objects(Bucket=name, Delete={"Objects": found})
    s3.delete_bucket(Bucket=name)


def code(error):
    """The code of what `pytest.raises` has caught."""
    return error.value.response["Error"]["Code"]


def refused(call, **request):
    with pytest.raises(botocore.exceptions.ClientError) as error:
        call(**request)
    return code(error), error.value.response["Error"]["Message"]


def fits_model(http_response, parsed, model, **_):
    """Every answer of every test has all that botocore's model requires, of the right types, and nothing it does not know."""
    if http_response.status_code >= 300 or model.output_shape is None:
        return
    answer = {name: value for name, value in parsed.items() if name not in ("ResponseMetadata", "ExpiresString") and value is not None}
    if model.name == "GetRole":
        # botocore has read it already.
        answer["Role"] = {**answer["Role"], "AssumeRolePolicyDocument": "{}"}
    report = botocore.validate.ParamValidator().validate(answer, model.output_shape)
    assert not report.has_errors(), f"{model.name}: {report.generate_report()}"
    if model.service_model.metadata["protocol"] == "json":
        unknown = list(not_in_model(json.loads(http_response.content or "{}"), model.output_shape, model.name))
        assert not unknown, unknown


def not_in_model(answer, shape, path):
    """Where an answer has members that botocore would pass over in silence, or words that its model does not have."""
    if shape.type_name == "structure":
        for name, value in answer.items():
            if name in shape.members:
                yield from not_in_model(value, shape.members[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif shape.type_name == "list":
        for value in answer:
            yield from not_in_model(value, shape.member, f"{path}[]")
    elif shape.type_name == "map":
        for value in answer.values():
            yield from not_in_model(value, shape.value, f"{path}{{}}")
    elif shape.type_name == "string" and shape.enum and answer not in shape.enum:
        yield f"{path} = {answer}"


class SageMaker:
    """A client of the endpoint and the jobs of one test."""

    def __init__(self, yard, endpoint):
        self.yard = yard
        self.endpoint = endpoint
        self.api = endpoint.client("sagemaker")
        self.logs = endpoint.client("logs")

    def job(self, program, instances=1, channels=(), **members):
        return self.yard.job(program, instances, channels, RoleArn=ROLE, **members)

    def create(self, *arguments, **members):
        """Creates a job and returns its name."""
        self.yard.give_away(data=False)
        request = self.job(*arguments, **members)
        self.api.create_training_job(**request)
        return request["TrainingJobName"]

    def describe(self, name):
        return self.api.describe_training_job(TrainingJobName=name)

    def wait_for(self, name, *statuses, member="TrainingJobStatus"):
        def fits():
            described = self.describe(name)
            return described if described[member] in statuses else None

        return yards.wait_until(fits, f"{name} to be {' or '.join(statuses)}")

    def ended(self, name):
        return self.wait_for(name, "Completed", "Failed", "Stopped")

    def lines(self, name, host="algo-1"):
        streams = self.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/{host}-")["logStreams"]
        found = []
        for stream in streams:
            token = {}
            while True:
                page = self.logs.get_log_events(
                    logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True, **token
                )
                if not page["events"]:
                    break
                found += [event["message"] for event in page["events"]]
                token = {"nextToken": page["nextForwardToken"]}
        return found
