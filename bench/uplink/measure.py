"""Throughput and connections per second out of a network namespace: see README.md."""

import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SIZE = 1 << 30  # bytes of one transfer
CONNECTIONS = 1000
PIECE = 1 << 20
PATIENCE = 30  # seconds for one measurement

# An address of its own: by default it takes the machine's, which is then not the machine's any more inside.
PASTA = ["pasta", "--config-net", "--quiet", "-a", "10.77.0.2", "-n", "255.255.255.0", "-g", "10.77.0.1", "--"]

CLIENT = """
import socket, sys, time
host, port, kind, size, piece = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
buffer = bytearray(piece)
deadline = time.monotonic() + 10
while True:
    try:
        socket.create_connection((host, port)).close()
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
begun = time.monotonic()
if kind == "connect":
    for _ in range(size):
        stream = socket.create_connection((host, port))
        stream.sendall(b"c")
        assert stream.recv(1) == b"c"
        stream.close()
else:
    stream = socket.create_connection((host, port))
    stream.sendall(b"u" if kind == "up" else b"d")
    done = 0
    if kind == "up":
        while done < size:
            stream.sendall(buffer)
            done += piece
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(1) == b"e"
    else:
        while done < size:
            done += stream.recv_into(buffer)
print(time.monotonic() - begun)
"""


def serve(listener):
    """Takes up, hands down or echoes, as the first byte of a connection says."""

    def answer(stream):
        with stream:
            kind = stream.recv(1)
            buffer = bytearray(PIECE)
            if kind == b"u":
                while stream.recv_into(buffer):
                    pass
                stream.sendall(b"e")
            elif kind == b"d":
                for _ in range(SIZE // PIECE):
                    stream.sendall(buffer)
            elif kind == b"c":
                stream.sendall(b"c")

    while True:
        stream, _ = listener.accept()
        threading.Thread(target=answer, args=(stream,), daemon=True).start()


def machine_address():
    """An address of this machine that is not its loopback's."""
    found = subprocess.run(["ip", "-4", "-o", "addr", "show", "scope", "global"], capture_output=True, text=True)
    return re.search(r"inet ([0-9.]+)", found.stdout).group(1)


def slirp4netns(command):
    """Runs a command in a network namespace that slirp4netns serves."""
    wait = "while ! ip -4 addr show tap0 2>/dev/null | grep -q inet; do :; done; exec \"$@\""
    job = subprocess.Popen(
        ["unshare", "--net", "bash", "-c", wait, "job", *command], stdout=subprocess.PIPE, text=True
    )
    own = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{job.pid}/ns/net") == own:
        time.sleep(0.01)
    peer = subprocess.Popen(
        ["slirp4netns", "--configure", "--mtu=65520", str(job.pid), "tap0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        return job.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired:
        return ""
    finally:
        job.kill()
        peer.terminate()
        peer.wait()


def plain(*start):
    """Runs a command through another."""
    def way(command):
        job = subprocess.Popen(
            [*start, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            return job.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            return ""

    return way


def version(*command):
    if not shutil.which(command[0]):
        return None
    said = subprocess.run(command, capture_output=True, text=True)
    return (said.stdout + said.stderr).splitlines()[0]


def ways(through):
    """How to run a command whose connections are measured, by name."""
    ways = {"direct, over loopback": plain("env"), "uplink": plain(through)}
    peers = {"slirp4netns": (version("slirp4netns", "--version"), slirp4netns)}
    peers["pasta"] = (version("pasta", "--version"), plain(*PASTA))
    for name, (found, way) in peers.items():
        if found:
            print(f"{name}: {found}")
            ways[name] = way
        else:
            print(f"{name} is not installed and left out")
    return ways


def main():
    through, rounds = sys.argv[1], int(sys.argv[2])
    listener = socket.create_server(("0.0.0.0", 0), backlog=4096)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    host, port = machine_address(), listener.getsockname()[1]
    print(f"Linux {platform.release()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    all_ways = ways(through)
    times, failed = {}, set()
    with tempfile.TemporaryDirectory() as folder:
        client = pathlib.Path(folder, "client.py")
        client.write_text(CLIENT)
        os.chmod(folder, 0o755)  # pasta changes to another user if it is started by root
        for _ in range(rounds):
            for name, way in all_ways.items():
                if name in failed:
                    continue
                for kind, size in [("up", SIZE), ("down", SIZE), ("connect", CONNECTIONS)]:
                    said = way(["/usr/bin/python3", str(client), host, str(port), kind, str(size), str(PIECE)])
                    if said.strip():
                        times.setdefault((name, kind), []).append(float(said))
                    else:
                        failed.add(name)
                        break
    print(f"load at the end {os.getloadavg()[0]:.1f}; medians of {rounds}\n")
    print("| | up, MB/s | down, MB/s | connections/s | of direct |\n|---|---|---|---|---|")
    direct = {kind: statistics.median(times["direct, over loopback", kind]) for kind in ("up", "down", "connect")}
    for name in all_ways:
        row, ratios = [], []
        if name in failed:
            print(f"| {name} | failed | | | |")
            continue
        for kind, size in [("up", SIZE / 1e6), ("down", SIZE / 1e6), ("connect", CONNECTIONS)]:
            median = statistics.median(times[name, kind])
            row.append(f"{size / median:,.0f}")
            ratios.append(f"{direct[kind] / median:.2f}")
        print(f"| {name} | {' | '.join(row)} | {', '.join(ratios)} |")


main()
