"""Members of CreateTrainingJob that clients send without being asked, and what is made of them."""

import pytest
from endpoint import GROUP, Endpoint, SageMaker, refused

RULE = {"RuleConfigurationName": "ProfilerReport", "RuleEvaluatorImage": "rules", "RuleParameters": {"k": "v"}}


@pytest.fixture
def sagemaker(yard):
    endpoint = Endpoint(yard)
    yield SageMaker(yard, endpoint)
    endpoint.stop()


def test_what_the_sdk_sends_of_its_own_accord_is_taken_and_shown_as_amazon_does(yard, sagemaker):
    name = sagemaker.create(
        yard.sh("true\n"),
        ProfilerConfig={"S3OutputPath": "s3://results/", "DisableProfiler": False},
        ProfilerRuleConfigurations=[RULE],
        DebugHookConfig={"S3OutputPath": "s3://results/", "CollectionConfigurations": []},
        ExperimentConfig={"ExperimentName": "e", "TrialName": "t"},
        InfraCheckConfig={"EnableInfraCheck": True},
        SessionChainingConfig={"EnableSessionTagChaining": True},
        RemoteDebugConfig={"EnableRemoteDebug": False},
    )
    ended = sagemaker.ended(name)
    assert ended["TrainingJobStatus"] == "Completed", ended
    assert ended["ProfilerConfig"] == {
        "S3OutputPath": "s3://results/", "DisableProfiler": False, "ProfilingIntervalInMilliseconds": 500
    }
    assert (ended["ProfilingStatus"], ended["ProfilerRuleConfigurations"]) == ("Enabled", [RULE])
    (status,) = ended["ProfilerRuleEvaluationStatuses"]
    assert (status["RuleConfigurationName"], status["RuleEvaluationStatus"]) == ("ProfilerReport", "Error")
    assert "not evaluated" in status["StatusDetails"], "nobody may think that the rule has found nothing"
    assert ended["DebugHookConfig"] == {"S3OutputPath": "s3://results/", "CollectionConfigurations": []}
    assert ended["ExperimentConfig"] == {"ExperimentName": "e", "TrialName": "t"}
    assert "SessionChainingConfig" not in ended
    expression = {"Filters": [{"Name": "ExperimentConfig.ExperimentName", "Value": "e"}]}
    assert len(sagemaker.api.search(Resource="TrainingJob", SearchExpression=expression)["Results"]) == 1


def test_what_would_be_swallowed_is_refused_by_name(yard, sagemaker):
    program = yard.sh("true\n")
    yard.give_away()
    for member, value in [
        ("DebugHookConfig", {"S3OutputPath": "s3://results/", "CollectionConfigurations": [{"CollectionName": "losses"}]}),
        ("DebugRuleConfigurations", [RULE]),
        ("TensorBoardOutputConfig", {"S3OutputPath": "s3://results/"}),
        ("RemoteDebugConfig", {"EnableRemoteDebug": True}),
    ]:
        answered, message = refused(sagemaker.api.create_training_job, **sagemaker.job(program, **{member: value}))
        assert answered == "ValidationException" and message.startswith(f"{member}: not supported"), message


def test_the_first_of_the_preferred_types_is_taken_and_told(yard, sagemaker):
    preferences = [{"InstanceType": "ml.m8i.large", "InstanceCount": 2}, {"InstanceType": "ml.r6i.large", "InstanceCount": 1}]
    job = sagemaker.job(yard.sh("cat /opt/ml/input/config/resourceconfig.json\n"))
    job["ResourceConfig"] = {"InstancePreferences": preferences, "VolumeSizeInGB": 1}
    yard.give_away()
    sagemaker.api.create_training_job(**job)
    ended = sagemaker.ended(job["TrainingJobName"])
    assert ended["TrainingJobStatus"] == "Completed", ended
    told = ended["ResourceConfig"]
    assert told["InstancePreferences"] == preferences
    assert (told["SelectedInstanceType"], told["SelectedInstanceCount"]) == ("ml.m8i.large", 2)
    streams = sagemaker.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{job['TrainingJobName']}/")
    assert len(streams["logStreams"]) == 2


def test_the_profiler_of_a_job_that_runs_can_be_changed_and_nothing_else(yard, sagemaker):
    gate = yard.file("gate")
    name = sagemaker.create(yard.sh(f"until [ -s {gate} ]; do sleep 0.05; done\n"))
    assert sagemaker.describe(name)["ProfilingStatus"] == "Disabled"

    def update(**members):
        return sagemaker.api.update_training_job(TrainingJobName=name, **members)["TrainingJobArn"]

    arn = update(ProfilerConfig={"S3OutputPath": "s3://results/", "ProfilingIntervalInMilliseconds": 100})
    assert arn == sagemaker.describe(name)["TrainingJobArn"]
    assert sagemaker.describe(name)["ProfilingStatus"] == "Enabled"
    update(ProfilerConfig={"DisableProfiler": True}, RemoteDebugConfig={"EnableRemoteDebug": False})
    described = sagemaker.describe(name)
    assert described["ProfilingStatus"] == "Disabled"
    assert described["ProfilerConfig"] == {
        "S3OutputPath": "s3://results/", "ProfilingIntervalInMilliseconds": 100, "DisableProfiler": True
    }
    for wrong, text in [
        ({"RemoteDebugConfig": {"EnableRemoteDebug": True}}, "RemoteDebugConfig: not supported"),
        ({"ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}, "ResourceConfig: not supported"),
        ({"ProfilerConfig": {"ProfilingIntervalInMilliseconds": 7}}, "Value '7' at 'profilerConfig.profilingInterval"),
    ]:
        answered, message = refused(sagemaker.api.update_training_job, TrainingJobName=name, **wrong)
        assert answered == "ValidationException" and text in message, message
    assert refused(sagemaker.api.update_training_job, TrainingJobName="nobody") == (
        "ValidationException", "Requested resource not found."
    )
    gate.write_text("open")
    sagemaker.ended(name)
    answered, message = refused(sagemaker.api.update_training_job, TrainingJobName=name, ProfilerConfig={})
    assert message == "The request was rejected because the training job is in status Completed."
