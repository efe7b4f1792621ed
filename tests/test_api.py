"""The endpoint as SageMaker: what boto3 and the AWS CLI do with training jobs and their logs."""

import json
import urllib.error
import urllib.request

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
import yard as yards
from endpoint import GROUP, ROLE, Endpoint, SageMaker, refused

@pytest.fixture
def endpoint(yard):
    yard.bucket("input")
    endpoint = Endpoint(yard, "--max-instances", "4")
    yield endpoint
    endpoint.stop()


@pytest.fixture
def sagemaker(yard, endpoint):
    return SageMaker(yard, endpoint)


def test_a_job_runs_and_is_described_as_amazon_does(yard, sagemaker):
    yard.put("input", "x/1", "one")
    program = yard.sh("echo loss=0.25\ncat /opt/ml/input/data/in/1 > /opt/ml/model/out\n")
    algorithm = {
        "TrainingImage": f"host:{program}", "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
    }
    yard.give_away()
    job = sagemaker.job(
        program, channels=[yards.channel("in", "s3://input/x/")], TrainingJobName="My-Job",
        AlgorithmSpecification=algorithm, HyperParameters={"k": "1"}, Environment={"E": "v"},
    )
    arn = sagemaker.api.create_training_job(**job)["TrainingJobArn"]
    assert arn == "arn:aws:sagemaker:us-east-1:000000000000:training-job/my-job"
    ended = sagemaker.ended("My-Job")
    assert (ended["TrainingJobStatus"], ended["SecondaryStatus"]) == ("Completed", "Completed"), ended
    assert (ended["TrainingJobName"], ended["TrainingJobArn"]) == ("My-Job", arn)
    assert ended["ModelArtifacts"]["S3ModelArtifacts"] == "s3://results/out/My-Job/output/model.tar.gz"
    statuses = [entry["Status"] for entry in ended["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all(entry["StatusMessage"] for entry in ended["SecondaryStatusTransitions"])
    assert ended["TrainingStartTime"] == ended["SecondaryStatusTransitions"][1]["StartTime"]
    assert ended["HyperParameters"] == {"k": "1"} and ended["Environment"] == {"E": "v"}
    assert ended["InputDataConfig"][0]["CompressionType"] == "None"
    assert (ended["OutputDataConfig"]["CompressionType"], ended["OutputDataConfig"]["KmsKeyId"]) == ("GZIP", "")
    assert ended["EnableManagedSpotTraining"] is False and "Tags" not in ended
    assert ended["TrainingTimeInSeconds"] >= 1
    (metric,) = ended["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("loss", 0.25)
    assert yard.resolve("s3://results/out/My-Job/output/model.tar.gz").exists()


def test_the_reason_of_a_failure_is_told(yard, sagemaker):
    name = sagemaker.create(yard.sh("echo broken > /opt/ml/output/failure\nexit 3\n"))
    ended = sagemaker.ended(name)
    assert ended["TrainingJobStatus"] == "Failed"
    assert ended["FailureReason"] == "AlgorithmError: broken, exit code: 3 (algo-1)"


def test_create_answers_at_once_and_the_job_is_described_from_then_on(yard, sagemaker):
    gate = yard.file("gate")
    name = sagemaker.create(yard.sh(f"until [ -s {gate} ]; do sleep 0.05; done\n"))
    assert sagemaker.describe(name)["TrainingJobStatus"] == "InProgress"
    gate.write_text("open")
    assert sagemaker.ended(name)["TrainingJobStatus"] == "Completed"


def test_wrong_requests_are_answered_in_amazons_words(yard, sagemaker):
    program = yard.sh("true\n")
    yard.give_away()
    job = sagemaker.job(program)
    job.update(TrainingJobName="_" * 64)
    answered, message = refused(sagemaker.api.create_training_job, **job)
    assert answered == "ValidationException"
    assert message.startswith("2 validation errors detected: Value '") and "at 'trainingJobName' failed to satisfy" in message
    answered, message = refused(sagemaker.api.describe_training_job, TrainingJobName="nobody")
    assert (answered, message) == ("ValidationException", "Requested resource not found.")
    job = sagemaker.job(program, channels=[yards.channel("in", "s3://input/nothing/")])
    answered, message = refused(sagemaker.api.create_training_job, **job)
    assert answered == "ValidationException" and message.startswith("No S3 objects found under S3 URL")


def test_a_name_is_used_once_until_its_job_is_deleted(yard, sagemaker):
    program = yard.sh("true\n")
    name = sagemaker.create(program)
    answered, message = refused(sagemaker.api.create_training_job, **sagemaker.job(program, TrainingJobName=name.upper()))
    assert answered == "ResourceInUse" and f"training-job/{name}" in message
    sagemaker.ended(name)
    sagemaker.api.delete_training_job(TrainingJobName=name)
    assert refused(sagemaker.api.describe_training_job, TrainingJobName=name)[0] == "ValidationException"
    sagemaker.create(program, TrainingJobName=name)
    sagemaker.ended(name)


def test_a_job_that_runs_can_be_stopped_and_not_deleted(yard, sagemaker):
    program = yard.sh("trap 'echo saved > /opt/ml/model/state; exit 0' TERM\necho ready\nwhile :; do sleep 0.05; done\n")
    name = sagemaker.create(program)
    sagemaker.wait_for(name, "Training", member="SecondaryStatus")
    yards.wait_until(lambda: sagemaker.lines(name) == ["ready"], "the trap to be set")
    assert refused(sagemaker.api.delete_training_job, TrainingJobName=name)[0] == "ResourceInUse"
    sagemaker.api.stop_training_job(TrainingJobName=name)
    assert sagemaker.ended(name)["TrainingJobStatus"] == "Stopped"
    answered, message = refused(sagemaker.api.stop_training_job, TrainingJobName=name)
    assert answered == "ValidationException"
    assert message == "The request was rejected because the training job is in status Stopped."
    assert yard.resolve(f"s3://results/out/{name}/output/model.tar.gz").exists()


def test_jobs_beyond_the_capacity_wait_in_order_with_their_place(yard, sagemaker):
    gate = yard.file("gate")
    program = yard.sh(f"until [ -s {gate} ]; do sleep 0.05; done\n")
    # Each of them needs all there is, so that one begins after the other.
    running, second, third = (sagemaker.create(program, 4) for _ in range(3))
    urgent = sagemaker.create(program, 4, Tags=[{"Key": "trainyard:priority", "Value": "5"}])

    def place(name):
        return sagemaker.describe(name)["SecondaryStatusTransitions"][-1]

    sagemaker.wait_for(running, "Training", member="SecondaryStatus")
    assert place(urgent)["Status"] == "Pending" and place(urgent)["StatusMessage"].endswith("next in the queue")
    yards.wait_until(lambda: "1 job ahead" in place(second)["StatusMessage"], "the second to be told its place")
    assert "2 jobs ahead" in place(third)["StatusMessage"]
    sagemaker.api.stop_training_job(TrainingJobName=third)
    assert sagemaker.ended(third)["TrainingJobStatus"] == "Stopped"
    gate.write_text("open")
    for name in (running, urgent, second):
        assert sagemaker.ended(name)["TrainingJobStatus"] == "Completed"
    started = {name: sagemaker.describe(name)["TrainingStartTime"] for name in (urgent, second)}
    assert started[urgent] <= started[second]


def test_lists_are_filtered_before_they_are_cut_into_pages(yard, sagemaker):
    good, bad = yard.sh("true\n"), yard.sh("exit 1\n")
    names = [sagemaker.create(bad if i % 3 == 0 else good, TrainingJobName=f"list-{i}") for i in range(6)]
    for name in names:
        sagemaker.ended(name)

    def listed(**request):
        pages = sagemaker.api.get_paginator("list_training_jobs").paginate(PaginationConfig={"PageSize": 2}, **request)
        found = []
        for page in pages:
            found += [summary["TrainingJobName"] for summary in page["TrainingJobSummaries"]]
        return found

    assert listed() == names
    assert listed(StatusEquals="Failed") == ["list-0", "list-3"]
    assert listed(NameContains="T-4") == ["list-4"]
    assert listed(SortBy="Name", SortOrder="Descending") == names[::-1]
    first = sagemaker.api.list_training_jobs(StatusEquals="Failed", MaxResults=2)
    assert len(first["TrainingJobSummaries"]) == 2 and "NextToken" not in first
    middle = sagemaker.describe("list-2")["CreationTime"]
    assert listed(CreationTimeAfter=middle)[-1] == "list-5"
    assert refused(sagemaker.api.list_training_jobs, StatusEquals="Ended")[0] == "ValidationException"


def test_jobs_are_found_by_what_they_are(yard, sagemaker):
    program = yard.sh("echo loss=0.$(hostname | tr -dc 0-9)\n")
    algorithm = {
        "TrainingImage": f"host:{program}", "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
    }
    for i in range(3):
        name = sagemaker.create(
            program, TrainingJobName=f"found-{i}", AlgorithmSpecification=algorithm, HyperParameters={"k": str(i)},
            Tags=[{"Key": "team", "Value": "blue" if i else "red"}],
        )
        sagemaker.ended(name)

    def found(*filters, **request):
        expression = {"Filters": [dict(zip(("Name", "Operator", "Value"), each, strict=False)) for each in filters]}
        answer = sagemaker.api.search(Resource="TrainingJob", SearchExpression=expression, **request)
        return [result["TrainingJob"]["TrainingJobName"] for result in answer["Results"]]

    assert found(("HyperParameters.k", "GreaterThan", "0")) == ["found-2", "found-1"]
    assert found(("Tags.team", "Equals", "red")) == ["found-0"]
    assert found(("Metrics.loss", "LessThan", "0.2"), ("TrainingJobStatus", "Equals", "Completed"),
                 SortBy="CreationTime", SortOrder="Ascending") == ["found-0", "found-1", "found-2"]
    pages = sagemaker.api.get_paginator("search").paginate(Resource="TrainingJob", PaginationConfig={"PageSize": 2})
    assert sum(len(page["Results"]) for page in pages) == 3
    assert refused(sagemaker.api.search, Resource="Endpoint")[0] == "ValidationException"


def test_tags_are_added_listed_and_removed(yard, sagemaker):
    name = sagemaker.create(yard.sh("true\n"), Tags=[{"Key": "a", "Value": "1"}])
    arn = sagemaker.ended(name)["TrainingJobArn"]
    sagemaker.api.add_tags(ResourceArn=arn, Tags=[{"Key": "b", "Value": "2"}, {"Key": "a", "Value": "3"}])
    tags = sagemaker.api.list_tags(ResourceArn=arn)
    assert tags["Tags"] == [{"Key": "a", "Value": "3"}, {"Key": "b", "Value": "2"}]
    sagemaker.api.delete_tags(ResourceArn=arn, TagKeys=["a"])
    assert sagemaker.api.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "b", "Value": "2"}]


def test_logs_are_read_stream_by_stream_and_all_together(yard, sagemaker):
    program = yard.sh("for i in 1 2 3; do echo $(hostname) $i; done\necho\nprintf '\\377'\n")
    name = sagemaker.create(program, 2)
    sagemaker.ended(name)
    for host in ("algo-1", "algo-2"):
        assert sagemaker.lines(name, host) == [f"{host} 1", f"{host} 2", f"{host} 3", " ", "\ufffd"]
    groups = sagemaker.logs.describe_log_groups()
    assert [group["logGroupName"] for group in groups["logGroups"]] == [GROUP]
    streams = sagemaker.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")
    assert len(streams["logStreams"]) == 2 and "nextToken" not in streams
    pages = sagemaker.logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP, logStreamNamePrefix=f"{name}/", filterPattern="algo", PaginationConfig={"PageSize": 2}
    )
    events = [event for page in pages for event in page["events"]]
    assert len(events) == 6 and len({event["eventId"] for event in events}) == 6
    assert [event["timestamp"] for event in events] == sorted(event["timestamp"] for event in events)
    last = sagemaker.logs.get_log_events(logGroupName=GROUP, logStreamName=streams["logStreams"][0]["logStreamName"], limit=2)
    assert [event["message"] for event in last["events"]] == [" ", "\ufffd"]
    back = sagemaker.logs.get_log_events(
        logGroupName=GROUP, logStreamName=streams["logStreams"][0]["logStreamName"], limit=2,
        nextToken=last["nextBackwardToken"],
    )
    assert [event["message"] for event in back["events"]] == ["algo-1 2", "algo-1 3"]


def test_a_line_can_be_followed_while_the_job_runs(yard, sagemaker):
    gate = yard.file("gate")
    name = sagemaker.create(yard.sh(f"echo first\nuntil [ -s {gate} ]; do sleep 0.05; done\necho second\n"))
    sagemaker.wait_for(name, "Training", member="SecondaryStatus")
    stream = f"{name}/algo-1-{int(sagemaker.describe(name)['TrainingStartTime'].timestamp())}"
    request = {"logGroupName": GROUP, "logStreamName": stream, "startFromHead": True}
    yards.wait_until(lambda: sagemaker.logs.get_log_events(**request)["events"], "the first line")
    token = sagemaker.logs.get_log_events(**request)["nextForwardToken"]
    again = sagemaker.logs.get_log_events(**request, nextToken=token)
    assert (again["events"], again["nextForwardToken"]) == ([], token)
    gate.write_text("open")
    sagemaker.ended(name)
    assert [event["message"] for event in sagemaker.logs.get_log_events(**request, nextToken=token)["events"]] == ["second"]


def test_what_is_not_there_is_told_by_the_logs_own_codes(yard, sagemaker):
    request = {"logGroupName": GROUP, "logStreamName": "nobody/algo-1-1"}
    assert refused(sagemaker.logs.get_log_events, **request)[0] == "ResourceNotFoundException"
    sagemaker.ended(sagemaker.create(yard.sh("true\n")))
    assert refused(sagemaker.logs.get_log_events, **request)[0] == "ResourceNotFoundException"
    assert refused(sagemaker.logs.describe_log_streams, logGroupName="/other")[0] == "ResourceNotFoundException"


def test_waiters_and_identities_work(yard, sagemaker):
    name = sagemaker.create(yard.sh("true\n"))
    waiter = sagemaker.api.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    assert sagemaker.endpoint.client("sts").get_caller_identity()["Account"] == "000000000000"
    role = sagemaker.endpoint.client("iam").get_role(RoleName="any")["Role"]
    assert role["Arn"] == ROLE
    trust = role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]["Service"]
    assert trust == "sagemaker.amazonaws.com"


def test_a_presigned_url_says_who_has_signed_it_and_does_nothing_else(endpoint):
    sts = endpoint.client("sts")

    def ask(url, method="GET", **headers):
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=60) as answer:
            return answer.read().decode()

    # POST is what botocore presigns unless it is asked for GET.
    posted = sts.generate_presigned_url("get_caller_identity", ExpiresIn=60)
    assert "<Account>000000000000</Account>" in ask(posted, "POST")
    url = sts.generate_presigned_url("get_caller_identity", ExpiresIn=60, HttpMethod="GET")
    assert "<Account>000000000000</Account>" in ask(url)
    for changed, method, headers in [
        (url.replace("X-Amz-Expires=60", "X-Amz-Expires=61"), "GET", {}),
        (url, "POST", {}),
        (url.replace("X-Amz-Signature=", "X-Amz-Signature=0"), "GET", {}),
        # Nor does it open another service.
        (url, "GET", {"X-Amz-Target": "SageMaker.ListTrainingJobs"}),
    ]:
        with pytest.raises(urllib.error.HTTPError) as error:
            ask(changed, method, **headers)
        assert error.value.code == 403, changed


def test_a_presigned_token_of_kubernetes_is_answered(endpoint):
    """As `aws eks get-token` makes it, with the name of the cluster in a header that is signed."""
    keys = botocore.credentials.Credentials(
        endpoint.variables["AWS_ACCESS_KEY_ID"], endpoint.variables["AWS_SECRET_ACCESS_KEY"]
    )
    request = botocore.awsrequest.AWSRequest(
        "GET", f"{endpoint.url}/?Action=GetCallerIdentity&Version=2011-06-15", headers={"x-k8s-aws-id": "cluster"}
    )
    botocore.auth.SigV4QueryAuth(keys, "sts", "us-east-1", expires=60).add_auth(request)

    def ask(cluster):
        headers = {"x-k8s-aws-id": cluster}
        return urllib.request.urlopen(urllib.request.Request(request.url, headers=headers), timeout=60)

    with ask("cluster") as answer:
        assert b"<Arn>arn:aws:iam::000000000000:root</Arn>" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as error:
        ask("other")
    assert error.value.code == 403


def test_nothing_is_answered_without_the_right_signature(yard, sagemaker):
    other = sagemaker.endpoint.client("sagemaker", aws_secret_access_key="x" * 40)
    assert refused(other.list_training_jobs)[0] == "InvalidSignatureException"
    other = sagemaker.endpoint.client("logs", aws_access_key_id="TRAINYARDNOTTHERE000")
    assert refused(other.describe_log_groups)[0] == "UnrecognizedClientException"
    headers = {"X-Amz-Target": "SageMaker.ListTrainingJobs", "Content-Type": "application/x-amz-json-1.1"}
    request = urllib.request.Request(sagemaker.endpoint.url, data=b"{}", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 403
    assert json.loads(error.value.read())["__type"] == "MissingAuthenticationTokenException"


def test_a_job_goes_on_when_the_endpoint_is_killed_and_is_taken_over(yard, endpoint, sagemaker):
    gate = yard.file("gate")
    program = yard.sh(f"echo run >> /opt/ml/model/runs\nuntil [ -s {gate} ]; do sleep 0.05; done\n")
    running = sagemaker.create(program, 4)
    waiting = sagemaker.create(program)
    sagemaker.wait_for(running, "Training", member="SecondaryStatus")
    sagemaker.wait_for(waiting, "Pending", member="SecondaryStatus")
    before = sagemaker.describe(running)
    endpoint.kill()
    again = Endpoint(yard, "--max-instances", "4")
    taken = SageMaker(yard, again)
    after = taken.describe(running)
    assert (after["TrainingJobStatus"], after["TrainingStartTime"]) == ("InProgress", before["TrainingStartTime"])
    gate.write_text("open")
    for name in (running, waiting):
        assert taken.ended(name)["TrainingJobStatus"] == "Completed"
    statuses = [entry["Status"] for entry in taken.describe(running)["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"], "nothing ran twice"
    again.stop()
    endpoint.stop = lambda: None


def test_the_aws_cli_creates_describes_and_follows(yard, endpoint, sagemaker):
    job = sagemaker.job(yard.sh("echo hello\n"), TrainingJobName="by-cli")
    yard.give_away()
    endpoint.cli("sagemaker", "create-training-job", "--cli-input-json", json.dumps(job))
    sagemaker.ended("by-cli")
    status = endpoint.cli(
        "sagemaker", "describe-training-job", "--training-job-name", "by-cli", "--query", "TrainingJobStatus"
    )
    assert json.loads(status) == "Completed"
    events = endpoint.cli(
        "logs", "filter-log-events", "--log-group-name", GROUP, "--log-stream-name-prefix", "by-cli", "--query",
        "events[].message",
    )
    assert json.loads(events) == ["hello"]


def test_twenty_jobs_at_once_all_end_well(yard, sagemaker):
    program = yard.sh("true\n")
    names = [sagemaker.create(program, TrainingJobName=f"many-{i}") for i in range(20)]
    assert {sagemaker.ended(name)["TrainingJobStatus"] for name in names} == {"Completed"}
