"""A container image with this machine's own shell, small programs and Python, for the tests that host programs pass.

What a program of Debian needs is found by asking for it (`ldd`, Python itself), so no package is fetched.
"""

import functools
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from images import ACCOUNTS, GROUPS, MACHINE

PROGRAMS = """
awk base64 basename bash cat chgrp chmod chown cmp cp cut date dd df dirname du echo env expr false find grep gzip head
hostname id kill ln ls md5sum mkdir mkfifo mktemp mv nproc od printenv printf ps pwd readlink realpath rm rmdir sed seq
setsid sh sha256sum sleep sort split stat tail tar tee test touch tr true truncate tty
uname uniq wc which xargs yes
""".split()

LEFT_OUT = {"__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages", "test",
            "tests", "tkinter", "turtledemo"}
"""Of Python's library what no program of a test wants."""


class MachineImage:
    """The lowest layer, made once for all tests, and images of it with one program on top."""

    def __init__(self, folder, python):
        self.folder = folder
        self.python = python

    @functools.cached_property
    def _base(self):
        """The layer's file."""
        path = self.folder / "machine.tar"
        with tarfile.open(path, "w") as tar:
            _add(tar, "etc/passwd", ACCOUNTS.encode())
            _add(tar, "etc/group", GROUPS.encode())
            for name in ("bin", "lib", "lib64", "sbin"):
                if Path("/", name).is_symlink():
                    _add_link(tar, name, os.readlink(f"/{name}"))
            add_files(tar, self._files())
        path.chmod(0o644)
        return path

    def _files(self):
        programs = {path for name in PROGRAMS if (path := shutil.which(name, path="/usr/bin:/bin"))} | {self.python}
        library = subprocess.run([self.python, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
                                 check=True, capture_output=True, text=True).stdout.strip()
        modules = {str(path) for path in Path(library).rglob("*") if path.is_file() and _wanted(path, library)}
        libraries = needed_libraries([*programs, *(name for name in modules if name.endswith(".so"))])
        return programs | modules | libraries

    @functools.cached_property
    def base(self):
        """The layer's content."""
        return self._base.read_bytes()

    def name(self, folder, program):
        """What a job calls an image with the program of a path as `train`; its files lie in `folder`."""
        return f"oci:{self.layout(folder / 'layout', program)}"

    def layout(self, folder, program=None, more=(), **config):
        """An OCI layout with the program of a path as `train`; `more` are files of further layers."""
        (folder / "blobs/sha256").mkdir(parents=True)
        top = [self._top(folder, program)] if program else []
        layers = [_link(folder, "layer.v1.tar", path) for path in [self._base, *more]] + top
        rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
        config = {"architecture": MACHINE[platform.machine()], "os": "linux", "config": config, "rootfs": rootfs}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": _blob(folder, "config.v1+json", json.dumps(config).encode()), "layers": layers}
        index = {"schemaVersion": 2, "manifests": [_blob(folder, "manifest.v1+json", json.dumps(manifest).encode())]}
        (folder / "index.json").write_text(json.dumps(index))
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        return folder

    def _top(self, folder, program):
        return _blob(folder, "layer.v1.tar", layer_of(program))


def layer_of(program):
    """A layer with the program of a path as `train`."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        _add(tar, "usr/local/bin/train", program.read_bytes(), program.stat().st_mode & 0o777)
    return stream.getvalue()


def _blob(folder, kind, content):
    name = hashlib.sha256(content).hexdigest()
    (folder / "blobs/sha256" / name).write_bytes(content)
    return _descriptor(kind, name, len(content))


def _link(folder, kind, path):
    digest = _digest(path)
    (folder / "blobs/sha256" / digest).symlink_to(path)
    return _descriptor(kind, digest, path.stat().st_size)


@functools.cache
def _digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def needed_libraries(programs):
    """The shared libraries that programs and other libraries load."""
    loaded = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", loaded))


def add_files(tar, paths):
    """Files of the machine where they are."""
    for path in sorted({_real_folder(path) for path in paths}):
        _add(tar, path.lstrip("/"), Path(path).read_bytes(), os.stat(path).st_mode & 0o777)


def _wanted(path, library):
    parts = path.relative_to(library).parts
    return not any(part in LEFT_OUT or part.startswith("config-") for part in parts)


def _real_folder(path):
    """The path without links among its folders, because the image has those links too."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _descriptor(kind, name, size):
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{name}", "size": size}


def _add(tar, name, content, mode=0o644):
    member = tarfile.TarInfo(name)
    member.mode, member.size = mode, len(content)
    tar.addfile(member, io.BytesIO(content))


def _add_link(tar, name, target):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    tar.addfile(member)
