"""The S3 endpoint: buckets and listings, topic by topic as the public test suites of S3 servers go through them."""

import botocore.exceptions
import pytest
from endpoint import code

TREE = ["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/thud", "cquux/bla"]


def fill(s3, *keys):
    for key in keys:
        s3.put_object(Bucket="bucket", Key=key, Body=key.encode())


def seen(page):
    """What a page shows: keys, and prefixes."""
    return (
        [entry["Key"] for entry in page.get("Contents", [])],
        [prefix["Prefix"] for prefix in page.get("CommonPrefixes", [])],
    )


def both(s3, **request):
    """What both versions of the listing show, which must be the same."""
    first, second = (call(Bucket="bucket", **request) for call in (s3.list_objects, s3.list_objects_v2))
    assert seen(first) == seen(second) and first["IsTruncated"] == second["IsTruncated"]
    assert second["KeyCount"] == sum(len(part) for part in seen(second))
    return seen(first)


@pytest.mark.parametrize(
    ("keys", "request_", "contents", "prefixes"),
    [
        ([], {}, [], []),
        (TREE, {"Delimiter": "/"}, ["asdf"], ["boo/", "cquux/"]),
        (TREE, {"Delimiter": "/", "Prefix": "boo/"}, ["boo/bar"], ["boo/baz/"]),
        (TREE, {"Delimiter": "/", "Prefix": "boo"}, [], ["boo/"]),
        (["bar", "baz", "cab", "foo"], {"Delimiter": "a"}, ["foo"], ["ba", "ca"]),
        (["b%ar", "b%az", "c%ab", "foo"], {"Delimiter": "%"}, ["foo"], ["b%", "c%"]),
        (["b ar", "b az", "c ab", "foo"], {"Delimiter": " "}, ["foo"], ["b ", "c "]),
        (["b.ar", "b.az", "c.ab", "foo"], {"Delimiter": "."}, ["foo"], ["b.", "c."]),
        (["a_/b", "a_c", "b/c"], {"Delimiter": "/", "Prefix": "a_"}, ["a_c"], ["a_/"]),
        (["0/", "0/1", "00"], {"Delimiter": "/", "Prefix": "0/"}, ["0/", "0/1"], []),
        (["a/b/c", "a/b/d", "a/e"], {"Delimiter": "b/"}, ["a/e"], ["a/b/"]),
        (["bar", "baz"], {"Delimiter": "/"}, ["bar", "baz"], []),
        (["bar", "baz"], {"Delimiter": ""}, ["bar", "baz"], []),
        (TREE, {"Prefix": "d"}, [], []),
        (TREE, {"Prefix": ""}, sorted(TREE), []),
        (["a+b", "a b", "a&b", "a<b>", "ü", "a\nb"], {}, ["a\nb", "a b", "a&b", "a+b", "a<b>", "ü"], []),
        (["foo/bar", "foo/baz", "quux"], {"Prefix": "\n"}, [], []),
        (["foo+1/bar", "foo/bar/xyzzy", "quux ab/thud", "asdf+b"], {"Delimiter": "/"}, ["asdf+b"], ["foo+1/", "foo/", "quux ab/"]),
    ],
)
def test_delimiters_and_prefixes_of_any_kind_cut_a_listing(s3, keys, request_, contents, prefixes):
    fill(s3, *keys)
    assert both(s3, **request_) == (contents, prefixes)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_pages_of_any_size_show_everything_once_in_order(s3, size):
    fill(s3, *TREE, "d/e/f", "d/e/g", "d/h")
    for delimiter in ("", "/", "o"):
        whole = both(s3, Delimiter=delimiter)
        for version in ("list_objects", "list_objects_v2"):
            pages = s3.get_paginator(version).paginate(Bucket="bucket", Delimiter=delimiter, PaginationConfig={"PageSize": size})
            pages = [seen(page) for page in pages]
            assert all(len(keys) + len(prefixes) <= size for keys, prefixes in pages)
            assert tuple(sum(parts, []) for parts in zip(*pages, strict=True)) == whole


@pytest.mark.parametrize(
    ("after", "rest"),
    [("", ["bar", "baz", "foo"]), ("\n", ["bar", "baz", "foo"]), ("bar", ["baz", "foo"]), ("blah", ["foo"]), ("zzz", [])],
)
def test_a_listing_begins_after_any_text(s3, after, rest):
    fill(s3, "bar", "baz", "foo")
    assert seen(s3.list_objects(Bucket="bucket", Marker=after))[0] == rest
    answer = s3.list_objects_v2(Bucket="bucket", StartAfter=after)
    assert seen(answer)[0] == rest and answer.get("StartAfter", "") == after
    token = s3.list_objects_v2(Bucket="bucket", MaxKeys=1)["NextContinuationToken"]
    both_given = s3.list_objects_v2(Bucket="bucket", ContinuationToken=token, StartAfter="zzz")
    assert seen(both_given)[0] == ["baz", "foo"], "the token counts"


def test_no_keys_at_most_is_an_empty_page_and_wrong_numbers_are_refused(s3):
    fill(s3, "a")
    assert both(s3, MaxKeys=0) == ([], [])
    assert both(s3, MaxKeys=5000) == (["a"], [])
    for request in ({"MaxKeys": -1}, {"ContinuationToken": "no token"}):
        with pytest.raises(botocore.exceptions.ClientError) as error:
            s3.list_objects_v2(Bucket="bucket", **request)
        assert code(error) == "InvalidArgument"


def test_a_listing_shows_what_the_object_itself_shows(s3):
    fill(s3, "a")
    (listed,) = s3.list_objects(Bucket="bucket")["Contents"]
    head = s3.head_object(Bucket="bucket", Key="a")
    assert (listed["ETag"], listed["Size"], listed["StorageClass"]) == (head["ETag"], head["ContentLength"], "STANDARD")
    assert listed["LastModified"].replace(microsecond=0) == head["LastModified"]
    assert listed["Owner"]["ID"]
    (second,) = s3.list_objects_v2(Bucket="bucket")["Contents"]
    assert "Owner" not in second
    (second,) = s3.list_objects_v2(Bucket="bucket", FetchOwner=True)["Contents"]
    assert second["Owner"] == listed["Owner"]


def test_every_object_has_one_version_by_which_it_can_be_read_and_removed(s3):
    fill(s3, "a", "b/c", "b/d")
    listed = s3.list_object_versions(Bucket="bucket", MaxKeys=2)
    assert [(it["Key"], it["VersionId"], it["IsLatest"]) for it in listed["Versions"]] == [("a", "null", True), ("b/c", "null", True)]
    rest = s3.list_object_versions(Bucket="bucket", KeyMarker=listed["NextKeyMarker"])
    assert [it["Key"] for it in rest["Versions"]] == ["b/d"] and not rest["IsTruncated"]
    assert s3.list_object_versions(Bucket="bucket", Delimiter="/")["CommonPrefixes"] == [{"Prefix": "b/"}]
    assert s3.get_object(Bucket="bucket", Key="a", VersionId="null")["Body"].read() == b"a"
    every = [{"Key": it["Key"], "VersionId": it["VersionId"]} for it in listed["Versions"] + rest["Versions"]]
    assert "Errors" not in s3.delete_objects(Bucket="bucket", Delete={"Objects": every})
    assert both(s3) == ([], [])


@pytest.mark.parametrize("name", ["ab", "Upper", "under_score", "-dash", "192.168.5.123", "a..b", "x" * 64, "dash-"])
def test_bucket_names_that_amazon_refuses_are_refused(s3, name):
    with pytest.raises((botocore.exceptions.ClientError, botocore.exceptions.ParamValidationError)) as error:
        s3.create_bucket(Bucket=name)
    if isinstance(error.value, botocore.exceptions.ClientError):
        assert code(error) == "InvalidBucketName"
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["bucket", "results"]


@pytest.mark.parametrize("name", ["abc", "a.b-c", "0digit", "x" * 63])
def test_bucket_names_that_amazon_takes_are_taken_and_buckets_end(s3, name):
    s3.create_bucket(Bucket=name)
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="k", Body=b"1")
    assert name in [bucket["Name"] for bucket in s3.list_buckets(Prefix=name[:2])["Buckets"]]
    assert s3.get_object(Bucket=name, Key="k")["Body"].read() == b"1", "making it again changed it"
    with pytest.raises(botocore.exceptions.ClientError) as error:
        s3.delete_bucket(Bucket=name)
    assert code(error) == "BucketNotEmpty"
    s3.delete_object(Bucket=name, Key="k")
    s3.delete_bucket(Bucket=name)
    for call in (s3.delete_bucket, s3.list_objects, s3.list_objects_v2):
        with pytest.raises(botocore.exceptions.ClientError) as error:
            call(Bucket=name)
        assert code(error) == "NoSuchBucket"
    with pytest.raises(botocore.exceptions.ClientError) as error:
        s3.head_bucket(Bucket=name)
    assert code(error) == "404"


def test_buckets_are_listed_page_by_page(s3):
    for number in range(5):
        s3.create_bucket(Bucket=f"page-{number}")
    pages = list(s3.get_paginator("list_buckets").paginate(Prefix="page-", PaginationConfig={"PageSize": 2}))
    assert [[bucket["Name"] for bucket in page["Buckets"]] for page in pages] == [
        ["page-0", "page-1"], ["page-2", "page-3"], ["page-4"],
    ]
