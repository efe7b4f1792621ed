"""Requests that are right, almost right and nonsense, signed or not, written to sockets as they are made."""

import concurrent.futures
import datetime
import functools
import hashlib
import hmac
import json
import random
import socket
import threading
import urllib.parse

NAMES = ["job-1", "noise", "n" * 63, "UPPER", "", "a" * 64, "bad name", "ü", "../x", "-", "x" * 5000]
WORDS = [
    None, True, False, 0, 1, -1, 1e308, -1e-308, 2**31, 2**63, 2**64, 0.5, "", "x", "Completed", "InProgress", "Name", "algo-1",
    "\x00", "\U0001f600", "a" * 3000, [], {}, [[]], [{}], [None], {"a": {"b": []}}, "NaN", "1970-01-01T00:00:00Z", 1700000000.123,
    "TrainingJob", "Descending", "f/0/s", "b/99999999999999999999/s", "arn:aws:sagemaker:us-east-1:000000000000:training-job/noise",
]
JOB = {
    "TrainingJobName": "noise",
    "AlgorithmSpecification": {"TrainingImage": "host:/no/such/program", "TrainingInputMode": "File",
                               "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}]},
    "RoleArn": "arn:aws:iam::000000000000:role/any",
    "InputDataConfig": [{"ChannelName": "in", "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": "s3://no-bucket/x", "S3DataDistributionType": "ShardedByS3Key"}}}],
    "OutputDataConfig": {"S3OutputPath": "s3://no-bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 5},
    "HyperParameters": {"a": "1"}, "Environment": {"A": "1"}, "Tags": [{"Key": "k", "Value": "v"}],
}
SEARCH = {
    "Resource": "TrainingJob", "MaxResults": 10, "SortBy": "CreationTime", "SortOrder": "Ascending",
    "SearchExpression": {"Operator": "And", "Filters": [{"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Failed"}],
                         "SubExpressions": [{"Filters": [{"Name": "Tags.k", "Operator": "Contains", "Value": "v"}]}],
                         "NestedFilters": [{"NestedPropertyName": "InputDataConfig", "Filters": [
                             {"Name": "InputDataConfig.ChannelName", "Operator": "In", "Value": "a,b"}]}]},
}
GROUP = "/aws/sagemaker/TrainingJobs"
METRIC = {"Namespace": GROUP, "MetricName": "CPUUtilization", "Dimensions": [{"Name": "Host", "Value": "noise/algo-1"}],
          "StartTime": 1700000000, "EndTime": 1800000000, "Period": 60, "Statistics": ["Average"]}
ARN = {"ResourceArn": "arn:aws:sagemaker:us-east-1:000000000000:training-job/noise"}
CALLS = [
    ("sagemaker", "SageMaker", "CreateTrainingJob", JOB),
    ("sagemaker", "SageMaker", "DescribeTrainingJob", {"TrainingJobName": "noise"}),
    ("sagemaker", "SageMaker", "ListTrainingJobs", {"MaxResults": 5, "NameContains": "n", "StatusEquals": "Failed", "SortBy": "Name",
                                                    "CreationTimeAfter": 1700000000, "NextToken": "x"}),
    ("sagemaker", "SageMaker", "StopTrainingJob", {"TrainingJobName": "noise"}),
    ("sagemaker", "SageMaker", "UpdateTrainingJob", {"TrainingJobName": "noise", "ProfilerConfig": {"DisableProfiler": True}}),
    ("sagemaker", "SageMaker", "DeleteTrainingJob", {"TrainingJobName": "noise"}),
    ("sagemaker", "SageMaker", "AddTags", {**ARN, "Tags": [{"Key": "k", "Value": "v"}]}),
    ("sagemaker", "SageMaker", "ListTags", {**ARN, "MaxResults": 50}),
    ("sagemaker", "SageMaker", "DeleteTags", {**ARN, "TagKeys": ["k"]}),
    ("sagemaker", "SageMaker", "Search", SEARCH),
    ("sagemaker", "SageMaker", "CreateModel", {"ModelName": "m"}),
    ("logs", "Logs_20140328", "DescribeLogGroups", {"logGroupNamePrefix": "/aws", "limit": 5}),
    ("logs", "Logs_20140328", "DescribeLogStreams", {"logGroupName": GROUP, "logStreamNamePrefix": "noise/", "orderBy": "LogStreamName"}),
    ("logs", "Logs_20140328", "GetLogEvents", {"logGroupName": GROUP, "logStreamName": "noise/algo-1-1", "startFromHead": True,
                                               "nextToken": "f/0/s", "limit": 10, "startTime": 0, "endTime": 2**40}),
    ("logs", "Logs_20140328", "FilterLogEvents", {"logGroupName": GROUP, "logStreamNames": ["noise/algo-1-1"], "filterPattern": "a"}),
    ("monitoring", "GraniteServiceVersion20100801", "GetMetricStatistics", METRIC),
    ("monitoring", "GraniteServiceVersion20100801", "ListMetrics", {"Namespace": GROUP}),
    ("monitoring", "GraniteServiceVersion20100801", "GetMetricData", {"StartTime": 1, "EndTime": 2, "MetricDataQueries": [
        {"Id": "a", "MetricStat": {"Metric": {"Namespace": GROUP, "MetricName": "x"}, "Period": 60, "Stat": "Average"}}]}),
    ("ecr", "AmazonEC2ContainerRegistry_V20150921", "GetAuthorizationToken", {}),
]
FORMS = [
    ("sts", {"Action": "GetCallerIdentity", "Version": "2011-06-15"}),
    ("iam", {"Action": "GetRole", "Version": "2010-05-08", "RoleName": "any"}),
    ("iam", {"Action": "SimulatePrincipalPolicy", "Version": "2010-05-08", "PolicySourceArn": "arn:aws:iam::000000000000:role/any",
             "ActionNames.member.1": "s3:PutObject"}),
    ("monitoring", {"Action": "GetMetricStatistics", "Version": "2010-08-01", "Namespace": GROUP, "MetricName": "x", "Period": "60"}),
]
S3_QUERIES = [
    "", "", "", "uploads", "uploads=", "uploadId=x&partNumber=1", "list-type=2&prefix=a&delimiter=%2F", "versions", "tagging", "location",
    "list-type=2&max-keys=-1", "max-keys=99999999999999999999", "list-type=2&continuation-token=%FF", "delete", "acl", "cors", "policy",
    "partNumber=0", "attributes", "encoding-type=url&marker=%00", "versionId=null", "x-id=GetObject", "&&&=&", "%", "a=%zz", "response-expires=x",
]
S3_BODIES = [
    b"", b"content", b"<Delete><Object><Key>a</Key></Object></Delete>", b"<Delete>", b"<a/>", b"\xff\xfe", b"<?xml version='1.0'?><!DOCTYPE a>",
    b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>",
    b"<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>", b"<" * 2000,
]
S3_HEADERS = [
    ("Range", "bytes=0-0"), ("Range", "bytes=-"), ("Range", "bytes=9999999999999999999-"), ("If-Match", '"x"'), ("If-None-Match", "*"),
    ("If-Modified-Since", "never"), ("x-amz-copy-source", "/noise-bucket/a"), ("x-amz-copy-source", "%"), ("Content-MD5", "x"),
    ("x-amz-checksum-crc32", "x"), ("x-amz-meta-a", "\u00fc".encode().decode("latin-1")), ("x-amz-tagging", "a=1&a=2"), ("Expires", "x"),
    ("x-amz-metadata-directive", "REPLACE"), ("x-amz-object-attributes", "ETag,,x"), ("x-amz-copy-source-range", "bytes=5-1"),
    ("x-amz-sdk-checksum-algorithm", "SHA512"), ("x-amz-storage-class", "x"), ("x-amz-expected-bucket-owner", "1"),
]


def varied(value, chance, depth=0):
    """The same value with something of it changed, left out, doubled or put elsewhere."""
    if chance.random() < 0.06:
        return chance.choice(WORDS)
    if isinstance(value, dict):
        changed = {key: varied(of, chance, depth + 1) for key, of in value.items() if chance.random() > 0.03}
        if chance.random() < 0.05:
            changed[chance.choice([*value, "Unknown", "", "a" * 200])] = chance.choice(WORDS)
        return changed
    if isinstance(value, list):
        times = chance.choice([0, 1, 1, 1, 2, 101]) if depth < 3 else 1
        return [varied(of, chance, depth + 1) for of in value for _ in range(times)]
    if isinstance(value, str) and chance.random() < 0.1:
        return chance.choice(NAMES)
    return value


def garbled(content, chance):
    """Bytes of which some are changed, cut off or doubled."""
    changed = bytearray(content)
    for _ in range(chance.choice([0, 1, 1, 3])):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    end = chance.randrange(len(changed) + 1) if chance.random() < 0.3 else len(changed)
    return bytes(changed[:end])


class Noise:
    """A source of requests for an endpoint with these keys; the same seed makes the same ones."""

    def __init__(self, host, keys, seed):
        self.host = host
        self.access, self.secret = keys
        self.chance = random.Random(seed)
        self._keys = {}

    def request(self):
        """The bytes of a request, and whether its answer has a body."""
        kind = self.chance.random()
        if kind < 0.5:
            method, path, query, headers, body, service = self._json()
        elif kind < 0.57:
            method, path, query, headers, body, service = self._form()
        elif kind < 0.6:
            return self._presigned(), True
        else:
            method, path, query, headers, body, service = self._s3()
        headers["Host"] = self.host
        if self.chance.random() < 0.95:
            self._sign(method, path, query, headers, body, service)
        headers["Content-Length"] = str(len(body))
        target = path + ("?" + query if query else "")
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return head.encode("latin-1") + b"\r\n" + body, method != "HEAD"

    def _json(self):
        service, prefix, operation, template = self.chance.choice(CALLS)
        body = json.dumps(varied(template, self.chance)).encode()
        kind = self.chance.random()
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"{prefix}.{operation}"}
        if kind < 0.1:
            body = garbled(body, self.chance)
        elif kind < 0.13:
            # As new clients speak to CloudWatch.
            headers = {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}
            body = garbled(b"\xbf\x69\x4e\x61\x6d\x65\x73\x70\x61\x63\x65\x63\x61\x62\x63\xff", self.chance)
            return "POST", f"/service/{prefix}/operation/{operation}", "", headers, body, service
        elif kind < 0.15:
            headers["X-Amz-Target"] = self.chance.choice(["", ".", "x", "SageMaker.", f"{prefix}.{operation}x", "a.b.c"])
        elif kind < 0.17:
            body = b"[" * self.chance.choice([10, 1000, 100_000])
        return "POST", "/", "", headers, body, service

    def _form(self):
        service, template = self.chance.choice(FORMS)
        fields = varied(template, self.chance)
        body = urllib.parse.urlencode(fields).encode() if isinstance(fields, dict) else b"%%%=&&a"
        return "POST", "/", "", {"Content-Type": "application/x-www-form-urlencoded"}, garbled(body, self.chance), service

    def _presigned(self):
        """A form in the query, with its signature; sometimes wrong on purpose."""
        service, template = self.chance.choice(FORMS)
        fields = varied(template, self.chance)
        fields = [(str(name), str(value)) for name, value in fields.items()] if isinstance(fields, dict) else []
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/us-east-1/{service}/aws4_request"
        fields += [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"), ("X-Amz-Credential", f"{self.access}/{scope}"), ("X-Amz-Date", now),
            ("X-Amz-Expires", self.chance.choice(["60", "60", "60", "604800", "0", "-1", "x", ""])), ("X-Amz-SignedHeaders", "host"),
        ]
        query = "&".join(sorted(urllib.parse.urlencode(fields, quote_via=urllib.parse.quote).split("&")))
        canonical = f"GET\n/\n{query}\nhost:{self.host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
        query += f"&X-Amz-Signature={self._signature(now, scope, service, canonical)}"
        if self.chance.random() < 0.3:
            query = "".join(letter if 32 < ord(letter) < 127 else "%" for letter in garbled(query.encode(), self.chance).decode("latin-1"))
        return f"GET /?{query} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode("latin-1")

    def _s3(self):
        chance = self.chance
        method = chance.choice(["GET", "GET", "GET", "PUT", "PUT", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS"])
        key = urllib.parse.quote(chance.choice(["", "", "a", "a", "a/b", "a//b", "../x", "ü", "k" * 1100, "a%00b"]), safe="/%")
        path = chance.choice(["/", "/noise-bucket", "/noise-bucket/", "/noise-bucket/" + key, "/no-bucket/" + key, "/Bad_Bucket/x", "//"])
        headers = {}
        for name, value in chance.sample(S3_HEADERS, chance.choice([0, 0, 1, 2])):
            headers[name] = value
        body = chance.choice(S3_BODIES) if method in ("PUT", "POST") else b""
        return method, path, chance.choice(S3_QUERIES), headers, body, "s3"

    def _sign(self, method, path, query, headers, body, service):
        """SigV4; sometimes wrong on purpose."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        headers["X-Amz-Date"] = now
        hashed = hashlib.sha256(body).hexdigest()
        if service == "s3":
            headers["X-Amz-Content-SHA256"] = hashed
            canonical_path = path
        else:
            canonical_path = urllib.parse.quote(path, safe="/-_.~")
        pairs = sorted(tuple((pair + "=").split("=")[:2]) for pair in query.split("&") if pair)
        canonical_query = "&".join(f"{name}={value}" for name, value in pairs)
        lower = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
        names = ";".join(sorted(lower))
        lines = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower))
        canonical = f"{method}\n{canonical_path}\n{canonical_query}\n{lines}\n{names}\n{hashed}"
        scope = f"{now[:8]}/us-east-1/{service}/aws4_request"
        signature = self._signature(now, scope, service, canonical)
        said = f"AWS4-HMAC-SHA256 Credential={self.access}/{scope}, SignedHeaders={names}, Signature={signature}"
        if self.chance.random() < 0.03:
            said = garbled(said.encode(), self.chance).decode("latin-1").replace("\r", "").replace("\n", "").replace("\0", "")
        headers["Authorization"] = said

    def _signature(self, now, scope, service, canonical):
        digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}".encode()
        return hmac.new(self._key(now[:8], service), text, hashlib.sha256).hexdigest()

    def _key(self, date, service):
        if (date, service) not in self._keys:
            steps = [date, "us-east-1", service, "aws4_request"]
            start = ("AWS4" + self.secret).encode()
            self._keys[date, service] = functools.reduce(
                lambda key, step: hmac.new(key, step.encode(), hashlib.sha256).digest(), steps, start
            )
        return self._keys[date, service]


def answers(stream, bodies):
    """The statuses of the answers to pipelined requests, as far as the connection goes."""
    found = []
    for has_body in bodies:
        line = stream.readline()
        if not line:
            break
        status = int(line.split()[1])
        length, chunked = 0, False
        while (header := stream.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
            chunked = chunked or (name.lower() == b"transfer-encoding" and b"chunked" in value.lower())
        text = b""
        if has_body and status not in (204, 304):
            text = _chunks(stream) if chunked else stream.read(length)
        found.append((status, text))
    return found


def _chunks(stream):
    whole = b""
    while size := int(stream.readline().split(b";")[0] or b"0", 16):
        whole += stream.read(size)
        stream.readline()
    stream.readline()
    return whole


def make(url, keys, count, seed, threads=8, pipelined=20):
    """Sends so many requests; how often each status was answered, and the requests with a wrong answer."""
    host, port = url.removeprefix("http://").split(":")
    seen, wrong, lock = {}, [], threading.Lock()

    def work(number):
        noise = Noise(f"{host}:{port}", keys, seed * 1000 + number)
        left = count // threads
        while left > 0 and len(wrong) < 20:
            sent = [noise.request() for _ in range(min(pipelined, left))]
            left -= len(sent)
            if noise.chance.random() < 0.05:
                sent[-1] = (garbled(sent[-1][0], noise.chance), True)
            with socket.create_connection((host, int(port)), timeout=60) as connection, connection.makefile("rb") as stream:
                # Somebody has to read while the rest is written, or both sides wait.
                writing = threading.Thread(target=_write, args=(connection, b"".join(request for request, _ in sent)))
                writing.start()
                try:
                    got = answers(stream, [has_body for _, has_body in sent])
                except ConnectionError:
                    got = []
                writing.join()
            with lock:
                for (request, _), (status, text) in zip(sent, got, strict=False):
                    seen[status] = seen.get(status, 0) + 1
                    if status >= 500 and status != 501:
                        wrong.append((status, text[:300], request[:2000]))
                seen["unanswered"] = seen.get("unanswered", 0) + len(sent) - len(got)

    with concurrent.futures.ThreadPoolExecutor(threads) as workers:
        # What goes wrong in one is raised here.
        list(workers.map(work, range(threads)))
    return seen, wrong


def _write(connection, content):
    try:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        # The endpoint has closed it, as it does after nonsense.
        pass
