"""Staging and artifacts beside other tools, in turns: measure.py ROUNDS"""

import collections
import contextlib
import json
import os
import pathlib
import random
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


class Peak(threading.Thread):
    """The most memory of one process whose command line holds a text, in MiB."""

    def __init__(self, *texts):
        super().__init__(daemon=True)
        self.texts, self.most, self.ended = [text.encode() for text in texts], 0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.02):
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError, ValueError):
                    if all(text in (folder / "cmdline").read_bytes() for text in self.texts):
                        status = (folder / "status").read_text().split("VmHWM:")[1].split()[0]
                        self.most = max(self.most, int(status) // 1024)

    def end(self):
        self.ended.set()
        self.join()
        return self.most


def fill(client, bucket, count, size):
    client.create_bucket(Bucket=bucket)
    generator = random.Random(1)
    with tempfile.NamedTemporaryFile() as file:
        for number in range(count):
            file.seek(0)
            file.truncate()
            for _ in range(0, size, 16 * MIB):
                file.write(generator.randbytes(min(size, 16 * MIB)))
            file.flush()
            client.upload_file(file.name, bucket, f"in/{number:05}")


def peer(*command):
    """Seconds and MiB of another tool."""
    began = time.monotonic()
    peak = Peak(str(command[-1]))
    subprocess.run(list(map(str, command)), check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    return seconds, peak.end()


def job(folder, url, **members):
    config = folder / "config.toml"
    config.write_text(f"[storage]\nendpoint = '{url}'\n[cache]\nmax = '100 GB'\n")
    request = {
        "TrainingJobName": "bench",
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": f"file://{folder}/out"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        **members,
    }
    peak = Peak("instance", str(folder))
    command = [BINARY, "run", "-", "--json", "--config", config, "--data-dir", folder / "data"]
    ended = subprocess.run(
        list(map(str, command)), input=json.dumps(request), capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout[-3000:]
    return [json.loads(line) for line in ended.stdout.splitlines()], peak.end()


def program(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "train"
    path.write_text(text)
    path.chmod(0o755)
    return path


def staged(work, url, bucket, instances):
    """From the first report to "training" of the slowest instance."""
    folder = work / "trainyard"
    image = f"host:{program(folder / 'bin', '#!/bin/sh' + chr(10))}"
    events, peak = job(
        folder, url,
        AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 100},
        InputDataConfig=[{
            "ChannelName": "in",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/in/"}},
        }],
    )
    progress = [event for event in events if event["event"] == "progress"]
    first = min(event["at"] for event in progress if event["phase"] == "staging")
    last = max(event["at"] for event in progress if event["phase"] == "training")
    shutil.rmtree(folder)
    return (last - first) / 1000, peak


def staging(work, weed, bucket):
    aws = pathlib.Path(sys.executable).with_name("aws")
    target = work / "peer"

    def aws_sync():
        return peer(aws, "s3", "sync", "--only-show-errors", "--endpoint-url", weed.url, f"s3://{bucket}/in/", target)

    def rclone():
        remote = f":s3,provider=SeaweedFS,env_auth=true,endpoint='{weed.url}':{bucket}/in"
        return peer("rclone", "copy", "--transfers", "32", "--checkers", "32", remote, target)

    peers = {"aws s3 sync": aws_sync}
    if shutil.which("rclone"):
        peers["rclone, 32 transfers"] = rclone
    for name, run in peers.items():
        def fresh(run=run):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            return run()

        peers[name] = fresh
    ours = {f"Trainyard, {count} instance(s)": lambda count=count: staged(work, weed.url, bucket, count) for count in (1, 4)}
    return {**ours, **peers}


def artifact(work, weed):
    size = ARTIFACT_MIB * MIB // 4
    write = (
        f"#!{yards.PYTHON}\nimport random, socket\ngenerator = random.Random(1)\nwords = b'once upon a time ' * 4096\n"
        f"with open('/opt/ml/model/' + socket.gethostname(), 'wb') as file:\n"
        f"    for place in range({size} // (1 << 20)):\n"
        "        file.write(generator.randbytes(1 << 19) + (words * 8)[: 1 << 19])\n"
    )

    def trainyard():
        folder = work / "artifact"
        image = f"host:{program(folder / 'bin', write)}"
        events, peak = job(
            folder, weed.url,
            AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
            OutputDataConfig={"S3OutputPath": "s3://artifacts/ours"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 4, "VolumeSizeInGB": 100},
        )
        exited = max(event["at"] for event in events if event["event"] == "exited")
        ended = [event for event in events if event["event"] == "transition"][-1]["at"]
        shutil.rmtree(folder)
        return (ended - exited) / 1000, peak

    def python():
        folder = work / "plain"
        folder.mkdir(exist_ok=True)
        generator, words = random.Random(1), b"once upon a time " * 4096
        for host in range(4):
            if not (folder / str(host)).exists():
                with open(folder / str(host), "wb") as file:
                    for _ in range(size // MIB):
                        file.write(generator.randbytes(MIB // 2) + (words * 8)[: MIB // 2])
        script = (
            "import sys, tarfile, boto3\n"
            "with tarfile.open(sys.argv[1] + '.tar.gz', 'w:gz', compresslevel=6) as tar:\n    tar.add(sys.argv[1], '.')\n"
            f"boto3.client('s3', endpoint_url='{weed.url}').upload_file(sys.argv[1] + '.tar.gz', 'artifacts', 'theirs')\n"
        )
        return peer(sys.executable, "-c", script, folder)

    weed.client().create_bucket(Bucket="artifacts")
    return {"Trainyard, 4 instances": trainyard, "Python tarfile (level 6) and boto3": python}


def measure(title, contestants, rounds):
    results = collections.defaultdict(list)
    for _ in range(rounds):
        for name, run in contestants.items():
            results[name].append(run())
    print(f"\n{title}\n\n| | seconds | peak MiB of one process |\n|---|---|---|")
    for name, runs in results.items():
        seconds = statistics.median(seconds for seconds, _ in runs)
        print(f"| {name} | {seconds:.2f} | {max(peak for _, peak in runs)} |", flush=True)


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
            shutil.rmtree(work / "peer")
        if LARGE:
            fill(client, "large", LARGE, LARGE_MIB * MIB)
            measure(f"{LARGE} objects of {LARGE_MIB} MiB", staging(work, weed, "large"), rounds)
            shutil.rmtree(work / "peer")
        if ARTIFACT_MIB:
            measure(f"An artifact of {ARTIFACT_MIB} MiB, half of it noise", artifact(work, weed), rounds)
    finally:
        weed.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
