"""`trainyard gc`: what is removed, and what stays."""

import json
import os
import signal

import pytest
import yard as yards

pytestmark = pytest.mark.one_user


def gc(yard, *flags):
    ended = yard.command("gc", "--data-dir", yard.data, "--json", *flags)
    return json.loads(ended.stdout)


def test_objects_that_are_kept_are_removed_beyond_what_may_be_kept(far):
    for i in range(4):
        far.put(f"in/{i}", b"x" * 1000)
    program = far.yard.sh("cat /opt/ml/input/data/in/* | wc -c > /opt/ml/model/count\n")
    far.run(far.yard.job(program, channels=[yards.channel("in", f"s3://{far.bucket}/in/")]))
    config = far.config(more="[cache]\nmax = '2500'")
    assert gc(far.yard, "--config", config, "--dry-run")["cache"] == {"objects": 2, "bytes": 2000}
    assert gc(far.yard, "--config", config)["cache"] == {"objects": 2, "bytes": 2000}
    assert gc(far.yard, "--config", config)["cache"] == {"objects": 0, "bytes": 0}
    assert gc(far.yard, "--whole-cache")["cache"] == {"objects": 2, "bytes": 2000}


def test_what_killed_processes_have_left_is_removed_and_what_runs_is_left_alone(yard):
    gate = yard.gate()
    program = yard.sh(f"echo content > /opt/ml/model/x\nwhile [ ! -s {gate} ]; do sleep 0.05; done\n")
    running = yard.start(yard.job(program))
    running.wait_for_status("Training")
    assert gc(yard)["scratch"]["files"] == 0
    for folder in yards.Path("/proc").glob("[0-9]*"):
        # The driver and all that it has started.
        if str(yard.root) in yards._command_line(folder):
            os.kill(int(folder.name), signal.SIGKILL)
    running.process.wait()
    left = yards.wait_until(lambda: gc(yard, "--dry-run")["scratch"]["files"], "the end of the supervisor")
    removed = gc(yard)["scratch"]
    assert removed["files"] == left > 0
    assert gc(yard)["scratch"] == {"files": 0, "bytes": 0}


def test_jobs_that_ended_long_ago_are_forgotten_if_that_is_asked_for(yard):
    yard.run(yard.job(yard.sh("echo hello > /opt/ml/model/x\n")))
    assert gc(yard)["jobs"]["names"] == []
    assert gc(yard, "--keep-jobs-days", 1)["jobs"]["names"] == []
    assert gc(yard, "--keep-jobs-days", 0, "--dry-run")["jobs"]["names"] == ["job-1"]
    forgotten = gc(yard, "--keep-jobs-days", 0)["jobs"]
    assert forgotten["names"] == ["job-1"] and forgotten["bytes"] > 0
    assert gc(yard, "--keep-jobs-days", 0)["jobs"]["names"] == []
    assert (yard.bucket("results") / "out/job-1/output/model.tar.gz").exists(), "artifacts stay"


def test_uploads_that_a_store_was_not_told_of_at_the_end_are_given_up_later(far, proxy):
    refusal = ("status", 403, "<Error><Code>AccessDenied</Code><Message>not now</Message></Error>")

    def fault(request):
        told = request.method == "DELETE" and "uploadId" in request.target and "probe" not in request.target
        return refusal if told or "partNumber" in request.target else None

    proxy.fault = fault
    program = far.yard.python("import os\nopen('/opt/ml/model/x', 'wb').write(os.urandom(6 << 20))\n")
    job = far.yard.job(program, OutputDataConfig={"S3OutputPath": f"s3://{far.bucket}/out"})
    far.run(job, url=proxy.url, expect=10)
    begun = lambda: len(far.client.list_multipart_uploads(Bucket=far.bucket).get("Uploads", []))  # noqa: E731
    assert begun() == 2

    def collect(*flags):
        command = ["gc", "--data-dir", far.yard.data, "--json", *flags]
        return json.loads(far.yard.command(*command, env=far.environment).stdout)["uploads"]

    kept = collect()
    assert kept["given_up"] == 0 and "job-1" in kept["left"][0] and "not now" in kept["left"][0], kept
    proxy.fault = lambda request: None
    assert collect("--dry-run") == {"given_up": 2, "left": []} and begun() == 2
    assert collect() == {"given_up": 2, "left": []} and begun() == 0
    assert collect() == {"given_up": 0, "left": []}
