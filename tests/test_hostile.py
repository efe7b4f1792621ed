"""Programs that try to get out of their instance, in both runtimes; and the same walls as Docker's, side by side."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import images
from images import docker_archive, layer

SOURCE = Path(__file__).with_name("hostile.c")


@pytest.fixture(scope="session")
def attacks(base):
    """The program of attacks, without libraries, so that it runs in any image."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("a C compiler is needed: Debian's package gcc")
    program = base / "hostile"
    built = subprocess.run([compiler, "-static", "-O1", "-o", program, SOURCE], capture_output=True, text=True)
    if built.returncode != 0:
        pytest.skip(f"programs can't be linked statically here: {built.stderr}")
    program.chmod(0o755)
    return program


@pytest.fixture(params=["host", "oci"])
def hostile(request, yard, attacks):
    """Makes a job of a script; `attack` in it is the program of attacks."""

    def job(script, **members):
        if request.param == "oci":
            programs = {"usr/bin/train": "#!/bin/sh\n" + script, "bin/attack": attacks.read_bytes()}
            archive = docker_archive(yard.root / "image.tar", [images.base(), layer(programs=programs)])
            return yard.job(f"docker-archive:{archive}", **members)
        program = yard.sh(script)
        shutil.copy(attacks, program.with_name("attack"))
        return yard.job(program, **members)

    return job


# The walls, and Docker's.

STATUS = "busybox grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status; id -u"
DEVICES = """
ls -1 /dev
busybox stat -c '%n %F %t %T' /dev/* | busybox grep special
for link in fd stdin stdout stderr ptmx; do busybox readlink /dev/$link; done
true
"""
MOUNTS = "cat /proc/self/mounts"
HIDDEN = """
for path in /proc/acpi /proc/asound /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/sched_debug \
    /proc/scsi /proc/timer_list /proc/timer_stats /sys/devices/virtual/powercap /sys/firmware; do
    if [ -d $path ]; then ls -A $path | busybox sed "s|^|$path |"; elif [ -e $path ]; then
        busybox head -c 1 $path 2>/dev/null | busybox grep -q . && echo $path; fi
done
true
"""


@pytest.fixture(scope="module")
def docker():
    """Runs a script in a container of the real Docker that has the same programs."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        pytest.skip("a Docker daemon is needed")
    imported = subprocess.run(["docker", "import", "-"], input=images.base(), capture_output=True, check=True)
    image = imported.stdout.decode().strip()

    def run(script, *flags):
        command = ["docker", "run", "--rm", "--security-opt", "no-new-privileges", *flags, image, "sh", "-c", script]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    yield run
    subprocess.run(["docker", "rmi", "-f", image], capture_output=True, check=True)


def test_privileges_are_those_of_a_docker_container(yard, hostile, docker):
    assert yard.run(hostile(STATUS)).log() == docker(STATUS)


def test_devices_are_those_of_a_docker_container(yard, hostile, docker):
    # Docker's link to the memory of the kernel leads to a file that it hides itself.
    assert yard.run(hostile(DEVICES)).log() == [line for line in docker(DEVICES) if line != "core"]


def test_what_docker_hides_of_the_kernel_is_hidden(yard, hostile):
    assert yard.run(hostile(HIDDEN)).log() == []


def test_what_docker_mounts_read_only_of_the_kernel_is_read_only(yard, hostile, docker):
    def mounts(lines):
        """The options by place; the last mount at a place is the one that is seen."""
        return {place: set(options.split(",")) for _, place, _, options, *_ in (line.split() for line in lines)}

    ours, theirs = mounts(yard.run(hostile(MOUNTS)).log()), mounts(docker(MOUNTS))
    kernels = [place for place in theirs if re.match("/(proc|sys|dev)(/|$)", place) and "cgroup" not in place]
    assert {"/proc/sys", "/proc/bus", "/sys", "/dev/shm"} <= set(kernels)
    walls = {"ro", "nosuid", "nodev", "noexec"}
    for place in kernels:
        if place in ours:
            assert theirs[place] & walls <= ours[place] & walls, place


def test_system_calls_are_refused_as_in_a_docker_container(yard, hostile, docker, attacks):
    ours = yard.run(hostile("attack calls")).log()
    theirs = docker("/attack calls", "-v", f"{attacks}:/attack:ro")
    assert "clone3 ENOSYS" in ours and "newest ENOSYS" in ours and "mount EPERM" in ours
    # Newer versions of Docker refuse it.
    socket = "socket to the virtual machine's owner"
    assert ours == [line.replace(f"{socket} works", f"{socket} EPERM") for line in theirs]
