"""The endpoint under load: a store of many jobs, many creations, many followers of logs, and its memory over time.

    load.py TRAINYARD [--jobs N] [--minutes M] [--followers F] [--moto PYTHON]
    load.py TRAINYARD --soak MINUTES [--rate R]

Needs botocore (tests/environment). Client and server share the machine. Times are of the exchange alone, without signing.
"""

import argparse
import asyncio
import hashlib
import http.client
import json
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import botocore.auth
import botocore.awsrequest
import botocore.credentials

GROUP = "/aws/sagemaker/TrainingJobs"


class Server:
    """An endpoint and how it is spoken to."""

    def __init__(self, name, command, keys=("x", "x")):
        self.name, self.command, self.keys = name, command, keys
        self.process = None

    def start(self, port):
        self.host = f"127.0.0.1:{port}"
        self.process = subprocess.Popen([*self.command, *self.where(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                http.client.HTTPConnection(self.host, timeout=5).connect()
                return
            except OSError:
                assert time.monotonic() < end, f"{self.name} does not listen"
                time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def signed(self, target, body):
        """Headers and content of a request."""
        service = "logs" if target.startswith("Logs") else "sagemaker"
        text = json.dumps(body).encode()
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": target}
        request = botocore.awsrequest.AWSRequest("POST", f"http://{self.host}/", data=text, headers=headers)
        credentials = botocore.credentials.Credentials(*self.keys)
        botocore.auth.SigV4Auth(credentials, service, "us-east-1").add_auth(request)
        return dict(request.headers.items()), text

    def call(self, connection, target, body):
        """Seconds of the exchange, status and answer."""
        headers, text = self.signed(target, body)
        begun = time.perf_counter()
        connection.request("POST", "/", text, headers)
        answer = connection.getresponse()
        content = answer.read()
        return time.perf_counter() - begun, answer.status, content

    def memory(self):
        """Resident, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Trainyard(Server):
    def __init__(self, binary, folder, capacity="1"):
        command = [binary, "serve", "--data-dir", folder, "--bucket", f"results={folder}/results", "--max-instances", capacity]
        (Path(folder) / "results").mkdir(exist_ok=True)
        said = subprocess.run([binary, "env", "--data-dir", folder], capture_output=True, text=True, check=True).stdout
        found = dict(line.removeprefix("export ").split("=", 1) for line in said.splitlines() if line.startswith("export "))
        keys = (found["AWS_ACCESS_KEY_ID"].strip("'"), found["AWS_SECRET_ACCESS_KEY"].strip("'"))
        super().__init__("trainyard", command, keys)

    @staticmethod
    def where(port):
        return ["--listen", f"127.0.0.1:{port}"]


class Moto(Server):
    def __init__(self, python):
        super().__init__("moto", [str(Path(python).with_name("moto_server"))])

    @staticmethod
    def where(port):
        return ["-H", "127.0.0.1", "-p", str(port)]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def request(name, image, **members):
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::000000000000:role/any",
        "OutputDataConfig": {"S3OutputPath": "s3://results/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "Tags": [{"Key": "team", "Value": "a"}],
        **members,
    }


def described(server, name):
    connection = http.client.HTTPConnection(server.host)
    _, _, content = server.call(connection, "SageMaker.DescribeTrainingJob", {"TrainingJobName": name})
    return json.loads(content)


def many(database, pattern, count):
    """Copies the rows of one ended job under other names, minutes apart."""
    connection = sqlite3.connect(database)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    for table in sorted(tables, key=lambda table: table != "jobs"):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        key = "name" if table == "jobs" else "job"
        if key not in columns:
            continue
        rows = connection.execute(f"SELECT * FROM {table} WHERE {key} = ?", (pattern,)).fetchall()
        times = [columns.index(name) for name in ("created", "modified", "ended", "at") if name in columns]
        texts = [place for place, name in enumerate(columns) if name in ("request", "outline", key)]
        def copies():
            for number in range(count):
                for row in rows:
                    copy = list(row)
                    for place in texts:
                        copy[place] = copy[place].replace(pattern, f"{pattern}-{number:06}")
                    for place in times:
                        copy[place] -= (number + 1) * 60_000
                    yield copy
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})", copies())
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def spread(times):
    ordered = sorted(times)
    return f"p50 {1000 * statistics.median(ordered):7.2f} ms   p99 {1000 * ordered[int(len(ordered) * 0.99)]:7.2f} ms"


def timed(server, what, target, bodies, rounds):
    connection = http.client.HTTPConnection(server.host)
    times, size = [], 0
    for number in range(rounds):
        seconds, status, content = server.call(connection, target, bodies(number))
        assert status == 200, content
        times.append(seconds)
        size = len(content)
    print(f"  {server.name:10} {what:46} {spread(times)}   {size:>7} bytes", flush=True)
    return statistics.median(times)


def questions(server, count, rounds, search=True):
    """Reads of a store of many jobs."""
    chance = random.Random(1)
    now = time.time()

    def name():
        return f"pattern-{chance.randrange(count):06}"

    lists = [
        ("Describe", "SageMaker.DescribeTrainingJob", lambda _: {"TrainingJobName": name()}),
        ("List, first page of 100", "SageMaker.ListTrainingJobs", lambda _: {"MaxResults": 100}),
        ("List, NameContains of one job", "SageMaker.ListTrainingJobs", lambda _: {"NameContains": name()}),
        ("List, NameContains of none", "SageMaker.ListTrainingJobs", lambda _: {"NameContains": "nowhere"}),
        ("List, status and a day, by name", "SageMaker.ListTrainingJobs", lambda number: {
            "StatusEquals": "Completed", "CreationTimeAfter": now - 86400 * (2 + number % 60), "CreationTimeBefore":
            now - 86400 * (1 + number % 60), "SortBy": "Name", "MaxResults": 20}),
    ]
    searches = [
        ("Search, one status, newest 20", {"Filters": [{"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Completed"}]}),
        ("Search, a name", {"Filters": [{"Name": "TrainingJobName", "Operator": "Contains", "Value": "pattern-0123"}]}),
        ("Search, a tag and a status", {"Filters": [{"Name": "Tags.team", "Operator": "Equals", "Value": "a"}, {
            "Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Completed"}]}),
        ("Search, a tag that no job has", {"Filters": [{"Name": "Tags.team", "Operator": "Equals", "Value": "b"}]}),
    ]
    found = {}
    for what, target, bodies in lists:
        found[what] = timed(server, what, target, bodies, rounds)
    for what, expression in searches if search else []:
        body = {"Resource": "TrainingJob", "MaxResults": 20, "SearchExpression": expression}
        found[what] = timed(server, what, "SageMaker.Search", lambda _, body=body: body, rounds)
    return found


def creations(server, seconds, image, clients=4):
    """Jobs per second that several clients create side by side; all of them wait behind one."""
    counts, until = [0] * clients, time.monotonic() + seconds

    def create(number):
        connection = http.client.HTTPConnection(server.host)
        while time.monotonic() < until:
            name = f"new-{number}-{counts[number]}"
            _, status, content = server.call(connection, "SageMaker.CreateTrainingJob", request(name, image))
            assert status == 200, content
            counts[number] += 1

    workers = [threading.Thread(target=create, args=(number,)) for number in range(clients)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rate = sum(counts) / seconds
    print(f"  {server.name:10} CreateTrainingJob, {clients} clients: {rate:.0f} a second ({sum(counts)} in {seconds} s)", flush=True)
    return rate


async def follow(server, stream, until, times, lines):
    """One client that asks each second for what is new."""
    reader, writer = await asyncio.open_connection(*server.host.split(":"))
    token = None
    await asyncio.sleep(random.random())
    while time.monotonic() < until:
        body = {"logGroupName": GROUP, "logStreamName": stream, "startFromHead": True, **({"nextToken": token} if token else {})}
        headers, text = server.signed("Logs_20140328.GetLogEvents", body)
        head = "POST / HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        begun = time.perf_counter()
        writer.write(f"{head}Host: {server.host}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        page = json.loads(await reader.readexactly(length))
        times.append(time.perf_counter() - begun)
        lines[0] += len(page["events"])
        token = page["nextForwardToken"]
        await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - begun)))
    writer.close()


async def followers(server, stream, count, seconds):
    """Many clients follow one stream that grows; the memory of the server meanwhile."""
    times, lines, memory = [], [0], []
    until = time.monotonic() + seconds
    processor = Path(f"/proc/{server.process.pid}/stat")

    def used():
        return sum(map(int, processor.read_text().rsplit(") ", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    async def watch():
        while time.monotonic() < until:
            memory.append(server.memory())
            await asyncio.sleep(5)

    before = used()
    await asyncio.gather(watch(), *(follow(server, stream, until, times, lines) for _ in range(count)))
    print(f"  {count} followers for {seconds} s: {len(times)} requests, {lines[0]} lines, {spread(times)}, "
          f"{100 * (used() - before) / seconds:.0f} % of a processor")
    marks = [memory[int(len(memory) * part)] for part in (0, 0.25, 0.5, 0.75)] + [memory[-1]]
    print("  resident memory over that time: " + ", ".join(f"{mark:.1f}" for mark in marks) + " MiB", flush=True)


def soak(server, image, minutes, rate):
    """Jobs that run and end, and questions about them, `rate` rounds a second; the memory of the server each minute."""
    marks, until, rounds, requests = [], time.monotonic() + 60 * minutes, 0, 0
    connection, begun = http.client.HTTPConnection(server.host), time.monotonic()
    by_status = {"Resource": "TrainingJob", "MaxResults": 20, "SearchExpression": {
        "Filters": [{"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Completed"}]}}
    while (now := time.monotonic()) < until:
        if len(marks) <= (now - begun) // 60:
            marks.append(server.memory())
            print(f"  after {(now - begun) / 60:4.0f} min: {marks[-1]:.1f} MiB, {rounds} jobs, {requests} requests", flush=True)
        name = f"soak-{rounds}"
        before = f"soak-{max(0, rounds - 10)}"
        for target, body in [
            ("SageMaker.CreateTrainingJob", request(name, image)),
            ("SageMaker.DescribeTrainingJob", {"TrainingJobName": name}),
            ("SageMaker.ListTrainingJobs", {"MaxResults": 20}),
            ("SageMaker.ListTrainingJobs", {"NameContains": before}),
            ("SageMaker.Search", by_status),
            ("Logs_20140328.DescribeLogStreams", {"logGroupName": GROUP, "logStreamNamePrefix": f"{before}/"}),
        ]:
            _, status, content = server.call(connection, target, body)
            assert status == 200, content
            requests += 1
        rounds += 1
        # A signature is good for a quarter of an hour, so none is made before its time.
        time.sleep(max(0.0, begun + rounds / rate - time.monotonic()))
    marks.append(server.memory())
    took = time.monotonic() - begun
    print(f"  {took / 60:.1f} min, {rounds} jobs, {requests} requests: {marks[0]:.1f} MiB at first, {marks[-1]:.1f} at the end, "
          f"{max(marks):.1f} at most, {statistics.median(marks[len(marks) // 2:]):.1f} in the middle of the second half", flush=True)


def soaked(binary, minutes, rate):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        program = Path(folder) / "train"
        program.write_text("#!/bin/sh\necho a line of the log\n")
        program.chmod(0o755)
        server = Trainyard(binary, folder)
        server.start(free_port())
        soak(server, f"host:{program}", minutes, rate)
        server.stop()


def ended(server, name):
    while (status := described(server, name).get("TrainingJobStatus")) not in ("Completed", "Failed", "Stopped"):
        time.sleep(0.05)
    return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--followers", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--moto", help="a Python with moto[server]")
    parser.add_argument("--soak", type=float, help="only watch the memory for so many minutes under a small load")
    parser.add_argument("--rate", type=float, default=1, help="rounds a second of that load, a job in each")
    given = parser.parse_args()
    version = subprocess.run([given.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    digest = hashlib.sha256(Path(given.binary).read_bytes()).hexdigest()[:12]
    print(f"{version} ({digest}), {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    if given.soak:
        return soaked(given.binary, given.soak, given.rate)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        program = Path(folder) / "train"
        program.write_text('#!/bin/sh\n[ "$LONG" ] || exit 0\nwhile :; do echo "a line of the log $(date +%s%N)"; sleep 0.2; done\n')
        program.chmod(0o755)
        image = f"host:{program}"
        server = Trainyard(given.binary, folder)
        server.start(free_port())
        connection = http.client.HTTPConnection(server.host)
        server.call(connection, "SageMaker.CreateTrainingJob", request("pattern", image))
        assert ended(server, "pattern") == "Completed"
        server.stop()
        database = max(Path(folder).rglob("*.sqlite*"), key=lambda path: path.stat().st_size if path.parent == Path(folder) else 0)
        many(database, "pattern", given.jobs)
        begun = time.monotonic()
        server.start(free_port())
        print(f"{given.jobs} stored jobs, {database.stat().st_size >> 20} MiB; the endpoint listens after {time.monotonic() - begun:.2f} s, "
              f"{server.memory():.0f} MiB")
        ours = questions(server, given.jobs, given.rounds)
        print(f"  memory after that: {server.memory():.0f} MiB")

        print("a job that runs and writes five lines a second, the others wait behind it")
        server.call(connection := http.client.HTTPConnection(server.host), "SageMaker.CreateTrainingJob",
                    request("long", image, Environment={"LONG": "1"}))
        while described(server, "long")["SecondaryStatus"] != "Training":
            time.sleep(0.05)
        _, _, content = server.call(connection, "Logs_20140328.DescribeLogStreams", {"logGroupName": GROUP, "logStreamNamePrefix": "long/"})
        stream = json.loads(content)["logStreams"][0]["logStreamName"]
        asyncio.run(followers(server, stream, given.followers, max(10, round(given.minutes * 60))))
        rate = creations(server, 10, image)
        print(f"  memory after that: {server.memory():.0f} MiB")
        server.stop()
        # The job goes on without its endpoint; it is stopped by the next.
        server.start(free_port())
        server.call(http.client.HTTPConnection(server.host), "SageMaker.StopTrainingJob", {"TrainingJobName": "long"})
        ended(server, "long")
        server.stop()
    if given.moto:
        beside_moto(given, ours, rate, image)
    return None


def beside_moto(given, ours, rate, image):
    """What moto can do too: it runs nothing and keeps jobs in memory, so it has fewer of them here."""
    version = subprocess.run([given.moto, "-c", "import moto; print(moto.__version__)"], capture_output=True, text=True, check=True)
    print(f"moto {version.stdout.strip()}, 2,000 jobs")
    moto = Moto(given.moto)
    moto.start(free_port())
    connection = http.client.HTTPConnection(moto.host)
    for number in range(2000):
        _, status, content = moto.call(connection, "SageMaker.CreateTrainingJob", request(f"pattern-{number:06}", image))
        assert status == 200, content
    theirs = questions(moto, 2000, 30, search=False)
    for what, seconds in theirs.items():
        print(f"  moto / trainyard, {what}: {seconds / ours[what]:.1f}")
    print(f"  trainyard / moto, creations: {rate / creations(moto, 5, image):.1f}")
    moto.stop()


if __name__ == "__main__":
    main()
