"""`trainyard artifact`: files out of an archive of a job, of S3, or of this machine."""

import hashlib
import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from endpoint import Endpoint

pytestmark = pytest.mark.one_user

KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}


@pytest.fixture
def trained(yard):
    """An endpoint with a job of two instances that have both written `same` and each a file of its own."""
    endpoint = Endpoint(yard)
    text = """
        mkdir -p /opt/ml/model/deep/er
        hostname > /opt/ml/model/same
        hostname > /opt/ml/model/deep/er/$(hostname)
        echo extra > /opt/ml/output/data/extra
        """
    job = yard.job(yard.sh(text), instances=2, TrainingJobName="trained")
    yard.give_away(data=False)
    yard.command("submit", "-", "--wait", "--data-dir", yard.data, stdin=json.dumps(job))
    yield endpoint
    endpoint.stop()


def test_entries_are_listed_with_the_instance_that_wrote_them(yard, trained):
    listed = yard.command("artifact", "ls", "trained", "--json", "--data-dir", yard.data).stdout
    entries = [json.loads(line) for line in listed.splitlines()]
    files = {(entry["Host"], entry["Path"], entry["Size"]) for entry in entries if entry["Kind"] == "File"}
    own = {(f"algo-{n}", f"deep/er/algo-{n}", 7) for n in (1, 2)}
    assert files == own | {(f"algo-{n}", "same", 7) for n in (1, 2)}
    assert all(entry["LastModified"] > 1_700_000_000 for entry in entries)
    lines = yard.command("artifact", "ls", "trained", "--host", "algo-2", "--data-dir", yard.data).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["algo-2"] * len(lines)
    assert any(line.endswith(" deep/er/") for line in lines)
    ended = yard.command("artifact", "ls", "trained", "--host", "algo-3", "--data-dir", yard.data, expect=1)
    assert "algo-3" in ended.stderr
    assert "extra" in yard.command("artifact", "ls", "trained", "--output", "--data-dir", yard.data).stdout


def test_one_file_is_printed_of_the_last_instance_or_of_the_one_that_is_named(yard, trained):
    def cat(*arguments, expect=0):
        return yard.command("artifact", "cat", *arguments, "--data-dir", yard.data, expect=expect)

    ended = cat("trained", "same")
    assert ended.stdout == "algo-2\n"
    assert "there is also that of algo-1" in ended.stderr
    assert cat("trained", "./same", "--host", "algo-1").stdout == "algo-1\n"
    assert cat("s3://results/out/trained/output/model.tar.gz", "deep/er/algo-1").stdout == "algo-1\n"
    archive = yard.root / "s3/results/out/trained/output/model.tar.gz"
    assert cat(archive, "deep/er/algo-2").stdout == "algo-2\n"
    assert cat(f"file://{archive}", "same", "--host", "algo-1").stdout == "algo-1\n"
    assert "there is no sane in the archive" in cat("trained", "sane", expect=1).stderr
    assert "deep is no file" in cat("trained", "deep", expect=1).stderr
    assert "did you mean trained?" in cat("traind", "same", expect=1).stderr
    assert "NoSuchKey" in cat("s3://results/nothing", "same", expect=1).stderr


def test_files_folders_or_everything_are_put_into_a_folder(yard, trained):
    def get(*arguments, expect=0):
        return yard.command("artifact", "get", "trained", *arguments, "--data-dir", yard.data, expect=expect)

    folder = yard.root / "out"
    folder.mkdir()
    get("deep", "-o", folder / "some")
    assert sorted(path.name for path in (folder / "some").rglob("*") if path.is_file()) == ["algo-1", "algo-2"]
    told = get("--all", "--host", "algo-1", "-o", folder / "one", "--json").stdout.splitlines()
    assert len(told) == 2 and {json.loads(line)["Host"] for line in told} == {"algo-1"}
    assert (folder / "one/same").read_text() == "algo-1\n"
    get("--all", "-o", folder / "all")
    assert (folder / "all/same").read_text() == "algo-2\n"
    assert "no nothing in the archive" in get("same", "nothing", "-o", folder / "half", expect=1).stderr
    assert "--all" in get("-o", folder, expect=2).stderr


def test_an_archive_in_a_store_that_the_configuration_names_is_read_from_there(yard, far):
    config = far.config()
    endpoint = Endpoint(yard, "--config", config, env=far.environment)
    job = yard.job(
        yard.sh("hostname > /opt/ml/model/name\n"), TrainingJobName="far",
        OutputDataConfig={"S3OutputPath": f"s3://{far.bucket}/out"},
    )
    yard.give_away(data=False)
    here = ("--data-dir", yard.data, "--config", config)
    yard.command("submit", "-", "--wait", *here, stdin=json.dumps(job), env=far.environment)
    uri = f"s3://{far.bucket}/out/far/output/model.tar.gz"
    for source in ("far", uri):
        assert yard.command("artifact", "cat", source, "name", *here, env=far.environment).stdout == "algo-1\n"
    missing = yard.command("artifact", "ls", f"s3://{far.bucket}/nothing", *here, env=far.environment, expect=1)
    assert f"there is no s3://{far.bucket}/nothing" in missing.stderr
    # Who names another S3 means that one, and who names the same the configuration's.
    keys = {name: endpoint.variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    other = {**keys, "AWS_ENDPOINT_URL_S3": endpoint.url.replace("127.0.0.1", "localhost"), "AWS_ENDPOINT_URL": endpoint.url}
    assert "NoSuchBucket" in yard.command("artifact", "ls", uri, *here, env=other, expect=1).stderr
    endpoint.stop()
    assert "name" in yard.command("artifact", "ls", uri, *here, env=far.environment).stdout


def archive_of(entries):
    """An archive that another program has written: (name, content or link)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_no_name_in_an_archive_leads_out_of_the_folder(yard):
    victim = yard.file("victim", "mine")
    for number, name in enumerate(["../victim", str(victim), "a/../../victim"]):
        path = yard.root / f"{number}.tar.gz"
        path.write_bytes(archive_of([("good", b"1"), (name, b"bad")]))
        ended = yard.command("artifact", "get", path, "--all", "-o", yard.root / "out", expect=1)
        assert "leads out of it" in ended.stderr
    path = yard.root / "link.tar.gz"
    path.write_bytes(archive_of([("way", ".."), ("way/victim", b"bad"), ("last", b"2")]))
    ended = yard.command("artifact", "get", path, "--all", "-o", yard.root / "out")
    assert "a link or a device, left out" in ended.stderr
    assert victim.read_text() == "mine"
    assert (yard.root / "out/way/victim").read_bytes() == b"bad"


class Breaking(BaseHTTPRequestHandler):
    """S3 whose connections break after a while; the object changes when `server.changed` says so."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.headers.get("Range"), self.headers.get("If-Match")))
        assert "Signature=" in self.headers["Authorization"]
        etag = '"other"' if server.changed and len(server.asked) > 2 else '"first"'
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if self.headers.get("If-Match", etag) != etag:
            self.send_response(412)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        rest = server.content[start:]
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(rest[: server.piece])
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def breaking():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
    server.asked, server.changed, server.piece = [], False, 200_000
    server.content = archive_of([("one", b"1"), ("noise", hashlib.shake_128(b"seed").digest(1_000_000))])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_broken_connection_goes_on_with_the_next_byte(yard, breaking):
    url = f"http://127.0.0.1:{breaking.server_port}"
    arguments = ["artifact", "get", "s3://b/a b/model.tar.gz", "--all", "-o", yard.root / "out", "--endpoint", url]
    yard.command(*arguments, env=KEYS)
    assert hashlib.shake_128(b"seed").digest(1_000_000) == (yard.root / "out/noise").read_bytes()
    assert breaking.asked[0] == ("/b/a%20b/model.tar.gz", None, None)
    assert breaking.asked[1] == ("/b/a%20b/model.tar.gz", "bytes=200000-", '"first"')
    assert len(breaking.asked) == -(-len(breaking.content) // breaking.piece)


def test_an_object_that_changes_while_it_is_read_is_told(yard, breaking):
    breaking.changed = True
    url = f"http://127.0.0.1:{breaking.server_port}"
    arguments = ["artifact", "get", "s3://b/model.tar.gz", "noise", "-o", yard.root / "out", "--endpoint", url]
    ended = yard.command(*arguments, env=KEYS, expect=1)
    assert "s3://b/model.tar.gz changed while it was read" in ended.stderr
    assert list((yard.root / "out").iterdir()) == []
