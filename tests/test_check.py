"""`trainyard check`: images that keep the contract pass each line, and one that does not fails the line about it."""

import json

import pytest
from images import base, docker_archive, layer
from yard import channel, wait_until

pytestmark = pytest.mark.one_user

# Handles SIGTERM, says why it fails, ends well with an empty channel, and takes a while.
GOOD = """
trap 'echo stopped > /opt/ml/model/partial; exit 0' TERM
fail() { echo "$1" > /opt/ml/output/failure; exit 3; }
[ -e /opt/ml/input/config/hyperparameters.json ] || fail "no configuration"
i=0; while [ $i -lt 18 ]; do sleep 0.05; i=$((i + 1)); done
cat /etc/hostname > "/opt/ml/model/part-$(cat /etc/hostname)"
"""

PASSING = ["architecture", "size", "entrypoint", "program", "user", "job", "model", "hyperparameters", "empty-shard",
           "sigterm", "exit-code", "failure-file", "writes"]


@pytest.fixture
def check(yard):
    """Checks an image with a `train` in shell language; its findings by what they are about."""

    def run(train=GOOD, *flags, programs=None, layers=(), expect=None, architecture=None, **config):
        programs = programs or {"usr/bin/train": "#!/bin/sh\n" + train}
        path = yard.root / "image.tar"
        docker_archive(path, [base(), layer(programs=programs), *layers], architecture=architecture, **config)
        return checked(yard, f"docker-archive:{path}", *flags, expect=expect)

    return run


def checked(yard, image, *flags, expect=None):
    """Runs the command; its findings."""
    ended = yard.command("check", image, "--data-dir", yard.data, "--json", *flags, expect=expect)
    answer = json.loads(ended.stdout)
    assert ended.exit_code == (10 if answer["verdict"] == "fail" else 0), ended
    assert [path.name for path in yard.data.iterdir()] == ["images"] or image.startswith("host:")
    return {finding["about"]: (finding["verdict"], finding["text"]) for finding in answer["findings"]}


def data(yard, *flags):
    """Flags that give the job a channel and a hyperparameter."""
    yard.put("in", "rows/a", "1")
    return "--channel", f"data={yard.bucket('in')}/rows", "--hyperparameter", "epochs=1", *flags


@pytest.mark.every_user
def test_an_image_that_keeps_the_contract_passes_every_line(yard, check):
    found = check(GOOD, *data(yard), expect=0)
    assert list(found) == PASSING
    assert {about: text for about, (verdict, text) in found.items() if verdict != "pass"} == {}


def test_findings_are_lines_that_say_what_to_change(yard):
    docker_archive(yard.root / "image.tar", [base(), layer({"usr/bin/train": "#!/bin/sh\n"})])
    ended = yard.command("check", f"docker-archive:{yard.root}/image.tar", "--data-dir", yard.data, expect=10)
    lines = ended.stdout.splitlines()
    assert lines[3] == "fail     program          /usr/bin/train is not executable: RUN chmod +x /usr/bin/train"
    assert "failed" in lines[-1] and "could not be told" in lines[-1]


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"usr/bin/other": "#!/bin/sh\n"}, "no program \"train\""),
        ({"usr/bin/train": "#!/usr/bin/bash\n"}, "\"/usr/bin/bash\""),
        ({"usr/bin/train": "#!/bin/env python3\n"}, "\"python3\""),
        ({"usr/bin/train": "#!/bin/sh\r\n"}, "line ends of Unix"),
    ],
)
def test_a_program_that_can_not_be_started_fails(check, programs, said):
    verdict, text = check(programs=programs)["program"]
    assert verdict == "fail" and said in text


def test_an_image_for_another_processor_fails(check):
    assert check(architecture="s390x")["architecture"][0] == "fail"


def test_a_program_for_another_processor_fails(check):
    elf = bytearray(b"\x7fELF\x02\x01\x01" + bytes(57))
    elf[18:20] = (22).to_bytes(2, "little")
    found = check(programs={"usr/bin/train": bytes(elf)})
    assert found["architecture"][0] == "fail" and "s390x" in found["architecture"][1]
    assert found["program"][0] == "fail"


def test_the_shell_form_of_entrypoint_fails(check):
    wrapped = {"work": "#!/bin/sh\n" + GOOD}
    found = check(programs=wrapped, Entrypoint=["/bin/sh", "-c", "/work; echo done"])
    assert found["entrypoint"][0] == "fail" and "write a list" in found["entrypoint"][1]
    assert check(programs=wrapped, Entrypoint=["/bin/sh", "-c", "exec /work"])["entrypoint"][0] == "warning"


@pytest.mark.every_user
def test_a_user_that_is_not_root_is_warned_of_or_could_not_be_tried(yard, check):
    verdict, text = check(User="fit")["user"]
    if yard.uid == 0:
        assert verdict == "warning" and "user id 1000" in text
    else:
        assert verdict in ("unknown", "warning")


def test_a_made_up_job_that_fails_is_not_held_against_the_image(check):
    found = check('echo "no channel called rows" >&2; exit 1')
    assert found["job"][0] == "unknown" and "no channel called rows" in found["job"][1]
    assert found["exit-code"] == ("pass", "a failure ends with 1")


def test_a_given_job_that_fails_fails(yard, check):
    found = check("exit 4", *data(yard))
    assert found["job"][0] == "fail" and "exit code: 4" in found["job"][1]


def test_a_job_file_is_run_with_the_image(yard, check):
    yard.put("in", "rows/a", "1")
    job = yard.job("team/other", instances=3, channels=[channel("data", "s3://in/rows", "ShardedByS3Key")],
                   HyperParameters={"epochs": "1"})
    path = yard.file("job.json", json.dumps(job))
    one_row = 'set -- /opt/ml/input/data/data/*\n[ -e "$1" ] || { echo none > /opt/ml/output/failure; exit 5; }\n'
    found = check(one_row + GOOD, "--job", path, *yard.bucket_flags())
    assert found["job"][0] == "fail", "two of three instances have no object"
    yard.put("in", "rows/b", "1")
    yard.put("in", "rows/c", "1")
    found = check(one_row + GOOD, "--job", path, *yard.bucket_flags())
    assert found["job"][0] == "pass" and "3 instances" in found["job"][1]
    assert found["empty-shard"][0] == "fail" and "ends with 5 (none)" in found["empty-shard"][1]
    assert list(yard.bucket("results").iterdir()) == [], "something was published"


def test_a_program_that_writes_no_model_is_warned_of(check):
    assert check("true")["model"][0] == "warning"


def test_hyperparameters_that_only_work_as_numbers_fail(yard, check):
    train = """
case "$(cat /opt/ml/input/config/hyperparameters.json)" in *\\"1\\"*) exit 1;; esac
echo > /opt/ml/model/m
"""
    assert check(train, "--hyperparameter", "epochs=1")["hyperparameters"][0] == "fail"
    assert check(GOOD, "--hyperparameter", "epochs=1")["hyperparameters"][0] == "pass"


def test_an_empty_channel_that_is_not_dealt_out_is_warned_of(yard, check):
    found = check("set -- /opt/ml/input/data/data/*\n[ -e $1 ]\n", *data(yard))
    assert found["empty-shard"][0] == "warning" and "ends with 1" in found["empty-shard"][1]


WRAPPER = {"usr/bin/train": "#!/bin/sh\n/work\necho done\n", "work": "#!/bin/sh\n" + GOOD}


def test_sigterm_that_a_wrapper_does_not_pass_on_fails(check):
    verdict, text = check(programs=WRAPPER)["sigterm"]
    assert verdict == "fail" and "does not pass SIGTERM on to \"/bin/sh /work\"" in text


def test_sigterm_that_a_wrapper_passes_on_passes(check):
    passing = "#!/bin/sh\n/work & work=$!\ntrap 'kill $work; wait $work; exit 0' TERM\nwait $work\n"
    found = check(programs={**WRAPPER, "usr/bin/train": passing})
    assert found["sigterm"][0] == "pass"
    assert found["exit-code"][0] == "pass"


def test_a_program_that_does_not_end_after_sigterm_fails(check):
    found = check("trap 'echo ignored' TERM\n" + GOOD.replace("trap", ":") + "sleep 2\n", "--grace", "1")
    assert found["sigterm"][0] == "fail" and "still ran" in found["sigterm"][1]


def test_a_program_that_does_not_handle_sigterm_is_warned_of(check):
    assert check(GOOD.replace("trap", ":"))["sigterm"][0] == "warning"


def test_an_exit_code_that_a_wrapper_swallows_fails(check):
    verdict, text = check(programs=WRAPPER)["exit-code"]
    assert verdict == "fail" and "no configuration" in text
    silent = {**WRAPPER, "work": "#!/bin/sh\n" + GOOD.replace('echo "$1" >', ": >")}
    verdict, text = check(programs=silent)["exit-code"]
    assert verdict == "fail" and "was killed" in text


def test_a_failure_file_that_is_not_written_is_warned_of(check):
    assert check(GOOD.replace('echo "$1" >', ": >"))["failure-file"][0] == "warning"


def test_files_that_are_written_elsewhere_are_named(check):
    found = check(GOOD + "mkdir -p /root/.cache; echo > /root/.cache/x; echo > /etc/passwd; rm /bin/wc")
    assert found["writes"][0] == "warning"
    assert "also /bin/, /etc/passwd, /root/.cache/x" in found["writes"][1].replace("/bin,", "/bin/,")


def test_a_program_that_takes_too_long_could_not_be_told(check):
    found = check("sleep 30", "--timeout", "1", "--grace", "1")
    assert found["job"][0] == "unknown" and "--timeout" in found["job"][1]


@pytest.mark.every_user
def test_a_program_of_the_machine_is_checked_too(yard):
    found = checked(yard, f"host:{yard.sh(GOOD)}")
    assert list(found) == PASSING[5:-1]
    assert found["sigterm"][0] == found["exit-code"][0] == "pass"


def test_an_image_that_is_not_there_could_not_be_checked(yard):
    ended = yard.command("check", f"docker-archive:{yard.root}/none.tar", "--data-dir", yard.data, expect=2)
    assert "none.tar" in ended.stderr


@pytest.mark.every_user
def test_an_interrupt_ends_the_check_and_leaves_nothing(yard):
    running = yard.begin("check", f"host:{yard.sh('sleep 60')}", "--data-dir", yard.data)
    wait_until(lambda: any(yard.data.glob("check-*/jobs/runs/check/attempt-1/instances/*")), "the first job")
    running.interrupt()
    ended = running.end()
    assert ended.exit_code == 1 and "interrupted" in ended.stderr
    assert not list(yard.data.glob("check-*"))


@pytest.mark.every_user
def test_what_a_killed_check_has_left_is_removed_by_the_next(yard):
    running = yard.begin("check", f"host:{yard.sh('sleep 1000')}", "--data-dir", yard.data)
    wait_until(lambda: any(yard.data.glob("check-*/jobs/runs/check/attempt-1/instances/*/scratch/ml")), "the first job")
    running.process.kill()
    running.end()
    assert list(yard.data.glob("check-*"))
    # What still runs of the first would be found by the yard.
    checked(yard, f"host:{yard.sh('exit 3')}")
    assert not list(yard.data.glob("check-*"))
