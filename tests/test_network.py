"""The network of a job: what its instances are called there, what they reach, and that nothing of it is left."""

import hashlib
import http.server
import json
import os
import signal
import socket
import socketserver
import threading
from pathlib import Path

import pytest
from images import base, docker_archive, layer
from yard import AS_ROOT, wait_until

HOSTS = ("algo-1", "algo-2", "algo-3", "algo-4")
FAILED, STOPPED = 10, 11

PAIRS = r"""
import json, signal, socket, threading

config = json.load(open("/opt/ml/input/config/resourceconfig.json"))
own, port = config["current_host"], 8080

def serve(listener):
    while True:
        peer = listener.accept()[0]
        peer.sendall(f"{own} heard {peer.recv(100).decode()}".encode())
        peer.close()

def ask(host):
    while True:
        try:
            with socket.create_connection((host, port), 5) as connection:
                connection.sendall(own.encode())
                return connection.recv(100).decode()
        except ConnectionRefusedError:
            threading.Event().wait(0.01)

listener = socket.create_server(("0.0.0.0", port))
threading.Thread(target=serve, args=(listener,), daemon=True).start()
for host in config["hosts"]:
    print(ask(host), flush=True)
signal.pause()
"""

PAIRS_OF_AN_IMAGE = """
own=$(hostname)
mkdir /www && echo "$own heard" > /www/name && httpd -p 0.0.0.0:%(port)s -h /www || exit 1
for host in algo-1 algo-2 algo-3 algo-4; do
    until answer=$(wget -q -O - "http://$host:%(port)s/name" 2>/dev/null); do sleep 0.05; done
    echo "$answer $own"
done
sleep 1000
"""


def image(yard, train, **config):
    """A container image with small network programs; its name in a job."""
    links = {f"bin/{applet}": "busybox" for applet in ("hostname", "httpd", "wget", "nslookup")}
    own = layer(programs={"usr/bin/train": "#!/bin/sh\n" + train}, links=links)
    return f"docker-archive:{docker_archive(yard.root / 'image.tar', [base(), own], **config)}"


@pytest.fixture(params=["host", "image"])
def pairs(request, yard):
    """A job whose instances each listen at the same port and call each other, then wait."""

    def job(port=8080, **config):
        if request.param == "image":
            return yard.job(image(yard, PAIRS_OF_AN_IMAGE % {"port": port}, **config), instances=4)
        return yard.job(yard.python(PAIRS.replace("8080", str(port))), instances=4)

    return job


def reach_each_other(running):
    for host in HOSTS:
        for other in HOSTS:
            running.wait_for_line(f"{other} heard {host}", host)


def stop(yard, running):
    running.interrupt()
    return yard.ended(running, expect=STOPPED)


def test_every_instance_reaches_every_other_at_the_same_port(yard, pairs):
    running = yard.start(pairs())
    reach_each_other(running)
    stop(yard, running)


def test_every_instance_reaches_every_other_in_isolation(yard, pairs):
    running = yard.start({**pairs(), "EnableNetworkIsolation": True})
    reach_each_other(running)
    stop(yard, running)


def test_any_port_can_be_listened_at(yard, pairs):
    running = yard.start(pairs(port=80))
    reach_each_other(running)
    stop(yard, running)


def test_any_port_can_be_listened_at_as_a_user_without_rights(yard):
    train = "mkdir /tmp/www && echo heard > /tmp/www/name && httpd -p 80 -h /tmp/www && wget -q -O - http://algo-1/name"
    assert yard.run(yard.job(image(yard, train, User="fit"))).log() == ["heard"]


LOOK = r"""
import array, fcntl, json, os, socket, struct

config = json.load(open("/opt/ml/input/config/resourceconfig.json"))

def address(interface):
    with socket.socket() as any_socket:
        answer = fcntl.ioctl(any_socket, 0x8915, struct.pack("256s", interface.encode()))
    return socket.inet_ntoa(answer[20:24])

interface = config["network_interface_name"]
seen = {
    "hostname": socket.gethostname(),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "named": interface,
    "variable": os.environ["DMLC_INTERFACE"],
    "address": address(interface),
    "resolved": socket.gethostbyname(config["current_host"]),
}
print(json.dumps(seen))
"""


def test_the_named_interface_has_the_address_of_the_host(yard):
    ended = yard.run(yard.job(yard.python(LOOK), instances=2))
    for host in ("algo-1", "algo-2"):
        seen = json.loads(ended.log(host)[0])
        assert seen["named"] == seen["variable"] == "eth0"
        assert seen["interfaces"] == ["eth0", "lo"]
        assert seen["address"] == seen["resolved"]
        assert seen["hostname"] == host


def test_a_packet_that_is_sent_at_once_is_not_lost(yard):
    # A search for a neighbour that is not quite there yet would be repeated after a second.
    program = yard.python("""
import socket, time
started = time.monotonic()
try:
    socket.create_connection(("algo-2" if socket.gethostname() == "algo-1" else "algo-1", 9), 5)
except OSError as error:
    print(type(error).__name__, "at once" if time.monotonic() - started < 0.9 else "late")
""")
    ended = yard.run(yard.job(program, instances=2))
    # The second may find that the first has gone already.
    assert "ConnectionRefusedError at once" in ended.log("algo-1") + ended.log("algo-2")


def test_an_instance_has_no_power_over_its_network(yard):
    script = r"""
import fcntl, socket, struct
def refused(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "allowed"
def down():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"eth0", 0))
def packets():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
print(refused(down), refused(packets), refused(raw))
"""
    ended = yard.run(yard.job(yard.python(script)))
    assert ended.log() == ["PermissionError PermissionError PermissionError"]


def test_an_echo_request_is_answered(yard):
    program = yard.python(r"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as echo:
    echo.settimeout(30)
    echo.sendto(b"\x08\0\0\0\0\0\0\1payload", ("algo-1", 0))
    print(echo.recv(100)[8:].decode())
""")
    assert yard.run(yard.job(program)).log() == ["payload"]


@pytest.fixture
def machine():
    """Servers of the machine: at its loopback address, at another if it has one, and at an abstract name."""
    places = [("127.0.0.1", 0)]
    if (own := own_address()) is not None:
        places.append((own, 0))
    listeners = [socket.create_server(place) for place in places]
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0trainyard-test-{os.getpid()}")
    abstract.listen()
    yield [listener.getsockname() for listener in [*listeners, abstract]]
    for listener in [*listeners, abstract]:
        listener.close()


def own_address():
    """An address of the machine that others see, if it has any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("203.0.113.1", 9))
        except OSError:
            return None
        return any_socket.getsockname()[0]


ATTEMPTS = r"""
import os, socket
for place in %(places)r:
    kind = socket.AF_INET if isinstance(place, tuple) else socket.AF_UNIX
    with socket.socket(kind) as attempt:
        attempt.settimeout(20)
        try:
            attempt.connect(place)
            print("reached", place)
        except OSError as error:
            print("refused")
print(os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
print(open("/etc/resolv.conf").read().strip() or "nobody to ask")
"""


def test_an_isolated_job_reaches_nothing_but_itself_and_gets_no_credentials(yard, machine):
    places = [place if isinstance(place, tuple) else place.decode() for place in machine]
    program = yard.python(ATTEMPTS % {"places": places})
    ended = yard.run(yard.job(program, EnableNetworkIsolation=True))
    assert ended.log() == ["refused"] * len(places) + ["None None", "nobody to ask"]


def test_the_machines_own_loopback_and_abstract_sockets_are_out_of_reach(yard, machine):
    places = [machine[0], machine[-1].decode()]
    ended = yard.run(yard.job(yard.python(ATTEMPTS % {"places": places})))
    assert ended.log()[:2] == ["refused", "refused"]


@pytest.fixture
def outside():
    """A server of the machine at an address that is not its loopback's, which any job may reach: its URL."""
    own = own_address()
    if own is None:
        pytest.skip("this machine has no address but its loopback's")
    server = http.server.ThreadingHTTPServer((own, 0), Content)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://{own}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class Content(http.server.BaseHTTPRequestHandler):
    """Serves as many bytes as the path says, each the last digit of its position."""

    def do_GET(self):
        size = int(self.path.strip("/"))
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write((b"0123456789" * (size // 10 + 1))[:size])

    def log_message(self, *_):
        pass


FETCH = """
import hashlib, socket, urllib.request
for _ in range(3):
    content = urllib.request.urlopen(%r + "/3000001", timeout=30).read()
    print(len(content), hashlib.sha256(content).hexdigest())
"""


def test_the_outside_is_reached_unless_a_job_is_isolated(yard, outside):
    program = yard.python(FETCH % outside)
    ended = yard.run(yard.job(program, instances=2))
    expected = hashlib.sha256((b"0123456789" * 300001)[:3000001]).hexdigest()
    for host in ("algo-1", "algo-2"):
        assert ended.log(host) == [f"3000001 {expected}"] * 3
    yard.run(yard.job(program, EnableNetworkIsolation=True), expect=FAILED)


def test_the_outside_is_reached_from_an_image(yard, outside):
    ended = yard.run(yard.job(image(yard, f"wget -q -O - {outside}/25\n")))
    assert ended.log() == ["0123456789012345678901234"]


def test_a_port_at_which_nobody_listens_refuses_as_it_does_outside(yard, outside):
    with socket.socket() as unused:
        unused.bind((own_address(), 0))
        place = unused.getsockname()
        attempt = f"import socket, time\nstarted = time.monotonic()\ntry: socket.create_connection({place}, 30)\n"
        program = yard.python(attempt + "except OSError as error: print(type(error).__name__)\n")
        assert yard.run(yard.job(program)).log() == ["ConnectionRefusedError"]


class Names(socketserver.BaseRequestHandler):
    """Answers every question for an address of IPv4 with the same one."""

    def handle(self):
        question, server = self.request
        end = question.index(b"\0", 12) + 5
        wanted = question[end - 4:end - 2] == b"\0\1"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + bytes([203, 0, 113, 77]) if wanted else b""
        counts = bytes([0, 1, 0, wanted, 0, 0, 0, 0])
        server.sendto(question[:2] + b"\x81\x80" + counts + question[12:end] + answer, self.client_address)


@pytest.fixture
def name_server(yard):
    """A name server of the test; a program that makes it the machine's for the one that it starts."""
    own = own_address()
    if not AS_ROOT or own is None:
        pytest.skip("only root can listen at port 53, and only where the machine has an address")
    try:
        server = socketserver.UDPServer((own, 53), Names)
    except OSError as error:
        pytest.skip(f"port 53 of {own} can't be had: {error}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    file = yard.file("resolv.conf", f"nameserver {own}\noptions timeout:9\n")
    yield in_namespace(f"mount --bind {file} /etc/resolv.conf")
    server.shutdown()
    thread.join()
    server.server_close()


def in_namespace(command):
    """A program that starts another one where a command of root's has been carried out for it alone."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{command} && exec "$@"', "sh"]


def test_names_of_the_outside_are_looked_up_where_the_machine_does(yard, name_server):
    look_up = "import socket; print(socket.gethostbyname('trainyard.example'), socket.gethostbyname('algo-1'))"
    ended = yard.ended(yard.start(yard.job(yard.python(look_up)), before=name_server))
    assert ended.log() == ["203.0.113.77 198.18.240.1"]
    isolated = yard.job(yard.python(look_up), EnableNetworkIsolation=True)
    yard.ended(yard.start(isolated, before=name_server), expect=FAILED)


def processes(yard, command):
    """Processes of a hidden command for the yard's jobs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command in words and any(str(yard.root).encode() in word for word in words):
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("instances", [1, 2])
def test_a_network_ends_with_its_last_instance_when_the_driver_was_killed(yard, instances):
    gate = yard.file("gate")
    program = yard.sh(f"echo started; while ! test -s {gate}; do sleep 0.05; done; getent hosts algo-1 && echo done")
    running = yard.start(yard.job(program, instances=instances))
    for number in range(instances):
        running.wait_for_line("started", f"algo-{number + 1}")
    (network,) = processes(yard, b"network")
    running.process.kill()
    running.process.wait()
    assert processes(yard, b"network") == [network], "it outlives its driver"
    gate.write_text("open")
    wait_until(lambda: processes(yard, b"network") == [], "the end of the network")
    for number in range(instances):
        log = next(yard.data.glob(f"runs/*/attempt-1/instances/algo-{number + 1}/log.jsonl")).read_text()
        assert '"done"' in log


def test_a_network_ends_when_everything_around_it_was_killed_and_a_resume_starts_another(yard):
    gate = yard.file("gate")
    job = yard.job(yard.sh(f"echo started; while ! test -s {gate}; do sleep 0.05; done"), instances=2)
    running = yard.start(job)
    running.wait_for_line("started", "algo-1")
    running.wait_for_line("started", "algo-2")
    supervisors = processes(yard, b"instance")
    assert len(supervisors) == 2
    for process in [running.process.pid, *supervisors]:
        os.kill(process, signal.SIGKILL)
    running.process.wait()
    wait_until(lambda: processes(yard, b"network") == [], "the end of the network")
    gate.write_text("open")
    yard.run(job, "--resume")
    assert processes(yard, b"network") == []


def test_a_job_whose_network_was_killed_fails_and_says_so(yard):
    running = yard.start(yard.job(yard.sh("echo started; sleep 1000"), instances=2))
    running.wait_for_line("started", "algo-1")
    running.wait_for_line("started", "algo-2")
    (network,) = processes(yard, b"network")
    os.kill(network, signal.SIGKILL)
    assert "network was killed" in yard.ended(running, expect=FAILED).reason


def test_a_kernel_that_refuses_network_namespaces_is_told_with_the_setting(yard):
    refusing = in_namespace("echo 0 > /proc/sys/user/max_net_namespaces")
    ended = yard.ended(yard.start(yard.job(yard.sh("true")), before=refusing), expect=FAILED)
    assert "user.max_net_namespaces is 0" in ended.reason
