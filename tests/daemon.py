"""The daemon of Docker for tests: who may use it, and what of a yard it still has."""

import http.client
import json
import os
import socket
import stat
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest

SOCKET = Path(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))


class Connection(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("localhost", timeout=60)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(SOCKET))


def ask(method, path, body=None, content_type="application/json"):
    """One request to the daemon: the status and what it answers."""
    connection = Connection()
    try:
        connection.request(method, path, body, {"Content-Type": content_type})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, text
    finally:
        connection.close()


def is_podman():
    connection = Connection()
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().getheader("Libpod-Api-Version") is not None
    finally:
        connection.close()


def skip_without_daemon():
    """Skips where no daemon answers, with the reason; where one should be ($TRAINYARD_NEEDS_DOCKER) that is a failure."""
    try:
        status, _ = ask("GET", "/_ping")
        reason = None if status == 200 else f"it answers with status {status}"
    except OSError as error:
        reason = str(error)
    if reason:
        if os.environ.get("TRAINYARD_NEEDS_DOCKER"):
            pytest.fail(f"no Docker at {SOCKET}: {reason}")
        pytest.skip(f"no Docker at {SOCKET}: {reason} (Debian's package docker.io, and the right to use its socket)")


def group_of_socket():
    """The group whose members may use the daemon; skips where there is none, as with Podman's own socket."""
    found = SOCKET.stat()
    if not found.st_mode & stat.S_IWGRP:
        pytest.skip(f"only its owner may use {SOCKET}")
    return found.st_gid


def import_image(tar, name, changes=()):
    """What `docker import` does: an image of one layer."""
    query = f"fromSrc=-&repo={quote(name)}&tag=latest" + "".join(f"&changes={quote(change)}" for change in changes)
    status, text = ask("POST", f"/images/create?{query}", tar, "application/x-tar")
    assert status == 200, text


def remove_image(name):
    status, text = ask("DELETE", f"/images/{quote(name, safe='')}?force=true")
    assert status in (200, 404), text


def of_data_folder(data):
    """The daemon's containers and networks that belong to jobs of a data folder, each in words."""
    filters = quote(json.dumps({"label": [f"trainyard.data-dir={data}"]}))
    containers = json.loads(ask("GET", f"/containers/json?all=true&filters={filters}")[1])
    networks = json.loads(ask("GET", f"/networks?filters={filters}")[1])
    return [f"container {one['Names'][0]} ({one['Status']})" for one in containers] + \
           [f"network {one['Name']}" for one in networks]


def containers(data):
    """The running containers of jobs of a data folder, as the daemon describes them."""
    filters = quote(json.dumps({"label": [f"trainyard.data-dir={data}"]}))
    found = json.loads(ask("GET", f"/containers/json?filters={filters}")[1])
    return [json.loads(ask("GET", f"/containers/{one['Id']}/json")[1]) for one in found]


def volumes():
    return {one["Name"] for one in json.loads(ask("GET", "/volumes")[1])["Volumes"] or []}


def loaded_name(archive):
    """Under which name the daemon has the image of an archive as tests/images.py writes it."""
    import hashlib
    with tarfile.open(archive) as tar:
        config = tar.extractfile("config.json").read()
    return f"trainyard/loaded:{hashlib.sha256(config).hexdigest()}"


def kill_all(data):
    """Removes what a failed test has left."""
    filters = quote(json.dumps({"label": [f"trainyard.data-dir={data}"]}))
    for one in json.loads(ask("GET", f"/containers/json?all=true&filters={filters}")[1]):
        ask("DELETE", f"/containers/{one['Id']}?force=true&v=true")
    for one in json.loads(ask("GET", f"/networks?filters={filters}")[1]):
        ask("DELETE", f"/networks/{one['Id']}")
