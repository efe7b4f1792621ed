"""Every line of every instance, whatever its bytes, in time, and the metrics in them."""

import re
import time
from pathlib import Path

import pytest
from yard import wait_until


@pytest.mark.every_user
def test_every_line_of_both_streams_is_kept_in_order(yard):
    program = yard.python("""
import sys
for number in range(2000):
    print("out", number)
    print("error", number, file=sys.stderr)
""")
    ended = yard.run(yard.job(program, instances=2))
    for host in ("algo-1", "algo-2"):
        assert ended.log(host, "stdout") == [f"out {number}" for number in range(2000)]
        assert ended.log(host, "stderr") == [f"error {number}" for number in range(2000)]


def test_the_last_line_is_kept_without_a_newline(yard):
    assert yard.run(yard.job(yard.sh("printf 'first\\nlast'"))).log() == ["first", "last"]


def test_the_last_words_of_a_failing_program_are_kept(yard):
    ended = yard.run(yard.job(yard.sh("printf 'out of ideas' >&2; exit 1")), expect=10)
    assert ended.log(stream="stderr") == ["out of ideas"]


def test_bytes_that_are_no_text_are_shown_and_harm_nothing(yard):
    program = yard.sh(r"printf 'a\377b\n\300\200\n\0c\n'; echo still here")
    ended = yard.run(yard.job(program))
    lines = ended.log()
    assert lines[0] == "a�b"
    assert set(lines[1]) == {"�"}
    assert lines[2].endswith("c")
    assert lines[3] == "still here"


def test_an_empty_line_is_a_line(yard):
    assert yard.run(yard.job(yard.sh(r"printf 'a\n\nb\n'"))).log() == ["a", "", "b"]


def test_a_very_long_line_loses_nothing(yard):
    program = yard.python("print('x' * 3_000_000); print('end')")
    ended = yard.run(yard.job(program))
    assert sum(line.count("x") for line in ended.log()) == 3_000_000
    assert ended.log()[-1] == "end"


def test_a_line_is_shown_within_a_second(yard):
    gate = yard.gate()
    program = yard.python(f"""
import os, threading, time
print(time.time(), flush=True)
while not os.path.exists({str(gate)!r}) or not os.path.getsize({str(gate)!r}):
    threading.Event().wait(0.05)
""")
    running = yard.start(yard.job(program))
    event, _ = running.wait_for(lambda event: event["event"] == "log", "a line")
    shown = time.time()
    gate.open()
    yard.ended(running)
    assert shown - float(event["line"]) < 1


def test_times_of_lines_do_not_run_backwards(yard):
    program = yard.sh("for i in 1 2 3 4 5; do echo $i; sleep 0.01; done")
    times = [event["at"] for event in yard.run(yard.job(program)).of_kind("log")]
    assert times == sorted(times)


def metric_job(yard, program, **definitions):
    algorithm = {
        "TrainingImage": yard.image(program),
        "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": name, "Regex": regex} for name, regex in definitions.items()],
    }
    return yard.job("", AlgorithmSpecification=algorithm)


@pytest.mark.parametrize(
    ("text", "value"), [("7E-5", 0.00007), ("1.2e+32", 1.2e32), ("-3", -3.0), (".5", 0.5), ("12", 12.0)]
)
def test_a_metric_is_the_whole_text_of_its_group(yard, text, value):
    ended = yard.run(metric_job(yard, yard.sh(f"echo 'loss={text};'"), loss="loss=(.*?);"))
    (metric,) = ended.of_kind("metric")
    assert (metric["name"], metric["value"]) == ("loss", value)


def test_a_capture_that_is_no_number_is_skipped_counted_and_shown(yard):
    program = yard.sh("for i in 1 2 3; do echo 'loss=dog;'; done; echo 'loss=nan;'; echo 'loss=1;'")
    ended = yard.run(metric_job(yard, program, loss="loss=(.*?);"))
    assert [metric["value"] for metric in ended.of_kind("metric")] == [1.0]
    (warning,) = [text for text in ended.warnings if "loss" in text]
    assert "4" in warning, "how many"
    assert "dog" in warning, "one of them"


def memory_peak(pid):
    """Bytes that a process has used at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10


@pytest.mark.every_user
def test_a_job_that_writes_very_much_can_be_stopped_and_fills_no_memory(yard):
    running = yard.start(yard.job(yard.sh("echo up; yes $(printf %01000d) | head -c 300000000; exec sleep 1000")), "--grace", "0")
    running.wait_for_line("up")
    [log] = yard.data.rglob("log.jsonl")
    wait_until(lambda: log.stat().st_size > 64 << 20, "a long log")
    # Before the end, at which the process has no memory left to be measured.
    assert memory_peak(running.process.pid) < 64 << 20
    running.interrupt()
    running.wait_for_status("Stopping")
    assert yard.ended(running, expect=11).ended["status"] == "Stopped"
