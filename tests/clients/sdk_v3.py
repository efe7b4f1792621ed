"""What a user of the SageMaker SDK 3 does: `sdk_v3.py IMAGE [FOLDER]` trains on two instances and shows their logs.

With a folder, the script `train.py` in it is what trains, which the SDK uploads and the image need not have.
"""

import json
import logging
import sys

import brisk  # noqa: F401
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, OutputDataConfig, SourceCode, StoppingCondition

# The logs of a job are shown at this level.
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
image, *folders = sys.argv[1:]
trainer = ModelTrainer(
    training_image=image,
    source_code=SourceCode(source_dir=folders[0], entry_script="train.py") if folders else None,
    base_job_name="third",
    role="arn:aws:iam::000000000000:role/any",
    sagemaker_session=Session(default_bucket="results"),
    compute=Compute(instance_type="ml.m5.large", instance_count=2, volume_size_in_gb=1),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=60),
    output_data_config=OutputDataConfig(s3_output_path="s3://results/out"),
    hyperparameters={"rate": 0.5, "deep": {"a": [1, 2]}},
)
trainer.train(input_data_config=[InputData(channel_name="matrix", data_source="s3://input/parts/")], wait=True, logs=True)
job = trainer._latest_training_job
job.refresh()
found = {
    "name": job.training_job_name,
    "status": job.training_job_status,
    "model": job.model_artifacts.s3_model_artifacts,
    "secondary": [step.status for step in job.secondary_status_transitions],
}
print(json.dumps(found))
