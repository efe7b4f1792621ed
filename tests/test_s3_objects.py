"""The S3 endpoint: single objects, topic by topic as the public test suites of S3 servers go through them."""

import base64
import datetime
import hashlib

import botocore.exceptions
import pytest
from endpoint import code

BUCKET = {"Bucket": "bucket"}
YESTERDAY, TOMORROW = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days) for days in (-1, 1))


def refused(call, **request):
    """Status and code of the answer to a request that is not fulfilled."""
    with pytest.raises(botocore.exceptions.ClientError) as error:
        call(**BUCKET, **request)
    return error.value.response["ResponseMetadata"]["HTTPStatusCode"], code(error)


def body(s3, key="k", **request):
    return s3.get_object(**BUCKET, Key=key, **request)["Body"].read()


def test_an_object_is_replaced_with_everything_that_belongs_to_it(s3):
    s3.put_object(**BUCKET, Key="k", Body=b"one", Metadata={"m": "1"}, ContentType="text/csv", Tagging="t=1")
    s3.put_object(**BUCKET, Key="k", Body=b"two")
    got = s3.get_object(**BUCKET, Key="k")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (b"two", {}, "binary/octet-stream")
    assert "TagCount" not in got
    s3.delete_object(**BUCKET, Key="k")
    s3.delete_object(**BUCKET, Key="k")
    assert refused(s3.get_object, Key="k") == (404, "NoSuchKey")
    assert refused(s3.head_object, Key="k") == (404, "404")


def test_an_empty_object_is_an_object(s3):
    put = s3.put_object(**BUCKET, Key="k", Body=b"")
    assert put["ETag"] == '"d41d8cd98f00b204e9800998ecf8427e"'
    head = s3.head_object(**BUCKET, Key="k")
    assert (head["ContentLength"], head["ETag"], head["AcceptRanges"]) == (0, put["ETag"], "bytes")
    assert body(s3) == b""


def test_headers_of_the_content_are_given_back_and_can_be_asked_for_otherwise(s3):
    headers = {
        "CacheControl": "public, max-age=14400", "ContentDisposition": 'attachment; filename="a b"',
        "ContentLanguage": "de", "ContentEncoding": "gzip", "ContentType": "text/plain; charset=utf-8",
    }
    expires = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    s3.put_object(**BUCKET, Key="k", Body=b"x", Expires=expires, **headers)
    for got in (s3.get_object(**BUCKET, Key="k"), s3.head_object(**BUCKET, Key="k")):
        assert {name: got[name] for name in headers} == headers
        assert got["ExpiresString"] == "Wed, 02 Jan 2030 03:04:05 GMT"
    got = s3.get_object(**BUCKET, Key="k", ResponseContentType="a/b", ResponseCacheControl="no-cache")
    assert (got["ContentType"], got["CacheControl"], got["ContentLanguage"]) == ("a/b", "no-cache", "de")
    s3.put_object(**BUCKET, Key="k", Body=b"x", ContentEncoding="gzip, aws-chunked")
    assert s3.head_object(**BUCKET, Key="k")["ContentEncoding"] == "gzip"


RANGES = [
    ("bytes=4-7", b"4567", "bytes 4-7/10"), ("bytes=7-", b"789", "bytes 7-9/10"), ("bytes=-3", b"789", "bytes 7-9/10"),
    ("bytes=0-0", b"0", "bytes 0-0/10"), ("bytes=8-100", b"89", "bytes 8-9/10"), ("bytes=-100", b"0123456789", "bytes 0-9/10"),
]


@pytest.mark.parametrize(("asked", "content", "told"), RANGES)
def test_a_range_is_answered_with_its_bytes_and_its_place(s3, asked, content, told):
    s3.put_object(**BUCKET, Key="k", Body=b"0123456789")
    got = s3.get_object(**BUCKET, Key="k", Range=asked)
    assert (got["ResponseMetadata"]["HTTPStatusCode"], got["Body"].read(), got["ContentRange"]) == (206, content, told)
    head = s3.head_object(**BUCKET, Key="k", Range=asked)
    assert (head["ContentLength"], head["ContentRange"]) == (len(content), told)


@pytest.mark.parametrize(("content", "asked"), [(b"0123456789", "bytes=10-20"), (b"", "bytes=0-1")])
def test_a_range_without_bytes_is_refused(s3, content, asked):
    s3.put_object(**BUCKET, Key="k", Body=content)
    assert refused(s3.get_object, Key="k", Range=asked) == (416, "InvalidRange")


def test_conditions_on_a_read(s3):
    etag = s3.put_object(**BUCKET, Key="k", Body=b"x")["ETag"]
    for fits in ({"IfMatch": etag}, {"IfNoneMatch": '"other"'}, {"IfModifiedSince": YESTERDAY}, {"IfUnmodifiedSince": TOMORROW}):
        assert body(s3, **fits) == b"x"
    assert body(s3, IfMatch=etag, IfUnmodifiedSince=YESTERDAY) == b"x", "the ETag counts more than the time"
    for fails in ({"IfMatch": '"other"'}, {"IfUnmodifiedSince": YESTERDAY}):
        assert refused(s3.get_object, Key="k", **fails)[0] == 412
        assert refused(s3.head_object, Key="k", **fails)[0] == 412
    for same in ({"IfNoneMatch": etag}, {"IfModifiedSince": s3.head_object(**BUCKET, Key="k")["LastModified"]}):
        with pytest.raises(botocore.exceptions.ClientError) as error:
            s3.get_object(**BUCKET, Key="k", **same)
        answer = error.value.response["ResponseMetadata"]
        assert (answer["HTTPStatusCode"], answer["HTTPHeaders"]["etag"]) == (304, etag)
        assert answer["HTTPHeaders"]["last-modified"].endswith("GMT")


def test_conditions_on_a_put(s3):
    assert refused(s3.put_object, Key="k", IfMatch="*") == (404, "NoSuchKey")
    assert refused(s3.put_object, Key="k", IfMatch='"x"') == (404, "NoSuchKey")
    etag = s3.put_object(**BUCKET, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    assert refused(s3.put_object, Key="k", Body=b"2", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert refused(s3.put_object, Key="k", Body=b"2", IfMatch='"x"') == (412, "PreconditionFailed")
    assert body(s3) == b"1"
    s3.put_object(**BUCKET, Key="k", Body=b"2", IfMatch=etag)
    assert body(s3) == b"2"


def test_conditions_on_a_delete(s3):
    etag = s3.put_object(**BUCKET, Key="k", Body=b"1")["ETag"]
    head = s3.head_object(**BUCKET, Key="k")
    assert refused(s3.delete_object, Key="k", IfMatch='"x"') == (412, "PreconditionFailed")
    assert refused(s3.delete_object, Key="k", IfMatchSize=9) == (412, "PreconditionFailed")
    assert refused(s3.delete_object, Key="k", IfMatchLastModifiedTime=YESTERDAY) == (412, "PreconditionFailed")
    for wrong in ({"ETag": '"x"'}, {"Size": 9}, {"LastModifiedTime": YESTERDAY}):
        (error,) = s3.delete_objects(**BUCKET, Delete={"Objects": [{"Key": "k", **wrong}]})["Errors"]
        assert error["Code"] == "PreconditionFailed"
    s3.delete_object(**BUCKET, Key="k", IfMatch=etag, IfMatchSize=1, IfMatchLastModifiedTime=head["LastModified"])
    assert refused(s3.head_object, Key="k")[0] == 404
    s3.delete_object(**BUCKET, Key="k", IfMatch='"x"')


def test_many_are_removed_at_once_and_only_those(s3):
    for name in ("a", "b", "c", "d"):
        s3.put_object(**BUCKET, Key=name)
    asked = {"Objects": [{"Key": name} for name in ("a", "b", "never", "a b<&")]}
    assert {it["Key"] for it in s3.delete_objects(**BUCKET, Delete=asked)["Deleted"]} == {"a", "b", "never", "a b<&"}
    assert "Deleted" not in s3.delete_objects(**BUCKET, Delete={"Objects": [{"Key": "c"}], "Quiet": True})
    assert [it["Key"] for it in s3.list_objects(**BUCKET)["Contents"]] == ["d"]
    many = {"Objects": [{"Key": str(number)} for number in range(1001)]}
    assert refused(s3.delete_objects, Delete=many) == (400, "MalformedXML")


def test_a_copy_has_content_headers_tags_and_conditions(s3):
    s3.create_bucket(Bucket="other")
    etag = s3.put_object(**BUCKET, Key="a b+ü%", Body=b"x", Metadata={"m": "1"}, ContentType="a/b", Tagging="t=1")["ETag"]
    source = {"Bucket": "bucket", "Key": "a b+ü%"}
    copied = s3.copy_object(Bucket="other", Key="c", CopySource=source)["CopyObjectResult"]
    assert copied["ETag"] == etag
    got = s3.get_object(Bucket="other", Key="c")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"], got["TagCount"]) == (b"x", {"m": "1"}, "a/b", 1)
    s3.copy_object(
        Bucket="other", Key="c", CopySource=source, MetadataDirective="REPLACE", Metadata={"n": "2"}, ContentType="c/d",
        TaggingDirective="REPLACE", Tagging="u=2",
    )
    head = s3.head_object(Bucket="other", Key="c")
    assert (head["Metadata"], head["ContentType"], head["ResponseMetadata"]["HTTPHeaders"]["x-amz-tagging-count"]) == (
        {"n": "2"}, "c/d", "1",
    )
    good = ({"CopySourceIfMatch": etag}, {"CopySourceIfNoneMatch": '"x"'}, {"CopySourceIfModifiedSince": YESTERDAY})
    bad = ({"CopySourceIfMatch": '"x"'}, {"CopySourceIfNoneMatch": etag}, {"CopySourceIfUnmodifiedSince": YESTERDAY})
    for condition in good:
        s3.copy_object(Bucket="other", Key="d", CopySource=source, **condition)
    for condition in bad:
        assert refused(s3.copy_object, Key="d", CopySource=source, **condition) == (412, "PreconditionFailed")
    assert refused(s3.copy_object, Key="d", CopySource="bucket/none") == (404, "NoSuchKey")
    assert refused(s3.copy_object, Key="d", CopySource="no-bucket/k") == (404, "NoSuchBucket")


def test_tags_have_their_limits_and_are_replaced_and_removed(s3):
    s3.put_object(**BUCKET, Key="k")
    most = [{"Key": f"{number}".ljust(128, "k"), "Value": "v" * 256} for number in range(10)]
    s3.put_object_tagging(**BUCKET, Key="k", Tagging={"TagSet": most})
    assert s3.get_object_tagging(**BUCKET, Key="k")["TagSet"] == most
    wrong = [[*most, {"Key": "one more", "Value": ""}], [{"Key": "k" * 129, "Value": ""}], [{"Key": "k", "Value": "v" * 257}]]
    for tags in wrong:
        assert refused(s3.put_object_tagging, Key="k", Tagging={"TagSet": tags}) == (400, "InvalidTag")
    s3.put_object_tagging(**BUCKET, Key="k", Tagging={"TagSet": [{"Key": "ü &", "Value": "<a>"}]})
    assert s3.get_object_tagging(**BUCKET, Key="k")["TagSet"] == [{"Key": "ü &", "Value": "<a>"}]
    s3.delete_object_tagging(**BUCKET, Key="k")
    assert s3.get_object_tagging(**BUCKET, Key="k")["TagSet"] == []
    assert refused(s3.get_object_tagging, Key="none") == (404, "NoSuchKey")


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_are_compared_kept_and_told(s3, algorithm):
    member = f"Checksum{algorithm}"
    put = s3.put_object(**BUCKET, Key="k", Body=b"some content", ChecksumAlgorithm=algorithm)
    if algorithm.startswith("SHA"):
        assert put[member] == base64.b64encode(hashlib.new(algorithm, b"some content").digest()).decode()
    head = s3.head_object(**BUCKET, Key="k", ChecksumMode="ENABLED")
    assert (head[member], head["ChecksumType"]) == (put[member], "FULL_OBJECT")
    assert member not in s3.head_object(**BUCKET, Key="k")
    attributes = s3.get_object_attributes(**BUCKET, Key="k", ObjectAttributes=["ETag", "Checksum", "ObjectSize", "StorageClass"])
    assert (attributes["Checksum"][member], attributes["ObjectSize"]) == (put[member], 12)
    assert attributes["StorageClass"] == "STANDARD" and "ObjectParts" not in attributes
    assert refused(s3.put_object, Key="k", Body=b"other content", **{member: put[member]}) == (400, "BadDigest")
    assert refused(s3.put_object, Key="k", Body=b"x", ContentMD5=base64.b64encode(b"0" * 16).decode())[1] == "BadDigest"
    assert body(s3) == b"some content"


def test_metadata_of_any_size_that_amazon_takes_is_given_back(s3):
    metadata = {"name": "v" * 1900, "other-name": "two  words"}
    s3.put_object(**BUCKET, Key="k", Metadata=metadata)
    assert s3.head_object(**BUCKET, Key="k")["Metadata"]["name"] == metadata["name"]
    assert refused(s3.put_object, Key="x" * 1025)[1] == "KeyTooLongError"


def test_every_answer_has_an_id_that_is_its_own(s3):
    ids = {s3.put_object(**BUCKET, Key="k")["ResponseMetadata"]["RequestId"] for _ in range(3)}
    with pytest.raises(botocore.exceptions.ClientError) as error:
        s3.get_object(**BUCKET, Key="none")
    ids.add(error.value.response["ResponseMetadata"]["RequestId"])
    assert len(ids) == 4 and all(ids)
