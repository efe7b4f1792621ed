"""Container images through Docker: the same contract as without it, and nothing left with the daemon."""

import base64
import contextlib
import datetime
import json
import os
import re
import signal

import daemon
import pytest
import yard as yards
from endpoint import GROUP, ROLE, Endpoint, SageMaker
from images import layer, of_machine
from registry import serve
from test_images import TELL, oci_layout
from yard import channel

FAILED, STOPPED = 10, 11


@pytest.fixture
def docker(through_docker):
    return through_docker


@pytest.fixture
def image(image_for_docker):
    return image_for_docker


@pytest.fixture
def local(docker):
    """An image that only the daemon has."""
    name = f"trainyard-test-{os.getpid()}"
    daemon.import_image(layer(programs={"bin/sh": open("/usr/bin/busybox", "rb").read(),
                                        "bin/train": "#!/bin/sh\necho local; echo $0 $FROM_IMAGE\n"}),
                        name, ["ENV FROM_IMAGE=yes"])
    yield name
    daemon.remove_image(name)


@pytest.mark.parametrize(
    ("entrypoint", "request_entrypoint", "request_arguments", "expected"),
    [
        (None, None, None, "ran /usr/bin/train "),
        (["/tell", "first"], None, None, "ran /tell first train"),
        (["/tell", "first"], None, ["--fast"], "ran /tell first --fast"),
        (["/tell", "first"], ["train", "other"], ["--fast"], "ran /usr/bin/train other --fast"),
    ],
)
def test_what_is_run_follows_docker_run_with_train(docker, image, entrypoint, request_entrypoint, request_arguments, expected):
    told = layer(programs={"tell": TELL, "usr/bin/train": TELL})
    algorithm = {"TrainingImage": image("", told, Entrypoint=entrypoint, Cmd=["serve"]), "TrainingInputMode": "File"}
    if request_entrypoint:
        algorithm["ContainerEntrypoint"] = request_entrypoint
    if request_arguments:
        algorithm["ContainerArguments"] = request_arguments
    assert docker.run(docker.job("x", AlgorithmSpecification=algorithm)).log() == [expected]


def test_what_a_container_takes_is_told_by_the_daemon(docker, image):
    name = image("head -c 67108864 /dev/zero > /dev/shm/held\ni=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done\n")
    endpoint = Endpoint(docker)
    sagemaker = SageMaker(docker, endpoint)
    docker.give_away()
    job = docker.job(name, RoleArn=ROLE)
    sagemaker.api.create_training_job(**job)
    ended = sagemaker.ended(job["TrainingJobName"])
    assert ended["TrainingJobStatus"] == "Completed", ended
    cloudwatch = endpoint.client("cloudwatch")
    hour = datetime.timedelta(hours=1)

    def highest(metric):
        points = cloudwatch.get_metric_statistics(
            Namespace=GROUP, MetricName=metric, Dimensions=[{"Name": "Host", "Value": f"{job['TrainingJobName']}/algo-1"}],
            Period=60, Statistics=["Maximum"], StartTime=ended["CreationTime"] - hour, EndTime=ended["CreationTime"] + hour,
        )["Datapoints"]
        return max((point["Maximum"] for point in points), default=None)

    assert highest("CPUUtilization") > 10
    assert 0 < highest("MemoryUtilization") < 100
    assert 0 < highest("DiskUtilization") <= 100
    endpoint.stop()


LOOK = """
env > /opt/ml/model/env
echo "$(id -u) $(id -g) $(id -G) $(pwd) $(hostname) $(stat -c %u:%a /opt/ml)"
for folder in /opt/ml/model /opt/ml/output /opt/ml/checkpoints /opt/ml/input/data /opt/ml/input/data/in /tmp /dev/shm; do
    touch $folder/written || echo "can not write $folder"
done
echo out >/dev/stdout; echo err >/dev/stderr
ls /tmp; cat /proc/1/status | grep -c NoNewPrivs..1
"""


@pytest.mark.parametrize(("user", "ids", "home"), [(None, "0 0 0", "/root"), ("fit", "1000 100 100 44", "/home/fit"),
                                                    ("1234:56", "1234 56 56", "/")])
def test_an_instance_finds_what_its_image_and_the_contract_say(docker, image, user, ids, home):
    docker.put("in", "a", "1")
    name = image(LOOK, User=user, WorkingDir="/made/up", Env=["FROM_IMAGE=1", "BOTH=image"])
    job = docker.job(name, channels=[channel("in", "s3://in")], Environment={"BOTH": "request"})
    ended = docker.run(job, env={"SECRET": "of the submitter"})
    owner = ids.split()[0]
    assert ended.log(stream="stdout") == [f"{ids} /made/up algo-1 {owner}:755", "out", "written", "1"]
    assert ended.log(stream="stderr") == ["err"]
    found = dict(line.split("=", 1) for line in ended.text("env").splitlines())
    assert (found["FROM_IMAGE"], found["BOTH"], found["HOME"]) == ("1", "request", home)
    assert found["DMLC_INTERFACE"] == "eth0" and "SECRET" not in found
    assert not (docker.resolve("s3://in") / "written").exists()


def test_layouts_and_compressed_archives_are_loaded_too(docker):
    tar, folder = oci_layout(docker)
    names = [f"oci:{folder}", f"oci-archive:{tar}"]
    assert [docker.run(docker.job(name)).log() for name in names] == [["ran"], ["ran"]]


def test_an_image_that_only_the_daemon_has_is_run_as_it_is(docker, local):
    for name in (local, f"{local}:latest"):
        assert docker.run(docker.job(name)).log() == ["local", "/bin/train yes"]


def test_auto_takes_the_daemons_image_where_no_registry_gives_it(docker, local):
    docker.environment["TRAINYARD_RUNTIME"] = "auto"
    assert docker.run(docker.job(local)).log() == ["local", "/bin/train yes"]


def test_auto_needs_no_daemon(docker, image):
    ended = docker.run(docker.job(image("ls /.dockerenv || echo no daemon\n")), "--runtime", "auto")
    assert "no daemon" in ended.log()


def test_an_image_of_a_registry_is_pulled_with_the_credentials_of_docker_login(docker):
    if daemon.is_podman():
        pytest.skip("Podman speaks TLS only, unless its administrator says otherwise for a registry")
    _, layout = oci_layout(docker)
    password = "s3cr3t>?~ of me"
    with serve(layout, "me", password) as registry:
        name = f"{registry}/team/fit:1"
        error = docker.refused(docker.job(name))
        assert registry in error
        config = docker.root / "home/.docker/config.json"
        config.parent.mkdir()
        login = base64.b64encode(f"me:{password}".encode()).decode()
        config.write_text(json.dumps({"auths": {registry: {"auth": login}}}))
        assert docker.run(docker.job(name)).log() == ["ran"]
    # The registry has gone; the daemon has the image.
    ended = docker.run(docker.job(name))
    daemon.remove_image(name)
    assert ended.log() == ["ran"]
    assert any(registry in warning for warning in ended.warnings), ended.warnings


def test_a_daemon_that_is_not_there_is_told_with_where_it_was_looked_for(docker, image):
    docker.environment["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    assert "/nowhere/docker.sock" in docker.refused(docker.job(image()))
    docker.environment["DOCKER_HOST"] = "tcp://127.0.0.1:1"
    error = docker.refused(docker.job(image()))
    assert "tcp://127.0.0.1:1" in error and "unix://" in error


def test_an_image_for_other_machines_is_refused(docker, image):
    error = docker.refused(docker.job(image(architecture="s390x")))
    assert "linux/s390x" in error and "this machine is linux/" in error


def test_programs_of_the_machine_and_built_in_images_need_no_daemon(docker):
    train = docker.sh("echo of the machine\n")
    assert docker.run(docker.job(train), env={"DOCKER_HOST": "unix:///nowhere"}).log() == ["of the machine"]


@pytest.mark.parametrize(
    ("train", "code", "words"),
    [
        ("#!/bin/sh\nexit 3\n", 3, ["exit code: 3"]),
        ("#!/bin/sh\nkill -9 $$\n", 137, ["SIGKILL", "exit code: 137"]),
        ("#!/no/such/interpreter\n", 127, ["/no/such/interpreter", "does not exist", "exit code: 127"]),
        ("no program", 126, ["exec format error", "exit code: 126"]),
        (None, 127, ["executable file not found in PATH (/bin:/usr/bin)", "exit code: 127"]),
    ],
)
def test_ends_are_told_in_the_words_of_the_jail(docker, image, train, code, words):
    last = layer(programs={"usr/bin/train": train}) if train else layer(deleted=["usr/bin/train"])
    ended = docker.run(docker.job(image("", last, Env=["PATH=/bin:/usr/bin"])), expect=FAILED)
    assert all(word in ended.reason for word in words), ended.reason


def test_the_failure_file_is_the_reason(docker, image):
    ended = docker.run(docker.job(image("echo no rows > /opt/ml/output/failure; exit 3\n")), expect=FAILED)
    assert ended.reason == "AlgorithmError: no rows, exit code: 3 (algo-1)"


def uptime():
    """The clock that is the same in a container."""
    return float(open("/proc/uptime").read().split()[0])


def test_a_line_is_shown_within_a_second(docker, image):
    running = docker.start(docker.job(image("cut -d ' ' -f 1 /proc/uptime; while :; do sleep 0.1; done\n")))
    event, _ = running.wait_for(lambda event: event["event"] == "log", "a line")
    seen = uptime()
    running.interrupt()
    docker.ended(running, expect=STOPPED)
    assert seen - float(event["line"]) < 1


def test_a_million_lines_of_both_streams_are_kept_in_order(docker, image):
    if docker.uid != os.geteuid():
        pytest.skip("once is enough: users make no difference for lines")
    lines = 500_000
    script = f"seq {lines} & seq {lines} >&2 & wait; printf 'last words'\n"
    ended = docker.run(docker.job(image(script)))
    expected = [str(number) for number in range(1, lines + 1)]
    assert ended.log(stream="stderr") == expected
    assert ended.log(stream="stdout") == [*expected, "last words"]


STOPPABLE = """
sh -c "trap 'echo child > /opt/ml/model/child; exit 0' TERM; echo child ready; while :; do sleep 0.1; done" &
trap 'wait; echo parent > /opt/ml/model/parent; exit 7' TERM
echo parent ready
while :; do sleep 0.1; done
"""


def test_a_stop_reaches_every_process_and_archives_what_they_wrote(docker, image):
    running = docker.start(docker.job(image(STOPPABLE)))
    running.wait_for_line("child ready")
    running.wait_for_line("parent ready")
    running.interrupt()
    assert docker.ended(running, expect=STOPPED).files() == {"parent": b"parent\n", "child": b"child\n"}


def test_after_the_grace_an_instance_is_killed(docker, image):
    name = image("trap '' TERM; echo > /opt/ml/model/a; echo ready; while :; do sleep 0.1; done\n")
    running = docker.start(docker.job(name), "--grace", "1")
    running.wait_for_line("ready")
    running.interrupt()
    assert docker.ended(running, expect=STOPPED).files() == {"a": b"\n"}


def test_the_first_to_fail_ends_the_others(docker, image):
    script = "test $(hostname) = algo-2 && { touch /opt/ml/model/two; exit 4; }\nexec sleep 1000\n"
    ended = docker.run(docker.job(image(script), instances=3), "--grace", "5", expect=FAILED)
    assert "exit code: 4 (algo-2)" in ended.reason and list(ended.files()) == ["two"]


MESS = """
umask 077
cd /opt/ml/model
mkdir -p deep/er/folder shut
echo secret > deep/er/folder/file; echo x > shut/in; chmod 000 shut deep/er/folder/file
ln -s /etc/passwd link; mkfifo fifo 2>/dev/null
chown 4321:4321 deep/er
mkdir -p /opt/ml/input/data/in/new /opt/ml/checkpoints/c /tmp/t; echo x > /tmp/t/x
echo changed >> /opt/ml/input/data/in/a; rm /opt/ml/input/data/in/b; chmod +x /opt/ml/input/data/in/c
echo more > /opt/ml/input/data/in/new/file; chmod 700 /opt/ml/input/data/in
"""


@pytest.mark.parametrize("user", [None, "fit"])
def test_everything_left_belongs_to_the_submitting_user_and_the_source_is_as_it_was(docker, image, user):
    for name in "abc":
        docker.put("in", name, name)
    before = {path.name: (path.read_text(), path.stat().st_mode) for path in docker.bucket("in").iterdir()}
    job = docker.job(image(MESS, User=user), channels=[channel("in", "s3://in")])
    ended = docker.run(job)
    assert {"deep/er/folder/file", "shut/in"} <= set(ended.files())
    assert {path.name: (path.read_text(), path.stat().st_mode) for path in docker.bucket("in").iterdir()} == before


def test_channels_are_copied_where_an_overlay_can_not_be_told_to_the_daemon(docker, image):
    docker.put("in", "a", "source\n")
    if not daemon.is_podman():
        # Podman gets copies anyway, and takes no commas.
        docker.data = docker.root / "of, all:names"
    script = "cat /opt/ml/input/data/in/a; echo changed > /opt/ml/input/data/in/a && echo mine > /opt/ml/input/data/in/b\n"
    job = docker.job(image(script), channels=[channel("in", "s3://in")])
    ended = docker.run(job)
    assert ended.log() == ["source"]
    assert (docker.bucket("in") / "a").read_text() == "source\n"


TALK = """
me=$(hostname)
address_of() { grep -w $1 /etc/hosts | head -n 1 | cut -f 1; }
# Who ends meanwhile closes no connection.
ask() { timeout 2 bash -c "exec 3<>/dev/tcp/$1/7777 && printf 'GET /$2 HTTP/1.0\\r\\n\\r\\n' >&3 && grep -o '^$3' <&3" 2>/dev/null; }
mkdir /tmp/www; echo "this is $me" > /tmp/www/name
httpd -p 7777 -h /tmp/www
for number in 1 2 3 4; do
    until answer=$(ask algo-$number name 'this is.*'); do sleep 0.05; done
    echo "algo-$number: $answer"
done
ip -o -4 addr show eth0 | grep -q "inet $(address_of $me)/" && echo "eth0 has the address"
echo yes > /tmp/www/done
# Nobody goes before all have asked.
if [ $me = algo-1 ]; then
    for number in 2 3 4; do until ask algo-$number done yes; do sleep 0.05; done; done
    echo yes > /tmp/www/release
    for number in 2 3 4; do while ask algo-$number done yes; do sleep 0.05; done; done
else
    until ask algo-1 release yes; do sleep 0.05; done
fi >/dev/null
"""


def test_every_instance_reaches_every_other_by_its_name(docker, image):
    ended = docker.run(docker.job(image(TALK, of_machine("bash")), instances=4))
    for host in ("algo-1", "algo-2", "algo-3", "algo-4"):
        expected = [f"algo-{number}: this is algo-{number}" for number in range(1, 5)]
        assert ended.log(host) == [*expected, "eth0 has the address"]


def test_the_parts_are_merged_in_a_container_too(docker, image):
    script = "printf 'host\\n%s\\n' $(hostname) > /opt/ml/model/part-$(hostname).csv\n"
    merge = {"Merge": {"Glob": "part-*.csv", "Output": "all.csv"}}
    ended = docker.run(docker.job(image(script), instances=2, Trainyard=merge))
    assert ended.merged.read_text().splitlines() == ["host", "algo-1", "algo-2"]


def test_no_value_of_the_request_is_shown_by_the_daemon(docker, image):
    running = docker.start(docker.job(image("echo up; exec sleep 1000\n"), Environment={"TOKEN": "s3cr3t-of-me"}))
    running.wait_for_line("up")
    (found,) = daemon.containers(docker.data)
    running.interrupt()
    docker.ended(running, expect=STOPPED)
    assert "s3cr3t-of-me" not in json.dumps(found)
    labels = found["Config"]["Labels"]
    assert labels["trainyard.job"] == "job-1" and labels["trainyard.host"] == "algo-1"
    assert labels["trainyard.attempt"] == "1" and labels["trainyard.data-dir"] == str(docker.data)
    assert found["Config"]["Tty"] is False and found["HostConfig"]["PidsLimit"] > 0


def supervisors(yard):
    """The process ids of the supervisors of a yard."""
    found = []
    for folder in yards.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"instance" in words and str(yard.root).encode() in b" ".join(words):
                found.append(int(folder.name))
    return found


def kill_and_wait(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


HANGS = "mkdir -p /opt/ml/model/d; echo x > /opt/ml/model/d/x; echo y >> /opt/ml/input/data/in/a; echo up; exec sleep 1000\n"


def test_an_instance_dies_with_its_supervisor_and_leaves_nothing(docker, image):
    docker.put("in", "a", "1")
    running = docker.start(docker.job(image(HANGS), instances=2, channels=[channel("in", "s3://in")]), "--grace", "2")
    running.wait_for_line("up", "algo-1")
    running.wait_for_line("up", "algo-2")
    kill_and_wait(supervisors(docker)[:1])
    ended = docker.ended(running, expect=FAILED)
    assert re.search("algo-[12]", ended.reason)


def test_what_a_killed_driver_and_its_supervisors_have_left_is_removed_by_the_next_run(docker, image):
    docker.put("in", "a", "1")
    name = image(HANGS)
    running = docker.start(docker.job(name, channels=[channel("in", "s3://in")]))
    running.wait_for_line("up")
    kill_and_wait([running.process.pid, *supervisors(docker)])
    running.process.wait()
    assert daemon.of_data_folder(docker.data) != []
    # Any job does: this one is another.
    docker.run(docker.job(image("true\n", name="other")))
    assert daemon.of_data_folder(docker.data) == []
    # And what the first has left in its folder goes when it is run again.
    job = docker.job(image("true\n", name="again"), TrainingJobName="job-1")
    docker.run(job)


def test_what_runs_is_left_alone_by_the_next_run(docker, image):
    running = docker.start(docker.job(image("echo up; exec sleep 1000\n")))
    running.wait_for_line("up")
    docker.run(docker.job(image("true\n", name="other")))
    assert len(daemon.containers(docker.data)) == 1
    running.interrupt()
    ended = docker.ended(running, expect=STOPPED)
    assert ended.ended["status"] == "Stopped"
