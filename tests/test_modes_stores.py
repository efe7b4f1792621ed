"""Pipes and manifests over objects of a store, with and without faults between."""

import gzip
import json
import os

import pytest
from test_modes_pipe import CAT, epochs, pipe, records
from test_modes_sources import fast
from test_storage import LIST_FILES, digest, listed

pytestmark = pytest.mark.one_user


def put(far, contents):
    for number, content in enumerate(contents):
        far.put(f"data/{number:03}", content)
    return f"s3://{far.bucket}/data/"


def test_pipes_stream_objects_of_a_store(far):
    contents = [b"one", b"", os.urandom(5 << 20), b"two"]
    sent = pipe("train", put(far, contents), RecordWrapperType="RecordIO")
    ended = far.run(far.yard.job(far.yard.sh(CAT), channels=[sent]))
    assert [records(epoch) for epoch in epochs(ended)] == [contents] * 3


def test_objects_of_a_store_are_gunzipped_as_they_come(far):
    content = os.urandom(1 << 20)
    sent = pipe("train", put(far, [gzip.compress(content), gzip.compress(b"end")]), CompressionType="Gzip")
    ended = far.run(far.yard.job(far.yard.sh(CAT), channels=[sent]))
    assert epochs(ended) == [content + b"end"] * 3


def test_a_broken_connection_is_taken_up_where_it_broke(far, proxy):
    contents = [os.urandom(2 << 20) for _ in range(3)]
    uri = put(far, contents)
    cuts = iter([700_000, 1_500_000, 1, 65_537])
    proxy.fault = lambda request: ("cut", cut) if request.is_read and (cut := next(cuts, None)) else None
    ended = far.run(far.yard.job(far.yard.sh(CAT), channels=[pipe("train", uri)]), url=proxy.url)
    assert epochs(ended) == [b"".join(contents)] * 3
    assert proxy.spoilt["cut"] == 4


def test_an_object_that_changes_while_the_job_runs_fails_it_and_never_ends_an_epoch(far):
    uri = put(far, [b"first"])
    program = far.yard.sh(
        "cat /opt/ml/input/data/train_0 >/dev/null; echo read\n"
        f"while [ ! -s {far.yard.file('gate')} ]; do sleep 0.05; done\n"
        "cat /opt/ml/input/data/train_1 >/dev/null; cat /opt/ml/input/data/train_2 >/dev/null; echo wrong\n"
    )
    job = far.yard.job(program, channels=[pipe("train", uri)])
    running = far.yard.start(job, "--config", far.config(), env=far.environment)
    running.wait_for_line("read")
    far.put("data/000", b"other")
    far.yard.file("gate", "open")
    ended = far.yard.ended(running, expect=10)
    assert "Data download failed" in ended.reason
    assert "data/000" in ended.reason
    assert "wrong" not in ended.log()


def test_manifests_and_what_they_name_may_be_in_a_store(far):
    put(far, ["a", "b", "c"])
    far.put("list.json", json.dumps([{"prefix": f"s3://{far.bucket}/data/"}, "002", "000"]))
    sent = fast(f"s3://{far.bucket}/list.json")
    sent["InputMode"] = "File"
    sent["DataSource"]["S3DataSource"]["S3DataType"] = "ManifestFile"
    ended = far.run(far.yard.job(far.yard.python(LIST_FILES), channels=[sent]))
    assert listed(ended) == {"data/000": digest("a"), "data/002": digest("c")}
    rows = [{"image-ref": f"s3://{far.bucket}/data/{number:03}", "label": number} for number in range(3)]
    far.put("lines", "\n".join(map(json.dumps, rows)))
    sent = pipe("train", f"s3://{far.bucket}/lines", data_type="AugmentedManifestFile", attributes=["label", "image-ref"])
    assert epochs(far.run(far.yard.job(far.yard.sh(CAT), channels=[sent]))) == [b"0a1b2c"] * 3
    far.put("lines", json.dumps({"image-ref": f"s3://{far.bucket}/data/999", "label": 1}))
    refused = far.run(far.yard.job(far.yard.sh(CAT), channels=[sent]), expect=2)
    assert f"line 1: there is no object s3://{far.bucket}/data/999" in refused.stderr
