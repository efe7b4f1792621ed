"""An ordinary user with subordinate ids: an image's USER is really that user, and nothing strange is left."""

import shutil
import signal
from pathlib import Path

import pytest
import yard as yards
from images import base, docker_archive, layer
from test_images import WRITES
from yard import channel, wait_until

FIRST, COUNT = 3_000_000, 65536


@pytest.fixture
def owner(yard):
    """The yard of an ordinary user for whom ids are set aside."""
    if not yards.AS_ROOT or yard.uid == 0:
        pytest.skip("only root can set ids aside, and only for another user")
    if not (shutil.which("newuidmap") and Path("/etc/subuid").exists() and Path("/etc/subgid").exists()):
        pytest.skip("newuidmap is needed: Debian's package uidmap")
    yard.set_ids_aside(FIRST, COUNT)
    return yard


@pytest.fixture
def image(owner):
    def write(train, *more, **config):
        lowest = layer(programs={"usr/bin/train": "#!/bin/sh\n" + train})
        return f"docker-archive:{docker_archive(owner.root / 'image.tar', [base(), lowest, *more], **config)}"

    return write


@pytest.mark.parametrize(
    ("user", "expected"),
    [("fit", "1000 100 100 44 /home/fit"), ("4242:4343", "4242 4343 4343 /"), ("", "0 0 0 /root"),
     (str(COUNT), f"{COUNT} 0 0 /")],
)
def test_a_user_of_the_image_is_that_user(owner, image, user, expected):
    owner.put("in", "a", "1")
    ended = owner.run(owner.job(image(WRITES, User=user), channels=[channel("data", "s3://in")]))
    assert ended.log() == [expected, "out"]
    assert ended.files() == {"written": b""}


def test_a_user_that_is_not_set_aside_is_told(owner, image):
    ended = owner.run(owner.job(image("true\n", User=str(COUNT + 1))), expect=10)
    assert f"user id {COUNT + 1}" in ended.reason and "/etc/subuid" in ended.reason


def test_files_of_every_user_are_collected_and_removed(owner, image):
    script = """
umask 077
mkdir -p /opt/ml/model/a/b /tmp/closed/deep /changed && echo 1 > /opt/ml/model/a/b/c && echo 2 > /opt/ml/output/data/d
echo x > /tmp/closed/deep/x; echo x > /changed/x; ln -s /etc/passwd /tmp/closed/link
busybox chown -R 7:8 /opt/ml/model/a /opt/ml/output/data /tmp/closed /changed /opt/ml/input
busybox chown -h 9:9 /tmp/closed/link
chmod 0 /opt/ml/model/a/b/c /opt/ml/model/a/b /tmp/closed
"""
    ended = owner.run(owner.job(image(script)))
    assert ended.files() == {"a/b/c": b"1\n"}
    assert ended.files(ended.output) == {"d": b"2\n"}
    # Whoever owns what is left, and whether anything is, the yard looks at itself.


def test_the_failure_file_of_another_user_is_read(owner, image):
    script = "umask 077; echo no rows > /opt/ml/output/failure; exit 3\n"
    assert owner.run(owner.job(image(script, User="fit")), expect=10).reason.startswith("AlgorithmError: no rows")


def test_a_deep_tree_of_another_user_is_removed(owner, image):
    # Deeper than a process may have open folders, and as a whole too long for a path.
    script = """
name=$(printf %100s | busybox tr ' ' d)
for part in a b c d; do
    path=/tmp/$part; mkdir $path
    for i in $(busybox seq 30); do path=$path/$name; mkdir $path || exit 1; done
    [ $part = a ] || mv /tmp/$last $path/
    last=$part
done
touch $path/end && echo made
"""
    assert owner.run(owner.job(image(script, User="fit"))).log() == ["made"]


def test_what_a_killed_supervisor_has_left_is_removed_by_the_next_run(owner, image):
    script = "umask 077; mkdir /tmp/closed && touch /tmp/closed/x && echo ready; [ -e /opt/ml/input/data/go/a ] || sleep 600\n"
    job = owner.job(image(script, User="fit"))
    running = owner.start(job)
    running.wait_for_line("ready")
    scratch = wait_until(lambda: list(owner.data.glob("runs/*/*/instances/*/scratch")), "the scratch folder")[0]
    assert {path.lstat().st_uid for path in (scratch / "tmp").iterdir()} == {FIRST + 999}
    for process in processes_of(owner):
        yards._kill(process)
    running.kill()
    running.end()
    wait_until(lambda: not processes_of(owner), "the end of all processes")
    assert (scratch / "tmp/closed/x").exists()
    owner.put("go", "a")
    job["InputDataConfig"] = [channel("go", "s3://go")]
    assert owner.run(job).log() == ["ready"]


def test_a_supervisor_that_is_killed_alone_leaves_nothing_of_other_users(owner, image):
    running = owner.start(owner.job(image("umask 077; mkdir /tmp/closed && touch /tmp/closed/x && echo ready; sleep 600\n", User="fit")))
    running.wait_for_line("ready")
    (supervisor,) = [process for process in processes_of(owner)
                     if Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[1] == b"instance"]
    yards._kill(supervisor)
    ended = owner.ended(running, expect=10)
    assert ended.ended["status"] == "Failed"
    wait_until(lambda: not processes_of(owner), "the end of all processes")


def processes_of(owner):
    folders = [folder for folder in Path("/proc").glob("[0-9]*") if yards._mention(folder, str(owner.root).encode())]
    return [int(folder.name) for folder in folders if _trainyard(folder)]


def _trainyard(folder):
    try:
        return b"trainyard" in (folder / "cmdline").read_bytes()
    except OSError:
        return False


def test_instances_of_root_and_of_who_has_no_ids_need_none(yard):
    script = "id -u; cat /proc/self/uid_map | busybox tr -s ' '\n"
    program = docker_archive(yard.root / "image.tar", [base(), layer(programs={"usr/bin/train": "#!/bin/sh\n" + script})])
    uid, *ids = yard.run(yard.job(f"docker-archive:{program}")).log()
    assert uid == "0" and len(ids) == 1
    # Its parent is the job's own namespace, in which the user is 0 already.
    assert yard.uid == 0 or ids == [" 0 0 1"]


def test_ids_that_are_set_aside_but_refused_are_told(owner, image):
    refusing = owner.sh("echo 'newuidmap: write to uid_map failed: no luck' >&2; exit 1\n", name="newuidmap")
    owner.set_ids_aside(FIRST, COUNT, newuidmap=refusing)
    ended = owner.run(owner.job(image("id -u\n")))
    assert ended.log() == ["0"]
    (warning,) = ended.warnings
    assert "although /etc/subuid sets others aside" in warning and "no luck" in warning
    doctor = owner.command("doctor", "--data-dir", owner.data, expect=1)
    assert f"{COUNT} are set aside for this user, but refused" in doctor.stdout and "no luck" in doctor.stdout
