"""Through Docker: what is kept of images, what is told of them, and what an instance may take and reach."""

import json
import re
import socket

import daemon
import pytest
import yard as yards
from endpoint import ROLE, Endpoint
from images import base, docker_archive, layer
from test_check import GOOD, PASSING
from test_docker import kill_and_wait, supervisors
from test_network import own_address

FAILED, STOPPED = 10, 11


@pytest.fixture
def docker(through_docker):
    return through_docker


@pytest.fixture
def image(image_for_docker):
    return image_for_docker


# What is kept.


def kept(yard):
    ended = yard.command("image", "ls", "--json", "--data-dir", yard.data)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_images_that_the_daemon_was_given_are_listed_and_removed_when_no_job_uses_them(docker, image):
    name = image("echo up; exec sleep 1000\n")
    running = docker.start(docker.job(name))
    running.wait_for_line("up")
    (found,) = kept(docker)
    loaded = f"trainyard/loaded:{found['digest'].removeprefix('sha256:')}"
    assert (found["name"], found["layers"], found["in_use"]) == (name, 2, True)
    assert found["size"] > 500_000 and found["daemon"] == str(daemon.SOCKET)
    remove = ["image", "rm", name, "--data-dir", docker.data]
    assert "a job uses the image" in docker.command(*remove, expect=1).stderr
    assert docker.command("image", "prune", "--data-dir", docker.data).stdout.startswith("0 images removed")
    running.interrupt()
    docker.ended(running, expect=STOPPED)
    assert daemon.ask("GET", f"/images/{loaded}/json")[0] == 200
    assert found["digest"] in docker.command(*remove).stdout
    assert kept(docker) == [] and daemon.ask("GET", f"/images/{loaded}/json")[0] == 404
    # What is needed again is brought again, and what nobody needs is removed with everything else.
    docker.run(docker.job(image("true\n")))
    assert "1 images would be removed" in docker.command("image", "prune", "--dry-run", "--data-dir", docker.data).stdout
    assert "0 images" in docker.command("image", "prune", "--older-than", "1", "--data-dir", docker.data).stdout
    assert "1 images removed" in docker.command("image", "prune", "--data-dir", docker.data).stdout
    assert kept(docker) == []


@pytest.mark.once
def test_an_archive_that_the_daemon_refuses_is_told_once_and_nothing_of_it_is_kept(docker):
    archive = docker_archive(docker.root / "image.tar", [base(), layer(programs={"usr/bin/train": "echo\n"})], damaged=True)
    error = docker.refused(docker.job(f"docker-archive:{archive}"))
    assert error.count("can't load the image") == 1 and error.count("sha256:") <= 2, error
    assert kept(docker) == []


# Does an image keep the contract?


@pytest.mark.once
def test_every_rule_is_judged_through_docker_too(docker, image):
    docker.put("in", "rows/a", "1")
    flags = ["--channel", f"data={docker.bucket('in')}/rows", "--hyperparameter", "epochs=1"]
    ended = docker.command("check", image(GOOD), "--data-dir", docker.data, "--json", *flags)
    found = {finding["about"]: finding["verdict"] for finding in json.loads(ended.stdout)["findings"]}
    assert found == dict.fromkeys(PASSING, "pass")
    assert not list(docker.data.glob("check-*"))


@pytest.mark.once
@pytest.mark.parametrize(
    ("train", "config", "about", "words"),
    [
        (None, {}, "program", "no train"),
        ("#!/no/interpreter\n", {}, "program", "/no/interpreter"),
        ("#!/bin/sh\n", {"architecture": "s390x"}, "architecture", "linux/s390x"),
    ],
)
def test_what_is_wrong_with_an_image_is_found_through_docker_too(docker, image, train, config, about, words):
    top = layer(programs={"usr/bin/train": train}) if train else layer(deleted=["usr/bin/train"])
    ended = docker.command("check", image("", top, **config), "--data-dir", docker.data, "--json", "--timeout", "5",
                           expect=FAILED)
    found = {finding["about"]: finding for finding in json.loads(ended.stdout)["findings"]}
    assert found[about]["verdict"] == "fail" and words in found[about]["text"], found


# What is left of a server.


@pytest.mark.once
def test_what_a_killed_server_has_left_is_removed_when_it_starts_again(docker, image):
    endpoint = Endpoint(docker)
    job = docker.job(image("exec sleep 1000\n"), instances=2, RoleArn=ROLE)
    endpoint.client("sagemaker").create_training_job(**job)
    yards.wait_until(lambda: len(daemon.containers(docker.data)) == 2, "both containers")
    endpoint.kill()
    kill_and_wait(supervisors(docker))
    assert len(daemon.of_data_folder(docker.data)) >= 2
    again = Endpoint(docker)
    yards.wait_until(lambda: daemon.of_data_folder(docker.data) == [], "the daemon to have nothing of the job")
    described = again.client("sagemaker").describe_training_job(TrainingJobName=job["TrainingJobName"])
    assert described["TrainingJobStatus"] == "Failed"
    again.stop()


# What an instance may take and reach.


@pytest.mark.once
def test_out_of_memory_is_told_with_used_and_allowed_bytes(docker, daemon_images):
    docker.machine_image = daemon_images
    available = int(re.search(r"MemAvailable: +(\d+)", open("/proc/meminfo").read())[1])
    if available < 6 << 20:
        pytest.skip("less than 6 GiB of memory are available")
    resources = {"InstanceType": "ml.t3.medium", "InstanceCount": 1, "VolumeSizeInGB": 1}
    job = docker.job(docker.python("held = bytearray(5 << 30)\nprint('too much')\n"), ResourceConfig=resources)
    ended = docker.run(job, "--limits", "enforce", expect=FAILED)
    assert ended.reason.startswith("ClientError: Please use an instance type with more memory")
    assert re.search(r"out of memory: used (4\.0|3\.\d) GiB \(\d+ bytes\) of 4\.0 GiB \(4294967296 bytes\) allowed\)$",
                     ended.reason), ended.reason


@pytest.mark.once
def test_a_fork_bomb_stays_in_its_container(docker, image):
    bomb = "i=0; while [ $i -lt 300 ] && ( sleep 60 & ) 2>/dev/null; do i=$((i+1)); done; echo started $i\n"
    ended = docker.run(docker.job(image(bomb), Trainyard={"PidsLimit": 60}), expect=None)
    started = [int(line.removeprefix("started ")) for line in ended.log(stream="stdout")]
    assert ended.exit_code in (0, FAILED) and all(count < 60 for count in started), ended
    assert started or "fork" in ended.reason, ended


@pytest.mark.once
def test_a_type_with_gpus_is_refused_where_there_are_none_unless_they_are_ignored(docker, image):
    if any(folder.is_dir() and any(folder.iterdir()) for folder in map(yards.Path, ("/etc/cdi", "/var/run/cdi"))):
        pytest.skip("devices are described on this machine")
    resources = {"InstanceType": "ml.p3.8xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}
    job = docker.job(image("echo $NVIDIA_VISIBLE_DEVICES\n"), ResourceConfig=resources)
    assert "no GPU" in docker.refused(job)
    assert docker.run(job, "--gpus", "ignore").log() == ["void"]


REACH = r"""
import os, socket, threading

def reaches(place):
    with socket.socket() as attempt:
        attempt.settimeout(3)
        try:
            return attempt.connect(place) is None
        except OSError:
            return False

own = socket.gethostbyname(socket.gethostname())
bridge = own.rsplit(".", 1)[0] + ".1"
listener = socket.create_server(("0.0.0.0", 7777))
other = "algo-2" if socket.gethostname() == "algo-1" else "algo-1"
while not reaches((other, 7777)):
    threading.Event().wait(0.05)
for place in [*%r, (bridge, %d)]:
    print("reached" if reaches(tuple(place)) else "refused", flush=True)
print(sorted(name for name in os.environ if "CREDENTIALS" in name or "AWS_" in name and "KEY" in name))
print([line for line in open("/etc/resolv.conf").read().split("\n") if line.startswith("nameserver")])
# Nobody goes before the other has come.
listener.accept()
"""


def test_an_isolated_job_reaches_nothing_but_itself_and_gets_no_credentials(docker, daemon_images):
    docker.machine_image = daemon_images
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        own = own_address()
        places = [("127.0.0.1", port), *([(own, port)] if own else [])]
        program = docker.python(REACH % (places, port))
        ended = docker.run(docker.job(program, instances=2, EnableNetworkIsolation=True))
        for host in ("algo-1", "algo-2"):
            assert ended.log(host) == ["refused"] * (len(places) + 1) + ["[]", "[]"]
        if own:
            # The same is reached by a job that is not isolated, so the test can tell.
            assert "reached" in docker.run(docker.job(program, instances=2)).log()
