"""Instances of several types in one job: who gets which channel, and what each is told."""

import json

import yard as yards
from endpoint import Endpoint
from yard import channel

LOOK = """
name="/opt/ml/model/$(hostname)"
mkdir "$name"
cp /opt/ml/input/config/*.json "$name/"
cd /opt/ml/input/data
find . -type f ! -name '*-manifest' | sort >"$name/files"
ls >"$name/entries"
"""

GROUPS = [
    {"InstanceGroupName": "load", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
    {"InstanceGroupName": "learn", "InstanceType": "ml.m5.large", "InstanceCount": 3},
]


def grouped(name, uri, groups, distribution="FullyReplicated", **members):
    sent = channel(name, uri, distribution, **members)
    sent["DataSource"]["S3DataSource"]["InstanceGroupNames"] = groups
    return sent


def run(yard, channels, **members):
    resources = {"InstanceGroups": GROUPS, "VolumeSizeInGB": 1}
    return yard.run(yard.job(yard.sh(LOOK), channels=channels, **{"ResourceConfig": resources, **members}))


def files_of(ended, name="files"):
    return {f"algo-{number}": ended.text(f"algo-{number}/{name}").split() for number in range(1, 6)}


def test_groups_follow_each_other_and_every_instance_knows_its_own(yard):
    ended = run(yard, [])
    for number in range(1, 6):
        resources = json.loads(ended.text(f"algo-{number}/resourceconfig.json"))
        first = number <= 2
        assert resources["current_host"] == f"algo-{number}"
        assert resources["hosts"] == ["algo-1", "algo-2", "algo-3", "algo-4", "algo-5"]
        assert resources["current_group_name"] == ("load" if first else "learn")
        assert resources["current_instance_type"] == ("ml.c5.xlarge" if first else "ml.m5.large")
        assert resources["instance_groups"] == [
            {"instance_group_name": "load", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1", "algo-2"]},
            {"instance_group_name": "learn", "instance_type": "ml.m5.large", "hosts": ["algo-3", "algo-4", "algo-5"]},
        ]


def test_a_channel_reaches_its_groups_and_is_dealt_out_among_their_hosts(yard):
    for number in range(6):
        yard.put("in", f"data/{number}", "1")
    ended = run(
        yard,
        [
            grouped("raw", "s3://in/data/", ["load"], "ShardedByS3Key"),
            grouped("ready", "s3://in/data/", ["learn"], "ShardedByS3Key"),
            grouped("all", "s3://in/data/0", ["load", "learn"]),
        ],
    )
    names = [f"{number}" for number in range(6)]
    expected = {
        f"algo-{number}": sorted(
            [f"./raw/{name}" for name in names[number - 1 :: 2] if number <= 2]
            + [f"./ready/{name}" for name in names[number - 3 :: 3] if number >= 3]
            + ["./all/0"]
        )
        for number in range(1, 6)
    }
    assert files_of(ended) == expected
    for host, entries in files_of(ended, "entries").items():
        own = "raw" if host in ("algo-1", "algo-2") else "ready"
        assert entries == ["all", "all-manifest", own, f"{own}-manifest"], host
        told = json.loads(ended.text(f"{host}/inputdataconfig.json"))
        assert list(told) == [name for name in (own, "all")], host
        assert list(json.loads(ended.text(f"{host}/init-config.json"))["channels"]) == list(told)


def test_instances_of_a_group_without_objects_are_counted_in_a_warning(yard):
    yard.put("in", "data/a", "1")
    ended = run(yard, [grouped("data", "s3://in/data/", ["learn"], "ShardedByS3Key")])
    (warning,) = [text for text in ended.warnings if "data" in text]
    assert "1 object for 3 instances: 2 get none" in warning


def test_shards_by_size_are_balanced_and_always_the_same(yard):
    sizes = [80, 10, 10, 10, 10, 10, 10, 10, 10, 80]
    for number, size in enumerate(sizes):
        yard.put("in", f"data/{number}", "x" * size)
    sent = [grouped("data", "s3://in/data/", ["learn"], "ShardedByS3Key")]
    first, second = (files_of(run(yard, sent, Trainyard={"ShardBy": "size"})) for _ in range(2))
    assert first == second
    shares = [first[f"algo-{number}"] for number in (3, 4, 5)]
    weights = [sum(sizes[int(name.rsplit("/", 1)[1])] for name in share) for share in shares]
    assert sorted(weights) == [80, 80, 80]


def test_a_seed_deals_files_out_in_another_order(yard):
    for number in range(30):
        yard.put("in", f"data/{number:02}", "1")
    sent = channel("data", "s3://in/data/", "ShardedByS3Key", ShuffleConfig={"Seed": 7})
    first = files_of(run(yard, [sent]))
    assert first == files_of(run(yard, [sent]))
    everything = [f"./data/{number:02}" for number in range(30)]
    assert sorted(name for share in first.values() for name in share) == everything
    assert first["algo-1"] != everything[::5]
    assert all(len(share) == 6 for share in first.values())


def test_the_endpoint_shows_groups_and_shuffling_as_they_were_sent(yard):
    yard.put("in", "data/a", "1")
    sent = grouped("data", "s3://in/data/", ["load"], ShuffleConfig={"Seed": -3}, ContentType="text/csv")
    request = yard.job(
        yard.sh("exit 0"), channels=[sent], RoleArn="arn:aws:iam::000000000000:role/any",
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 1},
    )
    endpoint = Endpoint(yard, "--max-instances", "5")
    try:
        api = endpoint.client("sagemaker")
        api.create_training_job(**request)

        def ended():
            found = api.describe_training_job(TrainingJobName=request["TrainingJobName"])
            return found if found["TrainingJobStatus"] in ("Completed", "Failed") else None

        described = yards.wait_until(ended, "the end of the job")
        # It is told before all is tidied up.
        yards.wait_until(lambda: not list(yard._scratch()), "the job to be tidied up")
    finally:
        endpoint.stop()
    assert described["TrainingJobStatus"] == "Completed", described
    assert described["ResourceConfig"]["InstanceGroups"] == GROUPS
    (found,) = described["InputDataConfig"]
    assert found["ShuffleConfig"] == {"Seed": -3}
    assert found["ContentType"] == "text/csv"
    assert found["DataSource"]["S3DataSource"]["InstanceGroupNames"] == ["load"]
