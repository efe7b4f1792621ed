"""What the tests drive the built binary with: a place of its own for each test, and what a run leaves in it.

Everything of a test lies below one folder. That folder's name is in the command lines, working folders and
mount tables of all that a run starts, so whatever is left over can be found by it.
"""

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

DEADLINE = 180
"""Seconds after which something is taken to hang. What works takes a few, and on a busy machine many times as long."""

# Where GPUs of the machine are described.
CDI = Path("/etc/cdi")
"""Seconds after which anything that a test waits for has failed."""

PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or shutil.which("python3")
"""An interpreter that programs of every user and in every instance can start."""

ORDINARY_USER = 65534

AS_ROOT = os.geteuid() == 0
"""Whether the tests may mount, change users, and take networks away."""


def find_binary():
    """The binary under test: $TRAINYARD_BIN, else the newest build in Cargo's target folder."""
    if given := os.environ.get("TRAINYARD_BIN"):
        return Path(given).resolve(strict=True)
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"],
        cwd=Path(__file__).parent, check=True, capture_output=True, text=True,
    )
    target = Path(json.loads(metadata.stdout)["target_directory"])
    builds = [build for kind in ("release", "debug") if (build := target / kind / "trainyard").exists()]
    if not builds:
        raise FileNotFoundError(f"no trainyard in {target}: run `cargo build`, or set TRAINYARD_BIN")
    return max(builds, key=lambda build: build.stat().st_mtime)


def wait_until(condition, what, deadline=DEADLINE):
    """Calls `condition` until it is true; the test fails when that takes too long."""
    end = time.monotonic() + deadline
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {deadline} s in vain for {what}"
        pause.wait(0.01)
    return value


@dataclass
class Ended:
    """What a command has said and left, once it has ended."""

    exit_code: int
    stdout: str
    stderr: str
    yard: "Yard"
    seconds: float
    events: list = field(default_factory=list)

    def of_kind(self, kind):
        return [event for event in self.events if event["event"] == kind]

    @property
    def ended(self):
        """The one event that ends a job's events."""
        (event,) = self.of_kind("ended")
        assert self.events[-1] is event, "something was said after the end"
        return event

    @property
    def reason(self):
        return self.ended["failure_reason"] or ""

    @property
    def secondary_statuses(self):
        """The episodes, without the repetitions that only change the message."""
        statuses = [event["secondary_status"] for event in self.of_kind("transition")]
        return [status for i, status in enumerate(statuses) if i == 0 or statuses[i - 1] != status]

    @property
    def warnings(self):
        return [event["text"] for event in self.of_kind("warning")]

    def log(self, host="algo-1", stream=None):
        """The lines of one host, of one stream or of both."""
        lines = [event for event in self.of_kind("log") if event["host"] == host]
        return [event["line"] for event in lines if stream in (None, event["stream"])]

    @property
    def model(self):
        """The path of `model.tar.gz`."""
        return self._path("model")

    @property
    def output(self):
        """The path of `output.tar.gz`."""
        return self._path("output")

    @property
    def merged(self):
        return self._path("merged")

    def _path(self, artifact):
        uri = self.ended[artifact]
        assert uri, f"there is no {artifact}"
        return Path(self.ended["folder"]) / uri.rsplit("/", 1)[1]

    def files(self, archive=None):
        """The files of an archive (the model's, unless said otherwise) by name; each name may occur once."""
        found = {}
        with tarfile.open(archive or self.model, "r:gz") as tar:
            for member in tar:
                if member.isfile():
                    assert member.name not in found, f"{member.name} is there twice"
                    found[member.name] = tar.extractfile(member).read()
        return found

    def text(self, name):
        return self.files()[name].decode()

    def __str__(self):
        return f"exit code {self.exit_code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class Running:
    """A command that has been started: its lines can be waited for."""

    def __init__(self, yard, command, stdin=None, env=None, offline=False):
        self.yard = yard
        self.started = time.monotonic()
        self.lines = []
        self._unread = queue.Queue()
        identity = yard.identity
        by_root = [*(["unshare", "--net"] if offline else []), *yard.set_aside]
        if by_root:
            # What only root can do comes first, the user changes after that.
            user = str(yard.uid)
            groups = ["--groups", ",".join(map(str, yard.groups))] if yard.groups else ["--clear-groups"]
            command = [*by_root, "setpriv", "--reuid", user, "--regid", user, *groups, *command]
            identity = {}
        self.process = subprocess.Popen(
            command, cwd=yard.root, env={**yard.environment, **(env or {})}, start_new_session=True, **identity,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self._stderr = b""
        self._threads = [threading.Thread(target=self._read_stdout), threading.Thread(target=self._read_stderr)]
        for thread in self._threads:
            thread.start()
        if stdin is not None:
            # A command line that is refused is never followed by a look at the input.
            with contextlib.suppress(BrokenPipeError), self.process.stdin as pipe:
                pipe.write(stdin.encode())

    def _read_stdout(self):
        for line in self.process.stdout:
            self._unread.put(line)
        self._unread.put(None)

    def _read_stderr(self):
        self._stderr = self.process.stderr.read()

    def wait_for(self, condition, what, deadline=DEADLINE):
        """Returns the first event that fits, of those so far or to come, with the time at which it was read."""
        for line in self.lines:
            if condition(event := json.loads(line)):
                return event, time.monotonic()
        end = time.monotonic() + deadline
        while True:
            try:
                line = self._unread.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"waited {deadline} s in vain for {what}\n{self._said()}") from None
            assert line is not None, f"ended before {what}\n{self._said()}"
            self.lines.append(line)
            event = json.loads(line)
            if condition(event):
                return event, time.monotonic()

    def wait_for_line(self, text, host=None):
        """Waits until an instance (or a certain one) has printed `text`."""

        def fits(event):
            return event["event"] == "log" and event["line"] == text and host in (None, event["host"])

        return self.wait_for(fits, f"the line {text!r} of {host or 'any host'}")

    def wait_for_status(self, secondary_status):
        def fits(event):
            return event["event"] == "transition" and event["secondary_status"] == secondary_status

        return self.wait_for(fits, f"the secondary status {secondary_status}")

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def end(self, deadline=DEADLINE):
        """Waits for the end and returns all that was said."""
        try:
            exit_code = self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline} s\n{self._said()}") from None
        seconds = time.monotonic() - self.started
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), "something holds the command's output open after its end"
        while (line := self._unread.get_nowait()) is not None:
            self.lines.append(line)
        stdout = b"".join(self.lines).decode()
        return Ended(exit_code, stdout, self._stderr.decode(), self.yard, seconds)

    def _said(self):
        return b"".join(self.lines).decode(errors="replace") + self._stderr.decode(errors="replace")

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Yard:
    """A data folder, buckets and programs of one test, and the user that it runs as."""

    def __init__(self, binary, uid, base, machine_image=None):
        self.uid = uid
        self.machine_image = machine_image
        """What makes images of programs; without it (None) they run on the machine itself."""
        self.images = base / f"images-{uid}"
        self.root = Path(tempfile.mkdtemp(prefix="trainyard-", dir=base))
        self.root.chmod(0o755)
        self.binary = binary
        self.groups = []
        self.running = []
        self.mounted = []
        self.set_aside = []
        self._jobs = 0
        self.data = self.root / "data"
        for folder in ("data", "s3", "programs", "home", "tmp"):
            (self.root / folder).mkdir()
        self.bucket("results")
        self.environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
        }
        self.give_away()

    @property
    def identity(self):
        """How to start a process as the yard's user."""
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.uid, "extra_groups": self.groups}

    def give_away(self, data=True):
        """Makes everything the yard's user's own; without the data folder while jobs run in it."""
        if self.uid != os.geteuid():
            roots = [root for root in self.root.iterdir() if data or root != self.data]
            for path in [self.root, *roots, *(path for root in roots for path in root.rglob("*"))]:
                # What a running job has just removed needs no owner.
                with contextlib.suppress(FileNotFoundError):
                    os.lchown(path, self.uid, self.uid)

    # What a job is made of.

    def bucket(self, name):
        """The folder of a bucket, which every run knows."""
        folder = self.root / "s3" / name
        folder.mkdir(exist_ok=True)
        return folder

    def put(self, bucket, key, content=b""):
        """An object."""
        path = self.bucket(bucket) / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def resolve(self, uri):
        """The file behind a URI."""
        assert uri, "there is no such URI"
        if uri.startswith("file://"):
            return Path(uri.removeprefix("file://"))
        return self.root / "s3" / uri.removeprefix("s3://")

    def file(self, name, content="", mode=0o644):
        """A file beside everything else, such as a gate: a program waits until it is no longer empty."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)
        return path

    def sh(self, text, name="train"):
        """A program in shell language; its path."""
        return self.program("#!/bin/sh\n" + text, name)

    def python(self, text, name="train"):
        """A program in Python; its path."""
        return self.program(f"#!{PYTHON}\n" + text, name)

    def program(self, text, name="train"):
        folder = Path(tempfile.mkdtemp(dir=self.root / "programs"))
        folder.chmod(0o755)
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def job(self, program, instances=1, channels=(), **members):
        """A request; `members` take the place of what it has by default, None leaves a member out."""
        self._jobs += 1
        image = program if isinstance(program, str) else self.image(program)
        request = {
            "TrainingJobName": f"job-{self._jobs}",
            "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"},
            "InputDataConfig": list(channels) or None,
            "OutputDataConfig": {"S3OutputPath": "s3://results/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": DEADLINE},
        }
        request.update(members)
        return {name: value for name, value in request.items() if value is not None}

    def image(self, program):
        """The name of an image that runs a program as `train`."""
        if self.machine_image is None:
            return f"host:{program}"
        return self.machine_image.name(Path(tempfile.mkdtemp(dir=self.root / "programs")), program)

    def gate(self):
        """Something that the programs of a job wait for."""
        return Gate(self)

    # Running it.

    def start(self, job, *flags, env=None, offline=False, before=()):
        """Starts `trainyard run` with a request, a text or the path of a job file; `before` is a program to start it."""
        stdin = None
        if isinstance(job, dict):
            job = json.dumps(job)
        if isinstance(job, str):
            stdin, job = job, "-"
        flags = [*self.bucket_flags(), "--data-dir", self.data, "--json", *flags]
        return self._start(["run", job, *flags], stdin, env, offline, before)

    def run(self, job, *flags, env=None, offline=False, expect=0):
        """Runs a job to its end. Its exit code is part of what is expected; None leaves it open."""
        return self.ended(self.start(job, *flags, env=env, offline=offline), expect)

    def ended(self, running, expect=0):
        """Waits for a job's end and reads its events."""
        ended = running.end()
        assert expect is None or ended.exit_code == expect, f"expected exit code {expect}, got {ended}"
        ended.events = [json.loads(line) for line in ended.stdout.splitlines()]
        return ended

    def begin(self, *arguments, stdin=None, env=None):
        """Starts any other command."""
        return self._start(arguments, stdin, env)

    def command(self, *arguments, expect=0, stdin=None, env=None):
        """Runs any other command to its end."""
        ended = self.begin(*arguments, stdin=stdin, env=env).end()
        assert expect is None or ended.exit_code == expect, f"expected exit code {expect}, got {ended}"
        return ended

    def start_command(self, *arguments):
        """Starts any other command."""
        return self._start(arguments, None)

    def refused(self, job, *flags, expect=2):
        """Runs a job that must not start; what the command says about it."""
        ended = self.run(job, *flags, expect=expect)
        assert ended.stderr.startswith("error: "), ended
        assert ended.of_kind("log") == [], "an instance was started"
        assert list(self.bucket("results").iterdir()) == [], "something was published"
        return ended.stderr

    def bucket_flags(self):
        buckets = sorted((self.root / "s3").iterdir())
        return [flag for bucket in buckets for flag in ("--bucket", f"{bucket.name}={bucket}")]

    def _start(self, arguments, stdin, env=None, offline=False, before=()):
        if self.machine_image is not None:
            self._share_images()
        self.give_away()
        running = Running(self, [*before, str(self.binary), *map(str, arguments)], stdin, env, offline)
        self.running.append(running)
        return running

    def _share_images(self):
        """One store for all yards of a user: what is in it is unpacked once."""
        if not self.images.exists():
            self.images.mkdir()
            os.chown(self.images, self.uid, self.uid)
        if not (self.data / "images").exists():
            (self.data / "images").symlink_to(self.images)

    def set_ids_aside(self, first, count, newuidmap=None):
        """Gives the yard's user subordinate ids, which nothing outside of the yard notices; `newuidmap` in place of the
        machine's."""
        for file in ("subuid", "subgid"):
            (self.root / file).write_text(f"{self.uid}:{first}:{count}\n")
        binds = [f"mount --bind {self.root}/{file} /etc/{file}" for file in ("subuid", "subgid")]
        binds += [f"mount --bind {newuidmap} {shutil.which('newuidmap')}"] if newuidmap else []
        self.set_aside = ["unshare", "--mount", "sh", "-c", f'{" && ".join(binds)} && exec "$@"', "sh"]

    # What is left.

    def mount_small_disk(self, size):
        """A file system of its own with little room, for the yard's user."""
        folder = self.root / "small"
        folder.mkdir()
        options = f"size={size},mode=0755,uid={self.uid},gid={self.uid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "trainyard-test", folder], check=True)
        self.mounted.append(folder)
        return folder

    def mount_overlays(self, depth):
        """So many overlays over each other, the uppermost of which the yard's user can write to."""
        lower = self.root / "overlays/lowest"
        lower.mkdir(parents=True)
        for number in range(depth):
            upper, work, place = (self.root / "overlays" / f"{name}-{number}" for name in ("upper", "work", "place"))
            for folder in (upper, work, place):
                folder.mkdir()
            os.chown(upper, self.uid, self.uid)
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            subprocess.run(["mount", "-t", "overlay", "-o", options, "trainyard-test", place], check=True)
            self.mounted.insert(0, place)
            lower = place
        return lower

    def leftovers(self):
        """Whatever a run should have taken away with it, each in words."""
        return [*self._processes(), *self._mounts(), *self._scratch(), *self._foreign_files()]

    def _processes(self):
        ours = str(self.root).encode()
        for folder in Path("/proc").glob("[0-9]*"):
            if int(folder.name) != os.getpid() and (place := _mention(folder, ours)):
                yield f"process {folder.name} still runs ({place}): {_command_line(folder)}"

    def _mounts(self):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(self.root) in line and not any(str(folder) in line for folder in self.mounted):
                yield f"still mounted: {line}"

    def _scratch(self):
        for path in (self.root / "tmp").iterdir():
            yield f"temporary file: {path}"
        for path in self.data.rglob("*"):
            if path.name in ("scratch", "bases") and path.is_dir() and any(path.iterdir()):
                yield f"scratch of an instance: {path}"

    def _foreign_files(self):
        for path in self.root.rglob("*"):
            if (owner := path.lstat().st_uid) != self.uid and "overlays" not in path.parts:
                yield f"belongs to user {owner}: {path}"

    def close(self):
        """Takes everything away, also what a failed test has left running or mounted."""
        for running in self.running:
            running.kill()
        for folder in Path("/proc").glob("[0-9]*"):
            if int(folder.name) != os.getpid() and _mention(folder, str(self.root).encode()):
                _kill(int(folder.name))
        for folder in self.mounted:
            subprocess.run(["umount", "--lazy", folder], check=False)
        mounts = re.findall(rf"\s({re.escape(str(self.root))}\S*)\s", Path("/proc/self/mountinfo").read_text())
        for folder in sorted(set(mounts), reverse=True):
            subprocess.run(["umount", "--lazy", folder], check=False)
        shutil.rmtree(self.root, ignore_errors=True)


class Gate:
    """A file that programs wait for until it is no longer empty; its path is `str(gate)` for them.

    An image sees nothing of the machine's files, but each of its instances has an /opt/ml, which lies on the machine.
    """

    def __init__(self, yard):
        self.yard = yard
        self.file = yard.file("gate")

    def __str__(self):
        return str(self.file) if self.yard.machine_image is None else "/opt/ml/gate"

    def open(self):
        for tree in self.yard.data.glob("runs/*/attempt-*/instances/*/scratch/ml"):
            (tree / "gate").write_text("open")
        self.file.write_text("open")


def _mention(folder, ours):
    """Where a process speaks of the yard, if it does. A process that is ending may vanish meanwhile."""
    try:
        if (folder / "stat").read_bytes().rpartition(b") ")[2][:1] == b"Z":
            return None
    except OSError:
        return None
    for name in ("cmdline", "environ", "mountinfo"):
        try:
            # The mounts of this test itself are seen by every process of the machine.
            if ours in (folder / name).read_bytes() and (name != "mountinfo" or _has_own_mounts(folder)):
                return name
        except OSError:
            continue
    for name in ("cwd", "root", "exe"):
        try:
            if os.readlink(os.fsencode(folder / name)).startswith(ours):
                return name
        except OSError:
            continue
    return None


def _has_own_mounts(folder):
    return os.readlink(folder / "ns/mnt") != os.readlink("/proc/self/ns/mnt")


def _command_line(folder):
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "?"


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def channel(name, uri, distribution="FullyReplicated", data_type="S3Prefix", **members):
    """A channel of a request."""
    source = {"S3DataType": data_type, "S3Uri": uri, "S3DataDistributionType": distribution}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **members}
