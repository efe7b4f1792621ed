"""Times two instances of `true` from start to exit, ours and the peers', in turn. See run.sh."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

IMAGE = "trainyard-bench-true"

LOCAL_MODE = """
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
session = LocalSession()
session.config = {"local": {"local_code": True}}
estimator = Estimator(image_uri="%s", role="arn:aws:iam::000000000000:role/bench", instance_count=2,
                      instance_type="local", sagemaker_session=session, output_path="file://%s")
estimator.fit(logs=False)
"""


HOST_PROGRAM = {"TrainingImage": "host:/usr/bin", "ContainerEntrypoint": ["/bin/true"]}


def job(folder, attempt, algorithm):
    request = {
        "TrainingJobName": f"startup-{attempt}",
        "AlgorithmSpecification": {"TrainingInputMode": "File", **algorithm},
        "OutputDataConfig": {"S3OutputPath": "s3://results/out"},
        "ResourceConfig": {"InstanceType": "local", "InstanceCount": 2},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    path = folder / f"job-{attempt}.json"
    path.write_text(json.dumps(request))
    return path


def timed(*commands):
    """Seconds until all commands, started together, have ended; each must succeed."""
    start = time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for command in commands]
    for process in running:
        said, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{process.args} ended with {process.returncode}:\n{said.decode()}")
    return time.perf_counter() - start


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def docker_image(folder):
    """An image with nothing but a static `train` that ends at once; made here, as no registry is needed."""
    source = folder / "true.c"
    source.write_text("int main(void) { return 0; }\n")
    root = folder / "root"
    root.mkdir()
    subprocess.run(["cc", "-static", "-O2", "-o", root / "train", source], check=True)
    archive = folder / "root.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "train"], check=True)
    subprocess.run(["docker", "import", "--change", 'ENTRYPOINT ["/train"]', archive, IMAGE], check=True,
                   stdout=subprocess.DEVNULL)


def saved(folder):
    """The image as a file."""
    archive = folder / "image.tar"
    subprocess.run(["docker", "save", "-o", archive, IMAGE], check=True)
    return archive


def forget_image(archive):
    """Removes what the daemon was given of an archive, under the digest of its config."""
    if archive.exists():
        with tarfile.open(archive) as tar:
            config = json.load(tar.extractfile("manifest.json"))[0]["Config"]
        digest = Path(config).name.removesuffix(".json")
        subprocess.run(["docker", "rmi", f"trainyard/loaded:{digest}"], stdout=subprocess.DEVNULL, check=False)


def in_a_network():
    """The same by hand as the Docker runtime does: instances that reach each other."""
    start = time.perf_counter()
    timed(["docker", "network", "create", IMAGE])
    timed(*[["docker", "run", "--rm", "--network", IMAGE, "--network-alias", f"algo-{number}", IMAGE, "train"]
            for number in (1, 2)])
    timed(["docker", "network", "rm", IMAGE])
    return time.perf_counter() - start


def contestants(binary, folder):
    """Name and a function that runs it once, for all that are there."""
    found = {}
    for name, data in ("trainyard, data on disk", folder / "data"), ("trainyard, data in memory", memory(folder)):
        found[name] = lambda data=data, path=job(folder, name.split()[-1], HOST_PROGRAM): timed(
            [binary, "run", path, "--data-dir", data])
    server = output_of("docker", "version", "--format", "{{.Server.Version}}")
    if server is None:
        print("docker run: not measured, no daemon answers")
        print("SDK local mode: not measured, it needs Docker")
        return found
    docker_image(folder)
    image = {"TrainingImage": f"docker-archive:{saved(folder)}"}
    for name, runtime in ("the image without a daemon", "oci"), ("the image through Docker", "docker"):
        found[f"trainyard, {name}"] = lambda runtime=runtime, path=job(folder, runtime, image): timed(
            [binary, "run", path, "--data-dir", folder / "data", "--runtime", runtime])
    found["docker network create, docker run, twice at once, docker network rm"] = in_a_network
    found[f"docker run, twice at once ({server})"] = lambda: timed(
        *[["docker", "run", "--rm", IMAGE, "train"]] * 2)
    python = os.environ.get("SDK_PYTHON")
    version = python and output_of(python, "-c", "import sagemaker; print(sagemaker.__version__)")
    version = version and version.splitlines()[-1]
    if not version:
        print("SDK local mode: not measured, name a Python with sagemaker in SDK_PYTHON")
        return found
    script = LOCAL_MODE % (IMAGE, folder / "sdk")
    # It reads a region and keys although it needs neither account nor network.
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
    found[f"SDK local mode ({version})"] = lambda: timed([python, "-c", script])
    return found


def memory(folder):
    """A folder on a file system in memory; removed with everything else."""
    path = Path(tempfile.mkdtemp(prefix="trainyard-bench-", dir="/dev/shm"))
    (folder / "memory").symlink_to(path)
    return path


def main():
    binary, rounds = sys.argv[1], int(sys.argv[2])
    folder = Path(tempfile.mkdtemp(prefix="trainyard-bench-", dir="/var/tmp"))
    try:
        runs = contestants(binary, folder)
        seconds = {name: [] for name in runs}
        for round_number in range(rounds + 1):
            for name, run in runs.items():
                spent = run()
                if round_number:  # the first warms the caches
                    seconds[name].append(spent)
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, medians of {rounds}")
        ours = statistics.median(seconds["trainyard, data on disk"])
        for name, spent in seconds.items():
            median = statistics.median(spent)
            print(f"{name:75} {median * 1000:8.1f} ms  fastest {min(spent) * 1000:8.1f} ms  {median / ours:6.2f} x")
    finally:
        forget_image(folder / "image.tar")
        shutil.rmtree((folder / "memory").resolve(), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


main()
