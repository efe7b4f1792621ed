"""`--endpoint aws`: the hosts of Amazon, played by a proxy of this machine, so that nothing leaves it."""

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

pytestmark = pytest.mark.one_user

HOSTS = ["api.sagemaker.eu-west-1.amazonaws.com", "logs.eu-west-1.amazonaws.com", "*.s3.eu-west-1.amazonaws.com"]
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/fit:1"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "lent",
    "AWS_REGION": "eu-west-1",
}


class Amazon:
    """A proxy that answers CONNECT itself, as the host that was asked for; `answer` gives status and body."""

    def __init__(self, certificate, key):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.requests = []
        self.answers = {}
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def serve(self, connection):
        with connection:
            head = self.head(connection.makefile("rb"))
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            host = head[0].split()[1].rsplit(":", 1)[0]
            # Whoever does not trust the certificate goes away.
            with contextlib.suppress(ssl.SSLError), self.context.wrap_socket(connection, server_side=True) as secure:
                stream = secure.makefile("rb")
                while head := self.head(stream):
                    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:])}
                    body = stream.read(int(headers.get("content-length", 0)))
                    target = headers.get("x-amz-target", head[0].split()[1])
                    self.requests.append((host, target, headers, json.loads(body) if body else None))
                    status, answer = self.answers[target].pop(0)
                    answer = json.dumps(answer).encode() if not isinstance(answer, bytes) else answer
                    text = f"HTTP/1.1 {status} X\r\nContent-Length: {len(answer)}\r\n\r\n"
                    secure.sendall(text.encode() + answer)

    @staticmethod
    def head(stream):
        lines = []
        while (line := stream.readline().decode().rstrip("\r\n")) != "":
            lines.append(line)
        return lines

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def amazon(yard):
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("openssl, which makes the certificate, is not installed")
    names = ",".join(f"DNS:{host}" for host in HOSTS)
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=amazon", "-addext",
         f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", yard.root / "key.pem", "-out", yard.root / "ca.pem"],
        check=True, capture_output=True,
    )
    amazon = Amazon(yard.root / "ca.pem", yard.root / "key.pem")
    amazon.environment = {**KEYS, "HTTPS_PROXY": amazon.url, "AWS_CA_BUNDLE": str(yard.root / "ca.pem")}
    yield amazon
    amazon.close()


def job(yard, **members):
    request = yard.job(IMAGE, TrainingJobName="fit", RoleArn="arn:aws:iam::123456789012:role/r", **members)
    return json.dumps(request)


def test_the_same_job_file_goes_to_amazon_with_our_settings_as_tags(yard, amazon):
    amazon.answers["SageMaker.CreateTrainingJob"] = [
        (503, b"busy"), (200, {"TrainingJobArn": "arn:aws:sagemaker:eu-west-1:1:training-job/fit"}),
    ]
    settings = {"Merge": {"Output": "all.csv"}, "ShardBy": "key"}
    ended = yard.command(
        "submit", "-", "--endpoint", "aws", "--json", stdin=job(yard, Trainyard=settings), env=amazon.environment,
    )
    assert json.loads(ended.stdout)["TrainingJobArn"].endswith("training-job/fit")
    assert "Amazon does not merge" in ended.stderr
    for host, target, headers, body in amazon.requests:
        assert (host, target) == ("api.sagemaker.eu-west-1.amazonaws.com", "SageMaker.CreateTrainingJob")
        assert "Credential=AKIDEXAMPLE/" in headers["authorization"]
        assert "/eu-west-1/sagemaker/aws4_request" in headers["authorization"]
        assert headers["x-amz-security-token"] == "lent"
        assert "Trainyard" not in body and body["AlgorithmSpecification"]["TrainingImage"] == IMAGE
        assert body["Tags"] == [
            {"Key": "trainyard:Merge.Output", "Value": "all.csv"}, {"Key": "trainyard:ShardBy", "Value": "key"},
        ]
    assert len(amazon.requests) == 2


def test_what_amazon_can_not_honour_is_refused_before_anything_is_sent(yard, amazon):
    def refused(**members):
        ended = yard.command(
            "submit", "-", "--endpoint", "aws", stdin=job(yard, **members), env=amazon.environment, expect=2,
        )
        return ended.stderr

    assert "deals objects out by key only" in refused(Trainyard={"ShardBy": "size"})
    assert "OutputDataConfig.S3OutputPath: file:///srv" in refused(OutputDataConfig={"S3OutputPath": "file:///srv"})
    program = {"TrainingImage": "host:/bin/true", "TrainingInputMode": "File"}
    assert "push the image to a registry" in refused(AlgorithmSpecification=program)
    environment = {name: value for name, value in amazon.environment.items() if name != "AWS_REGION"}
    ended = yard.command("list", "--endpoint", "aws", env=environment, expect=2)
    assert "--region" in ended.stderr
    assert amazon.requests == []


def test_lists_follow_their_pages_and_logs_and_objects_come_from_their_own_hosts(yard, amazon):
    def page(first, count, **token):
        return 200, {"TrainingJobSummaries": [{"TrainingJobName": f"j{n}"} for n in range(first, first + count)], **token}

    amazon.answers["SageMaker.ListTrainingJobs"] = [
        (400, {"__type": "ThrottlingException", "message": "slow down"}), page(0, 100, NextToken="t"), page(100, 20),
    ]
    listed = yard.command("list", "--endpoint", "aws", "-n", "130", "--json", env=amazon.environment).stdout.splitlines()
    assert [json.loads(line)["TrainingJobName"] for line in listed] == [f"j{n}" for n in range(120)]
    sent = [body for _, _, _, body in amazon.requests[1:]]
    assert [(body["MaxResults"], body.get("NextToken")) for body in sent] == [(100, None), (30, "t")]

    described = {"TrainingJobName": "fit", "TrainingJobStatus": "Completed", "ResourceConfig": {"InstanceCount": 1}}
    amazon.answers["SageMaker.DescribeTrainingJob"] = [(200, described)]
    stream = "fit/algo-1-17"
    amazon.answers["Logs_20140328.DescribeLogStreams"] = [(200, {"logStreams": [{"logStreamName": stream}]})]
    empty = {"events": [], "nextForwardToken": "b", "nextBackwardToken": "x"}
    event = {"timestamp": 1, "message": "late", "ingestionTime": 1}
    amazon.answers["Logs_20140328.GetLogEvents"] = [
        (200, {**empty, "nextForwardToken": "a"}), (200, {**empty, "events": [event]}), (200, empty), (200, empty),
    ]
    assert yard.command("logs", "fit", "--endpoint", "aws", env=amazon.environment).stdout == "algo-1 | late\n"
    assert amazon.requests[-1][0] == "logs.eu-west-1.amazonaws.com"

    amazon.answers["/out/m.tar.gz"] = [(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")]
    source = "s3://results/out/m.tar.gz"
    ended = yard.command("artifact", "ls", source, "--endpoint", "aws", env=amazon.environment, expect=1)
    assert "NoSuchKey" in ended.stderr
    assert amazon.requests[-1][0] == "results.s3.eu-west-1.amazonaws.com"
    assert "/s3/aws4_request" in amazon.requests[-1][2]["authorization"]


def test_a_server_without_a_trusted_certificate_gets_no_request(yard, amazon):
    environment = {name: value for name, value in amazon.environment.items() if name != "AWS_CA_BUNDLE"}
    ended = yard.command("list", "--endpoint", "aws", env=environment, expect=1)
    assert "can't be reached" in ended.stderr and "certificate" in ended.stderr
    assert amazon.requests == []
