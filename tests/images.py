"""Container images made of a static busybox, in the form that `docker save` writes."""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

BUSYBOX = next((path for path in ("/usr/bin/busybox", "/bin/busybox") if Path(path).exists()), None)
"""A program without libraries that can be many: Debian's package busybox-static."""

APPLETS = ("cat", "chmod", "cp", "env", "id", "ln", "ls", "mkdir", "mknod", "mount", "mv", "printf", "pwd", "readlink",
           "rm", "sh", "sleep", "stat", "touch", "true", "umount", "unshare", "wc")

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}

ACCOUNTS = "root:x:0:0:root:/root:/bin/sh\nfit:x:1000:100:Fit:/home/fit:/bin/sh\n"
GROUPS = "root:x:0:\nusers:x:100:\nvideo:x:44:fit\n"


def layer(files=None, deleted=(), programs=None, links=None):
    """A layer: contents and executables by path, paths that it deletes, and links by path."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path, mode, content in [
            *((path, 0o644, content) for path, content in (files or {}).items()),
            *((path, 0o755, content) for path, content in (programs or {}).items()),
            *((str(Path(path).parent / f".wh.{Path(path).name}"), 0o644, "") for path in deleted),
        ]:
            content = content if isinstance(content, bytes) else content.encode()
            member = tarfile.TarInfo(path)
            member.mode, member.size = mode, len(content)
            tar.addfile(member, io.BytesIO(content))
        for path, target in (links or {}).items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return stream.getvalue()


def base():
    """The lowest layer: a shell, small programs and accounts."""
    if BUSYBOX is None or b"statically" not in _kind(BUSYBOX):
        pytest.skip("a static busybox is needed: Debian's package busybox-static")
    return layer({"etc/passwd": ACCOUNTS, "etc/group": GROUPS}, programs={"bin/busybox": Path(BUSYBOX).read_bytes()},
                 links={f"bin/{applet}": "busybox" for applet in APPLETS})


def of_machine(program):
    """A layer with a program of this machine and the libraries that it needs."""
    path = shutil.which(program)
    if not path:
        pytest.skip(f"{program} is needed")
    listed = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    files = {word for word in listed.split() if word.startswith("/")} | {path}
    return layer(programs={file.lstrip("/"): Path(file).read_bytes() for file in files})


def _kind(path):
    """Without a program header that names an interpreter, a program needs no libraries."""
    content = Path(path).read_bytes()
    return b"dynamically" if b"/ld-linux" in content[:4096] else b"statically"


def docker_archive(path, layers, architecture=None, damaged=False, **config):
    """What `docker save` would write; `config` are members of the image's config."""
    diff_ids = ["sha256:" + hashlib.sha256(content).hexdigest() for content in layers]
    if damaged:
        layers = [*layers[:-1], layers[-1].replace(b"echo", b"ECHO")]
    described = {
        "architecture": architecture or MACHINE[platform.machine()], "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": ["fit:1"], "Layers": names}]
    with tarfile.open(path, "w") as tar:
        for name, content in [*zip(names, layers, strict=True), ("config.json", json.dumps(described).encode()),
                              ("manifest.json", json.dumps(manifest).encode())]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path
