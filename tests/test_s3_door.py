"""The S3 endpoint: who is let in. Presigned URLs and forms, requests without or with wrong signatures, sizes of headers."""

import http.client
import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import botocore.exceptions
import pytest
from endpoint import code

WEEK = 7 * 24 * 3600
REFUSED = (400, 403, 501)
"""501 is what S3 has for algorithms and services that it does not know."""


@pytest.fixture
def signing(s3_endpoint, s3):
    """A client that signs URLs in the only form that the endpoint takes."""
    return s3_endpoint.client(config=botocore.config.Config(signature_version="s3v4", s3={"addressing_style": "path"}))


def answer(url, content=None, method="GET", headers=None):
    """Status and text of an answer."""
    request = urllib.request.Request(url, data=content, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Raw:
    """Requests that are signed by hand, so that they can be wrong."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        keys = endpoint.variables
        self.credentials = botocore.credentials.Credentials(keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"])

    def send(self, method="GET", path="/bucket/k", content=b"", headers=None, after=()):
        """What the answer to a request is, some of whose headers are changed after it was signed."""
        request = botocore.awsrequest.AWSRequest(method, self.endpoint.url + path, data=content, headers=headers or {})
        botocore.auth.S3SigV4Auth(self.credentials, "s3", "us-east-1").add_auth(request)
        signed = {**dict(request.headers.items()), **dict(after)}
        status, text = answer(self.endpoint.url + path, content or None, method, {n: v for n, v in signed.items() if v is not None})
        return status, text.decode()

    def url(self, path, seconds=60):
        """A presigned one."""
        request = botocore.awsrequest.AWSRequest("GET", self.endpoint.url + path)
        botocore.auth.S3SigV4QueryAuth(self.credentials, "s3", "us-east-1", expires=seconds).add_auth(request)
        return request.prepare().url


def signed_long_ago(monkeypatch):
    """Lets what is signed by hand be signed a year ago."""
    now = botocore.auth.get_current_datetime()
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: now.replace(year=now.year - 1))


def url(client, operation, seconds=60, **request):
    request = {"Bucket": "bucket", "Key": "a b/ü%", **request}
    return client.generate_presigned_url(operation, Params=request, ExpiresIn=seconds)


def test_a_presigned_url_does_what_it_was_signed_for_and_nothing_else(s3, signing):
    put = url(signing, "put_object", ContentType="a/b")
    assert answer(put, b"x", "PUT", {"Content-Type": "a/b"})[0] == 200
    assert answer(put, b"y", "PUT", {"Content-Type": "c/d"})[0] == 403
    get = url(signing, "get_object", ResponseContentType="e/f")
    assert answer(get) == (200, b"x")
    assert answer(url(signing, "get_object", Range="bytes=0-0"), headers={"Range": "bytes=0-0"}) == (206, b"x")
    for other in (answer(get, method="HEAD"), answer(get, method="DELETE"), answer(get, b"y", "PUT"), answer(put)):
        assert other[0] == 403
    pieces = urllib.parse.urlsplit(get)
    for name, value in urllib.parse.parse_qsl(pieces.query):
        changed = [(n, v + "1" if n == name else v) for n, v in urllib.parse.parse_qsl(pieces.query)]
        status, _ = answer(pieces._replace(query=urllib.parse.urlencode(changed)).geturl())
        assert status in REFUSED, f"{name}={value} can be changed"
        without = [(n, v) for n, v in urllib.parse.parse_qsl(pieces.query) if n != name]
        assert answer(pieces._replace(query=urllib.parse.urlencode(without)).geturl())[0] in REFUSED, name
    assert s3.get_object(Bucket="bucket", Key="a b/ü%")["Body"].read() == b"x"


def test_a_presigned_url_ends_and_is_good_for_a_week_at_most(s3_endpoint, s3, signing, monkeypatch):
    s3.put_object(Bucket="bucket", Key="a b/ü%", Body=b"x")
    assert answer(url(signing, "get_object", seconds=WEEK)) == (200, b"x")
    status, text = answer(url(signing, "get_object", seconds=WEEK + 1))
    assert (status, b"AuthorizationQueryParametersError" in text) == (400, True)
    signed_long_ago(monkeypatch)
    assert answer(Raw(s3_endpoint).url("/bucket/a%20b/%C3%BC%25"))[0] == 403


def form(signed, content, **changes):
    """Posts a form as a browser does."""
    fields = {**signed["fields"], **changes}
    lines = []
    for name, value in fields.items():
        lines += ["--edge", f'Content-Disposition: form-data; name="{name}"', "", value]
    lines += ["--edge", 'Content-Disposition: form-data; name="file"; filename="f"', "Content-Type: text/plain", ""]
    text = "\r\n".join(lines).encode() + b"\r\n" + content + b"\r\n--edge--\r\n"
    return answer(signed["url"], text, "POST", {"Content-Type": "multipart/form-data; boundary=edge"})


def test_a_presigned_form_puts_what_its_policy_allows(s3, signing):
    conditions = [["content-length-range", 1, 4], ["starts-with", "$x-amz-meta-m", "a"]]
    signed = signing.generate_presigned_post("bucket", "dir/f", Conditions=conditions, ExpiresIn=60)
    assert form(signed, b"1234", **{"x-amz-meta-m": "ab"})[0] in (200, 204)
    got = s3.get_object(Bucket="bucket", Key="dir/f")
    assert (got["Body"].read(), got["Metadata"]) == (b"1234", {"m": "ab"})
    wrong = [
        form(signed, b"12345", **{"x-amz-meta-m": "ab"}),
        form(signed, b"1", **{"x-amz-meta-m": "b"}),
        form(signed, b"1", **{"x-amz-meta-m": "a", "key": "elsewhere"}),
        form(signed, b"1", **{"x-amz-meta-m": "a", "x-amz-signature": "0" * 64}),
        form({"url": signed["url"], "fields": {"key": "k"}}, b"1"),
    ]
    assert [status for status, _ in wrong if status not in (400, 403)] == []
    assert [it["Key"] for it in s3.list_objects(Bucket="bucket")["Contents"]] == ["dir/f"]


def test_nothing_is_told_to_those_who_have_not_signed(s3_endpoint, s3):
    s3.put_object(Bucket="bucket", Key="k", Body=b"secret")
    unsigned = s3_endpoint.client(config=botocore.config.Config(signature_version=botocore.UNSIGNED))
    calls = [
        lambda: unsigned.list_buckets(),
        lambda: unsigned.list_objects_v2(Bucket="bucket"),
        lambda: unsigned.get_object(Bucket="bucket", Key="k"),
        lambda: unsigned.get_object(Bucket="no-bucket", Key="k"),
        # Without content: who is refused before all of it was sent may see only that the connection ends.
        lambda: unsigned.put_object(Bucket="bucket", Key="k", Body=b""),
        lambda: unsigned.delete_object(Bucket="bucket", Key="k"),
        lambda: unsigned.create_bucket(Bucket="mine"),
    ]
    for call in calls:
        with pytest.raises(botocore.exceptions.ClientError) as error:
            call()
        assert code(error) == "AccessDenied"
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"secret"


def test_whatever_is_changed_in_a_signed_request_makes_it_wrong(s3_endpoint, s3):
    s3.put_object(Bucket="bucket", Key="k", Body=b"x")
    raw = Raw(s3_endpoint)
    assert raw.send()[0] == 200
    signed = {}
    request = botocore.awsrequest.AWSRequest("GET", s3_endpoint.url + "/bucket/k")
    botocore.auth.S3SigV4Auth(raw.credentials, "s3", "us-east-1").add_auth(request)
    signed.update(request.headers.items())
    authorization = signed["Authorization"]
    changes = [
        {"X-Amz-Date": "20200101T000000Z"}, {"X-Amz-Date": "nonsense"}, {"X-Amz-Date": None}, {"Authorization": "nonsense"},
        {"Authorization": authorization[:-1] + ("0" if authorization[-1] != "0" else "1")},
        {"Authorization": authorization.replace("us-east-1", "eu-west-1")},
        {"Authorization": authorization.replace("/s3/", "/iam/")},
        {"Authorization": authorization.replace("host;", "")},
        {"Authorization": "AWS4-HMAC-SHA256 Credential="}, {"Authorization": "AWS4-HMAC-SHA256 " + "a" * 5000},
        {"X-Amz-Content-SHA256": "0" * 64},
    ]
    for change in changes:
        status, text = raw.send(after=change.items())
        assert status in REFUSED, (change, status, text)
        assert "<Code>" in text
    assert raw.send("PUT", content=b"y", after={"X-Amz-Content-SHA256": "0" * 64}.items())[0] in (400, 403)
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"x"


def test_a_request_signed_at_another_time_is_refused(s3_endpoint, s3, monkeypatch):
    signed_long_ago(monkeypatch)
    status, text = Raw(s3_endpoint).send(path="/bucket")
    assert status == 403 and "RequestTimeTooSkewed" in text


def test_headers_that_are_too_large_are_refused_and_the_endpoint_goes_on(s3_endpoint, s3):
    host, port = s3_endpoint.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", "/bucket", headers={f"X-{number}": "v" * 8000 for number in range(20)})
    assert connection.getresponse().status == 431
    connection.close()
    assert s3.list_buckets()["Buckets"]


def test_thousands_of_files_are_synced_up_and_down(shared_yard, s3_endpoint, s3):
    """TRAINYARD_SYNC_FILES says how many. Prints how long it took: almost all of it is the client."""
    count = int(os.environ.get("TRAINYARD_SYNC_FILES", "1000"))
    up, down = shared_yard.root / "up", shared_yard.root / "down"
    for number in range(count):
        path = up / f"d{number % 100:02}" / f"{number:05}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    times = {}
    for name, source, target in (("up", up, "s3://bucket/t"), ("down", "s3://bucket/t", down), ("nothing", up, "s3://bucket/t")):
        begun = time.monotonic()
        said = s3_endpoint.cli("s3", "sync", source, target, "--only-show-errors", seconds=300)
        times[name] = round(time.monotonic() - begun, 1)
        assert said == ""
    print(json.dumps(times))
    assert s3_endpoint.cli("s3", "sync", up, "s3://bucket/t", "--dryrun", seconds=300) == ""
    found = {path.relative_to(down).as_posix(): path.read_text() for path in down.rglob("*.txt")}
    assert found == {path.relative_to(up).as_posix(): path.read_text() for path in up.rglob("*.txt")} and len(found) == count
    s3_endpoint.cli("s3", "rm", "s3://bucket/t", "--recursive", "--only-show-errors", seconds=300)
    assert "Contents" not in s3.list_objects(Bucket="bucket")
    shutil.rmtree(up)
    shutil.rmtree(down)


def test_content_that_breaks_off_is_an_error_of_the_client(s3_endpoint, s3):
    s3.create_bucket(Bucket="bucket")
    host, port = s3_endpoint.url.removeprefix("http://").split(":")
    content = b"<Delete><Object><Key>k</Key></Object></Delete>" + b" " * 100
    asked = [("POST", "/bucket?delete"), ("PUT", "/bucket/k?tagging"), ("POST", "/bucket/k?uploadId=x"), ("PUT", "/bucket/k")]
    for method, path in asked:
        request = botocore.awsrequest.AWSRequest(method, s3_endpoint.url + path, data=content)
        botocore.auth.S3SigV4Auth(Raw(s3_endpoint).credentials, "s3", "us-east-1").add_auth(request)
        headers = {**dict(request.headers.items()), "Host": f"{host}:{port}", "Content-Length": len(content)}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(head.encode() + b"\r\n" + content[:50])
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as stream:
                said = stream.read()
        assert said.startswith(b"HTTP/1.1 400 ") and b"<Code>IncompleteBody</Code>" in said, (path, said)
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
