"""What lies at the output path in the end, and who can read it."""

import contextlib
import gzip
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest

SOME_FILES = """
set -e
cd /opt/ml/model
mkdir -p deep/folder
hostname >"part-$(hostname).txt"
head -c 3000000 /dev/urandom >"deep/random-$(hostname)"
head -c 3000000 /dev/zero >"deep/folder/zeros-$(hostname)"
: >"empty-$(hostname)"
"""


@pytest.fixture
def archived(yard):
    """A finished job of three instances with an archive that is not trivial."""
    return yard.run(yard.job(yard.sh(SOME_FILES), instances=3))


NAMES = sorted(
    name
    for host in ("algo-1", "algo-2", "algo-3")
    for name in (f"part-{host}.txt", f"deep/random-{host}", f"deep/folder/zeros-{host}", f"empty-{host}")
)


@pytest.mark.parametrize("path", ["s3://results/out", "s3://results/out/", "s3://results"])
def test_the_archive_lies_where_the_request_says(yard, path):
    job = yard.job(yard.sh("echo 1 >/opt/ml/model/a"), OutputDataConfig={"S3OutputPath": path})
    ended = yard.run(job)
    assert ended.ended["model"] == f"{path.rstrip('/')}/{job['TrainingJobName']}/output/model.tar.gz"
    assert ended.model.is_file()


@pytest.mark.every_user
def test_other_output_has_an_archive_of_its_own(yard):
    program = yard.sh('echo 1 >/opt/ml/model/m; echo 2 >"/opt/ml/output/data/o-$(hostname)"; echo 3 >/opt/ml/output/x')
    ended = yard.run(yard.job(program, instances=2))
    assert ended.ended["output"].endswith("/output/output.tar.gz")
    assert ended.files(ended.output) == {"o-algo-1": b"2\n", "o-algo-2": b"2\n"}


def test_entries_sit_at_the_root_with_plain_names(archived):
    with tarfile.open(archived.model) as tar:
        names = tar.getnames()
    assert not [name for name in names if name.startswith((".", "/"))]
    assert sorted(archived.files()) == NAMES


def test_nothing_but_the_archives_lies_at_the_output_path(archived):
    assert sorted(path.name for path in archived.model.parent.iterdir()) == ["model.tar.gz"]


def test_the_archive_is_one_gzip_member(archived):
    unpacked = zlib.decompressobj(wbits=31)
    tar = unpacked.decompress(archived.model.read_bytes())
    assert unpacked.eof
    assert unpacked.unused_data == b""
    assert gzip.decompress(archived.model.read_bytes()) == tar


@pytest.mark.parametrize("mode", ["r:gz", "r|gz"])
def test_python_reads_the_archive(archived, mode):
    with tarfile.open(archived.model, mode) as tar:
        sizes = {member.name: member.size for member in tar if member.isfile()}
    assert sorted(sizes) == NAMES
    assert sizes["deep/random-algo-2"] == 3_000_000


def test_gnu_tar_reads_the_archive_without_complaint(archived, tmp_path):
    read_all("tar", ["-xzf", archived.model, "-C", tmp_path], tmp_path)


def test_bsdtar_reads_the_archive_without_complaint(archived, tmp_path):
    read_all("bsdtar", ["-xf", archived.model, "-C", tmp_path], tmp_path)


def read_all(reader, arguments, folder):
    if not shutil.which(reader):
        pytest.skip(f"there is no {reader} here")
    read = subprocess.run([reader, *arguments], check=False, capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == NAMES


def test_java_reads_the_archive(archived):
    if not shutil.which("javac"):
        pytest.skip("there is no Java compiler here")
    reader = Path(__file__).with_name("ReadArchive.java")
    read = subprocess.run(["java", reader, archived.model], check=False, capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")
    assert sorted(line.split(" ", 1)[1] for line in read.stdout.splitlines()) == NAMES


def test_each_entry_carries_its_host(archived):
    with tarfile.open(archived.model) as tar:
        hosts = {member.name: member.pax_headers["comment"] for member in tar if member.isfile()}
    assert hosts["part-algo-2.txt"] == "trainyard.host=algo-2"
    assert all(host == f"trainyard.host={name.removesuffix('.txt')[-6:]}" for name, host in hosts.items())


def test_files_of_the_same_name_are_all_kept_and_reported(yard, tmp_path):
    program = yard.sh('hostname >/opt/ml/model/same; echo equal >/opt/ml/model/equal')
    ended = yard.run(yard.job(program, instances=3))
    with tarfile.open(ended.model) as tar:
        versions = [tar.extractfile(member).read() for member in tar if member.name == "same"]
        tar.extractall(tmp_path, filter="data")
    assert versions == [b"algo-1\n", b"algo-2\n", b"algo-3\n"]
    assert (tmp_path / "same").read_text() == "algo-3\n", "plain extraction yields the last host's"
    (warning,) = [text for text in ended.warnings if "same" in text]
    assert all(host in warning for host in ("algo-1", "algo-2", "algo-3"))
    assert not [text for text in ended.warnings if "equal" in text.replace("same", "")]


@pytest.mark.every_user
def test_links_inside_are_stored_as_the_files_they_point_to(yard):
    program = yard.sh("""
cd /opt/ml/model
mkdir real
echo content >real/file
ln -s real/file by-path
ln -s /opt/ml/model/real/file by-absolute-path
ln -s real by-folder
""")
    ended = yard.run(yard.job(program))
    with tarfile.open(ended.model) as tar:
        assert not [member.name for member in tar if member.issym() or member.islnk()]
    assert ended.files() == dict.fromkeys(["real/file", "by-path", "by-absolute-path", "by-folder/file"], b"content\n")


def test_links_that_lead_out_are_left_and_named(yard):
    program = yard.sh("cd /opt/ml/model; ln -s /etc/hostname outside; ln -s ../../.. up; echo 1 >a")
    ended = yard.run(yard.job(program))
    assert ended.files() == {"a": b"1\n"}
    assert [text for text in ended.warnings if "outside" in text]
    assert [text for text in ended.warnings if "up" in text]


@pytest.mark.every_user
def test_modes_and_times_are_kept(yard):
    program = yard.sh("cd /opt/ml/model; echo 1 >tool; chmod 750 tool; touch -d @1000000000 tool")
    with tarfile.open(yard.run(yard.job(program)).model) as tar:
        member = tar.getmember("tool")
    assert (member.mode & 0o777, int(member.mtime)) == (0o750, 1_000_000_000)


def test_long_and_strange_names_survive(yard):
    program = yard.python("""
import os

folder = b"/opt/ml/model/" + b"/".join([b"d" * 200] * 3)
os.makedirs(folder)
for name in ("ä" * 100).encode(), b"blank and\\nnewline", b"n" * 250:
    open(os.path.join(folder, name), "w").write("1")
""")
    deep = "/".join(["d" * 200] * 3)
    expected = {f"{deep}/{'ä' * 100}", f"{deep}/blank and\nnewline", f"{deep}/{'n' * 250}"}
    assert set(yard.run(yard.job(program)).files()) == expected


def test_many_small_files_are_archived(yard):
    program = yard.python("""
for number in range(20_000):
    open(f"/opt/ml/model/{number:05}", "w").write(f"{number:05}" * 200)
""")
    ended = yard.run(yard.job(program))
    files = ended.files()
    assert len(files) == 20_000
    assert files["12345"] == b"12345" * 200


def test_an_empty_model_completes_with_a_warning_about_what_lies_elsewhere(yard):
    program = yard.sh("head -c 30000000 /dev/urandom >/opt/ml/output/model.bin")
    ended = yard.run(yard.job(program))
    assert ended.ended["status"] == "Completed"
    assert [text for text in ended.warnings if "/opt/ml/model" in text]
    assert [text for text in ended.warnings if "/opt/ml/output/model.bin" in text]


@pytest.mark.every_user
def test_no_credential_is_written_anywhere(yard):
    secrets = {
        "AWS_ACCESS_KEY_ID": "AKIATRAINYARDCANARY1",
        "AWS_SECRET_ACCESS_KEY": "trainyard-canary-secret-key",
        "AWS_SESSION_TOKEN": "trainyard-canary-session-token",
    }
    gate = yard.gate()
    program = yard.sh('env; echo shown; until [ -s "$GATE" ]; do sleep 0.05; done; echo 1 >/opt/ml/model/a')
    running = yard.start(yard.job(program, Environment={"GATE": str(gate)}), env=secrets)
    running.wait_for_line("shown")
    command_lines = all_command_lines()
    gate.open()
    ended = yard.ended(running)
    written = [path.read_bytes() for path in yard.root.rglob("*") if path.is_file()]
    for secret in secrets.values():
        assert secret not in ended.stdout + ended.stderr
        assert not [text for text in [*written, *command_lines] if secret.encode() in text]


def all_command_lines():
    """What `ps` shows."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found
