"""`trainyard top`: the jobs that run and their instances."""

import json
import os
import pty
import signal
import subprocess
import threading

import pytest
import yard as yards
from endpoint import Endpoint

pytestmark = pytest.mark.one_user


@pytest.fixture
def busy(yard):
    """An endpoint with a job of two instances that compute until the gate is open, and one that has ended."""
    endpoint = Endpoint(yard, "--max-instances", "4")
    gate = yard.gate()
    text = f"""
        echo "$(hostname) is busy"
        until [ -s {gate} ]; do :; done
        """
    jobs = [yard.job(yard.sh(text), instances=2, TrainingJobName="busy"), yard.job(yard.sh("true"), TrainingJobName="ended")]
    yard.give_away(data=False)
    yard.command("submit", "-", "--data-dir", yard.data, stdin=json.dumps(jobs[0]))
    yard.command("submit", "-", "--wait", "--data-dir", yard.data, stdin=json.dumps(jobs[1]))
    yield endpoint
    gate.open()
    yard.command("wait", "busy", "--data-dir", yard.data)
    endpoint.stop()


def looks(yard, *flags):
    said = yard.command("top", "--once", "--json", "--data-dir", yard.data, *flags).stdout
    return [json.loads(line) for line in said.splitlines()]


def test_instances_are_shown_with_what_they_take_and_wrote_last(yard, busy):
    def measured():
        (job,) = looks(yard)
        hosts = job["Instances"]
        known = all(host["CPUUtilization"] is not None and host["LastLine"] for host in hosts)
        return job if known else None

    job = yards.wait_until(measured, "the metrics and lines of both instances")
    assert (job["TrainingJobName"], job["SecondaryStatus"]) == ("busy", "Training")
    assert [(host["Host"], host["LastLine"]) for host in job["Instances"]] == [
        (f"algo-{n}", f"algo-{n} is busy") for n in (1, 2)
    ]
    assert all(host["CPUUtilization"] > 1 for host in job["Instances"])
    lines = yard.command("top", "--once", "--data-dir", yard.data).stdout.splitlines()
    assert lines[0].split() == ["JOB", "STATUS", "TIME", "CPU", "MEMORY", "LAST"]
    assert [line.split()[0] for line in lines[1:]] == ["busy", "algo-1", "algo-2"]
    assert looks(yard, "nothing-of-this-name") == []


def test_the_table_is_renewed_in_place_until_an_interrupt(yard, busy):
    ours, theirs = pty.openpty()
    command = [yard.binary, "top", "--interval", "1", "--data-dir", yard.data]
    environment = {**yard.environment, "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, **yard.identity)
    os.close(theirs)
    said = bytearray()

    def listen():
        try:
            while piece := os.read(ours, 1 << 16):
                said.extend(piece)
        except OSError:
            pass

    thread = threading.Thread(target=listen)
    thread.start()
    yards.wait_until(lambda: said.count(b"JOB ") >= 2, "a second table")
    assert b"\x1b[" in said and b"algo-2" in said
    process.send_signal(signal.SIGINT)
    assert process.wait(yards.DEADLINE) == 0
    thread.join(yards.DEADLINE)
    os.close(ours)
