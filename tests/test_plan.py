"""`trainyard plan`: who would get what, without starting anything."""

import json

import pytest
import store
from endpoint import Endpoint
from yard import channel


@pytest.fixture
def plan(yard):
    def run(*flags, instances=2, channels=()):
        job = yard.job(yard.sh("exit 1"), instances=instances, channels=channels)
        flags = [*yard.bucket_flags(), "--data-dir", yard.data, *flags]
        return yard.command("plan", "-", *flags, stdin=json.dumps(job)).stdout

    return run


def line_of(text, host):
    (line,) = [line for line in text.splitlines() if host in line.split() or f" {host} " in f" {line} "]
    return line


def test_a_plan_shows_objects_and_bytes_of_each_instance(yard, plan):
    for number, size in enumerate([5, 70, 900]):
        yard.put("in", str(number), "x" * size)
    text = plan(channels=[channel("data", "s3://in", "ShardedByS3Key")])
    assert "905" in line_of(text, "algo-1")
    assert "70" in line_of(text, "algo-2")
    assert "975" in text, "the total"


def test_a_plan_warns_of_instances_without_objects(yard, plan):
    for number in range(3):
        yard.put("in", str(number), "x")
    text = plan(instances=10, channels=[channel("data", "s3://in", "ShardedByS3Key")])
    assert "3 objects for 10 instances: 7 get none" in text


def test_a_plan_with_rows_shows_each_range(yard, plan):
    text = plan("--rows", "1797", instances=10)
    assert "180" in line_of(text, "algo-2")
    assert "1617" in line_of(text, "algo-10")


def test_a_plan_can_be_read_by_programs(yard, plan):
    yard.put("in", "a", "12345")
    text = plan("--json", "--rows", "10", channels=[channel("data", "s3://in")])
    assert "algo-2" in json.dumps(json.loads(text))


def test_a_plan_starts_and_writes_nothing(yard, plan):
    yard.put("in", "a", "1")
    plan(channels=[channel("data", "s3://in")])
    assert list(yard.bucket("results").iterdir()) == []
    assert not [path for path in yard.data.rglob("*") if path.is_file()]


def test_a_plan_writes_nothing_to_the_store_of_the_output(far, proxy):
    job = far.yard.job(far.yard.sh("exit 1"), OutputDataConfig={"S3OutputPath": f"s3://{far.bucket}/out"})
    flags = ["--data-dir", far.yard.data, "--config", far.config(proxy.url)]
    far.yard.command("plan", "-", *flags, stdin=json.dumps(job), env=far.environment)
    assert [line for line in proxy.seen if not line.startswith(("GET ", "HEAD "))] == []


def test_large_folders_of_a_store_are_listed_at_once_and_nothing_is_lost(yard):
    endpoint = Endpoint(yard)
    keys = endpoint.variables["AWS_ACCESS_KEY_ID"], endpoint.variables["AWS_SECRET_ACCESS_KEY"]
    far = store.Far(yard, endpoint.url, endpoint.client(), keys)
    far.put("in/first/a b", "x")
    folder = yard.data / "s3" / far.bucket / "in"
    for name, count in [("first", 1100), ("odd &+ü", 20), ("third/below", 1300), ("third/beside", 30)]:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / name / str(number)).write_text("x")
    proxy = store.FaultProxy(int(far.url.rsplit(":", 1)[1]))
    job = yard.job(yard.sh("exit 1"), channels=[channel("data", f"s3://{far.bucket}/in/")])
    flags = ["--data-dir", yard.data, "--config", far.config(proxy.url), "--json"]
    planned = yard.command("plan", "-", *flags, stdin=json.dumps(job), env=far.environment).stdout
    (share,) = json.loads(planned)["instances"][0]["channels"]
    assert share["objects"] == 1 + 1100 + 20 + 1300 + 30
    assert [line for line in proxy.seen if "delimiter=%2F" in line and "prefix=in%2F&" in f"{line}&".replace(" ", "&")]
    proxy.stop()
    endpoint.stop()
