"""Programs that try to get out of their instance, in every runtime; and the same walls as Docker's, side by side.

Through Docker they run once: those walls are the daemon's, whoever asks.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import images
from images import docker_archive, layer
from yard import PYTHON, channel

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


@pytest.fixture(params=["host", "oci", pytest.param("docker", marks=pytest.mark.once)])
def hostile(request, yard, attacks):
    """Makes a job of a script; `attack` in it is the program of attacks."""
    images.base()
    if request.param == "docker":
        request.getfixturevalue("through_docker")

    def job(script, **members):
        if request.param != "host":
            programs = {"usr/bin/train": "#!/bin/sh\n" + script, "bin/attack": attacks.read_bytes()}
            archive = docker_archive(yard.root / "image.tar", [images.base(), layer(programs=programs)])
            return yard.job(f"docker-archive:{archive}", **members)
        program = yard.sh(script)
        shutil.copy(attacks, program.with_name("attack"))
        return yard.job(program, **members)

    # Older versions of Docker shut out less than newer ones and than we do.
    job.as_this_docker = request.param == "docker"
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


def test_what_docker_hides_of_the_kernel_is_hidden(yard, hostile, docker):
    assert yard.run(hostile(HIDDEN)).log() == (docker(HIDDEN) if hostile.as_this_docker else [])


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
    if not hostile.as_this_docker:
        # Newer versions of Docker refuse it.
        socket = "socket to the virtual machine's owner"
        theirs = [line.replace(f"{socket} works", f"{socket} EPERM") for line in theirs]
    assert ours == theirs


# Ways out.

FIRST_PROCESS = """
attack first-process
kill -9 1 2>/dev/null; kill -TERM 1 2>/dev/null
echo alive
"""


def test_the_first_process_can_be_neither_read_nor_changed_nor_killed(yard, hostile):
    lines = yard.run(hostile(FIRST_PROCESS)).log()
    assert lines[-1] == "alive"
    attempts = dict(line.rsplit(" ", 1) for line in lines[:-1])
    assert set(attempts) == {"trace", "read", "memory", "files", "root", "environment", "namespace"}
    assert set(attempts.values()) <= {"EPERM", "EACCES"}


def test_devices_of_the_machine_can_not_be_opened(yard, hostile):
    lines = yard.run(hostile("attack devices")).log()
    assert [line.split()[0] for line in lines] == ["disk", "memory", "loop"]
    assert {line.split()[1] for line in lines} <= {"EPERM", "EACCES", "ENOENT"}


def test_the_terminal_of_the_submitter_can_not_be_typed_into(yard, hostile):
    path = yard.file("job.json", json.dumps(hostile("attack terminal")))
    spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    terminal = [PYTHON, "-c", spawn, "sh", "-c", 'exec "$@" 2>/dev/null', "sh"]
    assert yard.ended(yard.start(path, before=terminal)).log() == ["own terminal ENXIO", "type ENOTTY"]


def test_no_file_is_opened_by_its_handle(yard, hostile):
    assert yard.run(hostile("attack handle")).log() == ["handle EPERM"]


SETTINGS = """
for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger \\
    /proc/sys/net/ipv4/ip_forward /sys/kernel/uevent_helper /sys/power/state /proc/irq/default_smp_affinity; do
    [ -e $file ] && (echo 1 > $file) 2>/dev/null && echo "wrote $file"
done
for command in "mount -t tmpfs none /mnt" "mount -o remount,rw /sys" "mount -o remount,rw,bind /proc/sys" "umount /proc/sys" \\
    "umount -l /opt/ml" "mount --bind / /mnt" "busybox pivot_root / /mnt" "unshare -Ur true" "unshare -m true" \\
    "busybox nsenter -t 1 -m true" "busybox hostname x"; do
    busybox $command 2>/dev/null && echo "did $command"
done
echo end
"""


def test_neither_settings_nor_mounts_nor_namespaces_can_be_changed(yard, hostile):
    before = {path: Path(path).read_text() for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname")}
    assert yard.run(hostile(SETTINGS)).log() == ["end"]
    assert {path: Path(path).read_text() for path in before} == before


LINKS = """
cd /opt/ml/model
ln -s /etc/shadow shadow; ln -s /proc/1/mem memory; ln -s /dev/zero zero; ln -s /proc/self/fd/0 fd; ln -s . self
ln -s ../../../../../../../../etc/passwd up; ln -s /opt/ml/model/../../../etc/passwd round; ln -s loop loop
ln -s "$OUTSIDE" outside; ln -s "$OUTSIDE/secret" secret
mkdir deep; ln -s ../../output deep/sideways
mkfifo fifo 2>/dev/null || busybox mkfifo fifo
cd ../output/data; ln -s "$OUTSIDE" outside; mkfifo fifo 2>/dev/null || busybox mkfifo fifo
echo kept > kept; echo kept > /opt/ml/model/kept
"""


def test_links_and_pipes_in_the_outputs_lead_nowhere(yard, hostile):
    outside = yard.root / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    ended = yard.run(hostile(LINKS, Environment={"OUTSIDE": str(outside)}))
    assert ended.files() == {"kept": b"kept\n"}
    assert ended.files(ended.output) == {"kept": b"kept\n"}
    for name in ("shadow", "memory", "zero", "up", "round", "loop", "outside", "secret", "fifo"):
        assert any(f'"{name}"' in warning for warning in ended.warnings), name
    assert (outside / "secret").read_text() == "secret"


@pytest.mark.parametrize("swap", ["ln -s $OUTSIDE $PLACE", "mkfifo $PLACE", "true"])
@pytest.mark.parametrize("place", ["/opt/ml/model", "/opt/ml/output", "/opt/ml/output/data"])
def test_a_folder_of_outputs_that_was_replaced_is_not_followed(yard, hostile, place, swap):
    outside = yard.root / "outside"
    outside.mkdir()
    (outside / "data").mkdir()
    (outside / "secret").write_text("secret")
    (outside / "data/secret").write_text("secret")
    script = f"rm -r $PLACE; {swap.replace('mkfifo', 'busybox mkfifo')}; echo done"
    ended = yard.run(hostile(script, Environment={"OUTSIDE": str(outside), "PLACE": place}), expect=None)
    assert ended.log() == ["done"]
    assert ended.exit_code in ((0, 10) if swap == "true" else (10,))
    assert swap == "true" or place in ended.reason
    published = list(yard.bucket("results").rglob("*.gz"))
    assert all(b"secret" not in content for archive in published for content in ended.files(archive).values())
    assert (outside / "secret").exists() and (outside / "data/secret").exists()


@pytest.mark.parametrize("failure", ["ln -s $OUTSIDE/secret $F", "ln -s /dev/zero $F", "busybox mkfifo $F", "mkdir $F",
                                     "ln -s failure $F", "busybox truncate -s 8G $F", "ln -s /proc/kmsg $F"])
def test_a_strange_failure_file_tells_nothing_and_holds_nothing_up(yard, hostile, failure):
    secret = yard.file("outside/secret", "secret")
    script = f"F=/opt/ml/output/failure; {failure}; echo last words >&2; exit 3"
    ended = yard.run(hostile(script, Environment={"OUTSIDE": str(secret.parent)}), expect=10)
    assert "exit code: 3" in ended.reason and "secret" not in ended.reason
    assert ended.seconds < 20


SPARSE = "busybox truncate -s 64M /opt/ml/model/sparse; busybox truncate -s 1T /tmp/huge; echo x > /opt/ml/model/x"


def test_sparse_files_cost_what_they_hold(yard, hostile):
    ended = yard.run(hostile(SPARSE))
    assert ended.files()["x"] == b"x\n"
    assert ended.model.stat().st_size < 2_000_000


DEEP = """
name=$(printf %100s | busybox tr ' ' d)
for part in a b c; do
    path=/opt/ml/model/$part; mkdir $path
    for i in $(busybox seq 30); do path=$path/$name; mkdir $path || exit 1; done
    [ $part = a ] || mv /opt/ml/model/$last $path/
    last=$part
done
i=0; path=/opt/ml/model/e; while [ $i -lt 400 ]; do path=$path/e; i=$((i + 1)); done; mkdir -p $path
echo x > /opt/ml/model/x
"""


def test_very_deep_trees_are_cut_off_and_removed(yard, hostile):
    ended = yard.run(hostile(DEEP))
    assert ended.files() == {"x": b"x\n"}
    assert any("folders deep" in warning for warning in ended.warnings)


INPUTS = """
cd /opt/ml/input/data/data
echo changed >> a; chmod 777 a; touch -d @0 a; ln a hard; mv b c; rm -r d; busybox truncate -s 0 e
ln -f a /opt/ml/model/a; echo changed >> /opt/ml/model/a
busybox chown 1:1 e; (busybox setfattr -n user.x -v y e) 2>/dev/null
exec 3<>f && echo changed >&3
true
"""


def test_no_job_changes_its_source(yard, hostile):
    source = {name: yard.put("in", name, "original") for name in ("a", "b", "d/d", "e", "f")}

    def state():
        return {name: (path.read_text(), path.stat().st_mode, path.stat().st_mtime_ns, path.stat().st_uid)
                for name, path in source.items()}

    yard.give_away()
    before = state()
    yard.run(hostile(INPUTS, channels=[channel("data", "s3://in")]))
    assert state() == before


def test_a_flood_of_lines_fills_no_memory_and_can_be_stopped(yard, hostile):
    # What is shown is held by this test until the job ends, so one stream is a flood of half a line.
    flood = "echo ready; busybox tr '\\0' x < /dev/zero & busybox yes | busybox head -n 100000 >&2; sleep 600"
    running = yard.start(hostile(flood))
    running.wait_for_line("ready")
    running.interrupt()
    assert yard.ended(running, expect=11).seconds < 30


LEFT_RUNNING = """
for i in 1 2 3 4 5 6 7 8; do (trap '' TERM HUP INT; busybox setsid sleep 1000) & done
(busybox setsid sh -c 'while true; do echo x > /opt/ml/model/late; ln -sfn /etc /opt/ml/model/swapped; rm -rf /opt/ml/model/swapped; mkdir /opt/ml/model/swapped; done') &
echo x > /opt/ml/model/x; sleep 0.2
"""


def test_nothing_outlives_train_and_changes_what_is_collected(yard, hostile):
    ended = yard.run(hostile(LEFT_RUNNING), expect=0)
    assert ended.files()["x"] == b"x\n"
