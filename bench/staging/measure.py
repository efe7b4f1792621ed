"""Staging and artifacts beside other tools, in turns: measure.py ROUNDS"""

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests"))

import store  # noqa: E402
import yard as yards  # noqa: E402

MIB = 1 << 20
SMALL, LARGE, LARGE_MIB, ARTIFACT_MIB = (
    int(os.environ.get(name, default))
    for name, default in [("SMALL", 10000), ("LARGE", 4), ("LARGE_MIB", 1024), ("ARTIFACT_MIB", 4096)]
)
BINARY = os.environ["TRAINYARD_BIN"]
KEYS = {"AWS_ACCESS_KEY_ID": store.KEYS[0], "AWS_SECRET_ACCESS_KEY": store.KEYS[1], "AWS_DEFAULT_REGION": "us-east-1"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | KEYS


Cost = collections.namedtuple("Cost", "seconds processor memory disk")
"""Seconds, seconds of processors, MiB of the largest process, MiB of the disk."""


class Peak(threading.Thread):
    """The most memory of one process whose command line holds all of some texts, in MiB."""

    def __init__(self, *texts):
        super().__init__(daemon=True)
        self.texts, self.most, self.ended = [text.encode() for text in texts], 0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.02):
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    if all(text in (folder / "cmdline").read_bytes() for text in self.texts):
                        status = (folder / "status").read_text().split("VmHWM:")[1].split()[0]
                        self.most = max(self.most, int(status) // 1024)

    def end(self):
        self.ended.set()
        self.join()
        return self.most


def processor_seconds():
    """Of all children that have ended, in user code and in the kernel."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def disk_of(folder):
    """MiB of a folder; a file with several names counts once."""
    said = subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=False)
    return int(said.stdout.split()[0]) // 1024


def fill(client, bucket, count, size):
    client.create_bucket(Bucket=bucket)
    generator = random.Random(1)

    def put(number):
        with tempfile.NamedTemporaryFile() as file:
            for start in range(0, size, 16 * MIB):
                file.write(noise[number][: min(size - start, 16 * MIB)])
            file.flush()
            client.upload_file(file.name, bucket, f"in/{number:05}")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for first in range(0, count, 64):
            numbers = range(first, min(first + 64, count))
            noise = {number: generator.randbytes(min(size, 16 * MIB)) for number in numbers}
            list(pool.map(put, numbers))


def fresh(folder):
    """Makes the place of a folder free. Nothing is removed: ext4 is slow to make files right after many were."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-{time.monotonic_ns()}"))
    return folder


def cleared(work):
    """Removes what all runs have left."""
    for folder in [*work.glob("peer*"), *work.glob("trainyard*")]:
        shutil.rmtree(folder)


def peer(*command, target, **variables):
    """What another tool takes."""
    began, used = time.monotonic(), processor_seconds()
    peak = Peak(str(command[-1]))
    env = ENVIRONMENT | variables
    subprocess.run(list(map(str, command)), check=True, env=env, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    return Cost(seconds, processor_seconds() - used, peak.end(), disk_of(target))


class Job:
    """A job that waits while all its instances train until it is told to go on."""

    def __init__(self, folder, url, program, instances, **members):
        config = folder / "config.toml"
        folder.mkdir(parents=True)
        # Instances don't see files that come later.
        (folder / "gate").touch()
        config.write_text(f"[storage]\nendpoint = '{url}'\n[cache]\nmax = '100 GB'\n")
        request = {
            "TrainingJobName": "bench",
            "AlgorithmSpecification": {"TrainingImage": f"host:{program(folder)}", "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": f"file://{folder}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 100},
            "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
            **members,
        }
        command = [BINARY, "run", "-", "--json", "--config", config, "--data-dir", folder / "data"]
        self.folder, self.events, self.used = folder, [], processor_seconds()
        self.peak = Peak("instance", str(folder))
        self.began = time.time()
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        self.process.stdin.write(json.dumps(request))
        self.process.stdin.close()

    def until(self, instances):
        """The time at which the last of the instances has begun to train, in seconds."""
        training = {}
        for line in self.process.stdout:
            self.events.append(event := json.loads(line))
            if event["event"] == "progress" and event["phase"] == "training":
                training.setdefault(event["host"], event["at"] / 1000)
                if len(training) == instances:
                    return max(training.values())
        raise AssertionError(self.events[-3:])

    def end(self):
        """Lets the programs end; gives the most memory of a supervisor and the seconds of the processors."""
        (self.folder / "gate").write_text("open")
        self.events.extend(map(json.loads, self.process.stdout))
        assert self.process.wait() == 0, self.events[-3:]
        return self.peak.end(), processor_seconds() - self.used


def script(text):
    """Writes a program that ends when there is something in the gate."""

    def write(folder):
        path = folder / "bin/train"
        path.parent.mkdir()
        path.write_text(text.replace("GATE", str(folder / "gate")))
        path.chmod(0o755)
        return path

    return write


WAIT = script("#!/bin/sh\nwhile [ ! -s GATE ]; do sleep 0.02; done\n")


def staged(work, url, bucket, instances):
    """From the command to the last instance that trains."""
    folder = fresh(work / "trainyard")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/in/"}
    channel = {"ChannelName": "in", "DataSource": {"S3DataSource": source}}
    job = Job(folder, url, WAIT, instances, InputDataConfig=[channel])
    seconds = job.until(instances) - job.began
    disk = disk_of(folder)
    memory, processor = job.end()
    return Cost(seconds, processor, memory, disk)


def peers_of(url, bucket, target):
    """The commands of the other tools that are there; each copies all objects once."""
    beside = pathlib.Path(sys.executable).with_name
    there = f"s3://{bucket}/in/"
    aws = [beside("aws"), "s3", "sync", "--only-show-errors", "--endpoint-url", url, there, target]
    yield "aws s3 sync", aws, {}
    if rclone := shutil.which("rclone"):
        remote = f":s3,provider=SeaweedFS,env_auth=true,endpoint='{url}':{bucket}/in"
        yield "rclone, 32 transfers", [rclone, "copy", "--transfers", 32, "--checkers", 32, remote, target], {}
    if s5cmd := shutil.which("s5cmd") or shutil.which(beside("s5cmd")):
        yield "s5cmd", [s5cmd, "--log", "error", "--endpoint-url", url, "cp", f"{there}*", f"{target}/"], {}
    if (local := pathlib.Path(sys.prefix) / "sagemaker-v2").exists():
        # What local mode does with a channel before it starts a container.
        code = (
            "import sys, boto3, sagemaker, sagemaker.utils as utils\n"
            f"client = boto3.resource('s3', endpoint_url='{url}')\n"
            "session = sagemaker.Session(boto_session=boto3.Session(), default_bucket='any')\n"
            "session.s3_resource = client\n"
            f"utils.download_folder('{bucket}', 'in/', sys.argv[1], session)\n"
        )
        variables = {"PYTHONPATH": str(local), "SAGEMAKER_SUPPRESS_V2_WARNING": "1"}
        yield "SageMaker SDK, local mode", [sys.executable, "-c", code, target], variables


def staging(work, weed, bucket):
    target = work / "peer"

    def measured(command, variables):
        fresh(target).mkdir()
        return peer(*command, target=target, **variables)

    contestants = {
        f"Trainyard, {count} instance{'s'[: count > 1]}": lambda count=count: staged(work, weed.url, bucket, count)
        for count in (1, 4)
    }
    for name, command, variables in peers_of(weed.url, bucket, target):
        contestants[name] = lambda command=command, variables=variables: measured(command, variables)
    return contestants


NOISY = """
import os, random, socket, sys, time
generator, words = random.Random(1), b"once upon a time " * 4096
with open(sys.argv[1] if len(sys.argv) > 1 else "/opt/ml/model/" + socket.gethostname(), "wb") as file:
    for _ in range({} // (1 << 20)):
        file.write(generator.randbytes(1 << 19) + (words * 8)[: 1 << 19])
"""


def artifact(work, weed):
    """From the end of the last program to the end of the job."""
    write = NOISY.format(ARTIFACT_MIB * MIB // 4)
    plain = work / "plain"
    plain.mkdir()
    for host in range(4):
        subprocess.run([sys.executable, "-c", write, plain / str(host)], check=True)

    def trainyard():
        folder = work / "artifact"
        program = script(f"#!{yards.PYTHON}{write}\nwhile not os.path.getsize('GATE'):\n    time.sleep(0.02)\n")
        job = Job(folder, weed.url, program, 4, OutputDataConfig={"S3OutputPath": "s3://artifacts/ours"})
        job.until(4)
        memory, processor = job.end()
        exited = max(event["at"] for event in job.events if event["event"] == "exited")
        ended = [event for event in job.events if event["event"] == "transition"][-1]["at"]
        disk = disk_of(folder)
        shutil.rmtree(folder)
        return Cost((ended - exited) / 1000, processor, memory, disk)

    def python():
        code = (
            "import sys, tarfile, boto3\n"
            "with tarfile.open(sys.argv[1] + '.tar.gz', 'w:gz', compresslevel=6) as tar:\n    tar.add(sys.argv[1], '.')\n"
            f"boto3.client('s3', endpoint_url='{weed.url}').upload_file(sys.argv[1] + '.tar.gz', 'artifacts', 'theirs')\n"
        )
        return peer(sys.executable, "-c", code, plain, target=f"{plain}.tar.gz")

    weed.client().create_bucket(Bucket="artifacts")
    return {"Trainyard, 4 instances": trainyard, "Python tarfile (level 6) and boto3": python}


def measure(title, contestants, rounds, after=lambda: None):
    """Each contestant in turn, so many times; prints the medians and the most memory."""
    results = collections.defaultdict(list)
    for _ in range(rounds):
        for name, run in contestants.items():
            results[name].append(run())
            after()
    print(f"\n{title}\n\n| | seconds | seconds of processors | peak MiB of one process | MiB of disk |")
    print("|---|---|---|---|---|")
    for name, runs in results.items():
        columns = list(zip(*runs))
        seconds, processor = map(statistics.median, columns[:2])
        print(f"| {name} | {seconds:.2f} | {processor:.1f} | {max(columns[2])} | {max(columns[3])} |", flush=True)


def main():
    rounds = int(sys.argv[1])
    work = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-", dir=os.environ.get("BENCH_DIR", "/var/tmp")))
    (work / "weed").mkdir()
    weed = store.Weed(store.find_weed(), work / "weed")
    try:
        client = weed.client()
        if SMALL:
            fill(client, "small", SMALL, 100_000)
            measure(f"{SMALL} objects of 100 KB", staging(work, weed, "small"), rounds)
            cleared(work)
        if LARGE:
            fill(client, "large", LARGE, LARGE_MIB * MIB)
            measure(f"{LARGE} objects of {LARGE_MIB} MiB", staging(work, weed, "large"), rounds, lambda: cleared(work))
            cleared(work)
        if ARTIFACT_MIB:
            measure(f"An artifact of {ARTIFACT_MIB} MiB, half of it noise", artifact(work, weed), rounds)
    finally:
        weed.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
