"""The memory of a supervisor that serves a pipe: measure.py folder|store"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests"))

import store  # noqa: E402
import yard as yards  # noqa: E402

MIB = 1 << 20
SIZE, OBJECTS = int(float(os.environ.get("SIZE_GIB", "10")) * 1024) * MIB, int(os.environ.get("OBJECTS", "2"))
BINARY = os.environ["TRAINYARD_BIN"]

# Prints a line at each tenth of the way.
READ = f"""#!{yards.PYTHON}
size, at = {SIZE}, 0
with open("/opt/ml/input/data/train_0", "rb", buffering=0) as pipe:
    while chunk := pipe.read(1 << 20):
        if at * 10 // size != (at := at + len(chunk)) * 10 // size:
            print("read", at, flush=True)
"""


def resident(folder):
    """MiB of the supervisor now, and the most it ever had."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            command = (process / "cmdline").read_bytes().split(b"\0")
            if command[1:2] == [b"instance"] and str(folder).encode() in command[2]:
                status = (process / "status").read_text()
                return tuple(int(status.split(name)[1].split()[0]) // 1024 for name in ("VmRSS:", "VmHWM:"))
    return None


def fill(where, work):
    """Puts the objects there; gives the flags and variables of the job, and what is to be stopped."""
    folder = work / "in"
    folder.mkdir()
    block = os.urandom(16 * MIB)
    for number in range(OBJECTS):
        with open(folder / str(number), "wb") as file:
            for _ in range(SIZE // OBJECTS // len(block)):
                file.write(block)
    if where == "folder":
        return ["--bucket", f"data={folder}"], {}, None
    (work / "weed").mkdir()
    weed = store.Weed(store.find_weed(), work / "weed")
    client = weed.client()
    client.create_bucket(Bucket="data")
    for file in folder.iterdir():
        client.upload_file(str(file), "data", file.name)
        file.unlink()
    config = work / "config.toml"
    config.write_text(f"[storage.bucket.data]\nendpoint = '{weed.url}'\n")
    return ["--config", config], {"AWS_ACCESS_KEY_ID": store.KEYS[0], "AWS_SECRET_ACCESS_KEY": store.KEYS[1]}, weed


def measure(work, flags, variables):
    program = work / "bin/train"
    program.parent.mkdir()
    program.write_text(READ)
    program.chmod(0o755)
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://data/"}
    request = {
        "TrainingJobName": "pipe",
        "AlgorithmSpecification": {"TrainingImage": f"host:{program}", "TrainingInputMode": "Pipe"},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": f"file://{work}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    }
    command = list(map(str, [BINARY, "run", "-", "--json", "--data-dir", work / "data", *flags]))
    job = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | variables
    )
    job.stdin.write(json.dumps(request))
    job.stdin.close()
    log = work / "data/runs/pipe/attempt-1/instances/algo-1/log.jsonl"
    events = threading.Thread(target=lambda: [None for _ in job.stdout])
    events.start()
    print("| of the way | seconds | MiB now | most MiB |\n|---|---|---|---|")
    began, seen = None, 0
    while job.poll() is None:
        lines = log.read_text().count('"read ') if log.exists() else 0
        if lines > seen and (memory := resident(work)):
            began, seen = began or time.monotonic(), lines
            print(f"| {lines}0 % | {time.monotonic() - began:.1f} | {memory[0]} | {memory[1]} |", flush=True)
        time.sleep(0.02)
    events.join()
    assert job.returncode == 0, job.returncode


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-", dir=os.environ.get("BENCH_DIR", "/var/tmp")))
    weed = None
    try:
        flags, variables, weed = fill(sys.argv[1], work)
        measure(work, flags, variables)
    finally:
        if weed:
            weed.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
