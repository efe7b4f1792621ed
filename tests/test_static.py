"""The binary is one file that needs nothing of the machine that it is put on, or of the image."""

import shutil
import subprocess

import pytest
from yard import PYTHON

NAME_SERVER = f"""#!{PYTHON}
# Runs a command where names are looked up as the files beside this program say, and answers for dns.test.
import fcntl, socket, struct, subprocess, sys, threading
from pathlib import Path

here = Path(__file__).parent
for name in ("hosts", "resolv.conf", "nsswitch.conf"):
    subprocess.run(["mount", "--bind", here / name, f"/etc/{{name}}"], check=True)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))

def answer():
    while True:
        query, sender = server.recvfrom(4096)
        end = query.index(b"\\0", 12) + 5
        known = query[12:end - 4] == b"\\3dns\\4test\\0"
        found = b"\\xc0\\x0c" + struct.pack(">HHIH4s", 1, 1, 60, 4, bytes([127, 0, 0, 9]))
        found = found if known and query[end - 4:end] == b"\\0\\1\\0\\1" else b""
        header = struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, bool(found), 0, 0)
        server.sendto(query[:2] + header + query[12:end] + found, sender)

threading.Thread(target=answer, daemon=True).start()
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""

MODULE_THAT_ENDS_ITS_PROGRAM = "#include <unistd.h>\n__attribute__((constructor)) static void end(void) { _exit(99); }\n"


@pytest.fixture
def looking_up(yard):
    """What to start a command with, so that it looks up names as a machine with a name service of its own would."""
    if subprocess.run(["unshare", "--user", "--map-root-user", "--net", "--mount", "true"], **yard.identity).returncode:
        pytest.skip("this user may make no namespaces")
    if not (compiler := shutil.which("cc")):
        pytest.skip("a C compiler is needed to build a name service")
    server = yard.program(NAME_SERVER, "server")
    folder = server.parent
    (folder / "hosts").write_text("127.0.0.1 localhost\n127.0.0.8 file.test\n")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (folder / "nsswitch.conf").write_text("hosts: files ending dns\npasswd: ending files\n")
    (folder / "ending.c").write_text(MODULE_THAT_ENDS_ITS_PROGRAM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libnss_ending.so.2", "ending.c"], cwd=folder, check=True)
    yard.environment["LD_LIBRARY_PATH"] = str(folder)
    return ["unshare", "--user", "--map-root-user", "--net", "--mount", str(server)]


def test_the_binary_needs_no_library(binary):
    listed = subprocess.run(["ldd", binary], capture_output=True, text=True)
    assert "statically linked" in listed.stdout or "not a dynamic executable" in listed.stderr, listed


@pytest.mark.parametrize(
    ("name", "said"),
    [("file.test", "Connection refused"), ("dns.test", "Connection refused"), ("none.test", "failed to lookup address")],
)
def test_names_are_looked_up_in_files_and_by_dns(yard, looking_up, name, said):
    ended = yard.ended(yard.start(yard.job(f"{name}:1/team/fit"), before=looking_up), expect=2)
    assert said in ended.stderr


def test_no_name_service_of_the_machine_is_loaded(yard, looking_up):
    control = subprocess.run([*looking_up, "getent", "hosts", "dns.test"], env=yard.environment, **yard.identity)
    assert control.returncode == 99, "the name service of this test does not work"
    ended = yard.ended(yard.start(yard.job("dns.test:1/team/fit"), before=looking_up), expect=2)
    assert "Connection refused" in ended.stderr
