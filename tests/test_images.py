"""Container images without a daemon: what of the image is honoured, what is shared, and what is refused."""

import base64
import hashlib
import json
import os
import tarfile

import pytest
from images import MACHINE, base, docker_archive, layer
from registry import serve
from yard import channel

TELL = """#!/bin/sh
echo "ran $0 $*"
"""


@pytest.fixture
def image(yard):
    """Writes an archive with a shell and a `train`, and returns the name by which a job calls it."""

    def write(train="true\n", *more, name="image", **config):
        lowest = layer(programs={"usr/bin/train": "#!/bin/sh\n" + train})
        archive = docker_archive(yard.root / f"{name}.tar", [base(), lowest, *more], **config)
        return f"docker-archive:{archive}"

    return write


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "request_entrypoint", "request_arguments", "expected"),
    [
        (None, None, None, None, "ran /usr/bin/train "),
        (None, ["serve"], None, None, "ran /usr/bin/train "),
        (["/tell", "first"], None, None, None, "ran /tell first train"),
        (["/tell", "first"], ["serve"], None, None, "ran /tell first train"),
        (["/tell", "first"], ["serve"], None, ["--fast"], "ran /tell first --fast"),
        (None, ["serve"], None, ["train", "--fast"], "ran /usr/bin/train --fast"),
        (["/tell", "first"], ["serve"], ["/tell", "other"], None, "ran /tell other"),
        (["/tell", "first"], ["serve"], ["train", "other"], ["--fast"], "ran /usr/bin/train other --fast"),
        ("/tell", None, None, None, "ran /tell train"),
    ],
)
def test_what_is_run_follows_docker_run_with_train(
    yard, entrypoint, cmd, request_entrypoint, request_arguments, expected
):
    told = layer(programs={"tell": TELL, "usr/bin/train": TELL})
    config = {"Entrypoint": entrypoint, "Cmd": cmd}
    archive = docker_archive(yard.root / "image.tar", [base(), told], **config)
    algorithm = {"TrainingImage": f"docker-archive:{archive}", "TrainingInputMode": "File"}
    if request_entrypoint:
        algorithm["ContainerEntrypoint"] = request_entrypoint
    if request_arguments:
        algorithm["ContainerArguments"] = request_arguments
    ended = yard.run(yard.job("x", AlgorithmSpecification=algorithm))
    assert ended.log() == [expected]


def test_variables_come_from_the_image_then_the_platform_then_the_request(yard, image):
    variables = ["FROM_IMAGE=1", "AWS_REGION=image", "BOTH=image", "NVIDIA_VISIBLE_DEVICES=all"]
    job = yard.job(image("env > /opt/ml/model/env\n", Env=variables), Environment={"BOTH": "request"})
    ended = yard.run(job, env={"SECRET": "of the submitter", "LANG": "of the submitter"})
    found = dict(line.split("=", 1) for line in ended.text("env").splitlines())
    assert found["FROM_IMAGE"] == "1"
    assert found["AWS_REGION"] != "image" and found["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert found["BOTH"] == "request"
    assert found["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert found["HOME"] == "/root"
    assert "SECRET" not in found and "LANG" not in found


@pytest.mark.parametrize(("folder", "expected"), [(None, "/"), ("/made/up", "/made/up"), ("usr/bin", "/usr/bin")])
def test_the_working_directory_of_the_image_is_where_it_starts(yard, image, folder, expected):
    ended = yard.run(yard.job(image("pwd; touch here && echo written\n", WorkingDir=folder)))
    assert ended.log() == [expected, "written"]


WRITES = """
echo "$(id -u) $(id -g) $(id -G) $HOME"
for folder in model output output/data checkpoints input input/data input/data/data input/config; do
    touch /opt/ml/$folder/written || exit 1
done
touch /tmp/written /dev/shm/written && echo out > /dev/stdout && rm /opt/ml/input/data/data/a && mkdir /opt/ml/code
"""


@pytest.mark.parametrize(
    ("user", "expected"),
    [("fit", "1000 100 100 44 /home/fit"), ("1000", "1000 100 100 44 /home/fit"), ("4242:4343", "4242 4343 4343 /"),
     ("fit:video", "1000 44 44 /home/fit"), ("", "0 0 0 /root"), ("root", "0 0 0 /root")],
)
def test_a_user_of_the_image_can_write_what_the_contract_says(yard, image, user, expected):
    yard.put("in", "a", "1")
    ended = yard.run(yard.job(image(WRITES, User=user), channels=[channel("data", "s3://in")]))
    identity, out = ended.log()
    if yard.uid != 0 and user not in ("", "root"):
        # Only one id exists for who may not map others.
        expected = f"0 0 0 {expected.split()[-1]}"
    assert identity == expected
    assert out == "out"
    assert ended.files() == {"written": b""}


def test_a_user_that_is_not_root_has_no_rights_of_root(yard, image):
    script = "touch /usr/bin/x && echo written\nchmod 777 /etc/passwd && echo changed\ncat /proc/self/status"
    ended = yard.run(yard.job(image(script + "\n", User="fit")))
    if yard.uid == 0:
        assert "written" not in ended.log() and "changed" not in ended.log()
        (effective,) = [line for line in ended.log() if line.startswith("CapEff")]
        assert int(effective.split()[1], 16) == 0


def test_layers_hide_and_replace_what_lies_below(yard, image):
    middle = layer({"etc/a": "middle", "etc/gone": "x", "folder/b": "b", "folder/c": "c"})
    top = layer({"etc/a": "top", "folder/.wh..wh..opq": "", "folder/d": "d"}, deleted=["etc/gone"])
    ended = yard.run(yard.job(image("cat /etc/a; echo; ls /etc /folder\n", middle, top)))
    assert ended.log() == ["top", "/etc:", "a", "group", "hostname", "hosts", "passwd", "resolv.conf", "", "/folder:", "d"]


def test_an_image_of_a_hundred_layers_runs(yard, image):
    more = [layer({f"made/{number}": str(number)}) for number in range(100)]
    assert yard.run(yard.job(image("ls /made | wc -l\n", *more))).log() == ["100"]


def test_instances_share_layers_and_see_no_changes_of_each_other(yard, image):
    script = "ls /made 2>/dev/null | wc -l; mkdir /made; touch /made/$HOSTNAME; ls /made; rm -rf /usr /bin /etc /made\n"
    name = image(script)
    for _ in range(2):
        ended = yard.run(yard.job(name, instances=2), expect=None)
        for host in ("algo-1", "algo-2"):
            assert ended.log(host, "stdout") == ["0", host]
    layers = [path for path in (yard.data / "images/layers").iterdir() if path.is_dir()]
    assert len(layers) == 2
    assert sorted(path.name for path in layers) == sorted({path.name for path in layers})
    assert any((path / "tree/usr/bin/train").exists() for path in layers)


@pytest.mark.parametrize(("depth", "told"), [(1, "takes memory"), (2, "has got a copy")])
def test_where_the_kernel_refuses_overlays_an_image_runs_all_the_same(yard, image, depth, told):
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system that refuses overlays")
    yard.data = yard.mount_overlays(depth) / "data"
    script = """
cat /etc/a /in/in/in || exit 1
[ -e /etc/gone ] || echo deleted
busybox stat -c '%a %n' /etc/a
for i in 1 2 3; do echo $HOSTNAME > /etc/new-$i; done
rm -r /in && cat /etc/new-1 /opt/ml/input/data/data/a && echo x > /opt/ml/model/$HOSTNAME
"""
    more = [layer({"etc/a": "a\n", "etc/gone": "", "in/in/in": "in\n"}), layer({}, deleted=["etc/gone"])]
    yard.put("in", "a", "object\n")
    job = yard.job(image(script, *more), instances=2, channels=[channel("data", "s3://in")])
    for _ in range(2):
        ended = yard.run(job)
        for host in ("algo-1", "algo-2"):
            assert ended.log(host) == ["a", "in", "deleted", "644 /etc/a", host, "object"]
        assert set(ended.files()) == {"algo-1", "algo-2"}
        assert len(ended.warnings) == 2 and all(told in warning for warning in ended.warnings), ended.warnings


def test_an_image_sees_nothing_of_the_machine(yard, image):
    beside = yard.file("beside", "x")
    ended = yard.run(yard.job(image(f"ls {beside} 2>/dev/null || echo none; ls /\n")))
    expected = ["bin", "dev", "etc", "opt", "proc", "sys", "tmp", "usr"]
    assert ended.log() == ["none", *expected]


def test_the_rest_of_an_instance_is_as_it_is_for_a_program_of_the_machine(yard, image):
    script = "readlink /proc/self | wc -l; cat /etc/hostname; ls /tmp | wc -l; ls /dev/shm | wc -l; ls -d /proc/[0-9]*\n"
    ended = yard.run(yard.job(image(script)))
    assert ended.log()[:4] == ["1", "algo-1", "0", "0"]
    assert len(ended.log()[4:]) <= 4, "processes of others are seen"


def test_settings_and_mounts_of_the_machine_can_not_be_changed_from_an_image(yard, image):
    script = """
(echo 1 > /proc/sys/vm/overcommit_memory) 2>/dev/null || echo settings
mount -t tmpfs none /usr 2>/dev/null || echo mount
umount /opt/ml 2>/dev/null || echo umount
touch /sys/x 2>/dev/null || echo sys
mknod /disk b 254 0 2>/dev/null && cat /disk >/dev/null 2>&1 || echo device
unshare -Urm mount -o remount,rw,bind /proc/sys 2>/dev/null || echo nested
"""
    ended = yard.run(yard.job(image(script)))
    assert ended.log() == ["settings", "mount", "umount", "sys", "device", "nested"]


@pytest.mark.parametrize("link", ["tmp", "opt"])
def test_no_link_of_an_image_uncovers_settings_of_the_machine(yard, image, link):
    covered = layer(links={link: "/proc"})
    script = """
mkdir /new && unshare -Urm sh -c 'mount -t proc none /new && [ -w /new/sys/vm/overcommit_memory ] && echo open'
[ -w /proc/sys/vm/overcommit_memory ] && echo writable
echo end
"""
    ended = yard.run(yard.job(image(script, covered)), expect=None)
    assert "open" not in ended.log() and "writable" not in ended.log()
    assert ended.log(stream="stdout") == ["end"] or "can't make a place for" in ended.reason


@pytest.mark.parametrize("folder", ["proc", "sys", "dev"])
def test_an_image_with_a_link_in_place_of_a_kernels_folder_is_refused(yard, image, folder):
    ended = yard.run(yard.job(image("true\n", layer(links={folder: "/tmp"}))), expect=10)
    assert f"something else than a folder at /{folder}" in ended.reason


def test_links_of_an_image_lead_nowhere_on_the_machine(yard, image):
    outside = yard.root / "outside"
    outside.mkdir()
    links = layer(links={"opt": str(outside), "etc/hosts": f"{outside}/hosts", "etc/resolv.conf": "../run/none/there"})
    ended = yard.run(yard.job(image("echo x > /opt/ml/model/x && cat /etc/hostname\n", links)))
    assert ended.log() == ["algo-1"] and ended.text("x") == "x\n"
    assert list(outside.iterdir()) == []


def test_sigterm_reaches_the_programs_of_an_image(yard, image):
    script = "trap 'echo saved > /opt/ml/model/m; exit 0' TERM\necho ready\nwhile true; do sleep 0.05; done\n"
    running = yard.start(yard.job(image(script)))
    running.wait_for_line("ready")
    running.interrupt()
    assert yard.ended(running, expect=11).text("m") == "saved\n"


@pytest.mark.parametrize(("named", "trapped"), [("SIGUSR1", "USR1"), ("int", "INT"), ("1", "HUP")])
def test_the_stop_signal_of_an_image_is_what_a_stop_sends(yard, image, named, trapped):
    script = f"""
trap 'echo wrong > /opt/ml/model/m; exit 0' TERM
trap 'echo saved > /opt/ml/model/m; exit 0' {trapped}
echo ready; while true; do sleep 0.05; done
"""
    running = yard.start(yard.job(image(script, StopSignal=named)))
    running.wait_for_line("ready")
    running.interrupt()
    assert yard.ended(running, expect=11).text("m") == "saved\n"


def test_a_stop_signal_that_does_not_exist_is_refused(yard, image):
    error = yard.refused(yard.job(image(StopSignal="SIGFOO")))
    assert '"SIGFOO"' in error and "STOPSIGNAL" in error and "SIGRTMIN+3" in error


def test_the_failure_file_and_the_exit_code_of_an_image_are_the_reason(yard, image):
    ended = yard.run(yard.job(image("echo no rows > /opt/ml/output/failure; exit 3\n")), expect=10)
    assert ended.reason == "AlgorithmError: no rows, exit code: 3 (algo-1)"


def test_an_image_is_found_from_the_job_file_and_from_the_command_line(yard, image):
    image("echo ran\n")
    job = yard.job("docker-archive:./image.tar")
    path = yard.file("image.json", json.dumps(job))
    assert yard.run(path).log() == ["ran"]
    assert yard.run(yard.job("team/fit:1"), "--image", "team/fit:1=docker-archive:image.tar").log() == ["ran"]


def test_oci_layouts_are_run_too(yard):
    tar, folder = oci_layout(yard)
    for name in (f"oci:{folder}", f"oci-archive:{tar}"):
        assert yard.run(yard.job(name)).log() == ["ran"]


def oci_layout(yard):
    import hashlib
    folder = yard.root / "layout"
    (folder / "blobs/sha256").mkdir(parents=True)

    def blob(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        (folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    layers = [blob(content, "layer.v1.tar") for content in (base(), layer(programs={"bin/train": "#!/bin/sh\necho ran\n"}))]
    config = {"architecture": MACHINE[os.uname().machine], "os": "linux",
              "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}}
    config = blob(json.dumps(config).encode(), "config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
                "layers": layers}
    index = {"schemaVersion": 2, "manifests": [blob(json.dumps(manifest).encode(), "manifest.v1+json")]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    with tarfile.open(yard.root / "layout.tar", "w") as tar:
        tar.add(folder, arcname=".")
    return yard.root / "layout.tar", folder


def test_an_image_of_a_registry_is_run_with_the_credentials_of_docker_login(yard):
    _, layout = oci_layout(yard)
    with serve(layout, "me", "s3cr3t-of-me") as registry:
        job = yard.job(f"{registry}/team/fit:1")
        error = yard.refused(job)
        assert registry in error and "docker login" in error
        config = yard.root / "home/.docker/config.json"
        config.parent.mkdir()
        login = base64.b64encode(b"me:s3cr3t-of-me").decode()
        config.write_text(json.dumps({"auths": {registry: {"auth": login}}}))
        assert yard.run(job).log() == ["ran"]
        config.rename(yard.root / "config.json")
        assert yard.run(job, env={"DOCKER_CONFIG": str(yard.root)}).log() == ["ran"]
    kept = [path for path in yard.data.rglob("*") if path.is_file() and b"s3cr3t-of-me" in path.read_bytes()]
    assert kept == []


def test_an_image_without_train_is_refused_with_the_path_that_was_searched(yard, image):
    name = image("true\n", layer(deleted=["usr/bin/train"]), Env=["PATH=/bin:/usr/bin"])
    error = yard.refused(yard.job(name))
    assert "'train'" in error.replace('"', "'") and "/bin:/usr/bin" in error and "ContainerEntrypoint" in error


def test_an_image_without_its_entrypoint_is_refused(yard, image):
    assert "/not/there" in yard.refused(yard.job(image(Entrypoint=["/not/there"])))


def test_an_entrypoint_may_come_with_the_data(yard, image):
    yard.put("in", "run", "#!/bin/sh\necho ran\n")
    algorithm = {"TrainingImage": image(), "TrainingInputMode": "File",
                 "ContainerEntrypoint": ["sh", "/opt/ml/input/data/code/run"]}
    ended = yard.run(yard.job("x", AlgorithmSpecification=algorithm, channels=[channel("code", "s3://in")]))
    assert ended.log() == ["ran"]


def test_an_image_for_other_machines_is_refused(yard, image):
    error = yard.refused(yard.job(image(architecture="s390x")))
    assert "linux/s390x" in error and "this machine is linux/" in error


def test_a_user_that_the_image_does_not_know_is_refused(yard, image):
    assert '"nobody-here"' in yard.refused(yard.job(image(User="nobody-here")))


def test_an_archive_that_is_not_there_is_refused(yard):
    assert "none.tar" in yard.refused(yard.job(f"docker-archive:{yard.root}/none.tar"))


def test_a_broken_archive_is_refused(yard, image):
    image()
    archive = yard.root / "image.tar"
    archive.write_bytes(archive.read_bytes()[:100_000])
    assert "image.tar" in yard.refused(yard.job(f"docker-archive:{archive}"))
    archive.write_bytes(b"no archive at all" * 1000)
    assert "image.tar" in yard.refused(yard.job(f"docker-archive:{archive}"))
    assert list((yard.data / "images/incoming").iterdir()) == []


def test_a_layer_that_is_not_what_its_digest_says_is_refused(yard, image):
    error = yard.refused(yard.job(image("echo x\n", damaged=True)))
    assert "digest" in error and "sha256:" in error


def test_a_registry_that_can_not_be_reached_is_refused_with_what_would_work(yard):
    error = yard.refused(yard.job("127.0.0.1:1/team/fit:1"))
    assert "127.0.0.1:1" in error and "--image 127.0.0.1:1/team/fit:1=SOURCE" in error


def test_images_that_no_job_uses_are_removed_on_request(yard, image):
    running = yard.start(yard.job(image("echo up; sleep 1000\n")))
    running.wait_for_line("up")
    prune = ["image", "prune", "--data-dir", yard.data]
    assert yard.command(*prune).stdout.startswith("0 images removed"), "it is in use"
    running.interrupt()
    yard.ended(running, expect=11)
    assert "0 images" in yard.command(*prune, "--older-than", "1").stdout
    assert "1 images would be removed, " in yard.command(*prune, "--dry-run").stdout
    assert any((yard.data / "images/layers").iterdir())
    assert "1 images removed, " in yard.command(*prune).stdout
    assert not [path for path in (yard.data / "images/layers").iterdir() if path.is_dir()]
    assert yard.run(yard.job(image("echo again\n"))).log() == ["again"]


def test_images_are_listed_with_name_size_layers_and_last_use_and_removed_by_name_or_digest(yard, image):
    name = image("echo up; sleep 1000\n")
    other = f"oci:{oci_layout(yard)[1]}"
    assert yard.run(yard.job(other)).log() == ["ran"]
    running = yard.start(yard.job(name))
    running.wait_for_line("up")
    listed = yard.command("image", "ls", "--data-dir", yard.data).stdout.splitlines()
    assert listed[0].split() == ["IMAGE", "DIGEST", "LAYERS", "SIZE", "LAST", "USED"]
    assert [line.split()[0] for line in listed[1:]] == [name, other]
    assert listed[1].endswith("now") and listed[2].endswith("ago")
    lines = yard.command("image", "ls", "--json", "--data-dir", yard.data).stdout.splitlines()
    found = {image["name"]: image for image in map(json.loads, lines)}
    assert found[name]["layers"] == 2 and found[name]["size"] > 500_000 and found[name]["daemon"] is None
    remove = ["image", "rm", "--data-dir", yard.data]
    assert "a job uses the image" in yard.command(*remove, name, expect=1).stderr
    assert "trainyard image ls" in yard.command(*remove, "team/absent:1", expect=2).stderr
    assert found[other]["digest"] in yard.command(*remove, found[other]["digest"][7:19]).stdout
    running.interrupt()
    yard.ended(running, expect=11)
    yard.command(*remove, name)
    assert yard.command("image", "ls", "--json", "--data-dir", yard.data).stdout == ""
    assert not [path for path in (yard.data / "images/layers").iterdir() if path.is_dir()]
