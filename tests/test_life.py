"""How instances and jobs end: well, badly, by order, and in which words."""

import signal as signals
import time
from pathlib import Path

import pytest
from yard import AS_ROOT, DEADLINE, PYTHON, channel, wait_until

WAIT = 'until [ -s "$GATE" ]; do sleep 0.05; done'

OK, FAILED, STOPPED, TIMED_OUT = 0, 10, 11, 12

pytestmark = pytest.mark.every_user


def test_a_job_that_works_passes_through_the_usual_statuses(yard):
    yard.put("in", "a", "1")
    ended = yard.run(yard.job(yard.sh("echo 1 >/opt/ml/model/a"), channels=[channel("data", "s3://in")]))
    assert ended.secondary_statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert ended.ended["status"] == "Completed"
    assert ended.ended["failure_reason"] is None
    assert ended.ended["exit_code"] == OK
    messages = [event["message"] for event in ended.of_kind("transition")]
    assert all(messages)
    assert "Training image download completed. Training in progress." in messages


def test_an_instance_that_is_done_does_not_shorten_another(yard):
    gate = yard.gate()
    program = yard.sh(f"""
if [ "$(hostname)" = algo-2 ]; then
    echo waiting
    {WAIT}
    sleep 2
fi
hostname >"/opt/ml/model/part-$(hostname)"
echo done
""")
    running = yard.start(yard.job(program, instances=2, Environment={"GATE": str(gate)}))
    running.wait_for_line("waiting", "algo-2")
    running.wait_for_line("done", "algo-1")
    gate.open()
    assert yard.ended(running).files() == {"part-algo-1": b"algo-1\n", "part-algo-2": b"algo-2\n"}


@pytest.fixture
def one_of_three_fails(yard):
    """algo-1 is done, algo-3 would go on for ever, and then algo-2 fails; also the seconds from there to the end."""
    gate = yard.gate()
    program = yard.sh(f"""
case $(hostname) in
algo-1) echo part >/opt/ml/model/part-algo-1; echo ready ;;
algo-2) echo ready; {WAIT}; echo half >/opt/ml/model/part-algo-2; echo the cause is here >&2; exit 3 ;;
algo-3) echo ready; exec sleep 1000 ;;
esac
""")
    running = yard.start(yard.job(program, instances=3, Environment={"GATE": str(gate)}), "--grace", "1")
    for _ in range(3):
        running.wait_for_line("ready")
    gate.open()
    opened = time.monotonic()
    ended = yard.ended(running, expect=FAILED)
    return ended, time.monotonic() - opened


def test_the_first_to_fail_ends_the_job_within_grace_and_five_seconds(one_of_three_fails):
    ended, seconds = one_of_three_fails
    assert ended.ended["status"] == "Failed"
    assert seconds < 1 + 5


def test_the_reason_names_the_host_that_failed_and_its_exit_code_and_no_other(one_of_three_fails):
    ended, _ = one_of_three_fails
    assert "algo-2" in ended.reason
    assert "exit code: 3" in ended.reason
    assert "algo-1" not in ended.reason
    assert "algo-3" not in ended.reason


def test_a_failed_job_has_its_archive_with_all_that_was_written(one_of_three_fails):
    ended, _ = one_of_three_fails
    assert ended.files() == {"part-algo-1": b"part\n", "part-algo-2": b"half\n"}
    assert ended.secondary_statuses[-2:] == ["Uploading", "Failed"]


def test_the_failure_file_is_the_reason(yard):
    program = yard.sh("echo wrong matrix >/opt/ml/output/failure; echo noise >&2; exit 4")
    ended = yard.run(yard.job(program), expect=FAILED)
    assert ended.reason.startswith("AlgorithmError: wrong matrix")
    assert "exit code: 4" in ended.reason
    assert "noise" not in ended.reason


def test_without_a_failure_file_the_last_error_lines_are_the_reason(yard):
    program = yard.sh("echo out; for i in 1 2 3; do echo error line $i >&2; done; exit 1")
    ended = yard.run(yard.job(program), expect=FAILED)
    assert "error line 3" in ended.reason
    assert "algo-1" in ended.reason
    assert "exit code: 1" in ended.reason


def test_an_empty_failure_file_counts_as_none(yard):
    program = yard.sh(": >/opt/ml/output/failure; echo the last words >&2; exit 1")
    assert "the last words" in yard.run(yard.job(program), expect=FAILED).reason


def test_a_failure_file_of_a_job_that_works_is_passed_over(yard):
    ended = yard.run(yard.job(yard.sh("echo never mind >/opt/ml/output/failure")))
    assert ended.ended["failure_reason"] is None


def test_a_reason_has_at_most_1024_characters_and_keeps_host_and_exit_code(yard):
    program = yard.python("open('/opt/ml/output/failure', 'w').write('é' * 5000); raise SystemExit(7)")
    reason = yard.run(yard.job(program), expect=FAILED).reason
    assert len(reason) == 1024
    assert "éééé" in reason
    assert "�" not in reason
    assert "exit code: 7" in reason
    assert "algo-1" in reason


def test_a_failure_file_of_any_bytes_gives_a_reason(yard):
    program = yard.sh(r"printf 'bad \377 byte' >/opt/ml/output/failure; exit 1")
    assert "bad � byte" in yard.run(yard.job(program), expect=FAILED).reason


@pytest.mark.parametrize(("signal", "code"), [("SEGV", 139), ("ILL", 132), ("KILL", 137), ("TERM", 143)])
def test_death_by_a_signal_is_a_failure_that_names_it(yard, signal, code):
    ended = yard.run(yard.job(yard.sh(f"echo 1 >/opt/ml/model/a; kill -{signal} $$")), expect=FAILED)
    assert f"SIG{signal}" in ended.reason
    assert f"exit code: {code}" in ended.reason


@pytest.mark.host("an image without train is refused before it starts")
def test_a_missing_program_is_told_apart_and_the_path_is_shown(yard):
    folder = yard.sh("exit 0", "other-name").parent
    ended = yard.run(yard.job(f"host:{folder}"), expect=FAILED)
    assert "not found" in ended.reason
    assert str(folder) in ended.reason, "the PATH that was searched"
    assert "exit code: 127" in ended.reason


def test_a_program_that_is_not_executable_is_told_apart(yard):
    program = yard.sh("exit 0")
    program.chmod(0o644)
    ended = yard.run(yard.job(program), expect=FAILED)
    assert "not executable" in ended.reason
    assert "exit code: 126" in ended.reason


def test_a_missing_interpreter_is_told_apart_and_named(yard):
    program = yard.program("#!/no/such/interpreter\n")
    ended = yard.run(yard.job(program), expect=FAILED)
    assert "/no/such/interpreter" in ended.reason
    assert "interpreter" in ended.reason.replace("/no/such/interpreter", "")


def test_a_program_without_a_first_line_for_its_interpreter_is_told_apart(yard):
    program = yard.program("echo hello\n")
    ended = yard.run(yard.job(program), expect=FAILED)
    assert "#!" in ended.reason


@pytest.mark.skipif(not AS_ROOT, reason="only root can make a small disk")
def test_a_full_disk_is_named(yard):
    yard.data = yard.mount_small_disk("4m")
    program = yard.sh("dd if=/dev/zero of=/opt/ml/model/big bs=1M count=20 || exit 1")
    ended = yard.run(yard.job(program), expect=FAILED)
    assert "No space left on device" in ended.reason or "disk full" in ended.reason.lower()


def test_processes_of_an_instance_die_with_it(yard):
    program = yard.sh("setsid sleep 1000 & echo 1 >/opt/ml/model/a")
    ended = yard.run(yard.job(program))
    assert ended.seconds < 30, "the instance waited for what it had left running"
    assert list(yard.leftovers()) == []


STOPPABLE = """
trap 'echo parent >/opt/ml/model/parent; exit 5' TERM
setsid sh -c "trap 'echo child >/opt/ml/model/child; exit 0' TERM; echo child ready; while :; do sleep 0.1; done" &
echo parent ready
while :; do sleep 0.1; done
"""


def test_a_stop_reaches_every_process_and_archives_what_they_wrote(yard):
    running = yard.start(yard.job(yard.sh(STOPPABLE)))
    ready = {"child ready", "parent ready"}
    while ready:
        event, _ = running.wait_for(lambda event: event["event"] == "log" and event["line"] in ready, ready)
        ready.discard(event["line"])
    running.interrupt()
    ended = yard.ended(running, expect=STOPPED)
    assert ended.files() == {"parent": b"parent\n", "child": b"child\n"}
    assert ended.ended["status"] == "Stopped"
    assert ended.ended["failure_reason"] is None, "how a stopped program ends does not matter"
    assert "Stopping" in ended.secondary_statuses
    assert ended.secondary_statuses[-1] == "Stopped"


def test_after_the_grace_an_instance_is_killed(yard):
    running = yard.start(yard.job(yard.sh("trap '' TERM; echo ready; while :; do sleep 0.1; done")), "--grace", "1")
    running.wait_for_line("ready")
    asked = time.monotonic()
    running.interrupt()
    ended = yard.ended(running, expect=STOPPED)
    assert 1 <= time.monotonic() - asked < 1 + 5
    assert ended.ended["status"] == "Stopped"


FILE_SYSTEM_THAT_HANGS = """
import ctypes, os, sys
device = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(device, True)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"trainyard-test", b"/srv", b"fuse", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.host("an image shows no folder of the machine that could hang")
def test_a_stop_ends_an_instance_that_hangs_before_its_program_runs(yard):
    if not AS_ROOT or not Path("/dev/fuse").exists() or not Path("/srv").exists():
        pytest.skip("only root can mount a file system that hangs, and only where the kernel has FUSE")
    yard.set_aside = ["unshare", "--mount", PYTHON, "-c", FILE_SYSTEM_THAT_HANGS]
    running = yard.start(yard.job(yard.sh("echo never")))

    def hangs(process):
        try:
            return b"instance-init" in (process / "cmdline").read_bytes() and b"/srv fuse" in (process / "mounts").read_bytes()
        except OSError:
            return False

    # One process of the instance waits for the other, and that one for the file system.
    wait_until(lambda: len([process for process in Path("/proc").glob("[0-9]*") if hangs(process)]) == 2, "both")
    running.interrupt()
    ended = yard.ended(running, expect=11)
    assert ended.log() == [] and ended.seconds < DEADLINE


def test_a_second_interrupt_kills(yard):
    running = yard.start(yard.job(yard.sh("trap '' TERM; echo ready; while :; do sleep 0.1; done")))
    running.wait_for_line("ready")
    running.interrupt()
    running.wait_for_status("Stopping")
    running.interrupt()
    ended = running.end(deadline=20)
    assert ended.exit_code == STOPPED, ended


def test_sigterm_stops_a_job_like_an_interrupt(yard):
    running = yard.start(yard.job(yard.sh("echo 1 >/opt/ml/model/a; echo ready; exec sleep 1000")))
    running.wait_for_line("ready")
    running.process.terminate()
    assert yard.ended(running, expect=STOPPED).files() == {"a": b"1\n"}


def test_a_closed_terminal_stops_a_job_like_an_interrupt(yard):
    running = yard.start(yard.job(yard.sh("echo up; exec sleep 1000")))
    running.wait_for_line("up")
    running.process.send_signal(signals.SIGHUP)
    assert yard.ended(running, expect=STOPPED).ended["status"] == "Stopped"
    assert yard.leftovers() == []


def test_a_job_under_nohup_outlives_its_terminal(yard):
    gate = yard.gate()
    job = yard.job(yard.sh(f"echo up; {WAIT}"), Environment={"GATE": str(gate)})
    running = yard.start(job, before=["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"])
    running.wait_for_line("up")
    running.process.send_signal(signals.SIGHUP)
    gate.open()
    assert yard.ended(running).ended["status"] == "Completed"


def test_signals_that_the_submitter_ignores_mean_to_the_program_what_they_always_do(yard):
    program = yard.sh("trap 'echo told >/opt/ml/model/a; exit 0' HUP\nkill -HUP $$\nexit 3\n")
    running = yard.start(yard.job(program), before=["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"])
    assert yard.ended(running).text("a") == "told\n"


def test_a_job_that_can_not_be_shown_goes_on_to_its_end(yard):
    yard.put("in", "a", "1")
    job = yard.job(yard.sh("echo 1 >/opt/ml/model/a"), channels=[channel("data", "s3://in")])
    running = yard.start(job, before=["sh", "-c", "exec \"$@\" >/dev/full", "sh"])
    ended = running.end()
    assert ended.exit_code == 1
    assert "can't be shown" in ended.stderr and "No space left" in ended.stderr
    assert list(yard.bucket("results").rglob("model.tar.gz"))
    assert yard.leftovers() == []


def test_a_job_that_exceeds_its_time_is_stopped_and_says_so(yard):
    job = yard.job(
        yard.sh("echo 1 >/opt/ml/model/a; exec sleep 60"), StoppingCondition={"MaxRuntimeInSeconds": 2}
    )
    ended = yard.run(job, expect=TIMED_OUT)
    assert ended.ended["status"] == "Stopped"
    assert ended.secondary_statuses[-1] == "MaxRuntimeExceeded"
    assert ended.files() == {"a": b"1\n"}
    assert 2 <= ended.seconds < 2 + 5


def test_a_second_interrupt_ends_packing_too(yard):
    program = yard.sh("head -c 200000000 /dev/urandom | base64 >/opt/ml/model/big")
    running = yard.start(yard.job(program))
    running.wait_for(lambda event: event["event"] == "exited", "the program's end")
    running.interrupt()
    running.wait_for_status("Stopping")
    running.interrupt()
    ended = yard.ended(running, expect=STOPPED)
    assert ended.ended["model"] is None, "packing went on to its end"


@pytest.mark.host("its second attempt looks at a file of the machine from its start")
def test_a_resumed_job_starts_only_what_had_not_ended_well(yard):
    verdict = yard.file("verdict")
    program = yard.sh("""
date +%N >"/opt/ml/model/part-$(hostname)"
echo ran
[ "$(hostname)" = algo-1 ] && exit 0
until [ -s "$VERDICT" ]; do sleep 0.05; done
sleep 2
grep -q works "$VERDICT"
""")
    job = yard.job(program, instances=2, Environment={"VERDICT": str(verdict)})
    running = yard.start(job)
    running.wait_for_line("ran", "algo-1")
    verdict.write_text("fails")
    first = yard.ended(running, expect=FAILED).files()
    verdict.write_text("works")
    second = yard.run(job, "--resume")
    assert second.log("algo-1") == []
    assert second.log("algo-2") == ["ran"]
    assert second.files()["part-algo-1"] == first["part-algo-1"]
    assert second.files()["part-algo-2"] != first["part-algo-2"]


def test_twenty_jobs_leave_no_scratch(yard):
    program = yard.sh("head -c 1000000 /dev/zero >/opt/ml/model/a; head -c 1000000 /dev/zero >/tmp/b")
    for _ in range(20):
        yard.run(yard.job(program))
    size = sum(path.stat().st_size for path in yard.data.rglob("*") if path.is_file())
    assert size < 20 * 500_000, "twenty models of 1 MB each are kept somewhere"


@pytest.mark.skipif(not AS_ROOT, reason="only root can take the network away from a command")
def test_a_job_needs_neither_network_nor_account(yard):
    yard.put("in", "a", "1")
    job = yard.job(yard.sh("cp /opt/ml/input/data/data/a /opt/ml/model/"), channels=[channel("data", "s3://in")])
    assert yard.run(job, offline=True).files() == {"a": b"1"}
