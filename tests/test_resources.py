"""What instances may take of the machine: limits, out of memory, processes, volume and GPUs."""

import os
import uuid
from pathlib import Path

import pytest
from images import base, docker_archive, layer
from yard import CDI, channel

GROUPS = Path("/sys/fs/cgroup")


def resources(instance_type, instances=1, volume=1):
    return {"InstanceType": instance_type, "InstanceCount": instances, "VolumeSizeInGB": volume}


def control_groups(job):
    """What is left of a job's control groups."""
    return [path for path in GROUPS.rglob("trainyard/*") if path.name.startswith(f"{job}-")]


def own_name():
    """A name that no job of another test on this machine has."""
    return f"limits-{uuid.uuid4().hex[:12]}"


def image(yard, train):
    programs = layer(programs={"usr/bin/train": "#!/bin/sh\n" + train})
    return f"docker-archive:{docker_archive(yard.root / 'image.tar', [base(), programs])}"


@pytest.fixture(params=["host", "oci"])
def program(request, yard):
    """Makes a program of the machine or an image of a shell script, and returns what a job calls it."""
    return yard.sh if request.param == "host" else lambda train: image(yard, train)


@pytest.fixture
def enforced(yard):
    """Skips what needs control groups where they can't be had."""
    ended = yard.run(yard.job(yard.sh("exit 0"), ResourceConfig=resources("ml.t3.medium")), "--limits", "enforce", expect=None)
    if ended.exit_code != 0 or ended.warnings:
        pytest.skip(f"limits can't be enforced here: {ended.warnings or ended.stderr}")


# Limits of the instance type.


def test_a_type_that_is_larger_than_the_machine_runs_unless_limits_are_enforced(yard):
    job = yard.job(yard.sh("echo ran"), instances=2, ResourceConfig=resources("ml.m5.24xlarge", instances=2))
    assert yard.run(job).log() == ["ran"]
    job["TrainingJobName"] = "enforced"
    error = yard.run(job, "--limits", "enforce", expect=2).stderr
    assert "2 instances with the limits of ml.m5.24xlarge would need 192 CPUs" in error
    assert f"this machine has {len(os.sched_getaffinity(0))}" in error and "--limits advise" in error


def test_limits_that_can_not_be_enforced_are_a_warning_with_the_reason(yard):
    ended = yard.run(yard.job(yard.sh("echo ran"), ResourceConfig=resources("ml.t3.medium")), "--limits", "enforce",
                     expect=None)
    if ended.exit_code == 2:
        pytest.skip(f"this machine is smaller than the smallest type: {ended.stderr}")
    assert ended.log() == ["ran"]
    if yard.uid != 0:
        (warning,) = ended.warnings
        assert "the limits of the instance (2 CPUs, 4.0 GiB (4294967296 bytes) of memory) can't be enforced" in warning


def test_an_instance_sees_the_limits_of_its_type(yard, enforced):
    script = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null\n"
    script += "df -k /dev/shm | awk 'END {print $2}'\n"
    ended = yard.run(yard.job(yard.sh(script), ResourceConfig=resources("ml.t3.medium")), "--limits", "enforce")
    assert ended.log() == [str(4 << 30), str(2 << 20)]


def test_running_out_of_memory_is_told_with_used_and_allowed_bytes(yard, enforced):
    available = int(dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())["MemAvailable"].split()[0])
    if available < 6 << 20:
        pytest.skip("less than 6 GiB of memory are available")
    hog = yard.python("held = bytearray(5 << 30)\nprint('too much')\n")
    name = own_name()
    job = yard.job(hog, TrainingJobName=name, ResourceConfig=resources("ml.t3.medium"))
    ended = yard.run(job, "--limits", "enforce", expect=10)
    assert ended.log() == []
    assert ended.reason.startswith("ClientError: Please use an instance type with more memory")
    assert ", exit code: 137 (algo-1, out of memory: used 4.0 GiB (" in ended.reason
    assert ended.reason.endswith(" of 4.0 GiB (4294967296 bytes) allowed)")
    assert control_groups(name) == []


# Processes.

BOMB = "i=0; while [ $i -lt 300 ] && ( sleep 60 & ) 2>/dev/null; do i=$((i+1)); done; echo started $i\n"


def test_a_fork_bomb_stays_in_its_instance(yard, program):
    name = own_name()
    job = yard.job(program(BOMB), TrainingJobName=name, Trainyard={"PidsLimit": 60})
    ended = yard.run(job, expect=None)
    if any("60 processes" in warning and "can't be enforced" in warning for warning in ended.warnings):
        pytest.skip(f"root without control groups: {ended.warnings}")
    # A shell that can't start a process may also give up.
    assert ended.exit_code in (0, 10)
    started = [int(line.removeprefix("started ")) for line in ended.log(stream="stdout")]
    assert all(count < 60 for count in started), started
    assert started or "fork" in ended.reason, ended
    assert control_groups(name) == []


def test_a_limit_of_processes_out_of_range_is_refused(yard):
    for limit in (0, 1 << 30):
        error = yard.refused(yard.job(yard.sh("exit 0"), Trainyard={"PidsLimit": limit}))
        assert "trainyard.pidsLimit" in error or "PidsLimit" in error


# Volume.


def test_an_instance_that_writes_more_than_its_volume_holds_fails_with_the_numbers(yard):
    train = yard.sh("fallocate -l 1200M /tmp/large; echo written; while :; do sleep 1; done\n")
    ended = yard.run(yard.job(train, ResourceConfig=resources("local")), "--limits", "enforce", expect=10)
    assert ended.log() == ["written"]
    assert "the volume is full: inputs and what was written have 1.1 GiB (" in ended.reason
    assert "VolumeSizeInGB allows 1.0 GiB (1073741824 bytes)" in ended.reason


def test_inputs_that_are_larger_than_the_volume_are_refused_with_the_numbers(yard):
    os.truncate(yard.put("data", "in/large"), 3 << 29)
    job = yard.job(yard.sh("echo ran"), channels=[channel("train", "s3://data/in/")], ResourceConfig=resources("local"))
    error = yard.refused(job, "--limits", "enforce")
    assert "the input of algo-1 has 1.5 GiB (1610612736 bytes), but its volume only 1.0 GiB (1073741824 bytes)" in error
    assert yard.run(job).log() == ["ran"]


# GPUs.


def test_a_type_with_gpus_is_refused_where_there_are_none_unless_they_are_ignored(yard):
    if any(folder.is_dir() and any(folder.iterdir()) for folder in (CDI, Path("/var/run/cdi"))):
        pytest.skip("devices are described on this machine")
    job = yard.job(yard.sh("echo $NVIDIA_VISIBLE_DEVICES"), ResourceConfig=resources("ml.p3.8xlarge"))
    error = yard.refused(job)
    assert "ml.p3.8xlarge has 4 V100" in error and "no GPU" in error and "--gpus ignore" in error
    assert yard.run(job, "--gpus", "ignore").log() == ["void"]


def test_gpus_are_dealt_out_with_what_their_driver_needs(yard, described, program):
    train = "echo $NVIDIA_VISIBLE_DEVICES $OF_DRIVER\nfor i in /dev/nvidia*; do echo ${i#/dev/}; done\n"
    train = program(train + "cat /usr/driver/libcuda.so.1\n")
    job = yard.job(train, ResourceConfig=resources("ml.g5.xlarge", instances=2))
    ended = yard.run(job)
    assert ended.log("algo-1") == ["0 yes", "nvidia0", "of the driver"]
    assert ended.log("algo-2") == ["1 yes", "nvidia1", "of the driver"]


def test_an_image_finds_the_libraries_of_the_driver(yard, described):
    train = "readlink /usr/driver/libcuda.so; cat /usr/driver/libcuda.so; echo $LD_LIBRARY_PATH\n"
    ended = yard.run(yard.job(image(yard, train), ResourceConfig=resources("ml.g5.xlarge")))
    assert ended.log() == ["libcuda.so.1", "of the driver", "/usr/driver"]


def test_too_few_gpus_are_shared_with_a_warning_unless_limits_are_enforced(yard, described):
    job = yard.job(yard.sh("echo $NVIDIA_VISIBLE_DEVICES"), ResourceConfig=resources("ml.g5.12xlarge", instances=2))
    ended = yard.run(job)
    assert ended.log("algo-1") == ["0,1"] and ended.log("algo-2") == ["0,1"]
    assert any("8 GPUs; this machine has 2, which they share" in warning for warning in ended.warnings)
    local = yard.job(yard.sh("echo $NVIDIA_VISIBLE_DEVICES"), ResourceConfig=resources("local_gpu", instances=2))
    error = yard.run(yard.job(yard.sh("exit 0"), ResourceConfig=resources("ml.g5.xlarge", instances=3)),
                     "--limits", "enforce", expect=2).stderr
    assert "would need" in error
    ended = yard.run(local, "--limits", "enforce")
    assert (ended.log("algo-1"), ended.log("algo-2")) == (["0"], ["1"])


def test_a_damaged_description_of_devices_is_named(yard, described):
    file = CDI / f"trainyard-test-{os.getpid()}.yaml"
    file.write_text("kind: nvidia.com/gpu\ndevices: 7\n")
    error = yard.refused(yard.job(yard.sh("exit 0"), ResourceConfig=resources("ml.g5.xlarge")))
    assert str(file) in error and "no description of devices" in error
