"""Where the data of a channel may come from: manifests, shared file systems, files that are read when they are asked for."""

import json
import os

import pytest
from yard import channel

LIST = """
cd /opt/ml/input/data
find . -type f ! -name '*-manifest' | sort >"/opt/ml/model/$(hostname)"
[ ! -e data-manifest ] || cp data-manifest "/opt/ml/model/$(hostname)-manifest"
"""

FILE_SYSTEM = "fs-0123456789abcdef0"
VPC = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}


def manifest(yard, *names, prefix="s3://in/some/", key="list.json"):
    yard.put("in", key, json.dumps([{"prefix": prefix}, *names]))
    return f"s3://in/{key}"


def of_manifest(uri, distribution="FullyReplicated", **members):
    return channel("data", uri, distribution, "ManifestFile", **members)


def of_file_system(directory, access="ro", file_system=FILE_SYSTEM, kind="EFS"):
    source = {
        "FileSystemId": file_system, "FileSystemAccessMode": access, "FileSystemType": kind, "DirectoryPath": directory,
    }
    return {"ChannelName": "data", "DataSource": {"FileSystemDataSource": source}}


def test_a_manifest_names_the_objects_whose_files_are_called_like_its_elements(yard):
    for key in ("some/a.csv", "some/deep/b.csv", "some/other", "some/prefix-c"):
        yard.put("in", key, key)
    ended = yard.run(yard.job(yard.sh(LIST), channels=[of_manifest(manifest(yard, "a.csv", "deep/b.csv"))]))
    assert ended.text("algo-1").split() == ["./data/a.csv", "./data/deep/b.csv"]
    assert ended.text("algo-1-manifest") == "some/\ns3://in/some/a.csv\ns3://in/some/deep/b.csv\n"
    uri = manifest(yard, "fix-c", prefix="s3://in/some/pre")
    ended = yard.run(yard.job(yard.sh(LIST), channels=[of_manifest(uri)]))
    assert ended.text("algo-1").split() == ["./data/fix-c"]


def test_a_manifest_is_dealt_out_in_its_order(yard):
    for name in "abcde":
        yard.put("in", f"some/{name}", name)
    sent = of_manifest(manifest(yard, *"ecabd"), "ShardedByS3Key")
    ended = yard.run(yard.job(yard.sh(LIST), instances=2, channels=[sent]))
    assert ended.text("algo-1").split() == ["./data/a", "./data/d", "./data/e"]
    assert ended.text("algo-2").split() == ["./data/b", "./data/c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"prefix": "s3://in/"}, ', ["list.json", "line 1, column 25"]),
        ('{"prefix": "s3://in/"}', ["list.json", "must be a list"]),
        ('[{"prefix": "s3://in/"}, "gone"]', ["list.json", "element 2", "s3://in/gone", "is not a file"]),
        ('[{"prefix": "s3://in/"}, "../x"]', ["list.json", "element 2", '".."']),
        ('[{"prefix": "s3://in/"}, "a", 5]', ["list.json", "element 3", "5 is not a string"]),
        ('[{"prefix": "s3://in/"}, "a", "a"]', ["would both become a"]),
        ('[{"prefix": "s3://in/"}]', ["list.json", "names no object"]),
    ],
)
def test_what_is_wrong_with_a_manifest_is_told_before_anything_starts(yard, text, expected):
    yard.put("in", "a", "1")
    yard.put("in", "list.json", text)
    error = yard.refused(yard.job(yard.sh("exit 1"), channels=[of_manifest("s3://in/list.json")]))
    assert "channel data" in error
    for part in expected:
        assert part in error, error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a-ref": "s3://in/a"}\n{"b": 1}\n', ["line 2", '"a-ref"']),
        ('{"a-ref": "s3://in/gone"}\n', ["line 1", "s3://in/gone", "is not a file"]),
        ('{"a-ref": "a"}\n', ["line 1", "must be the S3 URI"]),
        ("\n", ["names no object"]),
    ],
)
def test_what_is_wrong_with_an_augmented_manifest_is_told_with_its_line(yard, text, expected):
    yard.put("in", "a", "1")
    yard.put("in", "lines", text)
    sent = channel("data", "s3://in/lines", data_type="AugmentedManifestFile", InputMode="Pipe")
    sent["DataSource"]["S3DataSource"]["AttributeNames"] = ["a-ref"]
    error = yard.refused(yard.job(yard.sh("exit 1"), channels=[sent]))
    for part in ["channel data", "s3://in/lines", *expected]:
        assert part in error, error


def test_a_manifest_that_is_not_there_is_named(yard):
    yard.bucket("in")
    error = yard.refused(yard.job(yard.sh("exit 1"), channels=[of_manifest("s3://in/none.json")]))
    assert "there is no manifest s3://in/none.json" in error


def test_a_shared_file_system_is_the_folder_that_stands_for_it(yard):
    yard.file("shared/project/data/a", "content")
    program = yard.sh(
        "cd /opt/ml/input/data\ncat data/a >/opt/ml/model/$(hostname)\nls >/opt/ml/model/$(hostname)-entries\n"
        "touch data/b && exit 1\ncp /opt/ml/input/config/inputdataconfig.json /opt/ml/model/$(hostname).json\n"
    )
    job = yard.job(program, instances=2, channels=[of_file_system("/project/data")], VpcConfig=VPC)
    ended = yard.run(job, "--file-system", f"{FILE_SYSTEM}={yard.root}/shared")
    for host in ("algo-1", "algo-2"):
        assert (ended.text(host), ended.text(f"{host}-entries")) == ("content", "data\n")
        told = json.loads(ended.text(f"{host}.json"))["data"]
        assert (told["TrainingInputMode"], told["S3DistributionType"]) == ("File", "FullyReplicated")
    assert [warning for warning in ended.warnings if "VpcConfig" in warning] == [
        "VpcConfig: subnets and security groups are Amazon's; here the instances are in a network of the job's own"
    ]


def test_a_shared_file_system_can_be_written_if_the_job_says_so(yard):
    yard.file("shared/a", "content")
    program = yard.sh("cd /opt/ml/input/data/data\ncat a >$(hostname)\n")
    job = yard.job(program, instances=2, channels=[of_file_system("/", "rw")], VpcConfig=VPC)
    yard.file("config.toml", f"[file_systems]\n{FILE_SYSTEM} = 'shared'\n")
    yard.run(job, "--config", yard.root / "config.toml")
    assert (yard.root / "shared/algo-1").read_text() == (yard.root / "shared/algo-2").read_text() == "content"


def test_a_shared_file_system_of_which_nothing_is_known_is_named(yard):
    yard.file("shared/a", "content")
    flag = f"{FILE_SYSTEM}={yard.root}/shared"
    for directory, flags, expected in [
        ("/", [], [f"FileSystemId {FILE_SYSTEM}", f"--file-system {FILE_SYSTEM}=DIR"]),
        ("/none", ["--file-system", flag], ["DirectoryPath /none", "is not a folder"]),
        ("/../data", ["--file-system", flag], ["DirectoryPath /../data", '".."']),
    ]:
        job = yard.job(yard.sh("exit 1"), channels=[of_file_system(directory)], VpcConfig=VPC)
        error = yard.refused(job, *flags)
        for part in ["channel data", *expected]:
            assert part in error, error


def fast(uri="s3://in/data/", distribution="FullyReplicated"):
    return channel("data", uri, distribution, InputMode="FastFile")


def test_files_of_a_fast_channel_can_be_read_anywhere_and_not_be_changed(yard):
    content = os.urandom(100_000)
    yard.put("in", "data/deep/a", content)
    yard.put("in", "data/b", "b")
    program = yard.python(
        """
import errno, json, os
folder = "/opt/ml/input/data/data/"
with open(folder + "deep/a", "rb") as file:
    file.seek(77_777)
    open("/opt/ml/model/part", "wb").write(file.read(1000))
tried = [
    lambda: open(folder + "b", "ab"), lambda: open(folder + "new", "w"), lambda: os.remove(folder + "b"),
    lambda: os.chmod(folder + "b", 0o777), lambda: os.mkdir(folder + "x"),
]
for attempt in tried:
    try:
        attempt()
        raise SystemExit("it can be changed")
    except OSError as error:
        assert error.errno == errno.EROFS, error
entries = sorted(os.listdir("/opt/ml/input/data"))
told = json.load(open("/opt/ml/input/config/inputdataconfig.json"))["data"]["TrainingInputMode"]
json.dump([entries, told], open("/opt/ml/model/told", "w"))
"""
    )
    ended = yard.run(yard.job(program, channels=[fast()]))
    assert ended.files()["part"] == content[77_777:78_777]
    assert json.loads(ended.text("told")) == [["data"], "FastFile"]


@pytest.mark.once
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
def test_a_fast_channel_that_must_be_copied_is_told_with_its_size(yard):
    for name, content in (("a", "a" * 1000), ("b", "b" * 24)):
        yard.put("in", f"data/{name}", content)
    yard.data = yard.mount_small_disk("64m") / "data"
    ended = yard.run(yard.job(yard.sh("cat /opt/ml/input/data/data/b"), channels=[fast()]))
    (warning,) = [text for text in ended.warnings if "FastFile" in text]
    assert "channel \"data\"" in warning and "1024 bytes" in warning and "--data-dir" in warning


def test_a_fast_channel_can_be_sharded_and_stand_beside_files_and_pipes(yard):
    for name in "abc":
        yard.put("in", f"data/{name}", name)
    program = yard.sh(
        "cd /opt/ml/input/data\nls data files >/opt/ml/model/$(hostname)\ncat pipe_0 >/opt/ml/model/$(hostname)-pipe\n"
        "echo changed >files/a"
    )
    channels = [
        fast(distribution="ShardedByS3Key"),
        channel("files", "s3://in/data/a"),
        channel("pipe", "s3://in/data/", InputMode="Pipe"),
    ]
    ended = yard.run(yard.job(program, instances=2, channels=channels))
    assert ended.text("algo-1").split() == ["data:", "a", "c", "files:", "a"]
    assert ended.text("algo-2").split() == ["data:", "b", "files:", "a"]
    assert ended.text("algo-1-pipe") == "abc"


def test_a_fast_channel_takes_no_room_of_the_volume(yard):
    with yard.put("in", "data/large").open("wb") as large:
        large.truncate(2 << 30)
    program = yard.sh("wc -c </opt/ml/input/data/data/large >/opt/ml/model/size")
    ended = yard.run(yard.job(program, channels=[fast()]), "--limits", "enforce")
    assert ended.text("size").strip() == str(2 << 30)


def test_a_prefix_that_ends_within_a_name_is_refused_for_a_fast_channel(yard):
    yard.put("in", "data/a", "1")
    yard.put("in", "data-2/a", "1")
    error = yard.refused(yard.job(yard.sh("exit 1"), channels=[fast("s3://in/data")]))
    assert "For FastFile mode, partial S3 prefix is not supported." in error
    assert "data-2/a" in error
