"""FastFile channels whose objects are in a store: what is read is fetched, and nothing else."""

import json
import os
import re
import signal
import subprocess

import images
import pytest
import yard as yards
from test_modes_sources import fast
from test_storage import LIST_FILES, digest, listed

DEVICE = "/dev/fuse"

pytestmark = [
    pytest.mark.one_user,
    pytest.mark.skipif(not os.access(DEVICE, os.R_OK | os.W_OK), reason=f"{DEVICE} can't be opened here"),
]


@pytest.fixture
def with_device(far):
    """Gives the device to the yard's user, as most machines give it to everybody; nothing outside of the yard notices."""
    make = f"mount -t tmpfs none /mnt && mknod -m 666 /mnt/fuse c 10 229 && mount --bind /mnt/fuse {DEVICE}"
    if far.yard.identity:
        far.yard.set_aside = ["unshare", "--mount", "sh", "-c", f'{make} && umount -l /mnt && exec "$@"', "sh"]


@pytest.fixture
def reads(proxy):
    """The ranges that jobs have asked for, by key: pairs of the first byte and the one after the last."""
    proxy.ranges = {}

    def note(request):
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if request.is_read and found:
            key = request.target.partition("?")[0].split("/", 2)[2]
            proxy.ranges.setdefault(key, []).append((int(found[1]), int(found[2]) + 1))
        return proxy.more(request)

    proxy.more = lambda request: None
    proxy.fault = note
    return proxy


def put(far, **contents):
    for name, content in contents.items():
        far.put(f"data/{name}", content)
    return f"s3://{far.bucket}/data/"


def asked(ranges):
    return sum(end - start for start, end in ranges)


@pytest.mark.every_user
@pytest.mark.usefixtures("with_device")
def test_files_of_a_store_are_whole_and_as_large_as_they_were_listed(far):
    contents = {"a": os.urandom(5 << 20), "deep/b": b"b", "deep/er/c": b"", "d": os.urandom(300_000)}
    uri = put(far, **contents)
    program = far.yard.python(LIST_FILES + """
import subprocess
listing = subprocess.run(["ls", "-lR", "/opt/ml/input/data/data"], capture_output=True, text=True, check=True).stdout
sizes = {line.split()[8]: int(line.split()[4]) for line in listing.splitlines() if line.startswith("-")}
json.dump(sizes, open("/opt/ml/model/sizes.json", "w"))
""")
    ended = far.run(far.yard.job(program, channels=[fast(uri)]))
    assert listed(ended) == {f"data/{name}": digest(content) for name, content in contents.items()}
    sizes = {os.path.basename(name): len(content) for name, content in contents.items()}
    assert json.loads(ended.text("sizes.json")) == sizes
    assert ended.warnings == []


def test_an_image_whose_user_is_not_root_reads_files_of_a_store(far):
    train = images.layer(programs={"usr/bin/train": "#!/bin/sh\nid -u; cat /opt/ml/input/data/data/a\n"})
    image = images.docker_archive(far.yard.root / "image.tar", [images.base(), train], User="fit")
    ended = far.run(far.yard.job(f"docker-archive:{image}", channels=[fast(put(far, a="content"))]))
    assert ended.log() == ["1000", "content"]


def test_only_what_is_read_is_fetched(far, reads):
    content = os.urandom(8 << 20)
    uri = put(far, big=content, never=os.urandom(1 << 20))
    places = [5_000_000, 1_234_567, 7_999_000, 3_000_000]
    program = far.yard.python(f"""
import os
file = os.open("/opt/ml/input/data/data/big", os.O_RDONLY)
with open("/opt/ml/model/read", "wb") as out:
    for place in {places}:
        out.write(os.pread(file, 1000, place))
assert os.stat("/opt/ml/input/data/data/never").st_size == 1 << 20
""")
    ended = far.run(far.yard.job(program, channels=[fast(uri)]), url=reads.url)
    read = ended.files()["read"]
    assert read == b"".join(content[place : place + 1000] for place in places)
    assert set(reads.ranges) == {"data/big"}
    assert asked(reads.ranges["data/big"]) <= len(places) * 2 * (128 << 10)


def test_who_reads_on_is_read_ahead_for_in_few_requests_and_nothing_is_fetched_twice(far, reads):
    content = os.urandom(16 << 20)
    program = far.yard.sh("for i in 1 2; do sha256sum </opt/ml/input/data/data/big; done")
    ended = far.run(far.yard.job(program, channels=[fast(put(far, big=content))]), url=reads.url)
    assert [line.split()[0] for line in ended.log()] == [digest(content)] * 2
    ranges = reads.ranges["data/big"]
    assert asked(ranges) == len(content), sorted(ranges)
    assert len(ranges) <= 16, sorted(ranges)


def test_faults_between_are_not_seen_by_who_reads(far, reads):
    content = os.urandom(6 << 20)
    cuts = iter([70_000, 1_000_000, 1, 65_537])
    busy = iter(range(3))

    def fault(request):
        if not request.is_read:
            return None
        if (cut := next(cuts, None)) is not None:
            return "cut", cut
        return None if next(busy, None) is None else ("status", 503, "<Error><Code>SlowDown</Code></Error>")

    reads.more = fault
    ended = far.run(far.yard.job(far.yard.python(LIST_FILES), channels=[fast(put(far, big=content))]), url=reads.url)
    assert listed(ended) == {"data/big": digest(content)}
    assert reads.spoilt == {"cut": 4, "status": 3}


def test_each_instance_has_its_share_and_reads_it_alone(far):
    uri = put(far, **{name: name * 1000 for name in "abcde"})
    channels = [fast(uri, "ShardedByS3Key")]
    ended = far.run(far.yard.job(far.yard.python(LIST_FILES), instances=2, channels=channels))
    shares = [listed(ended, host) for host in ("algo-1", "algo-2")]
    assert sorted([*shares[0], *shares[1]]) == [f"data/{name}" for name in "abcde"]
    for share in shares:
        assert share and all(found == digest(path[-1] * 1000) for path, found in share.items())


def test_files_of_a_store_can_not_be_changed(far):
    program = far.yard.python("""
import errno, json, os
folder = "/opt/ml/input/data/data/"
found = {}
for name, change in {
    "write": lambda: open(folder + "a", "r+"),
    "create": lambda: open(folder + "new", "w"),
    "remove": lambda: os.remove(folder + "a"),
    "rename": lambda: os.rename(folder + "a", folder + "b"),
    "mkdir": lambda: os.mkdir(folder + "new"),
    "chmod": lambda: os.chmod(folder + "a", 0o777),
    "truncate": lambda: os.truncate(folder + "a", 0),
}.items():
    try:
        change()
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
json.dump(found, open("/opt/ml/model/found.json", "w"))
""")
    ended = far.run(far.yard.job(program, channels=[fast(put(far, a="a"))]))
    changes = ("write", "create", "remove", "rename", "mkdir", "chmod", "truncate")
    assert json.loads(ended.text("found.json")) == dict.fromkeys(changes, "EROFS")


def changed_before_it_is_read(far, program, expect):
    uri = put(far, a="first", b="b")
    text = f"""
while [ ! -s {far.yard.file('gate')} ]; do sleep 0.05; done
{program}
"""
    job = far.yard.job(far.yard.sh("echo runs\n" + text), channels=[fast(uri)])
    running = far.yard.start(job, "--config", far.config(), env=far.environment)
    running.wait_for_line("runs")
    far.put("data/a", "other")
    far.yard.file("gate", "open")
    return far.yard.ended(running, expect=expect)


def test_an_object_that_changes_is_an_error_to_who_reads_it_and_the_reason_of_the_failure(far):
    ended = changed_before_it_is_read(far, "cat /opt/ml/input/data/data/a", 10)
    assert "Input/output error" in "".join(ended.log(stream="stderr"))
    assert ended.log(stream="stdout") == ["runs"]
    assert re.search(r"channel .data.: .*data/a", ended.reason), ended.reason
    assert any("data/a" in warning for warning in ended.warnings)


def test_a_program_that_can_do_without_an_object_completes_with_a_warning(far):
    ended = changed_before_it_is_read(far, "cat /opt/ml/input/data/data/a || cat /opt/ml/input/data/data/b", 0)
    assert any("data/a" in warning for warning in ended.warnings)


def test_a_stop_ends_a_program_that_waits_for_an_object(far, reads):
    held = []

    def fault(request):
        held.append(request)
        return "delay", 3600

    reads.more = lambda request: fault(request) if request.is_read else None
    # The kernel lets nobody end who waits for a direct read.
    program = far.yard.sh("dd if=/opt/ml/input/data/data/a of=/dev/null iflag=direct bs=4096")
    job = far.yard.job(program, channels=[fast(put(far, a="a" * 4096))])
    running = far.yard.start(job, "--grace", "1", "--config", far.config(reads.url), env=far.environment)
    yards.wait_until(lambda: held, "a request")
    running.interrupt()
    assert far.yard.ended(running, expect=11)


@pytest.mark.every_user
@pytest.mark.usefixtures("with_device")
@pytest.mark.parametrize("runs", ["waits", "reads"])
def test_nothing_stays_mounted_when_a_supervisor_is_killed(far, reads, runs):
    held = []
    if runs == "reads":
        reads.more = lambda request: (held.append(request), ("delay", 3600))[1] if request.is_read else None
    program = far.yard.sh("echo runs; " + ("cat /opt/ml/input/data/data/a; " if runs == "reads" else "") + "sleep 3600")
    job = far.yard.job(program, channels=[fast(put(far, a="a"))])
    running = far.yard.start(job, "--config", far.config(reads.url), env=far.environment)
    running.wait_for_line("runs")
    if runs == "reads":
        yards.wait_until(lambda: held, "a request")
    found = subprocess.run(["pgrep", "-f", f"instance .*{far.yard.data}"], capture_output=True, text=True).stdout.split()
    assert found
    for pid in found:
        os.kill(int(pid), signal.SIGKILL)
    ended = far.yard.ended(running, expect=10)
    assert ended.reason


def test_pipes_files_and_fast_files_go_together(far):
    far.put("one/x", "in a file")
    uri = put(far, y="when it is read")
    program = far.yard.sh("cat /opt/ml/input/data/file/x /opt/ml/input/data/data/y /opt/ml/input/data/pipe_0")
    file = yards.channel("file", f"s3://{far.bucket}/one/")
    pipe = yards.channel("pipe", f"s3://{far.bucket}/one/", InputMode="Pipe")
    ended = far.run(far.yard.job(program, channels=[file, fast(uri), pipe]))
    assert ended.log() == ["in a filewhen it is readin a file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide the device")
def test_without_the_device_fast_files_are_refused_by_name(far):
    hidden = ["unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {DEVICE} && mount -o remount,bind,ro,nodev {DEVICE} && exec "$@"', "sh"]
    job = far.yard.job(far.yard.sh("exit 1"), channels=[fast(put(far, a="a"))])
    running = far.yard.start(job, "--config", far.config(), env=far.environment, before=hidden)
    refused = far.yard.ended(running, expect=2)
    assert f"InputMode FastFile needs {DEVICE}" in refused.stderr
    assert "data/a" in refused.stderr


def test_through_docker_fast_files_of_a_store_are_refused_by_name(far, image_for_docker):
    refused = far.run(far.yard.job(image_for_docker(), channels=[fast(put(far, a="a"))]), expect=2)
    assert "InputMode FastFile is not supported for objects of a store" in refused.stderr
    assert "data/a" in refused.stderr
