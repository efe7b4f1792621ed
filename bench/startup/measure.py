"""Times two instances of `true` from start to exit, ours and the peers', in turn. See run.sh."""

import hashlib
import io
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


def job(folder, name, image="host:/usr/bin", entrypoint=("/bin/true",)):
    """A job file; without an entrypoint the image's own is used."""
    algorithm = {"TrainingImage": image, "TrainingInputMode": "File"}
    if entrypoint:
        algorithm["ContainerEntrypoint"] = entrypoint
    request = {
        "TrainingJobName": "startup",
        "AlgorithmSpecification": algorithm,
        "OutputDataConfig": {"S3OutputPath": "s3://results/out"},
        "ResourceConfig": {"InstanceType": "local", "InstanceCount": 2},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    path = folder / f"job-{name}.json"
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


def program(folder):
    """A tar archive with nothing but a static `train` that ends at once."""
    source = folder / "true.c"
    source.write_text("int main(void) { return 0; }\n")
    root = folder / "root"
    root.mkdir()
    subprocess.run(["cc", "-static", "-O2", "-o", root / "train", source], check=True)
    archive = folder / "root.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "train"], check=True)
    return archive


def image_archive(folder, layer):
    """The same as an image, as `docker save` writes it; made here, as no registry is needed."""
    content = layer.read_bytes()
    config = {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine], "os": "linux",
              "config": {"Entrypoint": ["/train"]},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(content).hexdigest()]}}
    manifest = [{"Config": "config.json", "RepoTags": [f"{IMAGE}:latest"], "Layers": ["layer.tar"]}]
    path = folder / "image.tar"
    with tarfile.open(path, "w") as tar:
        for name, text in (("layer.tar", content), ("config.json", json.dumps(config).encode()),
                           ("manifest.json", json.dumps(manifest).encode())):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return path


def contestants(binary, folder):
    """Name and a function that runs it once, for all that are there."""
    found = {}

    def ours(name, data, path, *flags):
        found[name] = lambda: timed([binary, "run", path, "--data-dir", data, *flags])

    layer = program(folder)
    archive = image_archive(folder, layer)
    oci = job(folder, "oci", f"docker-archive:{archive}", None)
    ours("trainyard, image, data on disk", folder / "data", oci)
    ours("trainyard, image, data in memory", memory(folder), oci)
    ours("trainyard, program, data on disk", folder / "data", job(folder, "program"))
    server = output_of("docker", "version", "--format", "{{.Server.Version}}")
    if server is None:
        print("Docker: not measured, no daemon answers; so neither is SDK local mode, which needs it")
        return found
    subprocess.run(["docker", "import", "--change", 'ENTRYPOINT ["/train"]', layer, IMAGE], check=True,
                   stdout=subprocess.DEVNULL)
    if "--runtime" in (output_of(binary, "run", "--help") or ""):
        ours(f"trainyard, through Docker ({server})", folder / "data", job(folder, "docker", IMAGE, None),
             "--runtime", "docker")
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
        ours = statistics.median(seconds["trainyard, image, data on disk"])
        for name, spent in seconds.items():
            median = statistics.median(spent)
            print(f"{name:40} {median * 1000:8.1f} ms  fastest {min(spent) * 1000:8.1f} ms  {median / ours:6.2f} x")
    finally:
        shutil.rmtree((folder / "memory").resolve(), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        if shutil.which("docker"):
            subprocess.run(["docker", "rmi", "--force", IMAGE], capture_output=True)


main()
