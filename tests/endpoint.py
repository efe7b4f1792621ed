"""A running `trainyard serve` and its clients."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import boto3
import botocore.config
import botocore.validate
import yard as yards


class Endpoint:
    """A running `trainyard serve` and what its clients need."""

    def __init__(self, yard, *flags, port=0):
        self.yard = yard
        self.running = yard._start(
            ["serve", "--listen", f"127.0.0.1:{port}", "--data-dir", yard.data, *yard.bucket_flags(), *flags], None
        )
        line = self.running._unread.get(timeout=yards.DEADLINE)
        assert line is not None, self.running.end()
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
        return boto3.client(service, **settings)

    def cli(self, *arguments, expect=0):
        """`aws`, with the variables of `trainyard env` and nothing else."""
        aws = Path(sys.executable).with_name("aws")
        environment = {**self.yard.environment, **self.variables}
        ended = subprocess.run(
            [aws, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == expect, ended
        return ended.stdout

    def stop(self):
        self.running.process.send_signal(signal.SIGTERM)
        ended = self.running.end()
        assert ended.exit_code == 0, ended

    def kill(self):
        """As a machine that goes down: nothing is said, nothing cleaned up."""
        os.killpg(self.running.process.pid, signal.SIGKILL)
        self.running.process.wait()


def code(error):
    """The code of what `pytest.raises` has caught."""
    return error.value.response["Error"]["Code"]


def fits_model(client, operation, answer):
    """An answer that has all members that botocore's model requires, of the right types and within their limits."""
    shape = client.meta.service_model.operation_model(operation).output_shape
    answer = {name: value for name, value in answer.items() if name != "ResponseMetadata"}
    unknown = set(answer) - set(shape.members)
    assert not unknown, f"{operation} has no {unknown}"
    report = botocore.validate.ParamValidator().validate(answer, shape)
    assert not report.has_errors(), report.generate_report()
