"""Which objects an instance finds in a channel, and under which names."""

import json

import pytest
from yard import channel

LIST = """
cd /opt/ml/input/data
find . -type f ! -name '*-manifest' | sort >"/opt/ml/model/$(hostname)"
find . -mindepth 1 -type d | sort >"/opt/ml/model/$(hostname)-folders"
"""


@pytest.fixture
def listing(yard):
    """Runs a job that lists its channels; the files' names by host, and the run itself."""

    def run(*channels, instances=1, **members):
        ended = yard.run(yard.job(yard.sh(LIST), instances=instances, channels=channels, **members))
        hosts = [f"algo-{number}" for number in range(1, instances + 1)]
        return {host: ended.text(host).split() for host in hosts}, ended

    return run


def put_objects(yard, count, prefix="data/"):
    keys = [f"{prefix}{number:02}.txt" for number in range(count)]
    for key in keys:
        yard.put("in", key, key)
    return [f"./data/{key.removeprefix(prefix)}" for key in keys]


@pytest.mark.every_user
def test_a_replicated_channel_is_the_same_on_every_instance(yard, listing):
    names = put_objects(yard, 5)
    files, _ = listing(channel("data", "s3://in/data/"), instances=3)
    assert files == {"algo-1": names, "algo-2": names, "algo-3": names}


@pytest.mark.every_user
def test_a_sharded_channel_is_dealt_out_one_by_one_in_order_of_the_keys(yard, listing):
    names = put_objects(yard, 20)
    files, _ = listing(channel("data", "s3://in/data/", "ShardedByS3Key"), instances=6)
    for number in range(6):
        assert files[f"algo-{number + 1}"] == names[number::6]


def test_keys_are_in_order_of_their_bytes(yard, listing):
    for name in ("a_2", "a_10", "a_1", "B", "ä", "z"):
        yard.put("in", name, name)
    files, _ = listing(channel("data", "s3://in/", "ShardedByS3Key"), instances=6)
    assert [files[f"algo-{number}"] for number in range(1, 7)] == [
        ["./data/B"], ["./data/a_1"], ["./data/a_10"], ["./data/a_2"], ["./data/z"], ["./data/ä"]
    ]


def test_an_instance_without_objects_gets_an_empty_folder_and_the_job_a_warning(yard, listing):
    names = put_objects(yard, 3)
    files, ended = listing(channel("data", "s3://in/data/", "ShardedByS3Key"), instances=4)
    assert [files[f"algo-{number}"] for number in range(1, 5)] == [[name] for name in names] + [[]]
    assert ended.text("algo-4-folders").split() == ["./data"]
    (warning,) = [text for text in ended.warnings if "data" in text]
    assert "3" in warning
    assert "4" in warning


def test_a_partial_prefix_keeps_the_whole_base_name(yard, listing):
    for key in ("data/train-data.csv", "data/train2/x.csv", "data/other.csv"):
        yard.put("in", key, key)
    files, _ = listing(channel("train", "s3://in/data/train"))
    assert files["algo-1"] == ["./train/train-data.csv", "./train/train2/x.csv"]


def test_a_prefix_without_its_slash_means_the_same_folder(yard, listing):
    yard.put("in", "code/a.py", "1")
    yard.put("in", "code/deep/b.py", "1")
    without, _ = listing(channel("code", "s3://in/code"))
    with_slash, _ = listing(channel("code", "s3://in/code/"))
    assert without == with_slash == {"algo-1": ["./code/a.py", "./code/deep/b.py"]}


@pytest.mark.parametrize("uri", ["s3://in", "s3://in/"])
def test_a_bucket_alone_means_all_of_its_objects(yard, listing, uri):
    yard.put("in", "a", "1")
    yard.put("in", "b/c", "1")
    files, _ = listing(channel("all", uri))
    assert files["algo-1"] == ["./all/a", "./all/b/c"]


def test_a_single_object_is_a_channel_of_one_file(yard, listing):
    yard.put("in", "models/model.tar.gz", "1")
    yard.put("in", "models/other", "1")
    files, _ = listing(channel("model", "s3://in/models/model.tar.gz"))
    assert files["algo-1"] == ["./model/model.tar.gz"]


def test_folder_markers_are_no_objects_and_are_not_dealt_out(yard, listing):
    names = put_objects(yard, 2)
    (yard.bucket("in") / "data" / "00-empty").mkdir()
    files, _ = listing(channel("data", "s3://in/data/", "ShardedByS3Key"), instances=2)
    assert files == {"algo-1": names[:1], "algo-2": names[1:]}


def test_an_empty_object_is_an_empty_file(yard, listing):
    yard.put("in", "data/empty", "")
    files, _ = listing(channel("data", "s3://in/data/"))
    assert files["algo-1"] == ["./data/empty"]


@pytest.mark.every_user
def test_names_with_blanks_and_umlauts_arrive_unchanged(yard):
    yard.put("in", "data/ä b%20c.txt", "1")
    program = yard.sh("cp /opt/ml/input/data/data/* /opt/ml/model/")
    ended = yard.run(yard.job(program, channels=[channel("data", "s3://in/data/")]))
    assert ended.files() == {"ä b%20c.txt": b"1"}


def test_archives_are_not_unpacked(yard):
    content = bytes.fromhex("1f8b080000000000000303000000000000000000")
    yard.put("in", "a.gz", content)
    program = yard.sh("cp /opt/ml/input/data/data/a.gz /opt/ml/model/")
    assert yard.run(yard.job(program, channels=[channel("data", "s3://in")])).files() == {"a.gz": content}


def test_files_of_the_machine_are_a_channel_too(yard, listing):
    yard.file("own/a.txt", "1")
    yard.file("own/b/c.txt", "1")
    files, _ = listing(channel("data", f"file://{yard.root}/own/"))
    assert files["algo-1"] == ["./data/a.txt", "./data/b/c.txt"]


def test_a_bucket_that_is_not_mapped_lies_in_the_data_folder(yard, listing):
    path = yard.data / "s3" / "unmapped" / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_text("1")
    files, _ = listing(channel("data", "s3://unmapped"))
    assert files["algo-1"] == ["./data/a.txt"]


def test_a_path_beside_the_job_file_is_found_from_anywhere(yard):
    yard.file("project/data/a.txt", "1")
    train = yard.file("project/train", "#!/bin/sh\ncp /opt/ml/input/data/data/a.txt /opt/ml/model/\n", 0o755)
    job = yard.job(
        f"host:./{train.name}",
        channels=[channel("data", "file://./data/")],
        OutputDataConfig={"S3OutputPath": "file://./out"},
    )
    path = yard.file("project/job.json", json.dumps(job))
    ended = yard.run(path)
    assert ended.files() == {"a.txt": b"1"}
    assert ended.model == yard.root / "project/out" / job["TrainingJobName"] / "output/model.tar.gz"


@pytest.mark.every_user
def test_several_channels_stand_beside_each_other(yard, listing):
    yard.put("in", "a/x", "1")
    yard.put("in", "b/y", "1")
    files, _ = listing(channel("one", "s3://in/a/"), channel("two.b-c_d", "s3://in/b/"))
    assert files["algo-1"] == ["./one/x", "./two.b-c_d/y"]


def test_as_many_channels_as_the_api_allows_are_not_copied(yard):
    for number in range(20):
        yard.put("in", f"c{number}/x", str(number))
    channels = [channel(f"c{number}", f"s3://in/c{number}/") for number in range(20)]
    program = yard.sh("cat /opt/ml/input/data/c*/x | wc -c; stat -f -c %T /opt/ml/input/data")
    assert yard.run(yard.job(program, channels=channels)).log() == ["30", "overlayfs"]


def test_rows_are_cut_by_the_documented_formula(yard):
    program = yard.python("""
import json
config = json.load(open("/opt/ml/input/config/resourceconfig.json"))
rank, size, rows = config["hosts"].index(config["current_host"]), len(config["hosts"]), 1797
start, end = round(rank * rows / size), round((rank + 1) * rows / size)
open(f"/opt/ml/model/{config['current_host']}", "w").write(f"{start} {end}")
""")
    ended = yard.run(yard.job(program, instances=7))
    plan = yard.command("plan", "-", "--rows", "1797", stdin=json.dumps(yard.job(program, instances=7)))
    covered = []
    for number in range(1, 8):
        start, end = map(int, ended.text(f"algo-{number}").split())
        covered.extend(range(start, end))
        (line,) = [line for line in plan.stdout.splitlines() if f"algo-{number}" in line]
        assert str(start) in line
        assert str(end) in line or str(end - 1) in line
    assert covered == list(range(1797))
