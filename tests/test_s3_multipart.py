"""The S3 endpoint: objects in parts, topic by topic as the public test suites of S3 servers go through them."""

import hashlib

import botocore.exceptions
import pytest
from boto3.s3.transfer import TransferConfig
from endpoint import code

MIB = 1 << 20
PART = 5 * MIB
"""The smallest that a part may be, but for the last."""


class Upload:
    def __init__(self, s3, key="k", **members):
        self.s3 = s3
        self.id = {"Bucket": "bucket", "Key": key}
        self.id["UploadId"] = s3.create_multipart_upload(**self.id, **members)["UploadId"]
        self.parts = {}

    def put(self, number, content, **members):
        answer = self.s3.upload_part(**self.id, PartNumber=number, Body=content, **members)
        sums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        self.parts[number] = {"PartNumber": number, "ETag": answer["ETag"], **sums}

    def complete(self, numbers=None, **members):
        parts = [self.parts[number] for number in numbers or sorted(self.parts)]
        return self.s3.complete_multipart_upload(**self.id, MultipartUpload={"Parts": parts}, **members)


def refused(call, **request):
    with pytest.raises(botocore.exceptions.ClientError) as error:
        call(**request)
    return code(error)


def content(size, seed=0):
    block = hashlib.shake_128(bytes([seed])).digest(1 << 16)
    return (block * (size // len(block) + 1))[:size]


def body(s3, key="k", **request):
    return s3.get_object(Bucket="bucket", Key=key, **request)["Body"].read()


@pytest.mark.parametrize("sizes", [[1], [PART], [PART, 1], [PART + 1, PART, 3], [PART, PART, PART]])
def test_parts_of_any_sizes_make_one_object(s3, sizes):
    upload = Upload(s3, Metadata={"m": "1"}, ContentType="a/b")
    pieces = [content(size, number) for number, size in enumerate(sizes)]
    for number, piece in enumerate(pieces, start=1):
        upload.put(number, piece)
    done = upload.complete()
    digests = b"".join(hashlib.md5(piece).digest() for piece in pieces)
    assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-{len(pieces)}"'
    assert body(s3) == b"".join(pieces)
    head = s3.head_object(Bucket="bucket", Key="k")
    assert (head["Metadata"], head["ContentType"], head["ContentLength"]) == ({"m": "1"}, "a/b", sum(sizes))
    for number, piece in enumerate(pieces, start=1):
        got = s3.get_object(Bucket="bucket", Key="k", PartNumber=number)
        assert got["Body"].read() == piece and got["PartsCount"] == len(pieces)
    assert refused(s3.get_object, Bucket="bucket", Key="k", PartNumber=len(pieces) + 1) == "InvalidRange"
    attributes = s3.get_object_attributes(Bucket="bucket", Key="k", ObjectAttributes=["ObjectParts"])["ObjectParts"]
    assert [part["Size"] for part in attributes["Parts"]] == sizes and attributes["TotalPartsCount"] == len(sizes)


def test_a_part_that_comes_again_takes_the_place_of_the_first_and_unnamed_ones_are_left_out(s3):
    upload = Upload(s3)
    upload.put(1, b"x" * PART)
    upload.put(7, b"left out")
    upload.put(1, content(PART))
    upload.put(9, b"end")
    listed = s3.list_parts(**upload.id, MaxParts=2)
    assert ([part["PartNumber"] for part in listed["Parts"]], listed["IsTruncated"]) == ([1, 7], True)
    rest = s3.list_parts(**upload.id, PartNumberMarker=listed["NextPartNumberMarker"])
    assert [(part["PartNumber"], part["Size"]) for part in rest["Parts"]] == [(9, 3)]
    upload.complete([1, 9])
    assert body(s3) == content(PART) + b"end"


def test_what_can_not_be_completed_is_told_by_name_and_stays_as_it_is(s3):
    upload = Upload(s3)
    upload.put(1, b"too small")
    upload.put(2, b"end")
    assert refused(upload.complete) == "EntityTooSmall"
    upload.put(3, content(PART))
    assert refused(upload.complete, numbers=[3, 2]) == "InvalidPartOrder"
    complete = s3.complete_multipart_upload
    assert refused(complete, **upload.id, MultipartUpload={"Parts": []}) == "MalformedXML"
    missing = {"Parts": [{"PartNumber": 5, "ETag": '"x"'}]}
    assert refused(complete, **upload.id, MultipartUpload=missing) == "InvalidPart"
    assert refused(complete, **{**upload.id, "UploadId": "none"}, MultipartUpload=missing) == "NoSuchUpload"
    for number in (0, 10001):
        assert refused(s3.upload_part, **upload.id, PartNumber=number, Body=b"") == "InvalidArgument"
    assert refused(upload.complete, numbers=[2], MpuObjectSize=4) == "InvalidRequest"
    upload.complete([2], MpuObjectSize=3)
    assert body(s3) == b"end"


def test_an_upload_that_was_completed_may_be_completed_again_as_clients_do_that_got_no_answer(s3):
    upload = Upload(s3)
    upload.put(1, b"x")
    first, second = upload.complete(), upload.complete()
    assert (first["ETag"], first["Key"]) == (second["ETag"], second["Key"])
    s3.put_object(Bucket="bucket", Key="k", Body=b"newer")
    assert refused(upload.complete) == "NoSuchUpload"
    assert body(s3) == b"newer"


def test_an_aborted_upload_leaves_nothing(shared_yard, s3):
    s3.put_object(Bucket="bucket", Key="k", Body=b"before")
    upload = Upload(s3)
    upload.put(1, content(PART))
    s3.abort_multipart_upload(**upload.id)
    assert refused(s3.abort_multipart_upload, **upload.id) == "NoSuchUpload"
    assert refused(s3.list_parts, **upload.id) == "NoSuchUpload"
    assert refused(upload.complete) == "NoSuchUpload"
    assert body(s3) == b"before" and "Uploads" not in s3.list_multipart_uploads(Bucket="bucket")
    assert sum(path.stat().st_size for path in (shared_yard.data / "s3/bucket").rglob("*") if path.is_file()) < MIB


def test_uploads_under_way_are_listed_page_by_page(s3):
    uploads = [Upload(s3, key) for key in ("a", "b", "b", "c/d")]
    first = s3.list_multipart_uploads(Bucket="bucket", MaxUploads=2)
    second = s3.list_multipart_uploads(
        Bucket="bucket", KeyMarker=first["NextKeyMarker"], UploadIdMarker=first["NextUploadIdMarker"]
    )
    listed = [(it["Key"], it["UploadId"]) for it in first["Uploads"] + second["Uploads"]]
    assert sorted(listed) == sorted((it.id["Key"], it.id["UploadId"]) for it in uploads)
    assert [it["Key"] for it in s3.list_multipart_uploads(Bucket="bucket", Prefix="c")["Uploads"]] == ["c/d"]


def test_parts_are_copied_from_other_objects(s3):
    source = content(2 * PART)
    s3.put_object(Bucket="bucket", Key="a b%ü", Body=source)
    upload = Upload(s3)

    def copy(number, text, key="a b%ü"):
        where = {} if text is None else {"CopySourceRange": text}
        answer = s3.upload_part_copy(**upload.id, PartNumber=number, CopySource={"Bucket": "bucket", "Key": key}, **where)
        upload.parts[number] = {"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]}

    copy(1, None)
    copy(2, f"bytes=3-{PART + 2}")
    copy(3, "bytes=0-0")
    upload.complete()
    assert body(s3) == source + source[3 : PART + 3] + source[:1]
    upload = Upload(s3)
    for improper in ("0-2", "bytes=0", "bytes=2-1", "hello=0-2", "bytes=0-bar", "bytes=-3", "bytes=0-2,3-5"):
        assert refused(copy, number=1, text=improper) == "InvalidArgument", improper
    assert refused(copy, number=1, text=f"bytes=0-{2 * PART}") == "InvalidRange"
    assert refused(copy, number=1, text=None, key="none") == "NoSuchKey"


@pytest.mark.parametrize(("algorithm", "kind"), [("SHA256", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT")])
def test_an_object_in_parts_has_the_checksum_that_was_asked_for(s3, algorithm, kind):
    member = f"Checksum{algorithm}"
    upload = Upload(s3, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    upload.put(1, content(PART), ChecksumAlgorithm=algorithm)
    upload.put(2, b"end", ChecksumAlgorithm=algorithm)
    done = upload.complete()
    assert done["ChecksumType"] == kind
    whole = s3.put_object(Bucket="bucket", Key="whole", Body=content(PART) + b"end", ChecksumAlgorithm=algorithm)[member]
    assert (done[member] == whole) == (kind == "FULL_OBJECT") and done[member].endswith("-2") == (kind == "COMPOSITE")
    head = s3.head_object(Bucket="bucket", Key="k", ChecksumMode="ENABLED")
    assert (head[member], head["ChecksumType"]) == (done[member], kind)


def test_conditions_hold_for_what_arrives_in_parts_too(s3):
    etag = s3.put_object(Bucket="bucket", Key="k", Body=b"before")["ETag"]
    upload = Upload(s3)
    upload.put(1, b"x")
    assert refused(upload.complete, IfNoneMatch="*") == "PreconditionFailed"
    assert refused(upload.complete, IfMatch='"other"') == "PreconditionFailed"
    assert body(s3) == b"before"
    upload.complete(IfMatch=etag)
    assert body(s3) == b"x"


@pytest.mark.parametrize("size", [8 * MIB - 1, 8 * MIB, 17 * MIB + 3])
def test_the_transfer_manager_of_boto3_brings_back_what_it_took(shared_yard, s3, size):
    sent, got = shared_yard.root / "sent", shared_yard.root / "got"
    sent.write_bytes(content(size))
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    s3.upload_file(str(sent), "bucket", "k", Config=config)
    s3.copy({"Bucket": "bucket", "Key": "k"}, "bucket", "copy", Config=config)
    s3.download_file("bucket", "copy", str(got), Config=config)
    same = sent.read_bytes() == got.read_bytes()
    sent.unlink()
    got.unlink()
    assert same
