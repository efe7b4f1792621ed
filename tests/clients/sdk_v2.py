"""What a user of the SageMaker SDK 2 does: `sdk_v2.py IMAGE FOLDER` trains on three instances and fetches the model to FOLDER."""

import json
import sys

import brisk  # noqa: F401
import sagemaker
from sagemaker.analytics import TrainingJobAnalytics
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput
from sagemaker.s3 import S3Downloader

image, folder = sys.argv[1:]
# Without a bucket of its own the session asks STS at Amazon's address for the account.
session = sagemaker.Session(default_bucket="results")
estimator = Estimator(
    image_uri=image,
    role="arn:aws:iam::000000000000:role/any",
    instance_count=3,
    instance_type="ml.m5.large",
    volume_size=1,
    output_path="s3://results/out",
    hyperparameters={"rate": 0.5, "word": "quick"},
    metric_definitions=[{"Name": "loss", "Regex": r"loss=([0-9.]+)"}],
    tags=[{"Key": "team", "Value": "yard"}],
    max_run=60,
    sagemaker_session=session,
)
matrix = TrainingInput("s3://input/parts/", distribution="ShardedByS3Key")
estimator.fit({"matrix": matrix}, wait=True, logs="All")
name = estimator.latest_training_job.name
print("---- logs_for_job", flush=True)
session.logs_for_job(name, wait=True, poll=1)
print("---- wait", flush=True)
status = estimator.latest_training_job.describe()["TrainingJobStatus"]
session.wait_for_job(name, poll=1)
attached = Estimator.attach(name, sagemaker_session=session)
S3Downloader.download(estimator.model_data, folder, sagemaker_session=session)
found = {
    "name": name,
    "status": status,
    "model": estimator.model_data,
    "attached": attached.model_data,
    "hyperparameters": attached.hyperparameters(),
    "instances": attached.instance_count,
    "metrics": TrainingJobAnalytics(name, ["loss"], sagemaker_session=session).name,
}
print(json.dumps(found))
