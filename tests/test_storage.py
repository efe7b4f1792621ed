"""Objects that come from stores: a third party's server and our own endpoint, with and without faults between."""

import hashlib
import itertools
import json
import random

import pytest
import store
import yard as yards
from endpoint import Endpoint

MIB = 1 << 20

pytestmark = pytest.mark.one_user


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
    far = store.Far(yard, endpoint.url, endpoint.client(), keys)
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
    far = store.Far(yard, endpoint.url, endpoint.client(), own)
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
    far = store.Far(yard, endpoint.url, endpoint.client(), own)
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


def fill(far, count=12, large=24 * MIB):
    """Some small objects and one that is fetched in pieces; their digests."""
    content = {f"in/{i}": random.Random(i).randbytes(1000 * i + 1) for i in range(count)}
    if large:
        content["in/large"] = random.Random(99).randbytes(large)
    for key, value in content.items():
        far.put(key, value)
    return {key: digest(value) for key, value in content.items()}


def once(kind, when):
    """A fault that each object and piece meets once, and listings too."""
    met = set()

    def fault(request):
        name = (request.target, request.headers.get("range", "").split("-")[-1])
        if not when(request) or name in met:
            return None
        met.add(name)
        return kind

    return fault


FAULTS = {
    "cut": ("cut", 300),
    "cut-late": ("cut", 9 * MIB),
    "deaf": ("deaf",),
    "late": ("delay", 0.3),
    "500": ("status", 500, "<Error><Code>InternalError</Code><Message>we are sorry</Message></Error>"),
    "503": ("status", 503, "<Error><Code>SlowDown</Code><Message>reduce your rate</Message></Error>"),
    "no-xml": ("status", 502, "<html>bad gateway"),
    "short": ("short", 1),
    "flip": ("flip", 0),
}


@pytest.mark.parametrize("fault", FAULTS, ids=FAULTS)
def test_a_store_with_faults_gives_the_right_content_in_the_end(far, proxy, fault):
    expected = fill(far)
    spoilt = (lambda request: request.is_read) if fault in ("flip", "short") else (lambda request: True)
    proxy.fault = once(FAULTS[fault], spoilt)
    ended = far.run(job_on(far), url=proxy.url)
    assert listed(ended) == expected
    assert proxy.spoilt[FAULTS[fault][0]] >= (1 if fault == "cut-late" else 10)


def test_a_connection_that_breaks_is_taken_up_where_it_broke(far, proxy):
    far.put("in/a", random.Random(1).randbytes(8 * MIB))
    proxy.fault = once(("cut", 5 * MIB), lambda request: request.is_read)
    ranges = []
    spoil = proxy.fault

    def fault(request):
        if request.is_read:
            ranges.append(request.headers["range"])
        return spoil(request)

    proxy.fault = fault
    far.run(job_on(far), url=proxy.url)
    first, second = ranges
    assert first == f"bytes=0-{8 * MIB - 1}"
    start = int(second.removeprefix("bytes=").split("-")[0])
    assert 4 * MIB < start <= 5 * MIB, second


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            lambda number: ("status", 403, "<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>"),
            ["403", "not yours"],
        ),
        (lambda number: ("flip", number), ["checksum", "in/a"]),
    ],
    ids=["denied", "damaged"],
)
def test_a_store_that_never_gives_the_right_content_fails_the_job_with_the_reason(far, proxy, fault, words):
    far.put("in/a", "content")
    reads = itertools.count()
    proxy.fault = lambda request: fault(next(reads)) if request.is_read else None
    ended = far.run(job_on(far), url=proxy.url, expect=10)
    assert all(word in ended.reason for word in [f"s3://{far.bucket}/in/a", *words]), ended.reason


@pytest.mark.parametrize("size", [7, 20 * MIB], ids=["small", "in-pieces"])
@pytest.mark.parametrize(
    "header",
    ["x-amz-server-side-encryption: aws:kms", "x-amz-server-side-encryption: aws:kms:dsse",
     "x-amz-server-side-encryption-customer-algorithm: AES256"],
)
def test_an_etag_that_is_no_md5_by_what_the_store_says_is_not_compared(far, proxy, header, size):
    content = bytearray(random.Random(1).randbytes(size))
    far.put("in/a", bytes(content))
    content[0] ^= 1
    proxy.fault = lambda request: ("flip", 0, header) if request.is_read and "=0-" in request.headers["range"] else None
    ended = far.run(job_on(far), url=proxy.url)
    assert listed(ended) == {"in/a": digest(bytes(content))}
    assert not ended.warnings
    assert proxy.spoilt["flip"] == 1, "it is fetched once"


def test_content_that_is_twice_the_same_is_taken_with_a_warning_where_the_etag_is_another(far, proxy):
    far.put("in/a", b"content")
    far.put("in/b", b"content")
    proxy.fault = lambda request: ("flip", 0, "x-amz-server-side-encryption: AES256") if request.is_read else None
    ended = far.run(job_on(far), url=proxy.url)
    taken = digest(bytes([ord("c") ^ 1]) + b"ontent")
    assert listed(ended) == {"in/a": taken, "in/b": taken}
    told = [warning for warning in ended.warnings if "ETag is not the MD5" in warning]
    assert len(told) == 1 and f"s3://{far.bucket}/in/" in told[0] and "and another object" in told[0], ended.warnings


def test_a_store_that_is_not_there_is_named(far, yard):
    (port,) = store.free_ports(1)
    error = far.run(job_on(far), url=f"http://127.0.0.1:{port}", expect=2).stderr
    assert f"http://127.0.0.1:{port} does not answer" in error and far.bucket in error, error


def test_an_object_that_changes_after_it_was_listed_is_noticed(far, proxy):
    old = far.client.put_object(Bucket=far.bucket, Key="in/a", Body=b"old")["ETag"]
    changed = []

    def fault(request):
        if request.is_read and not changed:
            changed.append(far.client.put_object(Bucket=far.bucket, Key="in/a", Body=b"new")["ETag"])

    proxy.fault = fault
    ended = far.run(job_on(far), url=proxy.url, expect=10)
    assert all(word in ended.reason for word in (old, *changed, f"s3://{far.bucket}/in/a")), ended.reason


def reads(proxy):
    return sum("list-type" not in line and line.startswith("GET") for line in proxy.seen)


def test_what_was_fetched_once_is_fetched_for_all_instances_and_later_jobs(far, proxy):
    expected = fill(far, large=None)
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 3, "VolumeSizeInGB": 1}
    ended = far.run(job_on(far, ResourceConfig=resources), url=proxy.url)
    assert [listed(ended, f"algo-{i}") for i in (1, 2, 3)] == [expected] * 3
    # An empty object needs no request.
    assert reads(proxy) == len(expected)
    assert listed(far.run(job_on(far), url=proxy.url)) == expected
    assert reads(proxy) == len(expected), "the second job fetches nothing"
    far.put("in/3", "changed")
    ended = far.run(job_on(far), url=proxy.url)
    assert listed(ended) == {**expected, "in/3": digest("changed")}
    assert reads(proxy) == len(expected) + 1


def test_two_jobs_at_once_fetch_what_they_share_once(far, proxy):
    expected = fill(far, large=None)
    config = far.config(proxy.url)
    proxy.fault = lambda request: ("delay", 0.5) if request.is_read else None
    running = [far.yard.start(job_on(far), "--config", config, env=far.environment) for _ in range(2)]
    for each in running:
        assert listed(far.yard.ended(each)) == expected
    assert reads(proxy) == len(expected)


def test_the_cache_keeps_no_more_than_it_may(far):
    expected = fill(far, large=None)
    cache = far.yard.data / "cache/objects"
    kept = lambda: sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())  # noqa: E731
    assert listed(far.run(job_on(far), more="[cache]\nmax = '20 KB'")) == expected
    assert 0 < kept() <= 20_000
    assert listed(far.run(job_on(far), more="[cache]\nmax = '0'")) == expected


def test_a_job_can_not_change_what_is_kept(far):
    far.put("in/a", "as it was")
    program = far.yard.sh("cd /opt/ml/input/data/in; chmod 777 a; echo changed > a; cp a /opt/ml/model/\n")
    channels = [yards.channel("in", f"s3://{far.bucket}/in/")]
    assert far.run(far.yard.job(program, channels=channels)).text("a") == "changed\n"
    assert listed(far.run(job_on(far))) == {"in/a": digest("as it was")}


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(far, proxy):
    if not yards.AS_ROOT:
        pytest.skip("only root can mount a small disk")
    far.put("in/a", b"x" * (8 * MIB))
    far.yard.data = far.yard.mount_small_disk("6m") / "data"
    ended = far.run(job_on(far), url=proxy.url, more="[cache]\nmax = '1 GB'", expect=10)
    assert "8.0 MiB (8388608 bytes) are needed" in ended.reason and "are free" in ended.reason, ended.reason
    assert reads(proxy) == 0


def test_progress_tells_how_much_there_is_how_fast_it_comes_and_how_long_it_takes(far, proxy):
    expected = fill(far, count=30, large=None)
    size = sum(1000 * i + 1 for i in range(30))
    proxy.fault = lambda request: ("delay", 0.9 if request.target.endswith("29") else 0.1) if request.is_read else None
    ended = far.run(job_on(far), url=proxy.url)
    staging = [event for event in ended.of_kind("progress") if event["phase"] == "staging"]
    assert all((event["of_objects"], event["of_bytes"]) == (30, size) for event in staging)
    assert (staging[-1]["objects"], staging[-1]["bytes"]) == (len(expected), size)
    between = [event for event in staging if event["seconds_left"] is not None and 0 < event["bytes"] < size]
    assert between and all(event["bytes_per_second"] > 0 for event in between), staging


def test_a_stop_while_objects_are_fetched_ends_at_once(far, proxy):
    fill(far, large=None)
    proxy.fault = lambda request: ("delay", 20) if request.is_read else None
    running = far.yard.start(job_on(far), "--config", far.config(proxy.url), env=far.environment)
    yards.wait_until(lambda: reads(proxy) > 0, "the first request")
    running.interrupt()
    ended = far.yard.ended(running, expect=11)
    assert ended.seconds < 15, ended.seconds


def test_jobs_of_the_endpoint_read_from_a_third_partys_store(far):
    expected = fill(far, count=3, large=None)
    endpoint = Endpoint(far.yard, "--config", far.config(), env=far.environment)
    client = endpoint.client("sagemaker")
    job = job_on(far)
    client.create_training_job(**{**job, "RoleArn": "arn:aws:iam::000000000000:role/any"})
    name = job["TrainingJobName"]
    described = lambda: client.describe_training_job(TrainingJobName=name)  # noqa: E731
    yards.wait_until(lambda: described()["TrainingJobStatus"] != "InProgress", "the job")
    assert described()["TrainingJobStatus"] == "Completed", described()
    archive = far.yard.bucket("results") / f"out/{name}/output/model.tar.gz"
    ended = yards.Ended(0, "", "", far.yard, 0)
    assert json.loads(ended.files(archive)["algo-1.json"]) == expected
    endpoint.stop()


def test_a_store_whose_protocol_was_not_built_in_is_told_with_what_is_missing(yard):
    job = yard.job(yard.sh("exit 1"), channels=[yards.channel("in", "s3://models/in/")])
    for kind, store_name in [("gcs", "Google Cloud Storage"), ("azure", "Azure Blob Storage")]:
        config = yard.file("config.toml", f"[storage.bucket.models]\nkind = '{kind}'\n")
        error = yard.refused(job, "--config", config)
        assert store_name in error and f"--features {kind}" in error, error
