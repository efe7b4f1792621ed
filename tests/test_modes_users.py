"""Pipes, fast files and shared file systems for an image's USER, with and without a daemon."""

import os

import pytest
import yard as yards
from test_docker import docker, image  # noqa: F401 - fixtures
from test_ids import image as owners_image  # noqa: F401 - a fixture
from test_ids import owner  # noqa: F401 - a fixture
from test_modes_pipe import pipe
from test_modes_sources import FILE_SYSTEM, VPC, fast, of_file_system
from yard import channel

READ = """
cd /opt/ml/input/data
for epoch in 0 1 2; do cat pipe_$epoch; done >/opt/ml/model/pipe
cat fast/a files/a shared/a >/opt/ml/model/others
touch files/new /opt/ml/input/data/new || exit 1
! touch fast/new 2>/dev/null || exit 1
id -u
"""


def prepared(yard, name):
    """A job that reads and writes as much as it may, and the flags that it needs."""
    yard.put("in", "a", "1\n")
    shared = yard.root / "shared"
    yard.file("shared/deep/b", "2\n")
    yard.file("shared/a", "2\n")
    channels = [
        pipe("pipe", "s3://in"), {**fast("s3://in"), "ChannelName": "fast"}, channel("files", "s3://in"),
        {**of_file_system("/", "rw"), "ChannelName": "shared"},
    ]
    return yard.job(name, channels=channels, VpcConfig=VPC), ["--file-system", f"{FILE_SYSTEM}={shared}"]


def check(yard, ended, user):
    assert ended.log() == [user]
    assert ended.text("pipe") == "1\n" * 3
    assert ended.text("others") == "1\n1\n2\n"
    assert (yard.bucket("in") / "a").read_text() == "1\n"
    for path in (yard.root / "shared", yard.root / "shared/a", yard.root / "shared/deep/b"):
        assert path.stat().st_uid == yard.uid, f"{path} was given away"


@pytest.mark.parametrize("user", [None, "fit", "1234:56"])
def test_a_container_reads_every_kind_of_channel_as_its_user(docker, image, user):  # noqa: F811
    job, flags = prepared(docker, image(READ, User=user))
    check(docker, docker.run(job, *flags), {None: "0", "fit": "1000", "1234:56": "1234"}[user])


@pytest.mark.parametrize("user", ["fit", "4242:4343"])
def test_a_user_with_an_id_of_its_own_reads_every_kind_of_channel(owner, owners_image, user):  # noqa: F811
    job, flags = prepared(owner, owners_image(READ, User=user))
    check(owner, owner.run(job, *flags), {"fit": "1000", "4242:4343": "4242"}[user])


def test_a_stop_ends_a_container_that_waits_in_a_pipe(docker, image):  # noqa: F811
    docker.put("in", "a", os.urandom(8 << 20))
    name = image("cd /opt/ml/input/data; exec 3<pipe_0; echo waiting; read -r line <&3; cat none_0 >/dev/null; exec sleep 600\n")
    running = docker.start(docker.job(name, channels=[pipe("pipe", "s3://in"), pipe("none", "s3://in")]), "--grace", "1")
    running.wait_for_line("waiting")
    running.interrupt()
    ended = docker.ended(running, expect=11)
    assert ended.seconds < yards.DEADLINE / 2
