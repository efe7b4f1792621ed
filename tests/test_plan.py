"""`trainyard plan`: who would get what, without starting anything."""

import json

import pytest
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
