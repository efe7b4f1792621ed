"""An endpoint that is killed again and again: no job is lost, none doubled, and each ends with the right result.

TRAINYARD_CRASH_SEED, TRAINYARD_CRASH_KILLS and TRAINYARD_CRASH_JOBS say otherwise than here; the seed is printed.
"""

import json
import os
import random
import tarfile
import threading
import time

import botocore.exceptions
import pytest
import yard as yards
from endpoint import Endpoint, code

pytestmark = pytest.mark.one_user

ROLE = "arn:aws:iam::000000000000:role/any"
KILLS = int(os.environ.get("TRAINYARD_CRASH_KILLS", "50"))
JOBS = int(os.environ.get("TRAINYARD_CRASH_JOBS", str(2 * KILLS)))
SEED = int(os.environ.get("TRAINYARD_CRASH_SEED", str(time.time_ns() % 1_000_000)))
LONGEST_LIFE = 0.5
"""Seconds after which an endpoint is killed at the latest, once it listens."""
DEADLINE = 60 + 4 * JOBS

# A line for each start, and a result that depends on all that was given to the instance.
TRAIN = """
echo "started $(hostname)"
cat /opt/ml/input/data/rows/* | sort >"/opt/ml/model/rows-$(hostname)"
"""


class Crashing:
    """An endpoint with a place of its own in time: whoever calls it finds the one that runs now, or waits for it."""

    def __init__(self, yard):
        self.yard = yard
        self.begun = threading.Condition()
        self.client = None
        self.kills = 0
        self.over = False

    def start(self):
        endpoint = Endpoint(self.yard, "--max-instances", "4")
        with self.begun:
            self.endpoint, self.client = endpoint, endpoint.client("sagemaker")
            self.begun.notify_all()

    def kill(self):
        self.endpoint.kill()
        with self.begun:
            self.kills += 1
            self.begun.notify_all()

    def call(self, operation, **request):
        """Until there is an answer. Whether a request without one was carried out, nobody knows."""
        tried = 0
        while True:
            with self.begun:
                client = self.client
            try:
                return getattr(client, operation)(**request), tried
            except (botocore.exceptions.ConnectionError, botocore.exceptions.HTTPClientError):
                tried += 1
                with self.begun:
                    self.begun.wait_for(lambda before=client: self.client is not before or self.over, timeout=DEADLINE)


def create_all(crashing, requests, found):
    """Creates the jobs, two for each kill, so that there is always one that something happens to."""
    try:
        for number, request in enumerate(requests):
            with crashing.begun:
                crashing.begun.wait_for(lambda least=number * KILLS // JOBS: crashing.kills >= least, timeout=DEADLINE)
            try:
                crashing.call("create_training_job", **request)
            except botocore.exceptions.ClientError as error:
                # The answer to the first attempt was lost, the job was not.
                if error.response["Error"]["Code"] != "ResourceInUse":
                    raise
    except Exception as error:  # noqa: BLE001
        found.append(error)


def test_fifty_kills_during_a_hundred_jobs_lose_nothing_and_double_nothing(yard):
    print(f"seed {SEED}: {KILLS} kills, {JOBS} jobs")
    chance = random.Random(SEED)
    for number in range(10):
        yard.put("input", f"rows/{number}", f"row {number}\n")
    program = yard.sh(TRAIN)
    source = yards.channel("rows", "s3://input/rows/", distribution="ShardedByS3Key")
    requests = {}
    for number in range(JOBS):
        name = f"crash-{number:03}"
        instances = 2 if number % 5 == 0 else 1
        requests[name] = yard.job(program, instances, [source], RoleArn=ROLE, TrainingJobName=name)
    yard.give_away()

    crashing, found = Crashing(yard), []
    crashing.start()
    creating = threading.Thread(target=create_all, args=(crashing, requests.values(), found))
    creating.start()
    alive = threading.Event()
    for _ in range(KILLS):
        alive.wait(chance.uniform(0, LONGEST_LIFE))
        crashing.kill()
        crashing.start()
    creating.join(DEADLINE)
    crashing.over = True
    assert not creating.is_alive() and found == [], f"seed {SEED}: {found}"

    sagemaker = crashing.client
    pages = sagemaker.get_paginator("list_training_jobs").paginate(SortBy="Name", SortOrder="Ascending")
    listed = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
    assert listed == sorted(requests), f"seed {SEED}"

    def unfinished():
        pages = sagemaker.get_paginator("list_training_jobs").paginate(StatusEquals="InProgress")
        return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]

    yards.wait_until(lambda: unfinished() == [], f"all jobs to end (seed {SEED})", deadline=DEADLINE)
    for name, request in requests.items():
        judge(yard, sagemaker, name, request["ResourceConfig"]["InstanceCount"])
    crashing.endpoint.stop()


def judge(yard, sagemaker, name, instances):
    """One job that was Completed, once, with the rows of each instance, once."""
    described = sagemaker.describe_training_job(TrainingJobName=name)
    said = json.dumps(described, default=str)
    assert described["TrainingJobStatus"] == "Completed", f"seed {SEED}: {said}"
    ends = [step for step in described["SecondaryStatusTransitions"] if step["Status"] == "Completed"]
    assert len(ends) == 1, f"seed {SEED}: {said}"
    with tarfile.open(yard.resolve(described["ModelArtifacts"]["S3ModelArtifacts"])) as tar:
        files = [(member.name, tar.extractfile(member).read().decode()) for member in tar if member.isfile()]
    rows = {host: "".join(f"row {row}\n" for row in range(10) if row % instances == host) for host in range(instances)}
    assert sorted(files) == [(f"rows-algo-{host + 1}", rows[host]) for host in rows], f"seed {SEED}: {name}"


def test_an_endpoint_that_is_killed_at_each_status_of_a_job_takes_it_over(yard):
    """What can be seen of a job from outside; each of its stored events is gone through in the engine's own tests."""
    gate = yard.file("gate")
    program = yard.sh('echo up; until [ -s "$GATE" ]; do sleep 0.05; done; echo 1 >/opt/ml/model/a')
    request = yard.job(program, RoleArn=ROLE, TrainingJobName="watched", Environment={"GATE": str(gate)})
    waits = yard.job(yard.sh("true"), instances=4, RoleArn=ROLE, TrainingJobName="waits")
    yard.give_away()
    endpoint = Endpoint(yard, "--max-instances", "4")
    endpoint.client("sagemaker").create_training_job(**request)

    def status(name):
        return endpoint.client("sagemaker").describe_training_job(TrainingJobName=name)["SecondaryStatus"]

    def again():
        endpoint.kill()
        return Endpoint(yard, "--max-instances", "4")

    # At once, in whatever it is by then; while it trains; while another waits; while it is stopped.
    endpoint = again()
    yards.wait_until(lambda: status("watched") == "Training", "training")
    endpoint = again()
    endpoint.client("sagemaker").create_training_job(**waits)
    yards.wait_until(lambda: status("waits") == "Pending", "the other to wait")
    endpoint = again()
    assert (status("watched"), status("waits")) == ("Training", "Pending")
    stopped = yard.job(program, RoleArn=ROLE, TrainingJobName="stopped", Environment={"GATE": str(gate)})
    endpoint.client("sagemaker").create_training_job(**stopped)
    endpoint.client("sagemaker").stop_training_job(TrainingJobName="stopped")
    endpoint = again()
    yards.wait_until(lambda: status("stopped") == "Stopped", "the stop")
    gate.write_text("open")
    endpoint = again()
    for name in ("watched", "waits"):
        yards.wait_until(lambda name=name: status(name) == "Completed", f"{name} to end")
    lines = endpoint.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix="watched/"
    )["events"]
    assert [line["message"] for line in lines] == ["up"], "it was started once"
    with pytest.raises(botocore.exceptions.ClientError) as error:
        endpoint.client("sagemaker").create_training_job(**request)
    assert code(error) == "ResourceInUse"
    endpoint.stop()


def test_a_job_that_can_not_be_taken_over_is_told_and_keeps_no_other_from_going_on(yard):
    gate = yard.file("gate")
    program = yard.sh('until [ -s "$GATE" ]; do sleep 0.05; done')
    yard.give_away()
    endpoint = Endpoint(yard, "--max-instances", "2")

    def status(name):
        return endpoint.client("sagemaker").describe_training_job(TrainingJobName=name)["SecondaryStatus"]

    for name in ("damaged", "sound"):
        job = yard.job(program, RoleArn=ROLE, TrainingJobName=name, Environment={"GATE": str(gate)})
        endpoint.client("sagemaker").create_training_job(**job)
        yards.wait_until(lambda name=name: status(name) == "Training", f"{name} to train")
    endpoint.kill()
    plan = yard.data / "runs/damaged/attempt-1/plan.json"
    whole = plan.read_text()
    plan.write_text("{")
    endpoint = Endpoint(yard, "--max-instances", "2")
    gate.write_text("open")
    yards.wait_until(lambda: status("sound") == "Completed", "the other to end")
    assert status("damaged") == "Training"
    endpoint.running.process.terminate()
    ended = endpoint.running.end()
    assert ended.exit_code == 0 and "training job damaged: " in ended.stderr, ended
    # Nothing of it is lost meanwhile.
    plan.write_text(whole)
    endpoint = Endpoint(yard, "--max-instances", "2")
    yards.wait_until(lambda: status("damaged") == "Completed", "the one that was damaged to end")
    endpoint.stop()
