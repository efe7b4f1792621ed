"""What a program finds around it: folders, environment, identity, names, and nothing of its neighbours."""

import json
import os
from pathlib import Path

import pytest
from yard import channel

PROBE = r"""
import json, os, socket, sys

def tree(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = "folder" if os.path.isdir(path) else "file"
    return found

probe = {
    "arguments": sys.argv,
    "environment": dict(os.environ),
    "tree": tree("/opt/ml"),
    "working folder": os.getcwd(),
    "user": os.getuid(), "group": os.getgid(),
    "owners": sorted({os.lstat(path).st_uid for path in ("/opt/ml", "/opt/ml/model", "/opt/ml/input/config")}),
    "hostname": socket.gethostname(),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "stdin": sys.stdin.read(),
    "terminals": [os.isatty(fd) for fd in (0, 1, 2)],
    "open files": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "tmp": os.listdir("/tmp"),
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
}
hosts = json.load(open("/opt/ml/input/config/resourceconfig.json"))["hosts"]
probe["addresses"] = {host: socket.gethostbyname(host) for host in hosts}
with open(f"/opt/ml/model/{socket.gethostname()}.json", "w") as file:
    json.dump(probe, file)
"""


@pytest.fixture
def probe(yard):
    """Runs a job that looks around, and returns what each host has seen."""

    def run(program=None, env=None, **members):
        ended = yard.run(yard.job(program or yard.python(PROBE), **members), env=env)
        return {name.removesuffix(".json"): json.loads(text) for name, text in ended.files().items()}

    return run


def test_the_tree_holds_the_empty_output_folders_and_no_failure_file(yard, probe):
    yard.put("in", "a", "1")
    tree = probe(channels=[channel("data", "s3://in")])["algo-1"]["tree"]
    expected = ["input", "input/config", "input/data", "input/data/data", "model", "output", "output/data",
                "output/metrics", "output/metrics/sagemaker", "output/profiler"]
    # Nobody asked for checkpoints; a platform may make their folder all the same.
    assert sorted(path for path, kind in tree.items() if kind == "folder" and path != "checkpoints") == expected
    files = [path for path, kind in tree.items() if kind == "file" and not path.startswith("input/config/")]
    assert sorted(files) == ["input/data/data-manifest", "input/data/data/a"]


def test_the_platform_sets_its_variables(probe):
    variables = probe(TrainingJobName="Mixed-Case")["algo-1"]["environment"]
    assert variables["TRAINING_JOB_NAME"] == "Mixed-Case"
    assert variables["TRAINING_JOB_ARN"].startswith("arn:aws:sagemaker:")
    assert variables["TRAINING_JOB_ARN"].endswith(":training-job/mixed-case")
    assert variables["AWS_REGION"]
    assert variables["DMLC_INTERFACE"] == "eth0"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert variables["PATH"]


def test_variables_of_the_toolkit_are_not_the_platforms(probe):
    variables = probe()["algo-1"]["environment"]
    assert [name for name in variables if name.startswith("SM_")] == []


def test_the_environment_of_the_request_reaches_every_instance(probe):
    sent = {"MYVAR": "with space", "LINES_": "two\nlines", "EMPTY": "", "UMLAUT": "ä"}
    for seen in probe(instances=2, Environment=sent).values():
        assert sent.items() <= seen["environment"].items()


def test_of_the_submitters_environment_only_path_home_and_language_reach_an_instance(probe):
    own = {"MY_OWN": "mine", "AWS_SECRET_ACCESS_KEY": "mine", "PYTHONSTARTUP": "mine", "HOME": "/mine", "LANG": "C"}
    seen = probe(env=own)["algo-1"]["environment"]
    assert "mine" not in seen.values()
    assert (seen["HOME"], seen["LANG"]) == ("/mine", "C")


def test_without_an_entrypoint_train_is_found_on_the_path(yard, probe):
    folder = yard.python(PROBE, "train").parent
    arguments = probe(str(f"host:{folder}"))["algo-1"]["arguments"]
    assert arguments[0].endswith("/train")
    assert arguments[1:] == []


def test_an_entrypoint_is_run_with_its_own_arguments_and_no_train(yard):
    folder = yard.sh('printf "%s|" "$0" "$@" >/opt/ml/model/seen', "tool").parent
    algorithm = {
        "TrainingImage": f"host:{folder}", "TrainingInputMode": "File",
        "ContainerEntrypoint": ["tool", "a b"], "ContainerArguments": ["*", ""],
    }
    seen = yard.run(yard.job("", AlgorithmSpecification=algorithm)).text("seen")
    assert seen.split("|")[0].endswith("tool")
    assert seen.split("|")[1:] == ["a b", "*", "", ""]


def test_an_entrypoint_alone_gets_no_arguments(yard):
    folder = yard.sh('echo "$#" >/opt/ml/model/seen', "tool").parent
    algorithm = {
        "TrainingImage": f"host:{folder}", "TrainingInputMode": "File", "ContainerEntrypoint": ["tool"],
    }
    assert yard.run(yard.job("", AlgorithmSpecification=algorithm)).text("seen") == "0\n"


def test_a_program_starts_in_the_root_folder_without_terminal_or_input(probe):
    seen = probe()["algo-1"]
    assert seen["working folder"] == "/"
    assert seen["terminals"] == [False, False, False]
    assert seen["stdin"] == ""


def test_no_open_file_of_the_platform_is_handed_down(probe):
    # 3 is the listing itself.
    assert set(probe()["algo-1"]["open files"]) <= {0, 1, 2, 3}


def test_an_instance_sees_itself_as_root(probe):
    seen = probe()["algo-1"]
    assert (seen["user"], seen["group"], seen["owners"]) == (0, 0, [0])


def test_hostname_is_the_name_of_the_host(probe):
    seen = probe(instances=3)
    assert {host: look["hostname"] for host, look in seen.items()} == {f"algo-{i}": f"algo-{i}" for i in (1, 2, 3)}


def test_every_host_resolves_to_an_address_of_its_own_from_every_instance(probe):
    looks = list(probe(instances=3).values())
    addresses = looks[0]["addresses"]
    assert all(look["addresses"] == addresses for look in looks)
    assert len(set(addresses.values())) == 3


def test_only_the_instances_own_processes_are_seen(probe):
    for look in probe(instances=2).values():
        assert len(look["processes"]) <= 3, look["processes"]
        assert max(look["processes"]) < 100, "numbers of the machine's processes"


def test_tmp_is_empty_and_the_instances_own(yard):
    program = yard.sh("""
ls -A /tmp >/opt/ml/model/"tmp-$(hostname)"
echo mine >"/tmp/$(hostname)"
touch /opt/ml/model/"$(hostname)-has-$(ls /tmp | wc -l)"
""")
    files = yard.run(yard.job(program, instances=2)).files()
    assert (files["tmp-algo-1"], files["tmp-algo-2"]) == (b"", b"")
    assert {"algo-1-has-1", "algo-2-has-1"} <= files.keys()


def test_dev_shm_is_half_of_the_memory(probe):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shm = probe()["algo-1"]["shm"]
    assert memory * 0.45 <= shm <= memory * 0.55


def test_dev_shm_has_the_size_that_the_job_asks_for(yard):
    program = yard.python("""
import os
shm = os.statvfs("/dev/shm")
print(shm.f_blocks * shm.f_frsize)
""")
    assert yard.run(yard.job(program, Trainyard={"ShmSizeInGB": 3})).log() == [str(3 << 30)]


def test_dev_shm_is_writable_and_the_instances_own(yard):
    program = yard.sh("""
echo "$(hostname)" >/dev/shm/name
cp /dev/shm/name "/opt/ml/model/$(hostname)"
""")
    assert yard.run(yard.job(program, instances=2)).files() == {"algo-1": b"algo-1\n", "algo-2": b"algo-2\n"}


def test_opt_ml_is_private_to_each_instance(yard):
    gate = yard.gate()
    program = yard.sh("""
hostname >/opt/ml/model/same-name
echo written
until [ -s "$GATE" ]; do sleep 0.05; done
cp /opt/ml/model/same-name "/opt/ml/model/seen-by-$(hostname)"
rm /opt/ml/model/same-name
""")
    running = yard.start(yard.job(program, instances=2, Environment={"GATE": str(gate)}))
    running.wait_for_line("written")
    running.wait_for_line("written")
    gate.open()
    assert yard.ended(running).files() == {"seen-by-algo-1": b"algo-1\n", "seen-by-algo-2": b"algo-2\n"}


def test_nothing_of_opt_ml_appears_on_the_machine(yard):
    before = os.path.lexists("/opt/ml")
    yard.run(yard.job(yard.sh("echo 1 >/opt/ml/model/a")))
    assert os.path.lexists("/opt/ml") == before


def test_a_job_can_not_change_its_source_or_the_channel_of_another(yard):
    source = yard.put("in", "data/a.txt", "original")
    other = yard.put("in", "data/b.txt", "original")
    gate = yard.gate()
    program = yard.sh("""
if [ "$(hostname)" = algo-1 ]; then
    echo changed >>/opt/ml/input/data/data/a.txt
    rm -r /opt/ml/input/data/data/b.txt
    echo changed
fi
until [ -s "$GATE" ]; do sleep 0.05; done
cat /opt/ml/input/data/data/* >"/opt/ml/model/$(hostname)"
""")
    job = yard.job(program, instances=2, channels=[channel("data", "s3://in/data/")], Environment={"GATE": str(gate)})
    running = yard.start(job)
    running.wait_for_line("changed")
    gate.open()
    files = yard.ended(running).files()
    assert files == {"algo-1": b"originalchanged\n", "algo-2": b"originaloriginal"}
    assert (source.read_text(), other.read_text()) == ("original", "original")


def test_channel_files_can_be_made_executable(yard):
    yard.put("in", "tool.sh", "#!/bin/sh\necho ran >/opt/ml/model/ran\n")
    program = yard.sh("chmod +x /opt/ml/input/data/code/tool.sh && /opt/ml/input/data/code/tool.sh")
    assert yard.run(yard.job(program, channels=[channel("code", "s3://in")])).text("ran") == "ran\n"


def test_input_folder_is_writable(yard):
    program = yard.sh("echo x >/opt/ml/input/sm_training.env && mkdir /opt/ml/code && echo 1 >/opt/ml/model/done")
    assert yard.run(yard.job(program)).text("done") == "1\n"


def test_what_a_program_changes_elsewhere_is_thrown_away(yard):
    kept = yard.file("home/kept", "original")
    removed = yard.file("home/removed", "original")
    program = yard.sh('set -e; echo changed >"$KEPT"; rm "$REMOVED"; cat "$KEPT" >/opt/ml/model/seen')
    job = yard.job(program, Environment={"KEPT": str(kept), "REMOVED": str(removed)})
    assert yard.run(job).text("seen") == "changed\n"
    assert (kept.read_text(), removed.read_text()) == ("original", "original")


def test_folders_of_others_are_writable_for_root_alone(yard):
    program = yard.sh("echo x >/usr/share/trainyard-test && echo written || echo refused")
    ended = yard.run(yard.job(program))
    assert ended.log(stream="stdout") == ["written" if yard.uid == 0 else "refused"]
    assert yard.uid == 0 or "Read-only file system" in ended.log(stream="stderr")[0]
    assert not Path("/usr/share/trainyard-test").exists()


def test_everything_left_belongs_to_the_submitting_user(yard):
    program = yard.sh("""
mkdir -p /opt/ml/model/closed
echo 1 >/opt/ml/model/closed/file
chmod 000 /opt/ml/model/closed/file /opt/ml/model/closed
echo 1 >/opt/ml/output/data/file
""")
    ended = yard.run(yard.job(program))
    assert ended.files()["closed/file"] == b"1\n"
    owners = {path.lstat().st_uid for path in [*yard.data.rglob("*"), *yard.bucket("results").rglob("*")]}
    assert owners == {yard.uid}
