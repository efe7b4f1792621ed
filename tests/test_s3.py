"""The S3 endpoint, as boto3 and the AWS CLI use it."""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request

import botocore.config
import botocore.exceptions
import pytest
import yard as yards
from boto3.s3.transfer import TransferConfig
from endpoint import Endpoint, code

MIB = 1 << 20

ODD_KEYS = ["a//b", "../outside", "/", "a/", "./x", ".trainyard/index.sqlite", "ü/ñ 😀", "a b+c&d=e?f#g%h", "x" * 1000]
"""Keys that no file can have as its path, or that have to be written in another way in a URL."""


@pytest.fixture
def endpoint(yard):
    yard.bucket("given")
    endpoint = Endpoint(yard)
    yield endpoint
    endpoint.stop()


@pytest.fixture
def s3(endpoint):
    client = endpoint.client()
    client.create_bucket(Bucket="bucket")
    return client


def keys(s3, **request):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bucket", **request)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def test_an_object_comes_back_as_it_was_put(s3):
    metadata = {"a": "1", "b-c": "two words"}
    put = s3.put_object(
        Bucket="bucket", Key="a/b.csv", Body=b"x,y", ContentType="text/csv", CacheControl="no-cache",
        ContentEncoding="identity", Metadata=metadata, Tagging="t=1&u=2",
    )
    got = s3.get_object(Bucket="bucket", Key="a/b.csv")
    assert got["Body"].read() == b"x,y"
    assert (got["ContentType"], got["CacheControl"], got["ContentEncoding"]) == ("text/csv", "no-cache", "identity")
    assert got["Metadata"] == metadata
    assert got["ETag"] == put["ETag"] == f'"{hashlib.md5(b"x,y").hexdigest()}"'
    head = s3.head_object(Bucket="bucket", Key="a/b.csv")
    assert (head["ContentLength"], head["ETag"]) == (3, put["ETag"])
    tags = s3.get_object_tagging(Bucket="bucket", Key="a/b.csv")["TagSet"]
    assert tags == [{"Key": "t", "Value": "1"}, {"Key": "u", "Value": "2"}]


def test_buckets_are_folders_and_objects_are_files(yard, endpoint, s3):
    s3.put_object(Bucket="given", Key="a/b", Body=b"put")
    assert (yard.bucket("given") / "a/b").read_bytes() == b"put"
    yard.put("given", "by-hand.txt", "copied")
    yard.give_away()
    assert s3.get_object(Bucket="given", Key="by-hand.txt")["Body"].read() == b"copied"
    s3.put_object(Bucket="bucket", Key="c", Body=b"made")
    assert (yard.data / "s3/bucket/c").read_bytes() == b"made"
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["bucket", "given", "results"]


def test_a_job_reads_what_a_client_has_put(yard, s3):
    for i in range(3):
        s3.put_object(Bucket="given", Key=f"in/{i}", Body=str(i))
    program = yard.sh("cat /opt/ml/input/data/in/* > /opt/ml/model/all\n")
    ended = yard.run(yard.job(program, channels=[yards.channel("in", "s3://given/in/")]))
    assert ended.text("all") == "012"
    archive = s3.get_object(Bucket="results", Key=ended.ended["model"].removeprefix("s3://results/"))["Body"].read()
    assert archive == ended.model.read_bytes()


def test_keys_of_any_kind_are_right_and_never_leave_their_bucket(yard, s3):
    for key in [*ODD_KEYS, "k", "k/z"]:
        s3.put_object(Bucket="bucket", Key=key, Body=key.encode())
    for key in [*ODD_KEYS, "k", "k/z"]:
        assert s3.get_object(Bucket="bucket", Key=key)["Body"].read() == key.encode()
    assert keys(s3) == sorted([*ODD_KEYS, "k", "k/z"], key=str.encode)
    assert sorted(os.listdir(yard.data / "s3")) == ["bucket"]
    for key in [*ODD_KEYS, "k", "k/z"]:
        s3.delete_object(Bucket="bucket", Key=key)
    assert keys(s3) == []
    s3.delete_bucket(Bucket="bucket")
    assert not (yard.data / "s3/bucket").exists()


def test_listings_have_pages_prefixes_and_delimiters(s3):
    names = [f"d{i}/f{j}" for i in range(3) for j in range(3)] + ["top", "d1.x"]
    for name in names:
        s3.put_object(Bucket="bucket", Key=name, Body=b"")
    assert keys(s3, PaginationConfig={"PageSize": 2}) == sorted(names)
    assert keys(s3, Prefix="d1") == ["d1.x", "d1/f0", "d1/f1", "d1/f2"]
    assert keys(s3, StartAfter="d2/f0") == ["d2/f1", "d2/f2", "top"]
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bucket", Delimiter="/", PaginationConfig={"PageSize": 2})
    pages = list(pages)
    assert [prefix["Prefix"] for page in pages for prefix in page.get("CommonPrefixes", [])] == ["d0/", "d1/", "d2/"]
    assert [entry["Key"] for page in pages for entry in page.get("Contents", [])] == ["d1.x", "top"]
    first = s3.list_objects(Bucket="bucket", Delimiter="/", MaxKeys=3)
    assert (first["IsTruncated"], first["NextMarker"]) == (True, "d1/")
    second = s3.list_objects(Bucket="bucket", Delimiter="/", Marker=first["NextMarker"])
    assert [prefix["Prefix"] for prefix in second["CommonPrefixes"]] == ["d2/"]


def test_ranges_and_conditions_are_those_of_http(s3):
    etag = s3.put_object(Bucket="bucket", Key="k", Body=b"0123456789")["ETag"]

    def part(**request):
        got = s3.get_object(Bucket="bucket", Key="k", **request)
        return got["Body"].read(), got.get("ContentRange")

    assert part(Range="bytes=2-4") == (b"234", "bytes 2-4/10")
    assert part(Range="bytes=-3") == (b"789", "bytes 7-9/10")
    assert part(Range="bytes=8-100") == (b"89", "bytes 8-9/10")
    assert part(IfMatch=etag)[0] == b"0123456789"
    wrong = {
        "InvalidRange": {"Range": "bytes=10-"},
        "PreconditionFailed": {"IfMatch": '"0"'},
        "304": {"IfNoneMatch": etag},
    }
    for expected, request in wrong.items():
        with pytest.raises(botocore.exceptions.ClientError) as error:
            part(**request)
        assert code(error) == expected


def test_a_put_can_be_made_to_depend_on_what_is_there(s3):
    s3.put_object(Bucket="bucket", Key="k", Body=b"1", IfNoneMatch="*")
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"0"'}):
        with pytest.raises(botocore.exceptions.ClientError) as error:
            s3.put_object(Bucket="bucket", Key="k", Body=b"2", **condition)
        assert code(error) == "PreconditionFailed"
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"1"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_are_verified_and_kept(s3, algorithm):
    if algorithm in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt", reason="botocore needs awscrt to compute it")
    member = f"Checksum{algorithm}"
    put = s3.put_object(Bucket="bucket", Key="k", Body=b"content", ChecksumAlgorithm=algorithm)
    head = s3.head_object(Bucket="bucket", Key="k", ChecksumMode="ENABLED")
    assert head[member] == put[member]
    with pytest.raises(botocore.exceptions.ClientError) as error:
        s3.put_object(Bucket="bucket", Key="other", Body=b"content", **{member: put[member][::-1]})
    assert code(error) in ("BadDigest", "InvalidRequest")
    assert keys(s3) == ["k"]


def test_large_files_go_up_and_down_in_parts(yard, s3):
    content = os.urandom(MIB) * 18 + b"end"
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(content), "bucket", "big", Config=config)
    head = s3.head_object(Bucket="bucket", Key="big", PartNumber=2)
    assert (head["PartsCount"], head["ContentLength"]) == (4, 5 * MIB)
    back = io.BytesIO()
    s3.download_fileobj("bucket", "big", back, Config=config)
    assert back.getvalue() == content
    s3.copy({"Bucket": "bucket", "Key": "big"}, "bucket", "copy", Config=config)
    assert (yard.data / "s3/bucket/copy").read_bytes() == content
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="bucket")


def test_an_upload_is_seen_only_when_it_is_complete(s3):
    upload = {"Bucket": "bucket", "Key": "k", "UploadId": s3.create_multipart_upload(Bucket="bucket", Key="k")["UploadId"]}
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    assert keys(s3) == []
    assert [part["PartNumber"] for part in s3.list_parts(**upload)["Parts"]] == [1]
    wrong = {"Parts": [{"PartNumber": 1, "ETag": '"0"'}]}
    with pytest.raises(botocore.exceptions.ClientError) as error:
        s3.complete_multipart_upload(**upload, MultipartUpload=wrong)
    assert code(error) == "InvalidPart"
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert keys(s3) == ["k"]
    with pytest.raises(botocore.exceptions.ClientError) as error:
        s3.abort_multipart_upload(**upload)
    assert code(error) == "NoSuchUpload"


def test_copies_take_metadata_along_or_get_their_own(s3):
    s3.put_object(Bucket="bucket", Key="a", Body=b"x", Metadata={"m": "1"}, ContentType="text/csv", Tagging="t=1")
    source = {"Bucket": "bucket", "Key": "a"}
    s3.copy_object(Bucket="bucket", Key="b", CopySource=source)
    head = s3.head_object(Bucket="bucket", Key="b")
    assert (head["Metadata"], head["ContentType"]) == ({"m": "1"}, "text/csv")
    assert s3.get_object_tagging(Bucket="bucket", Key="b")["TagSet"] == [{"Key": "t", "Value": "1"}]
    s3.copy_object(Bucket="bucket", Key="a", CopySource=source, MetadataDirective="REPLACE", Metadata={"m": "2"})
    assert s3.head_object(Bucket="bucket", Key="a")["Metadata"] == {"m": "2"}
    with pytest.raises(botocore.exceptions.ClientError) as error:
        s3.copy_object(Bucket="bucket", Key="a", CopySource=source)
    assert code(error) == "InvalidRequest"


def test_many_objects_are_deleted_at_once(s3):
    names = [f"k{i}" for i in range(50)] + ["a//b"]
    for name in names:
        s3.put_object(Bucket="bucket", Key=name, Body=b"")
    asked = {"Objects": [{"Key": name} for name in [*names, "never-there"]]}
    answer = s3.delete_objects(Bucket="bucket", Delete=asked)
    assert len(answer["Deleted"]) == 52 and "Errors" not in answer
    assert keys(s3) == []


def test_presigned_urls_work_until_something_in_them_changes(endpoint, s3):
    # Its default for an endpoint such as this is the old signature.
    s3 = endpoint.client(config=botocore.config.Config(signature_version="s3v4"))

    def status(url, data=None, method="GET"):
        request = urllib.request.Request(url, data=data, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, b""

    put = s3.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "k"})
    assert status(put, b"signed", "PUT")[0] == 200
    get = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "k"})
    assert status(get) == (200, b"signed")
    assert status(get.replace("/k?", "/other?"))[0] == 403
    assert status(get.split("?")[0])[0] == 403


def test_nothing_is_done_without_the_right_signature(endpoint, s3):
    s3.put_object(Bucket="bucket", Key="k", Body=b"x")
    others = {
        "InvalidAccessKeyId": {"aws_access_key_id": "TRAINYARDNOTTHERE000"},
        "SignatureDoesNotMatch": {"aws_secret_access_key": "x" * 40},
    }
    for expected, changes in others.items():
        other = endpoint.client(**changes)
        with pytest.raises(botocore.exceptions.ClientError) as error:
            other.get_object(Bucket="bucket", Key="k")
        assert code(error) == expected
    unsigned = botocore.config.Config(signature_version=botocore.UNSIGNED)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        endpoint.client(config=unsigned).get_object(Bucket="bucket", Key="k")
    assert code(error) == "AccessDenied"


def test_what_is_not_there_is_told_by_name(s3):
    wrong = {
        "NoSuchKey": lambda: s3.get_object(Bucket="bucket", Key="k"),
        "NoSuchBucket": lambda: s3.list_objects_v2(Bucket="no-bucket"),
        "NoSuchVersion": lambda: s3.get_object(Bucket="bucket", Key="k", VersionId="1"),
        "BucketNotEmpty": lambda: s3.put_object(Bucket="bucket", Key="k", Body=b"") and s3.delete_bucket(Bucket="bucket"),
    }
    for expected, call in wrong.items():
        with pytest.raises(botocore.exceptions.ClientError) as error:
            call()
        assert code(error) == expected
    assert s3.get_bucket_location(Bucket="bucket")["LocationConstraint"] is None
    s3.head_bucket(Bucket="bucket")


def test_the_aws_cli_copies_and_syncs_folders(yard, endpoint):
    source = yard.root / "tree"
    for i in range(200):
        path = source / f"d{i % 7}" / f"file {i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(i))
    endpoint.cli("s3", "mb", "s3://cli")
    endpoint.cli("s3", "sync", source, "s3://cli/tree", "--only-show-errors")
    assert endpoint.cli("s3", "sync", source, "s3://cli/tree") == "", "the second time there is nothing to do"
    assert len(endpoint.cli("s3", "ls", "s3://cli/tree/", "--recursive").splitlines()) == 200
    assert endpoint.cli("s3", "ls", "s3://cli/tree/").count("PRE d") == 7
    back = yard.root / "back"
    endpoint.cli("s3", "cp", "--recursive", "s3://cli/tree", back, "--only-show-errors")
    assert {path.name: path.read_text() for path in back.rglob("*.txt")} == {
        path.name: path.read_text() for path in source.rglob("*.txt")
    }
    endpoint.cli("s3", "rm", "--recursive", "s3://cli/tree", "--only-show-errors")
    endpoint.cli("s3", "rb", "s3://cli")
    for folder in (source, back):
        shutil.rmtree(folder)


def test_a_second_endpoint_for_the_same_folder_is_refused(yard, endpoint):
    ended = yard.command("serve", "--listen", "127.0.0.1:0", "--data-dir", yard.data, expect=1)
    assert "another endpoint runs" in ended.stderr


def test_other_machines_are_let_in_only_with_encryption_or_by_name(yard):
    ended = yard.command("serve", "--listen", "0.0.0.0:0", "--data-dir", yard.data, expect=2)
    assert "--tls-certificate" in ended.stderr and "--plain-http" in ended.stderr


def test_answers_can_be_encrypted(yard):
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("openssl, which makes the certificate, is not installed")
    folder = yard.root / "tls"
    folder.mkdir()
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "chain.pem"],
        check=True, capture_output=True,
    )
    endpoint = Endpoint(yard, "--tls-certificate", folder / "chain.pem", "--tls-key", folder / "key.pem")
    assert endpoint.url.startswith("https://")
    s3 = endpoint.client(verify=str(folder / "chain.pem"))
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="k", Body=b"x")
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"x"
    endpoint.stop()


def test_a_page_of_a_browser_can_not_reach_the_endpoint_under_another_name(endpoint):
    request = urllib.request.Request(endpoint.url, headers={"Host": "rebound.example.org"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 421


def test_keys_are_made_and_removed(yard):
    yard.command("env", "--data-dir", yard.data)
    access, secret = yard.command("keys", "add", "--data-dir", yard.data).stdout.split()
    assert access in yard.command("keys", "--data-dir", yard.data).stdout.split()
    assert secret not in yard.command("keys", "--data-dir", yard.data).stdout
    assert (yard.data / "keys.json").stat().st_mode & 0o777 == 0o600
    assert secret in json.loads((yard.data / "keys.json").read_text()).values()
    yard.command("keys", "remove", access, "--data-dir", yard.data)
    assert access not in yard.command("keys", "--data-dir", yard.data).stdout.split()
    assert "no access key" in yard.command("keys", "remove", access, "--data-dir", yard.data, expect=2).stderr


def test_what_is_written_survives_a_kill(yard, endpoint, s3):
    s3.put_object(Bucket="bucket", Key="a//b", Body=b"x", Metadata={"m": "1"})
    os.killpg(endpoint.running.process.pid, signal.SIGKILL)
    endpoint.running.process.wait()
    again = Endpoint(yard)
    head = again.client().head_object(Bucket="bucket", Key="a//b")
    assert head["Metadata"] == {"m": "1"}
    again.stop()
    endpoint.stop = lambda: None
