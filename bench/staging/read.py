"""File and FastFile mode where a job reads a hundredth of its bytes, and all of them: read.py ROUNDS"""

import os
import pathlib
import shutil
import sys
import tempfile

import measure as staging
import store
import yard as yards

OBJECTS, OBJECT_MIB = (int(os.environ.get(name, default)) for name, default in [("OBJECTS", 4), ("OBJECT_MIB", 256)])

READ = """
import os, random
folder = "/opt/ml/input/data/in/"
piece, generator = %d, random.Random(1)
for name in sorted(os.listdir(folder)):
    with open(folder + name, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        places = range(0, size, piece)
        for place in generator.sample(places, max(len(places) // %d, 1)) if %d > 1 else places:
            file.seek(place)
            file.read(piece)
"""


def read(work, url, mode, text):
    """From the first report to the end of the program, in seconds, and the most memory of the supervisor in MiB."""
    folder = work / "trainyard"
    path = staging.program(folder / "bin", f"#!{yards.PYTHON}{text}")
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://read/in/"}
    events, peak = staging.job(
        folder, url,
        AlgorithmSpecification={"TrainingImage": f"host:{path}", "TrainingInputMode": mode},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 100},
        InputDataConfig=[{"ChannelName": "in", "DataSource": {"S3DataSource": source}}],
    )
    first = min(event["at"] for event in events if event["event"] == "progress")
    last = max(event["at"] for event in events if event["event"] == "exited")
    shutil.rmtree(folder)
    return (last - first) / 1000, peak


def main():
    rounds = int(sys.argv[1])
    work = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-", dir=os.environ.get("BENCH_DIR", "/var/tmp")))
    (work / "weed").mkdir()
    weed = store.Weed(store.find_weed(), work / "weed")
    try:
        staging.fill(weed.client(), "read", OBJECTS, OBJECT_MIB * staging.MIB)
        kinds = [
            ("1 % in pieces of 1 MiB", 1 << 20, 100), ("1 % in pieces of 16 KiB", 16 << 10, 100),
            ("all in order", 1 << 20, 1),
        ]
        for title, piece, part in kinds:
            text = READ % (piece, part, part)
            modes = {mode: lambda mode=mode, text=text: read(work, weed.url, mode, text) for mode in ("File", "FastFile")}
            staging.measure(f"{OBJECTS} objects of {OBJECT_MIB} MiB, {title}", modes, rounds)
    finally:
        weed.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
