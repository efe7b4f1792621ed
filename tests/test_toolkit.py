"""Amazon's own toolkit for containers (PyPI `sagemaker-training`) in an image: what it reads, it finds."""

import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from machine_image import add_files, needed_libraries
from yard import PYTHON, channel

TOOLKIT = "sagemaker-training==5.1.4"

FIT = """
import json, os, socket, sys
hosts = json.loads(os.environ["SM_HOSTS"])
seen = {name: value for name, value in os.environ.items() if name.startswith("SM_")}
seen["arguments"] = sys.argv[1:]
seen["addresses"] = {host: socket.gethostbyname(host) for host in hosts}
seen["interfaces"] = [name for _, name in socket.if_nameindex()]
with open(os.path.join(os.environ["SM_MODEL_DIR"], os.environ["SM_CURRENT_HOST"] + ".json"), "w") as file:
    json.dump(seen, file)
"""


@pytest.fixture(scope="session")
def toolkit(base):
    """A layer with the toolkit in a virtual environment, and the path of that."""
    venv, layer = base / "toolkit", base / "toolkit.tar"
    subprocess.run([PYTHON, "-m", "venv", venv], check=True)
    pip = [venv / "bin/python", "-m", "pip", "install", "--quiet", TOOLKIT]
    installed = subprocess.run(pip, capture_output=True, text=True)
    if installed.returncode:
        # It is built from source, for which a C compiler and the headers of Python are needed.
        pytest.skip(f"{TOOLKIT} can't be installed here: {installed.stderr.strip().splitlines()[-1]}")
    with tarfile.open(layer, "w") as tar:
        tar.add(venv, arcname=str(venv).lstrip("/"), filter=_without_tests)
        libraries = needed_libraries(venv.rglob("*.so*"))
        add_files(tar, {path for path in libraries if not path.startswith(str(venv))})
    layer.chmod(0o644)
    return layer, venv


def _without_tests(member):
    return None if {"tests", "__pycache__", "pip"} & set(Path(member.name).parts) else member


@pytest.fixture
def script_mode(yard, machine_image, toolkit):
    """Runs a script as the SDK's estimators do, with its code as a channel."""

    def run(script, instances=1, expect=0, **hyperparameters):
        layer, venv = toolkit
        folder = Path(tempfile.mkdtemp(dir=yard.root / "programs")) / "layout"
        machine_image.layout(folder, more=[layer], Env=[f"PATH={venv}/bin:/usr/local/bin:/usr/bin:/bin"])
        yard.put("in", "code/fit.py", script)
        yard.put("in", "rows/a", "1")
        settings = {"sagemaker_program": "fit.py", "sagemaker_submit_directory": "/opt/ml/input/data/code",
                    "sagemaker_region": "eu-west-1", **hyperparameters}
        job = yard.job(
            f"oci:{folder}", instances=instances,
            channels=[channel("code", "s3://in/code"), channel("rows", "s3://in/rows", ContentType="text/csv")],
            HyperParameters={name: json.dumps(value) for name, value in settings.items()},
        )
        return yard.run(job, expect=expect)

    return run


def test_the_toolkit_of_the_sdk_runs_a_script_on_two_instances(script_mode):
    ended = script_mode(FIT, instances=2, epochs=3, name="fit")
    for host in ("algo-1", "algo-2"):
        seen = json.loads(ended.text(f"{host}.json"))
        resources = json.loads(seen["SM_RESOURCE_CONFIG"])
        assert json.loads(seen["SM_HOSTS"]) == ["algo-1", "algo-2"]
        assert seen["SM_CURRENT_HOST"] == resources["current_host"] == host
        assert seen["SM_CURRENT_INSTANCE_TYPE"] == "ml.m5.large"
        assert seen["SM_NETWORK_INTERFACE_NAME"] in seen["interfaces"]
        assert len(set(seen["addresses"].values())) == 2
        assert json.loads(seen["SM_CHANNELS"]) == ["code", "rows"]
        assert seen["SM_CHANNEL_ROWS"] == "/opt/ml/input/data/rows"
        assert json.loads(seen["SM_INPUT_DATA_CONFIG"])["rows"]["ContentType"] == "text/csv"
        assert json.loads(seen["SM_HPS"]) == {"epochs": 3, "name": "fit"}
        assert (seen["SM_HP_EPOCHS"], seen["SM_HP_NAME"]) == ("3", "fit")
        assert seen["arguments"] == ["--epochs", "3", "--name", "fit"]
        assert seen["SM_MODEL_DIR"] == "/opt/ml/model" and seen["SM_OUTPUT_DATA_DIR"] == "/opt/ml/output/data"


def test_what_the_toolkit_says_of_a_script_that_fails_is_the_reason(script_mode):
    ended = script_mode("raise ValueError('the rows are empty')\n", expect=10)
    assert "ExecuteUserScriptError" in ended.reason and "fit.py" in ended.reason
    assert "exit code: 1" in ended.reason
    assert any("the rows are empty" in line for line in ended.log())
