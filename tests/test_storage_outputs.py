"""Artifacts that go to stores: put together from what instances upload, with and without faults between."""

import gzip
import io
import json
import random
import tarfile
from pathlib import Path

import pyarrow
import pytest
import yard as yards
from endpoint import Endpoint

MIB = 1 << 20

pytestmark = pytest.mark.one_user

WRITE = """
import json, os, random
host = json.load(open("/opt/ml/input/config/resourceconfig.json"))["current_host"]
sizes = json.loads(os.environ["SIZES"])[int(host.split("-")[1]) - 1]
for name, size in sizes.items():
    open(f"/opt/ml/model/{name}", "wb").write(random.Random(f"{host}/{name}").randbytes(size))
if os.environ.get("FAIL") == host and not os.path.exists(os.environ["MARK"]):
    raise SystemExit(3)
"""


def job_to(far, sizes, prefix="out", **members):
    """A job whose instances write files of these sizes, by name, and whose artifacts go to the store."""
    environment = {"SIZES": json.dumps(sizes), **members.pop("Environment", {})}
    output = {"S3OutputPath": f"s3://{far.bucket}/{prefix}", **members.pop("output", {})}
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": len(sizes), "VolumeSizeInGB": 1}
    return far.yard.job(
        far.yard.python(WRITE), Environment=environment, OutputDataConfig=output, ResourceConfig=resources, **members
    )


def expected(sizes):
    return {
        name: random.Random(f"algo-{rank}/{name}").randbytes(size)
        for rank, files in enumerate(sizes, 1) for name, size in files.items()
    }


def fetched(far, uri):
    key = uri.removeprefix(f"s3://{far.bucket}/")
    return far.client.get_object(Bucket=far.bucket, Key=key)["Body"].read()


def files_in(content):
    # One member: what is behind its end would be another.
    plain = gzip.GzipFile(fileobj=io.BytesIO(content)).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def uploads(far):
    return far.client.list_multipart_uploads(Bucket=far.bucket).get("Uploads", [])


def keys(far):
    return [entry["Key"] for entry in far.client.list_objects_v2(Bucket=far.bucket).get("Contents", [])]


SIZES = {
    "small": [{"a": 10}, {"b": 1000}],
    "large": [{"a": 11 * MIB}, {"b": 9 * MIB}],
    "large-after-small": [{"a": 10}, {"b": 9 * MIB}, {"c": 30}],
    "small-after-large": [{"a": 12 * MIB}, {"b": 3 * MIB}, {"c": 3 * MIB}, {"d": 10}],
    "empty-between": [{}, {"b": 6 * MIB}, {}, {"d": 20 * MIB}],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_an_archive_in_a_store_is_what_it_would_be_in_a_folder(far, sizes):
    ended = far.run(job_to(far, sizes))
    uri = ended.ended["model"]
    assert uri == f"s3://{far.bucket}/out/job-1/output/model.tar.gz"
    assert ended.ended["folder"] is None
    assert files_in(fetched(far, uri)) == expected(sizes)
    assert keys(far) == ["out/job-1/output/model.tar.gz"]
    assert uploads(far) == []


def test_no_byte_of_a_large_artifact_goes_through_the_engine(far, proxy):
    sizes = [{"a": 12 * MIB}, {"b": 12 * MIB}]
    seen = []
    proxy.fault = lambda request: seen.append(request) and None
    far.run(job_to(far, sizes), url=proxy.url)
    puts = [request for request in seen if request.method == "PUT" and "partNumber" in request.target]
    lengths = sorted(int(request.headers["content-length"]) for request in puts)
    assert lengths[0] < 100, "the end of the archive is the engine's"
    assert all(length > 5 * MIB for length in lengths[1:])
    # All that was sent, once: packed noise is a little longer than the noise.
    assert proxy.body_bytes < 24 * MIB + 100_000


def test_nothing_is_seen_before_the_archive_is_whole_and_an_earlier_one_goes_first(far, proxy):
    sizes = [{"a": 12 * MIB}]
    far.run(job_to(far, sizes))
    before_completion = []

    def fault(request):
        if request.method == "POST" and "uploadId" in request.target:
            before_completion.append(keys(far))

    proxy.fault = fault
    far.yard._jobs = 0
    far.run(job_to(far, sizes), url=proxy.url)
    assert before_completion == [[]]
    assert keys(far) == ["out/job-1/output/model.tar.gz"]


def once(kind, when):
    met = set()

    def fault(request):
        name = (request.method, request.target)
        if not when(request) or name in met:
            return None
        met.add(name)
        return kind

    return fault


@pytest.mark.parametrize(
    "fault",
    [
        ("deaf",),
        ("cut", 0),
        ("status", 500, "<Error><Code>InternalError</Code><Message>sorry</Message></Error>"),
        ("status", 503, "<Error><Code>SlowDown</Code><Message>slower</Message></Error>"),
    ],
    ids=["deaf", "cut", "500", "503"],
)
def test_an_upload_is_resumed_after_faults(far, proxy, fault):
    sizes = [{"a": 20 * MIB}, {"b": 10}]
    # An answer that is lost may have been obeyed: each request is told so once.
    proxy.fault = once(fault, lambda request: True)
    ended = far.run(job_to(far, sizes), url=proxy.url)
    assert files_in(fetched(far, ended.ended["model"])) == expected(sizes)
    assert uploads(far) == []


def test_an_upload_that_is_refused_fails_the_job_and_leaves_nothing(far, proxy):
    refusal = ("status", 403, "<Error><Code>AccessDenied</Code><Message>quota is used up</Message></Error>")
    proxy.fault = lambda request: refusal if "partNumber" in request.target else None
    ended = far.run(job_to(far, [{"a": 12 * MIB}]), url=proxy.url, expect=10)
    assert "Artifact upload failed" in ended.reason and "quota is used up" in ended.reason, ended.reason
    assert (keys(far), uploads(far)) == ([], [])


def test_a_store_that_lets_nothing_in_is_told_before_the_job_starts(far, proxy):
    refusal = ("status", 403, "<Error><Code>AccessDenied</Code><Message>read only</Message></Error>")
    proxy.fault = lambda request: refusal if request.method == "POST" else None
    error = far.run(job_to(far, [{"a": 1}]), url=proxy.url, expect=2).stderr
    assert "OutputDataConfig.S3OutputPath" in error and "read only" in error, error


def test_a_job_that_writes_nothing_leaves_no_object(far):
    ended = far.run(job_to(far, [{}, {}]))
    assert ended.ended["model"] is None
    assert (keys(far), uploads(far)) == ([], [])


def test_a_resumed_job_joins_the_parts_of_both_attempts(far):
    sizes = [{"a": 11 * MIB}, {"b": 12 * MIB}, {"c": 10}]
    mark = far.yard.root / "mark"
    job = job_to(far, sizes, Environment={"FAIL": "algo-2", "MARK": str(mark)})
    failed = far.run(job, expect=10)
    assert uploads(far) == []
    assert failed.ended["model"], "what was written is archived all the same"
    mark.write_text("now")
    far.yard.give_away()
    ended = far.yard.run(job, "--resume", "--config", far.config(), env=far.environment)
    assert files_in(fetched(far, ended.ended["model"])) == expected(sizes)
    assert uploads(far) == []


def test_the_merged_file_goes_to_the_store_too(far):
    program = far.yard.sh(
        'host=$(hostname)\necho "k,v" > /opt/ml/model/part-$host.csv\necho "1,$host" >> /opt/ml/model/part-$host.csv\n'
    )
    job = far.yard.job(
        program, instances=2, OutputDataConfig={"S3OutputPath": f"s3://{far.bucket}/"},
        Trainyard={"Merge": {"Glob": "part-*.csv", "Output": "all.csv"}},
    )
    ended = far.run(job)
    assert ended.ended["merged"] == f"s3://{far.bucket}/job-1/output/all.csv"
    assert fetched(far, ended.ended["merged"]) == b"k,v\n1,algo-1\n1,algo-2\n"


def unpacked_zstd(content):
    """By a reader that is not ours."""
    plain = pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "zstd").read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


@pytest.mark.parametrize("where", ["store", "folder"])
def test_archives_are_compressed_with_zstd_if_that_is_asked_for(far, where):
    sizes = [{"a": 12 * MIB}, {"b": 10}, {"c": 6 * MIB}]
    settings = {"Output": {"Compression": "zstd", "Level": 1}}
    output = {} if where == "store" else {"S3OutputPath": "s3://results/out"}
    ended = far.run(job_to(far, sizes, Trainyard=settings, output=output))
    uri = ended.ended["model"]
    assert uri.endswith("/output/model.tar.zst")
    folder = far.yard.bucket("results") / "out/job-1/output"
    content = fetched(far, uri) if where == "store" else (folder / "model.tar.zst").read_bytes()
    assert unpacked_zstd(content) == expected(sizes)
    assert uploads(far) == []
    path = far.yard.root / "model.tar.zst"
    path.write_bytes(content)
    names = far.yard.command("artifact", "ls", path).stdout
    assert all(name in names for name in ["a", "b", "c", "algo-2"]), names


def test_parts_in_an_archive_of_zstd_are_merged(far):
    program = far.yard.sh('echo "k,v" > /opt/ml/model/part-$(hostname).csv\necho "1,$(hostname)" >> /opt/ml/model/part-$(hostname).csv\n')
    settings = {"Merge": {"Glob": "part-*.csv", "Output": "all.csv"}, "Output": {"Compression": "zstd"}}
    ended = far.run(far.yard.job(program, instances=2, Trainyard=settings))
    assert ended.ended["model"].endswith("model.tar.zst")
    assert (far.yard.bucket("results") / "out/job-1/output/all.csv").read_bytes() == b"k,v\n1,algo-1\n1,algo-2\n"


def test_a_key_for_encryption_reaches_the_store(far, proxy):
    asked = []

    def fault(request):
        if request.method == "POST" and "uploads" in request.target:
            headers = request.headers
            asked.append((
                headers.get("x-amz-server-side-encryption"), headers.get("x-amz-server-side-encryption-aws-kms-key-id")
            ))
            # This store has no keys of that kind.
            return ("status", 501, "<Error><Code>NotImplemented</Code><Message>no keys here</Message></Error>")
        return None

    proxy.fault = fault
    job = job_to(far, [{"a": 1}], output={"KmsKeyId": "my-key"})
    error = far.run(job, url=proxy.url, expect=2).stderr
    assert asked == [("aws:kms", "my-key")]
    assert "no keys here" in error, error
    folder = {"KmsKeyId": "my-key", "S3OutputPath": "s3://results/out"}
    error = far.run(job_to(far, [{"a": 1}], output=folder), expect=2).stderr
    assert "OutputDataConfig.KmsKeyId" in error and "folder of this machine" in error, error


def test_jobs_of_the_endpoint_write_to_a_third_partys_store(far):
    sizes = [{"a": 6 * MIB}]
    endpoint = Endpoint(far.yard, "--config", far.config(), env=far.environment)
    client = endpoint.client("sagemaker")
    job = job_to(far, sizes)
    client.create_training_job(**{**job, "RoleArn": "arn:aws:iam::000000000000:role/any"})
    name = job["TrainingJobName"]
    described = lambda: client.describe_training_job(TrainingJobName=name)  # noqa: E731
    yards.wait_until(lambda: described()["TrainingJobStatus"] != "InProgress", "the job")
    uri = described()["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == f"s3://{far.bucket}/out/{name}/output/model.tar.gz"
    assert files_in(fetched(far, uri)) == expected(sizes)
    endpoint.stop()


def test_what_is_to_be_left_out_is_in_no_archive(yard):
    program = yard.sh("cd /opt/ml/model; mkdir -p steps/1 deep; touch a.tmp keep steps/1/x deep/b.tmp deep/keep\n")
    job = yard.job(program, Trainyard={"Output": {"Ignore": ["*.tmp", "steps/**"]}})
    assert sorted(yard.run(job).files()) == ["deep/keep", "keep"]
    error = yard.run(yard.job(program, Trainyard={"Output": {"Ignore": ["a[b"]}}), expect=2).stderr
    assert "Trainyard.Output.Ignore" in error and "a[b" in error, error


def test_a_large_model_is_told_with_the_folders_that_take_most(yard):
    program = yard.sh("cd /opt/ml/model; mkdir small steps; head -c 9000 /dev/zero >small/a; head -c 90000 /dev/zero >steps/1\n")
    told = yard.run(yard.job(program, Trainyard={"Output": {"WarnAboveInGB": 0}}))
    (warning,) = [text for text in told.warnings if "most is in" in text]
    assert "/opt/ml/model holds" in warning and 0 < warning.index("steps") < warning.index("small"), warning
    assert "Trainyard.Output.Ignore" in warning
    assert not [text for text in yard.run(yard.job(program)).warnings if "most is in" in text]


CLASH = """
import json, os
host = json.load(open("/opt/ml/input/config/resourceconfig.json"))["current_host"]
os.makedirs("/opt/ml/model/deep/er")
for name in (f"of-{host}", "deep/er/log", "left.tmp"):
    open(f"/opt/ml/model/{name}", "w").write(host)
open("/opt/ml/model/same", "w").write("same")
os.symlink(f"of-{host}", "/opt/ml/model/link")
os.makedirs("/opt/ml/output/data", exist_ok=True)
open(f"/opt/ml/output/data/{host}.txt", "w").write(host)
"""
TREE = {
    "model/of-algo-1": b"algo-1", "model/of-algo-2": b"algo-2", "model/same": b"same", "model/link": b"algo-2",
    "model/deep/er/log": b"algo-2", "model-clashes/algo-1/deep/er/log": b"algo-1",
    "model-clashes/algo-1/link": b"algo-1",
}


def as_files(job, ignore=("*.tmp",)):
    """The same job with a model of plain files."""
    job["OutputDataConfig"]["CompressionType"] = "NONE"
    return {**job, "Trainyard": {"Output": {"Ignore": list(ignore)}}}


def below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(far, prefix="out/job-1/output/"):
    return {key.removeprefix(prefix): fetched(far, f"s3://{far.bucket}/{key}") for key in keys(far)}


def check_warning(ended, folder):
    told = [warning for warning in ended.warnings if "different content" in warning]
    assert len(told) == 2 and all("algo-1, algo-2" in warning and folder in warning for warning in told), told


def test_a_model_of_plain_files_is_a_tree_that_loses_no_version(yard):
    ended = yard.run(as_files(yard.job(yard.python(CLASH), instances=2)))
    assert ended.ended["model"].endswith("/job-1/output/model/")
    folder = Path(ended.ended["folder"])
    found = below(folder)
    archive = found.pop("output.tar.gz")
    assert files_in(archive) == {"algo-1.txt": b"algo-1", "algo-2.txt": b"algo-2"}
    assert found == TREE
    check_warning(ended, "/job-1/output/model-clashes/")
    assert sorted(path.name for path in folder.iterdir()) == ["model", "model-clashes", "output.tar.gz"]


def test_earlier_models_of_either_form_go_first(yard):
    write = yard.sh("echo 1 > /opt/ml/model/$NAME; mkdir /opt/ml/model/empty\n")
    for name, compression, left in [
        ("a", "NONE", ["model/a"]), ("b", "NONE", ["model/b"]), ("c", "GZIP", ["model.tar.gz"]),
        ("d", "NONE", ["model/d"]),
    ]:
        yard._jobs = 0
        job = yard.job(write, Environment={"NAME": name})
        job["OutputDataConfig"]["CompressionType"] = compression
        ended = yard.run(job)
        folder = Path(ended.ended["folder"])
        assert sorted(below(folder)) == left
        assert (folder / "model/empty").is_dir() == (compression == "NONE")


def test_a_model_of_plain_files_goes_to_a_store(far):
    for _ in range(2):
        # An object of an earlier job, and one that only looks like it.
        far.put("out/job-1/output/model/earlier", b"1")
        far.put("out/job-1/output/modelled", b"1")
        job = yards_job(far, CLASH)
        far.yard._jobs = 0
        ended = far.run(as_files(job))
        assert ended.ended["model"] == f"s3://{far.bucket}/out/job-1/output/model/"
        found = stored(far)
        assert sorted(files_in(found.pop("output.tar.gz"))) == ["algo-1.txt", "algo-2.txt"]
        assert found.pop("modelled") == b"1"
        assert found == TREE
        assert uploads(far) == []
        check_warning(ended, f"s3://{far.bucket}/out/job-1/output/model-clashes/")


def yards_job(far, program):
    return far.yard.job(
        far.yard.python(program), instances=2, OutputDataConfig={"S3OutputPath": f"s3://{far.bucket}/out"}
    )


def test_large_plain_files_arrive_whole_through_faults(far, proxy):
    sizes = [{"a": 20 * MIB, "b": 10}, {"c": 17 * MIB}]
    fault = ("status", 503, "<Error><Code>SlowDown</Code><Message>slower</Message></Error>")
    proxy.fault = once(fault, lambda request: True)
    far.run(as_files(job_to(far, sizes)), url=proxy.url)
    assert stored(far) == {f"model/{name}": content for name, content in expected(sizes).items()}
    assert uploads(far) == []


def test_plain_files_that_are_refused_fail_the_job_and_leave_nothing(far, proxy):
    refusal = ("status", 403, "<Error><Code>AccessDenied</Code><Message>quota is used up</Message></Error>")
    proxy.fault = lambda request: refusal if request.method == "PUT" and "/model/f7" in request.target else None
    sizes = [{"a": 20 * MIB, **{f"f{number}": 10 for number in range(30)}}]
    ended = far.run(as_files(job_to(far, sizes)), url=proxy.url, expect=10)
    assert "Artifact upload failed" in ended.reason and "quota is used up" in ended.reason, ended.reason
    assert (keys(far), uploads(far)) == ([], [])


@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_job_with_plain_files_that_writes_nothing_or_resumes_is_as_with_an_archive(far, where):
    sizes = [{"a": 10}, {"b": 20}]
    mark = far.yard.root / "mark"
    output = {"S3OutputPath": "s3://results/out"} if where == "folder" else {}
    empty = far.run(as_files(job_to(far, [{}, {}], output=output)))
    assert (empty.ended["model"], keys(far)) == (None, [])
    job = as_files(job_to(far, sizes, output=output, Environment={"FAIL": "algo-2", "MARK": str(mark)}))
    failed = far.run(job, expect=10)
    name = job["TrainingJobName"]
    assert failed.ended["model"].endswith(f"/{name}/output/model/")
    mark.write_text("now")
    far.yard.give_away()
    ended = far.yard.run(job, "--resume", "--config", far.config(), env=far.environment)
    files = below(Path(ended.ended["folder"])) if where == "folder" else stored(far, f"out/{name}/output/")
    assert files == {f"model/{path}": content for path, content in expected(sizes).items()}


def test_a_merge_of_plain_files_is_refused_by_name(yard):
    job = yard.job(yard.sh("true\n"), Trainyard={"Merge": {"Output": "all.csv"}})
    job["OutputDataConfig"]["CompressionType"] = "NONE"
    error = yard.run(job, expect=2).stderr
    assert "Trainyard.Merge" in error and "OutputDataConfig.CompressionType NONE" in error, error


def test_the_endpoint_tells_where_plain_files_are_and_artifact_says_that_there_is_no_archive(yard):
    endpoint = Endpoint(yard)
    client = endpoint.client("sagemaker")
    program = yard.sh("echo 1 > /opt/ml/model/a; mkdir -p /opt/ml/output/data; echo 2 > /opt/ml/output/data/b\n")
    job = yard.job(program)
    job["OutputDataConfig"]["CompressionType"] = "NONE"
    client.create_training_job(**{**job, "RoleArn": "arn:aws:iam::000000000000:role/any"})
    name = job["TrainingJobName"]
    described = lambda: client.describe_training_job(TrainingJobName=name)  # noqa: E731
    uri = f"{job['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{name}/output/model/"
    assert described()["ModelArtifacts"]["S3ModelArtifacts"] == uri
    yards.wait_until(lambda: described()["TrainingJobStatus"] != "InProgress", "the job")
    assert described()["ModelArtifacts"]["S3ModelArtifacts"] == uri
    assert described()["OutputDataConfig"]["CompressionType"] == "NONE"
    bucket, prefix = uri.removeprefix("s3://").split("/", 1)
    found = endpoint.client().list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    assert [entry["Key"] for entry in found] == [f"{prefix}a"]
    refused = yard.command("artifact", "ls", name, "--data-dir", yard.data, expect=1)
    assert uri in refused.stderr and "no archive" in refused.stderr, refused.stderr
    listed = yard.command("artifact", "ls", name, "--output", "--data-dir", yard.data).stdout
    assert any(line.endswith(" b") for line in listed.splitlines()), listed
    endpoint.stop()
