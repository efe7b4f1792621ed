"""The built-in workload as a container image."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest
from yard import channel

DIGITS = Path(__file__).parents[1] / "examples/digits/digits.npy"
MERGE = {"Merge": {"Glob": "part-*.parquet", "Output": "neighbours.parquet"}}


@pytest.fixture
def archive(yard):
    yard.command("image", "export", "allpairs", "-o", yard.root / "allpairs.tar")
    return yard.root / "allpairs.tar"


def test_the_image_holds_the_program_and_nothing_else(archive):
    with tarfile.open(archive) as tar:
        (image,) = json.load(tar.extractfile("manifest.json"))
        (layer,) = image["Layers"]
        with tarfile.open(fileobj=tar.extractfile(layer)) as content:
            files = {member.name: member.linkname for member in content if not member.isdir()}
    assert files == {"usr/local/bin/trainyard": "", "usr/local/bin/train": "trainyard"}


def test_the_same_program_gives_the_same_bytes(yard, archive):
    yard.command("image", "export", "allpairs", "-o", yard.root / "again.tar")
    assert (yard.root / "again.tar").read_bytes() == archive.read_bytes()


def test_the_image_gives_the_result_of_the_built_in_workload(yard, archive):
    shutil.copy(DIGITS, yard.bucket("in"))
    merged = []
    for image in ("trainyard/allpairs", f"docker-archive:{archive}", f"oci-archive:{archive}"):
        job = yard.job(image, instances=2, channels=[channel("matrix", "s3://in/digits.npy")],
                       HyperParameters={"top_k": "5"}, Trainyard=MERGE)
        merged.append(yard.run(job).merged.read_bytes())
    assert merged[0] == merged[1] == merged[2]


def test_an_archive_that_can_not_be_written_is_named(yard):
    error = yard.command("image", "export", "allpairs", "-o", yard.root / "none/allpairs.tar", expect=1).stderr
    assert "none" in error


def docker(*arguments):
    return subprocess.run(["docker", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def test_docker_loads_the_image_and_runs_it_as_sagemaker_does(yard, archive):
    if not shutil.which("docker") or subprocess.run(["docker", "version"], capture_output=True).returncode:
        pytest.skip("no Docker daemon answers")
    with tarfile.open(archive) as tar:
        (image,) = json.load(tar.extractfile("manifest.json"))
        identity = "sha256:" + Path(image["Config"]).name
    earlier = {tag for tag in image["RepoTags"] if docker("images", "--quiet", tag)}
    config = {"hyperparameters": {"top_k": "5"}, "inputdataconfig": {"matrix": {"TrainingInputMode": "File"}},
              "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1"]}}
    ml = yard.root / "ml"
    for folder in ("input/config", "input/data/matrix", "model", "output"):
        (ml / folder).mkdir(parents=True)
    for name, content in config.items():
        (ml / f"input/config/{name}.json").write_text(json.dumps(content))
    shutil.copy(DIGITS, ml / "input/data/matrix")
    try:
        docker("load", "--input", archive)
        said = docker("run", "--rm", "--network", "none", "--volume", f"{ml}:/opt/ml", identity, "train")
    finally:
        for tag in set(image["RepoTags"]) - earlier:
            docker("rmi", tag)
    (part,) = (ml / "model").glob("*.parquet")
    rows = numpy.load(DIGITS).shape[0]
    assert f"rows 0..{rows}" in said
    assert pyarrow.parquet.read_table(part).num_rows == 5 * rows
    yard.give_away()
