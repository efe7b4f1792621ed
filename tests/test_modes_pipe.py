"""Pipe mode: named pipes, an epoch each, as programs in an instance read them.

What comes through them depends neither on the user nor on the runtime, and is looked at once."""

import gzip
import hashlib
import json
import os
import struct
import sys

import pytest
from yard import channel

CAT = """
cd /opt/ml/input/data
for epoch in 0 1 2; do
    cat "train_$epoch" >"/opt/ml/model/$(hostname)-$epoch"
done
"""


def pipe(name, uri, distribution="FullyReplicated", data_type="S3Prefix", attributes=None, **members):
    sent = channel(name, uri, distribution, data_type, InputMode="Pipe", **members)
    if attributes:
        sent["DataSource"]["S3DataSource"]["AttributeNames"] = attributes
    return sent


def put(yard, contents, prefix="data/"):
    for number, content in enumerate(contents):
        yard.put("in", f"{prefix}{number:03}", content)


def epochs(ended, hosts=1, count=3):
    files = ended.files()
    found = [[files[f"algo-{host}-{epoch}"] for epoch in range(count)] for host in range(1, hosts + 1)]
    return found[0] if hosts == 1 else found


def records(text):
    """The records of a stream, read as dmlc-core does."""
    found = []
    while text:
        magic, length = struct.unpack_from("<II", text)
        assert magic == 0xCED7230A
        assert length < 1 << 29, "a whole record"
        found.append(text[8 : 8 + length])
        end = 8 + (length + 3) // 4 * 4
        assert text[8 + length : end] == b"\0" * (end - 8 - length)
        text = text[end:]
    return found


def test_a_loop_of_cat_reads_an_epoch_after_the_other(yard):
    put(yard, ["one\n", "", "two\n", os.urandom(1 << 20)])
    expected = b"".join(path.read_bytes() for path in sorted((yard.bucket("in") / "data").iterdir()))
    ended = yard.run(yard.job(yard.sh(CAT), channels=[pipe("train", "s3://in/data/")]))
    assert epochs(ended) == [expected] * 3


def test_a_channel_of_pipes_has_a_pipe_and_neither_folder_nor_manifest(yard):
    put(yard, ["1"])
    yard.put("in", "own/a", "1")
    program = yard.sh(
        "cd /opt/ml/input/data\nls -F >/opt/ml/model/entries\ncp /opt/ml/input/config/inputdataconfig.json /opt/ml/model/"
    )
    channels = [
        pipe("train", "s3://in/data/", ContentType="application/x-recordio", RecordWrapperType="RecordIO"),
        channel("own", "s3://in/own/", InputMode="File"),
    ]
    ended = yard.run(yard.job(program, channels=channels))
    assert sorted(ended.text("entries").split()) == ["own-manifest", "own/", "train_0|"]
    told = json.loads(ended.text("inputdataconfig.json"))
    assert told["train"] == {
        "ContentType": "application/x-recordio", "TrainingInputMode": "Pipe",
        "S3DistributionType": "FullyReplicated", "RecordWrapperType": "RecordIO",
    }
    assert told["own"]["TrainingInputMode"] == "File"


def test_channels_of_files_can_be_written_beside_pipes(yard):
    put(yard, ["data"])
    yard.put("in", "own/a", "source")
    program = yard.sh(
        "cd /opt/ml/input/data\necho changed >own/a\necho new >own/b\ncat own/a own/b train_0 >/opt/ml/model/seen"
    )
    channels = [pipe("train", "s3://in/data/"), channel("own", "s3://in/own/", InputMode="File")]
    ended = yard.run(yard.job(program, channels=channels))
    assert ended.text("seen") == "changed\nnew\ndata"
    assert (yard.bucket("in") / "own/a").read_text() == "source"


def test_a_pipe_that_is_closed_early_or_never_read_holds_nothing_up(yard):
    put(yard, [b"x" * (8 << 20)])
    program = yard.python(
        """
for epoch in range(5):
    with open(f"/opt/ml/input/data/early_{epoch}", "rb") as pipe:
        assert pipe.read(10) == b"x" * 10
open("/opt/ml/model/done", "w").close()
"""
    )
    channels = [pipe("early", "s3://in/data/"), pipe("never", "s3://in/data/")]
    ended = yard.run(yard.job(program, channels=channels))
    assert "done" in ended.files()
    assert ended.seconds < 20


@pytest.mark.host
@pytest.mark.one_user
def test_the_input_mode_of_the_algorithm_holds_for_channels_without_one(yard):
    put(yard, ["content"])
    job = yard.job(yard.sh(CAT), channels=[channel("train", "s3://in/data/")])
    job["AlgorithmSpecification"]["TrainingInputMode"] = "Pipe"
    assert epochs(yard.run(job)) == [b"content"] * 3


def test_a_stop_ends_instances_that_wait_in_a_pipe(yard):
    put(yard, [b"x" * (8 << 20)])
    program = yard.sh(
        "cd /opt/ml/input/data\n(exec 3<second_0; echo open; read -r line <&3; sleep 60) &\n"
        "cat first_0 >/dev/null\ncat first_1 >/dev/null\nmkfifo /tmp/none\necho waiting\ncat /tmp/none"
    )
    running = yard.start(yard.job(program, channels=[pipe("first", "s3://in/data/"), pipe("second", "s3://in/data/")]))
    running.wait_for_line("waiting")
    running.interrupt()
    ended = yard.ended(running, expect=11)
    assert ended.ended["status"] == "Stopped"


@pytest.mark.host
@pytest.mark.one_user
def test_gzip_objects_are_unpacked_all_members(yard):
    put(yard, [gzip.compress(b"one") + gzip.compress(b"two"), b"", gzip.compress(b"three")])
    ended = yard.run(yard.job(yard.sh(CAT), channels=[pipe("train", "s3://in/data/", CompressionType="Gzip")]))
    assert epochs(ended) == [b"onetwothree"] * 3


@pytest.mark.host
@pytest.mark.one_user
def test_each_object_is_a_record(yard):
    contents = [b"", b"a", os.urandom(1000), struct.pack("<I", 0xCED7230A) * 3]
    put(yard, contents)
    sent = pipe("train", "s3://in/data/", RecordWrapperType="RecordIO")
    ended = yard.run(yard.job(yard.sh(CAT), channels=[sent]))
    assert [records(epoch) for epoch in epochs(ended)] == [contents] * 3


@pytest.mark.host
@pytest.mark.one_user
def test_a_seed_gives_every_epoch_an_order_of_its_own_which_is_the_same_on_each_host(yard):
    put(yard, [f"{number:02}" for number in range(20)])
    sent = pipe("train", "s3://in/data/", ShuffleConfig={"Seed": 5})
    job = yard.job(yard.sh(CAT), instances=2, channels=[sent])
    first, second = epochs(yard.run(job), hosts=2)
    assert first == second
    orders = {tuple(text[at : at + 2] for at in range(0, 40, 2)) for text in first}
    assert len(orders) == 3
    assert {tuple(sorted(order)) for order in orders} == {tuple(b"%02d" % number for number in range(20))}
    again = yard.run({**job, "TrainingJobName": "again"})
    assert epochs(again, hosts=2) == [first, first]


@pytest.mark.host
@pytest.mark.one_user
def test_shards_are_dealt_out_anew_in_each_epoch_with_a_seed_and_never_without(yard):
    put(yard, [f"{number:02} " for number in range(12)])
    plain = pipe("train", "s3://in/data/", "ShardedByS3Key")
    shares = epochs(yard.run(yard.job(yard.sh(CAT), instances=3, channels=[plain])), hosts=3)
    for host, share in enumerate(shares):
        assert share == [b"".join(b"%02d " % number for number in range(host, 12, 3))] * 3
    shuffled = {**plain, "ShuffleConfig": {"Seed": 9}}
    shares = epochs(yard.run(yard.job(yard.sh(CAT), instances=3, channels=[shuffled])), hosts=3)
    for epoch in range(3):
        dealt = [share[epoch].split() for share in shares]
        assert sorted(sum(dealt, [])) == [b"%02d" % number for number in range(12)]
    assert len({frozenset(shares[0][epoch].split()) for epoch in range(3)}) > 1


@pytest.mark.host
@pytest.mark.one_user
def test_what_a_manifest_names_comes_in_its_order_again_if_it_is_named_again(yard):
    put(yard, ["a", "b", "c"])
    names = [{"prefix": "s3://in/data/"}, "002", "000", "002"]
    yard.put("in", "list.json", json.dumps(names))
    ended = yard.run(yard.job(yard.sh(CAT), channels=[pipe("train", "s3://in/list.json", data_type="ManifestFile")]))
    assert epochs(ended) == [b"cac"] * 3


def lines(yard, count):
    """An augmented manifest of images with labels; its URI."""
    rows = []
    for number in range(count):
        yard.put("in", f"images/{number}", f"image {number}")
        rows.append({"label": number, "other": [1], "image-ref": f"s3://in/images/{number}", "box": {"x": [1, 2.5]}})
    yard.put("in", "lines.manifest", "".join(json.dumps(row) + "\n" for row in rows))
    return "s3://in/lines.manifest"


@pytest.mark.host
@pytest.mark.one_user
def test_attributes_of_an_augmented_manifest_come_in_order_as_records(yard):
    attributes = ["image-ref", "label", "box"]
    sent = pipe(
        "train", lines(yard, 3), data_type="AugmentedManifestFile", attributes=attributes, RecordWrapperType="RecordIO"
    )
    ended = yard.run(yard.job(yard.sh(CAT), channels=[sent]))
    expected = []
    for number in range(3):
        expected += [b"image %d" % number, b"%d" % number, b'{"x":[1,2.5]}']
    assert [records(epoch) for epoch in epochs(ended)] == [expected] * 3


@pytest.mark.host
@pytest.mark.one_user
def test_lines_of_an_augmented_manifest_are_dealt_out_and_stay_together(yard):
    sent = pipe(
        "train", lines(yard, 10), "ShardedByS3Key", "AugmentedManifestFile", ["label", "image-ref"],
        RecordWrapperType="RecordIO", ShuffleConfig={"Seed": 1},
    )
    shares = epochs(yard.run(yard.job(yard.sh(CAT), instances=2, channels=[sent])), hosts=2)
    for epoch in range(3):
        pairs = []
        for share in shares:
            found = records(share[epoch])
            pairs += list(zip(found[::2], found[1::2], strict=True))
        assert sorted(pairs) == [(b"%d" % number, b"image %d" % number) for number in range(10)]


@pytest.mark.host
@pytest.mark.one_user
def test_without_records_attributes_follow_each_other_with_nothing_between(yard):
    sent = pipe("train", lines(yard, 2), data_type="AugmentedManifestFile", attributes=["label", "image-ref"])
    ended = yard.run(yard.job(yard.sh(CAT), channels=[sent]))
    assert epochs(ended) == [b"0image 01image 1"] * 3


def test_data_that_can_not_be_sent_fails_the_job_and_never_ends_an_epoch(yard):
    put(yard, [gzip.compress(b"fine"), gzip.compress(os.urandom(100_000))[:-20]])
    program = yard.sh("cat /opt/ml/input/data/train_0 >/opt/ml/model/all\necho end of data\nexit 0\n")
    job = yard.job(program, channels=[pipe("train", "s3://in/data/", CompressionType="Gzip")])
    ended = yard.run(job, expect=10)
    assert "Data download failed" in ended.reason
    assert 'channel "train"' in ended.reason
    assert "001: can't be gunzipped" in ended.reason
    assert "end of data" not in ended.log()


def test_streamed_data_takes_no_room_of_the_volume(yard):
    with (yard.put("in", "data/large")).open("wb") as large:
        large.truncate(2 << 30)
    program = yard.sh("head -c 10 /opt/ml/input/data/train_0 | wc -c >/opt/ml/model/count")
    ended = yard.run(yard.job(program, channels=[pipe("train", "s3://in/data/")]), "--limits", "enforce")
    assert ended.text("count").strip() == "10"


@pytest.mark.host
@pytest.mark.one_user
def test_amazons_own_reader_reads_records_over_three_epochs(yard):
    pytest.importorskip("sagemaker_training.recordio", reason="the package sagemaker-training is not installed")
    if sys.prefix.startswith("/tmp/"):
        pytest.skip("the Python environment of the tests is below /tmp, where an instance has a folder of its own")
    contents = [os.urandom(size) for size in (0, 1, 2, 3, 4, 100_001, 3_000_000)]
    put(yard, contents)
    program = yard.program(
        f"""#!{sys.executable}
import hashlib
from sagemaker_training.recordio import _read_recordio
for epoch in range(3):
    with open(f"/opt/ml/input/data/train_{{epoch}}", "rb") as pipe, open(f"/opt/ml/model/{{epoch}}", "w") as found:
        for record in _read_recordio(pipe):
            print(hashlib.sha256(record).hexdigest(), file=found)
"""
    )
    ended = yard.run(yard.job(program, channels=[pipe("train", "s3://in/data/", RecordWrapperType="RecordIO")]))
    for epoch in range(3):
        assert ended.text(str(epoch)).split() == [hashlib.sha256(content).hexdigest() for content in contents]
