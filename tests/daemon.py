"""The daemon of Docker for tests: who may use it, and what of a yard it still has."""

import functools
import http.client
import json
import os
import socket
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
from machine_image import layer_of

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


class DaemonImages:
    """Images that only the daemon has: the machine's programs, sent to it once, and one program on top of them."""

    def __init__(self, machine_image):
        self.machine_image = machine_image
        # Another name than that of the image that tests of the runtime make and remove.
        self.repository = f"trainyard-programs-{os.getpid()}"
        self.made = 0

    @functools.cached_property
    def _base(self):
        import_image(self.machine_image.base, self.repository)
        return f"{self.repository}:latest"

    def name(self, _folder, program):
        """What a job calls an image with the program of a path as `train`."""
        container = _answer("POST", "/containers/create", json.dumps({"Image": self._base, "Cmd": ["train"]}))["Id"]
        status, text = ask("PUT", f"/containers/{container}/archive?path=/", layer_of(program), "application/x-tar")
        assert status == 200, text
        self.made += 1
        _answer("POST", f"/commit?container={container}&repo={self.repository}&tag={self.made}&pause=false", "{}")
        ask("DELETE", f"/containers/{container}?force=true")
        return f"{self.repository}:{self.made}"

    def remove(self):
        for tag in [*range(1, self.made + 1), "latest"]:
            remove_image(f"{self.repository}:{tag}")


def _answer(method, path, body=None):
    status, text = ask(method, path, body)
    assert status < 300, text
    return json.loads(text)


def use(yard):
    """Lets the jobs of a yard run through Docker, as root or as a member of its group."""
    if yard.uid != os.geteuid():
        yard.groups = [group_of_socket()]
    yard.environment["TRAINYARD_RUNTIME"] = "docker"
    yard.environment["DOCKER_HOST"] = f"unix://{SOCKET}"


def of_data_folder(data):
    """What the daemon has of jobs of a data folder, each in words."""
    filters = quote(json.dumps({"label": [f"trainyard.data-dir={data}"]}))
    containers = json.loads(ask("GET", f"/containers/json?all=true&filters={filters}")[1])
    networks = json.loads(ask("GET", f"/networks?filters={filters}")[1])
    volumes = json.loads(ask("GET", "/volumes")[1])["Volumes"] or []
    return [f"container {one['Names'][0]} ({one['Status']})" for one in containers] + \
           [f"network {one['Name']}" for one in networks] + \
           [f"volume {one['Name']}" for one in volumes if f"={data}/" in (one["Options"] or {}).get("o", "")]


def remove_loaded(data):
    """Removes the images of files that the daemon was given for a data folder."""
    for path in (data / "docker-images").glob("*"):
        remove_image(f"trainyard/loaded:{path.name}")


def containers(data):
    """The running containers of jobs of a data folder, as the daemon describes them."""
    filters = quote(json.dumps({"label": [f"trainyard.data-dir={data}"]}))
    found = json.loads(ask("GET", f"/containers/json?filters={filters}")[1])
    return [json.loads(ask("GET", f"/containers/{one['Id']}/json")[1]) for one in found]


def kill_all(data):
    """Removes what a failed test has left."""
    filters = quote(json.dumps({"label": [f"trainyard.data-dir={data}"]}))
    for one in json.loads(ask("GET", f"/containers/json?all=true&filters={filters}")[1]):
        ask("DELETE", f"/containers/{one['Id']}?force=true&v=true")
    for one in json.loads(ask("GET", f"/networks?filters={filters}")[1]):
        ask("DELETE", f"/networks/{one['Id']}")
