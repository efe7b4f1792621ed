"""CreateTrainingJob is held to botocore's model, and docs/api-coverage.md says what is made of it."""

import json
import os
import re
from pathlib import Path

import amazon_model
import botocore.config
import botocore.exceptions
import pytest
from amazon_model import limit, plain, sample, slots, text_of
from endpoint import Endpoint

COVERAGE = Path(__file__).parent.parent / "docs/api-coverage.md"

# Nothing of it can be run, so that nothing is started however right a request is.
BASE = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {"TrainingImage": "host:/nowhere/train", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/any",
    "InputDataConfig": [{
        "ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data/"}},
    }],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}

# Where this endpoint is stricter than the model, because the service is too.
STRICTER = {
    ("ResourceConfig.InstanceCount", 0), ("ResourceConfig.InstanceGroups.InstanceCount", 0),
    ("ResourceConfig.InstanceGroups.InstanceCount", -1), ("ResourceConfig.InstancePreferences.InstanceCount", 0),
    ("ResourceConfig.InstancePreferences.InstanceCount", -1),
}
# Required by the model, but nothing here needs it.
OPTIONAL = {"RoleArn"}


@pytest.fixture(scope="module")
def endpoint(shared_yard):
    running = Endpoint(shared_yard)
    yield running
    running.stop()


class Asker:
    """Sends requests as they are, whatever the client's own checks would say."""

    def __init__(self, endpoint):
        config = botocore.config.Config(parameter_validation=False, retries={"total_max_attempts": 1})
        self.client = endpoint.client("sagemaker", config=config)

    def answer(self, request):
        with pytest.raises(botocore.exceptions.ClientError) as error:
            self.client.create_training_job(**request)
        problem = error.value.response["Error"]
        assert problem["Code"] in ("ValidationException", "SerializationException"), problem
        return problem["Message"]


def values(slot):
    """Values around each limit, with the rule that they break or none."""
    shape, kind = slot.shape, slot.shape.type_name
    low, high = limit(shape, "min"), limit(shape, "max")
    if kind == "string":
        if shape.enum:
            yield from ((word, None) for word in shape.enum)
            yield "Nonsense", "Member must satisfy enum value set"
            return
        if high is not None:
            at = text_of(shape, high)
            if at is not None:
                yield at, None
            longer = text_of(shape, high + 1) or "a" * (high + 1)
            yield longer, f"Member must have length less than or equal to {high}"
        if low:
            yield "a" * (low - 1), f"Member must have length greater than or equal to {low}"
        if (pattern := limit(shape, "pattern")) is not None:
            for wrong in ("\n", "_ ?", "\x00~"):
                if re.fullmatch(plain(pattern), wrong) is None and len(wrong) >= (low or 0):
                    yield wrong, "Member must satisfy regular expression pattern"
                    break
    elif kind in ("integer", "long"):
        if low is not None:
            yield low, None
            yield low - 1, f"Member must have value greater than or equal to {low}"
        if high is not None:
            yield high, None
            yield high + 1, f"Member must have value less than or equal to {high}"
    elif kind == "list":
        one = sample(shape.member)
        if high is not None:
            yield [one] * high, None
            yield [one] * (high + 1), f"Member must have length less than or equal to {high}"
        if low:
            yield [one] * (low - 1), f"Member must have length greater than or equal to {low}"
    elif kind == "map" and high is not None:
        keys = [f"key{number}" for number in range(high + 1)]
        yield dict.fromkeys(keys[:high], "v"), None
        yield dict.fromkeys(keys, "v"), f"Member must have length less than or equal to {high}"


def test_every_limit_of_the_model_is_kept_at_it_below_and_above(endpoint):
    asker = Asker(endpoint)
    checked, wrong = 0, []
    for slot in slots():
        path = slot.in_messages()
        for value, rule in values(slot):
            message = asker.answer(slot.put(BASE, value))
            told = f"at '{path}' failed to satisfy constraint: "
            if isinstance(value, int) and (slot.members(), value) in STRICTER:
                continue
            right = told not in message if rule is None else f"{told}{rule}" in message
            checked += 1
            if not right:
                wrong.append((path, str(value)[:60], rule, message[:200]))
    assert not wrong, wrong
    assert checked > 600, f"only {checked} values were tried"


def test_every_member_that_the_model_requires_is_missed_by_its_path(endpoint):
    asker = Asker(endpoint)
    checked, wrong = 0, []
    for slot in slots():
        if slot.path[-1] == "*" or slot.path[-1] not in slot.shapes[-2].required_members or slot.members() in OPTIONAL:
            continue
        message = asker.answer(slot.put(BASE, amazon_model.LEFT_OUT))
        checked += 1
        if f"Value null at '{slot.in_messages()}' failed to satisfy constraint: Member must not be null" not in message:
            wrong.append((slot.in_messages(), message[:200]))
    assert not wrong, wrong
    assert checked > 20, checked


# How what is neither done as Amazon does it nor refused is taken instead.
EMULATED = {
    "RoleArn": "checked and shown; nothing here asks for a role",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "metrics are in CloudWatch with every value anyway",
    "ResourceConfig.InstanceType": "this machine; with `--limits enforce` instances get what the type has",
    "ResourceConfig.InstancePreferences.InstanceType": "the first of the list is taken",
    "ResourceConfig.VolumeSizeInGB": "with `--limits enforce` no more can be written",
    "DebugHookConfig.S3OutputPath": "shown; a hook that names nothing saves nothing",
    "ExperimentConfig": "shown, and searched by",
    "ProfilerConfig": "shown; what instances take is measured for every job and is in CloudWatch, nothing is written to S3",
    "ProfilerRuleConfigurations": "shown; rules are not evaluated, and their status says so",
    "InfraCheckConfig": "shown; nothing is tested, for there is no other machine to take",
    "SessionChainingConfig": "there are no sessions whose tags could be passed on",
    "VpcConfig": "shown; instances have a network of their job",
}


def demand(slot):
    """A value that asks for more than nothing."""
    special = {
        "DisableProfiler": False, "ProfilingIntervalInMilliseconds": 100, "InstanceGroupName": "group",
        "InstanceGroupNames": ["group"], "TrainingInputMode": "FastFile", "S3DataType": "ManifestFile",
        "S3DataDistribution": "ShardedByS3Key", "CompressionType": "Gzip", "RecordWrapper": "RecordIO",
        "OutputCompressionType": "NONE", "TrainingRepositoryAccessMode": "Vpc",
    }
    return special.get(slot.shape.name, sample(slot.shape))


def asking(slot):
    """A request in which one member asks for something, and the others let it."""
    members, request = slot.members(), json.loads(json.dumps(BASE))
    source = request["InputDataConfig"][0]["DataSource"]
    if members == "AlgorithmSpecification.AlgorithmName":
        del request["AlgorithmSpecification"]["TrainingImage"]
    if members in ("EnableManagedSpotTraining", "StoppingCondition.MaxWaitTimeInSeconds"):
        request.update(EnableManagedSpotTraining=True, StoppingCondition={"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 9})
    if members in ("InputDataConfig.CompressionType", "InputDataConfig.RecordWrapperType") or "AttributeNames" in members:
        request["AlgorithmSpecification"]["TrainingInputMode"] = "Pipe"
    if "InstanceGroup" in members:
        group = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "InstanceGroupName": "group"}
        request["ResourceConfig"] = {"InstanceGroups": [group], "VolumeSizeInGB": 1}
    if "InstancePreferences" in members:
        request["ResourceConfig"] = {"InstancePreferences": [{"InstanceType": "ml.m5.large", "InstanceCount": 1}]}
    if "FileSystemDataSource" in members or "DatasetSource" in members:
        del source["S3DataSource"]
    if "FileSystemDataSource" in members or "TrainingImageConfig" in members:
        request["VpcConfig"] = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    request = slot.put(request, demand(slot))
    if "AttributeNames" in members:
        request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3DataType"] = "AugmentedManifestFile"
    return request


def state(asker, slot):
    message = asker.answer(asking(slot))
    assert "failed to satisfy constraint" not in message, (slot.members(), message)
    members = slot.members()
    for name, value in re.findall(r"(?:^|; )([A-Za-z0-9.]+): (?:([A-Za-z0-9]+) is )?not supported", message):
        if members == name or members.startswith(f"{name}."):
            return "refused by name", f"if it is {value}" if value and members == name else ""
    for name, how in EMULATED.items():
        if members == name or members.startswith(f"{name}."):
            return "emulated", how
    return "honoured", ""


def leaves():
    for slot in slots():
        shape = slot.shape
        inner = shape.member if shape.type_name == "list" else shape
        if slot.path[-1] != "*" and inner.type_name != "structure":
            yield slot


SERVICES = [
    ("sagemaker", "SageMaker"), ("logs", "CloudWatch Logs"), ("cloudwatch", "CloudWatch"), ("ecr", "ECR"), ("sts", "STS"),
    ("iam", "IAM"),
]
NOT_THERE = {"UnknownOperationException", "InvalidAction", "MissingAuthenticationTokenException"}


def operations(endpoint, service):
    """Those operations of a model that the endpoint knows."""
    config = botocore.config.Config(
        parameter_validation=False, retries={"total_max_attempts": 1}, inject_host_prefix=False
    )
    client = endpoint.client(service, config=config)
    known = []
    for name in client.meta.service_model.operation_names:
        try:
            client._make_api_call(name, {})
            there = True
        except botocore.exceptions.ClientError as error:
            there = error.response["Error"]["Code"] not in NOT_THERE
        known += [name] if there else []
    return known


def generated(endpoint):
    lines = [
        "# What of Amazon's API there is",
        "",
        f"Made by `tests/test_api_model.py` from the model of botocore {amazon_model.EXTRACT['botocore']} and the answers of the endpoint (`TRAINYARD_WRITE_COVERAGE=1`",
        "writes it anew); the test fails if it is out of date. S3 is described in [design/s3.md](design/s3.md).",
        "",
        "## Operations",
        "",
        "| service | operations; all others are refused as unknown |",
        "|---|---|",
    ]
    for service, title in SERVICES:
        lines.append(f"| {title} | {', '.join(operations(endpoint, service))} |")
    lines += [
        "",
        "CloudWatch speaks `smithy-rpc-v2-cbor`, JSON 1.0 and the query protocol; the others what their models say.",
        "",
        "## CreateTrainingJob, member by member",
        "",
        "*Honoured*: done as Amazon does it. *Emulated*: taken, with what is done instead. *Refused by name*: a request that asks",
        "for it gets a ValidationException that names the member; one that switches it off is taken. Limits, patterns and",
        "words of all members are those of the model.",
        "",
        "| member | state | |",
        "|---|---|---|",
    ]
    asker = Asker(endpoint)
    for slot in leaves():
        found, how = state(asker, slot)
        lines.append(f"| `{slot.members()}` | {found} | {how} |")
    lines += [
        "",
        "## Our own settings",
        "",
        "Every setting of the object `Trainyard` of a job file is a tag of a request as well: `trainyard:GraceInSeconds`,",
        "`trainyard:Merge.Output` and so on, with the same limits; what is wrong is told by the key of the tag. The tag",
        "`trainyard:priority` is a whole number: jobs of a higher one start first.",
    ]
    return "\n".join(lines) + "\n"


def test_the_table_of_what_is_covered_is_true(endpoint):
    text = generated(endpoint)
    assert text.count("| refused by name |") > 20 and text.count("| honoured |") > 20
    if os.environ.get("TRAINYARD_WRITE_COVERAGE"):
        COVERAGE.write_text(text)
    assert COVERAGE.read_text() == text, "out of date: run this test with TRAINYARD_WRITE_COVERAGE=1"


def test_the_walk_reaches_every_member():
    reached = {slot.members() for slot in slots()}
    assert set(amazon_model.REQUEST.members) <= reached and len(reached) > 120
