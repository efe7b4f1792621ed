"""Clients that people use, as they are: the SageMaker SDKs in both versions, Airflow, boto3's waiters, the AWS CLI."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import botocore.exceptions
import pytest
from endpoint import Endpoint
from yard import channel

CLIENTS = Path(__file__).parent / "clients"
ROLE = "arn:aws:iam::000000000000:role/any"
PARTS = {f"part-{number}": f"{number}\n" for number in range(7)}

pytestmark = pytest.mark.one_user


@pytest.fixture
def endpoint(yard):
    for name, content in PARTS.items():
        yard.put("input", f"parts/{name}", content)
    endpoint = Endpoint(yard, "--max-instances", "4")
    yield endpoint
    endpoint.stop()


def site(name):
    """Where `tests/environment` has put a client that can't share a folder with the others."""
    folder = Path(sys.prefix) / name
    if not folder.exists():
        reason = f"{name} is not in {folder}: see tests/environment"
        assert not os.environ.get("TRAINYARD_NEEDS_CLIENTS"), reason
        pytest.skip(reason)
    return folder


def client(endpoint, name, script, *arguments):
    """What a script of `clients/` prints, with what `trainyard env` says and nothing else that leads to Amazon."""
    settings = endpoint.yard.file("sdk.yaml", TELEMETRY)
    environment = {
        **endpoint.yard.environment,
        **endpoint.variables,
        "PYTHONPATH": str(site(name)),
        "PYTHONWARNINGS": "ignore",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(settings),
        "AIRFLOW_HOME": str(endpoint.yard.root / "home"),
    }
    command = [sys.executable, CLIENTS / script, *map(str, arguments)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, f"{ended.stdout}\n---\n{ended.stderr}"
    endpoint.yard.give_away(data=False)
    return ended.stdout


TELEMETRY = """
SchemaVersion: "1.0"
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
"""

TRAIN = """
echo "hello from $(hostname)"
echo loss=0.25
cat /opt/ml/input/data/matrix/* >"/opt/ml/model/rows-$(hostname)"
cp /opt/ml/input/config/hyperparameters.json "/opt/ml/model/settings-$(hostname)"
"""


def test_an_estimator_of_sdk_2_fits_on_three_instances_with_logs_and_hands_out_its_model(yard, endpoint):
    image = yard.image(yard.sh(TRAIN))
    yard.give_away()
    folder = yard.root / "model"
    printed = client(endpoint, "sagemaker-v2", "sdk_v2.py", image, folder)
    fit, logs, rest = printed.split("----")
    for part in (fit, logs):
        for host in ("algo-1", "algo-2", "algo-3"):
            assert part.count(f"hello from {host}") == 1, part
    assert "Training - Training image download completed. Training in progress." in fit
    assert "Training seconds: " in fit and "Billable seconds: " in fit
    found = json.loads(rest.splitlines()[-1])
    assert found["status"] == "Completed"
    assert found["model"] == found["attached"] == f"s3://results/out/{found['name']}/output/model.tar.gz"
    assert found["hyperparameters"] == {"rate": "0.5", "word": "quick"} and found["instances"] == 3
    with tarfile.open(folder / "model.tar.gz") as tar:
        rows = {name: tar.extractfile(name).read().decode().split() for name in tar.getnames() if "rows" in name}
    assert sorted(row for part in rows.values() for row in part) == sorted(PARTS[name].strip() for name in PARTS)
    assert {name: len(part) for name, part in rows.items()} == {"rows-algo-1": 3, "rows-algo-2": 2, "rows-algo-3": 2}
    (folder / "model.tar.gz").unlink()
    folder.rmdir()

SCRIPT = """
import json, os
print(f"rate is {os.environ['SM_HP_RATE']}, deep is {json.loads(os.environ['SM_HP_DEEP'])['a']}")
open(os.environ["SM_MODEL_DIR"] + "/a", "w").write("1")
"""


def test_a_model_trainer_of_sdk_3_trains_with_logs(yard, endpoint):
    image = yard.image(yard.sh(TRAIN))
    yard.give_away()
    printed = client(endpoint, "sagemaker-v3", "sdk_v3.py", image)
    for host in ("algo-1", "algo-2"):
        assert f"hello from {host}" in printed
    found = json.loads(printed.splitlines()[-1])
    assert found["status"] == "Completed"
    assert found["secondary"] == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert found["model"] == f"s3://results/out/{found['name']}/output/model.tar.gz"


def test_a_script_that_sdk_3_uploads_is_trained_in_an_image_without_it(yard, endpoint):
    image = yard.image(yard.sh("echo the image itself was run; exit 1"))
    script = yard.file("code/train.py", SCRIPT)
    yard.give_away()
    printed = client(endpoint, "sagemaker-v3", "sdk_v3.py", image, script.parent)
    assert "rate is 0.5, deep is [1, 2]" in printed
    assert json.loads(printed.splitlines()[-1])["status"] == "Completed"


def test_the_training_operator_of_airflow_runs_jobs_with_logs_and_gives_a_second_one_another_name(yard, endpoint):
    request = yard.job(
        yard.sh(TRAIN), instances=2, channels=[channel("matrix", "s3://input/parts/")], RoleArn=ROLE, TrainingJobName="dag"
    )
    yard.give_away()
    printed = client(endpoint, "airflow", "airflow_training.py", json.dumps(request))
    assert printed.count("hello from algo-1") == printed.count("hello from algo-2") == 2
    assert "Billable seconds: " in printed
    found = json.loads(printed.splitlines()[-1])
    assert found["first"] == "dag" and found["second"].startswith("dag-")
    assert found["listed"] == [found["first"], found["second"]]
    assert found["status"] == "Completed" and found["model"] == "s3://results/out/dag/output/model.tar.gz"


def test_the_waiters_of_boto3_tell_completed_from_failed(yard, endpoint):
    sagemaker = endpoint.client("sagemaker")
    for name, program in (("good", "true"), ("bad", "exit 3")):
        request = yard.job(yard.sh(program), RoleArn=ROLE, TrainingJobName=name)
        yard.give_away(data=False)
        sagemaker.create_training_job(**request)
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    often = {"Delay": 1, "MaxAttempts": 60}
    waiter.wait(TrainingJobName="good", WaiterConfig=often)
    with pytest.raises(botocore.exceptions.WaiterError) as error:
        waiter.wait(TrainingJobName="bad", WaiterConfig=often)
    assert error.value.last_response["TrainingJobStatus"] == "Failed"
    assert "exit code: 3" in error.value.last_response["FailureReason"]


def test_the_aws_cli_waits_for_a_job_shows_its_log_and_copies_its_model(yard, endpoint):
    request = yard.job(yard.sh("echo 1 >/opt/ml/model/a; echo hello; echo again"), RoleArn=ROLE, TrainingJobName="by-cli")
    yard.give_away()
    answer = endpoint.cli("sagemaker", "create-training-job", "--cli-input-json", json.dumps(request))
    assert json.loads(answer)["TrainingJobArn"].endswith(":training-job/by-cli")
    # The CLI's own waiter looks every two minutes; ours may look oftener until it is over.
    sagemaker = endpoint.client("sagemaker")
    sagemaker.get_waiter("training_job_completed_or_stopped").wait(TrainingJobName="by-cli", WaiterConfig={"Delay": 1})
    endpoint.cli("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", "by-cli")
    names = endpoint.cli(
        "sagemaker", "list-training-jobs", "--status-equals", "Completed", "--query", "TrainingJobSummaries[].TrainingJobName"
    )
    assert json.loads(names) == ["by-cli"]
    query = ("--query", "ModelArtifacts.S3ModelArtifacts", "--output", "text")
    model = endpoint.cli("sagemaker", "describe-training-job", "--training-job-name", "by-cli", *query).strip()
    group = ("--log-group-name", "/aws/sagemaker/TrainingJobs")
    query = ("--query", "events[].message")
    log = endpoint.cli("logs", "filter-log-events", *group, "--log-stream-name-prefix", "by-cli/", *query)
    assert json.loads(log) == ["hello", "again"]
    copy = yard.root / "model.tar.gz"
    endpoint.cli("s3", "cp", model, copy, "--only-show-errors")
    with tarfile.open(copy) as tar:
        assert tar.extractfile("a").read() == b"1\n"
    copy.unlink()
    assert "model.tar.gz" in endpoint.cli("s3", "ls", "s3://results/out/by-cli/output/")
