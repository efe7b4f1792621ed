"""What a task of Airflow does: `airflow_training.py CONFIG` runs the training operator with a request, which prints the logs."""

import json
import logging
import sys

import brisk  # noqa: F401
from airflow.providers.amazon.aws.hooks.sagemaker import SageMakerHook
from airflow.providers.amazon.aws.operators.sagemaker import SageMakerTrainingOperator

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
config = json.loads(sys.argv[1])


def train():
    # Without a connection of Airflow's own, boto3's variables count.
    operator = SageMakerTrainingOperator(task_id="train", config=dict(config), aws_conn_id=None)
    return operator.execute({})["Training"]


first, second = train(), train()
hook = SageMakerHook(aws_conn_id=None)
found = {
    "first": first["TrainingJobName"],
    "status": first["TrainingJobStatus"],
    "model": first["ModelArtifacts"]["S3ModelArtifacts"],
    "second": second["TrainingJobName"],
    "listed": sorted(job["TrainingJobName"] for job in hook.list_training_jobs(name_contains=config["TrainingJobName"])),
}
print(json.dumps(found))
