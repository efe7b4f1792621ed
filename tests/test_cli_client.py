"""The command line as a client of an endpoint: submit, list, describe, logs, wait, stop, delete."""

import contextlib
import datetime
import json
import os
import pty
import re
import select
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yard as yards
from endpoint import Endpoint

pytestmark = pytest.mark.one_user


class Remote:
    """Commands that ask one endpoint."""

    def __init__(self, yard):
        self.yard = yard
        self.endpoint = Endpoint(yard, "--max-instances", "4")

    def __call__(self, *arguments, expect=0, stdin=None, env=None):
        return self.yard.command(*arguments, "--data-dir", self.yard.data, expect=expect, stdin=stdin, env=env)

    def begin(self, *arguments, **options):
        return self.yard.begin(*arguments, "--data-dir", self.yard.data, **options)

    def submit(self, job, *flags, expect=0):
        self.yard.give_away(data=False)
        return self("submit", "-", *flags, stdin=json.dumps(job), expect=expect)

    def lines(self, *arguments, expect=0):
        return [json.loads(line) for line in self(*arguments, "--json", expect=expect).stdout.splitlines()]


@pytest.fixture
def remote(yard):
    remote = Remote(yard)
    yield remote
    remote.endpoint.stop()


def test_a_job_is_submitted_waited_for_and_its_end_is_the_exit_code(yard, remote):
    fits = yard.job(yard.sh("echo fits; echo 1 > /opt/ml/model/m"), TrainingJobName="fits")
    ended = remote.submit(fits, "--wait")
    assert ended.stdout.startswith("fits\nfits: ")
    assert re.search(r"^fits: Completed after \d+\.\d s\nmodel: s3://results/out/fits/output/model.tar.gz$", ended.stdout, re.M)

    fails = yard.job(yard.sh("exit 3"), TrainingJobName="fails")
    assert remote.submit(fails, "--name", "other").stdout == "other\n"
    ended = remote("wait", "other", expect=10)
    assert "other: Failed after" in ended.stdout and "exit code: 3" in ended.stdout
    late = yard.job(yard.sh("exec sleep 60"), TrainingJobName="late", StoppingCondition={"MaxRuntimeInSeconds": 1})
    remote.submit(late, "--wait", expect=12)
    assert remote("wait", "fits", "other", "late", expect=10).exit_code == 10
    (described,) = remote.lines("wait", "late", expect=12)
    assert described["SecondaryStatus"] == "MaxRuntimeExceeded"


def test_jobs_are_stopped_and_deleted_several_at_once_and_those_that_can_not_be_are_told(yard, remote):
    for name in ("one", "two"):
        remote.submit(yard.job(yard.sh("exec sleep 60"), TrainingJobName=name))
    assert remote("stop", "one", "two", "--wait").stdout.count("Stopped after") == 2
    remote("wait", "one", expect=11)
    ended = remote("stop", "one", "thre", expect=1)
    assert "StopTrainingJob: The request was rejected because the training job is in status Stopped" in ended.stderr
    ended = remote("delete", "one", "tow", "two", expect=1)
    assert ended.stdout == "one\ntwo\n"
    assert "there is no training job tow: did you mean two?" in ended.stderr
    assert remote.lines("list") == []


def test_jobs_are_listed_by_name_status_and_time(yard, remote):
    for name in ("page-1", "page-2", "page-3"):
        remote.submit(yard.job(yard.sh("true"), TrainingJobName=name))
    remote.submit(yard.job(yard.sh("exit 1"), TrainingJobName="broken"), "--wait", expect=10)
    remote("wait", "page-1", "page-2", "page-3")

    def names(*flags):
        return [job["TrainingJobName"] for job in remote.lines("list", *flags)]

    assert names("page") == ["page-3", "page-2", "page-1"]
    assert names("page", "--reverse", "-n", "2") == ["page-1", "page-2"]
    assert names("--sort", "name") == ["broken", "page-1", "page-2", "page-3"]
    assert names("--status", "failed") == ["broken"]
    assert len(names("--since", "1h")) == 4
    assert names("--since", "2999-01-01") == []
    table = remote("list", "broken").stdout.splitlines()
    assert table[0].split() == ["NAME", "STATUS", "SECONDARY", "CREATED", "TIME"]
    assert table[1].split()[:3] == ["broken", "Failed", "Failed"]
    assert "90m" in remote("list", "--since", "soon", expect=2).stderr


def test_a_job_is_described_for_people_and_for_programs(yard, remote):
    job = yard.job(yard.sh("exit 1"), TrainingJobName="shown", HyperParameters={"depth": "7"})
    remote.submit(job, "--wait", expect=10)
    text = remote("describe", "shown").stdout
    for part in (r"^status +Failed \(Failed\)$", r"^reason +AlgorithmError: ", r"^  depth: 7$", r"Z  Training +"):
        assert re.search(part, text, re.M), f"{part} in {text}"
    (described,) = remote.lines("describe", "arn:aws:sagemaker:us-east-1:000000000000:training-job/shown")
    assert described["HyperParameters"] == {"depth": "7"}
    ended = remote("describe", "show", expect=1)
    assert ended.stderr == "error: there is no training job show: did you mean shown?\n"


def test_a_wrong_request_is_refused_with_the_services_words(yard, remote):
    job = yard.job(yard.sh("true"), TrainingJobName="wrong_name")
    ended = remote.submit(job, expect=2)
    assert "CreateTrainingJob" in ended.stderr and "trainingJobName" in ended.stderr
    ended = remote("submit", "-", stdin='{"TrainingJobNam": "x"}', expect=2)
    assert "did you mean `TrainingJobName`" in ended.stderr


def test_lines_of_all_instances_come_in_order_of_time_and_of_one_without_its_name(yard, remote):
    text = """
        host=$(hostname)
        for i in 1 2 3; do echo "$host $i"; done
        """
    remote.submit(yard.job(yard.sh(text), instances=2, TrainingJobName="talks"), "--wait")
    lines = remote.lines("logs", "talks")
    assert [line["timestamp"] for line in lines] == sorted(line["timestamp"] for line in lines)
    assert {line["logStreamName"].rsplit("-", 1)[0] for line in lines} == {"talks/algo-1", "talks/algo-2"}
    shown = remote("logs", "talks").stdout.splitlines()
    assert sorted(shown) == [f"algo-{host} | algo-{host} {number}" for host in (1, 2) for number in (1, 2, 3)]
    assert remote("logs", "talks", "--instance", "algo-2").stdout == "algo-2 1\nalgo-2 2\nalgo-2 3\n"
    assert "algo-1 to algo-2" in remote("logs", "talks", "--instance", "algo-3", expect=2).stderr


def test_followed_lines_come_within_a_second_and_end_with_the_job(yard, remote):
    gate = yard.gate()
    text = f"""
        echo ready
        until [ -s {gate} ]; do sleep 0.02; done
        date +%s.%N
        """
    remote.submit(yard.job(yard.sh(text), TrainingJobName="live"))
    following = remote.begin("logs", "live", "-f", "--json")
    following.wait_for(lambda line: line["message"] == "ready", "the first line")
    gate.open()
    stamp, _ = following.wait_for(lambda line: line["message"] != "ready", "the second line")
    assert time.time() - float(stamp["message"]) < 1
    ended = following.end()
    assert (ended.exit_code, ended.stderr.split(" after")[0]) == (0, "live: Completed")


def test_an_interrupt_ends_following_and_not_the_job(yard, remote):
    gate = yard.gate()
    remote.submit(yard.job(yard.sh(f"echo ready; until [ -s {gate} ]; do sleep 0.02; done"), TrainingJobName="goes-on"))
    following = remote.begin("logs", "goes-on", "--follow", "--json")
    following.wait_for(lambda line: line["message"] == "ready", "the first line")
    following.interrupt()
    ended = following.end()
    assert (ended.exit_code, ended.stderr) == (0, "")
    (described,) = remote.lines("describe", "goes-on")
    assert described["TrainingJobStatus"] == "InProgress"
    gate.open()
    remote("wait", "goes-on")


def on_a_terminal(command, environment, user=None):
    """What a command writes to a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True, **(user or {}))
    os.close(theirs)
    said = b""
    end = time.monotonic() + yards.DEADLINE
    with contextlib.suppress(OSError):
        while time.monotonic() < end and select.select([ours], [], [], yards.DEADLINE)[0]:
            piece = os.read(ours, 1 << 16)
            if not piece:
                break
            said += piece
    os.close(ours)
    return process.wait(yards.DEADLINE), said


def test_lines_can_not_command_a_terminal_and_go_into_pipes_as_they_are(yard, remote):
    hostile = r"printf 'a\033[2Jb\033]0;title\007c \033[31mred\033[0m\n'"
    job = yard.job(yard.sh(hostile), TrainingJobName="hostile")
    remote.submit(job, "--wait")
    assert "a\x1b[2Jb\x1b]0;title\x07c \x1b[31mred\x1b[0m\n" in remote("logs", "hostile").stdout
    environment = {**yard.environment, "TERM": "xterm"}
    command = [yard.binary, "logs", "hostile", "--data-dir", yard.data]
    (_, of_logs) = on_a_terminal(command, environment, yard.identity)
    path = yard.file("hostile.json", json.dumps({**job, "TrainingJobName": "hostile-2"}))
    yard.give_away()
    command = [yard.binary, "run", path, "--data-dir", yard.data, *yard.bucket_flags()]
    (code, of_run) = on_a_terminal(command, environment, yard.identity)
    assert code == 0, of_run
    for said in (of_logs, of_run):
        assert "a␛[2Jb␛]0;title␇c \x1b[31mred\x1b[0m".encode() in said, said
        assert b"\x1b]0;" not in said


def test_an_endpoint_that_is_away_for_a_moment_is_waited_for(yard, remote):
    gate = yard.gate()
    remote.submit(yard.job(yard.sh(f"until [ -s {gate} ]; do sleep 0.02; done"), TrainingJobName="patient"))
    waiting = remote.begin("wait", "patient")
    assert waiting._unread.get(timeout=yards.DEADLINE)
    remote.endpoint.kill()
    port = remote.endpoint.url.rsplit(":", 1)[1]
    remote.endpoint = Endpoint(yard, "--max-instances", "4", port=port)
    gate.open()
    ended = waiting.end()
    assert ended.exit_code == 0, ended


def test_nobody_at_an_address_is_told_with_what_to_do(yard):
    ended = yard.command("list", "--data-dir", yard.data, expect=2)
    assert "start one with `trainyard serve`" in ended.stderr
    endpoint = Endpoint(yard)
    endpoint.stop()
    ended = yard.command("list", "--data-dir", yard.data, expect=1)
    assert ended.stderr.startswith(f"error: nothing listens at {endpoint.url}/: start it with `trainyard serve`")


def test_keys_endpoints_and_profiles_are_found_where_aws_clients_find_them(yard, remote):
    keys = {name: remote.endpoint.variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    elsewhere = {"TRAINYARD_DATA_DIR": str(yard.root / "nothing")}
    url = remote.endpoint.url
    yard.command("list", "--endpoint", url, env={**keys, **elsewhere})
    yard.command("list", env={**keys, **elsewhere, "AWS_ENDPOINT_URL_SAGEMAKER": url})
    assert "AWS_ACCESS_KEY_ID" in yard.command("list", "--endpoint", url, env=elsewhere, expect=2).stderr
    wrong = {**keys, **elsewhere, "AWS_SECRET_ACCESS_KEY": "wrong"}
    assert "InvalidSignatureException" in yard.command("list", "--endpoint", url, env=wrong, expect=1).stderr
    yard.file("home/.aws/credentials", "[yard]\n" + "".join(f"{name.lower()} = {value}\n" for name, value in keys.items()))
    yard.file("home/.aws/config", f"[profile yard]\nendpoint_url = {url}\nregion = eu-west-1\n")
    yard.command("list", "--profile", "yard", env=elsewhere)
    yard.command("list", env={**elsewhere, "AWS_PROFILE": "yard"})
    assert "there is no profile other" in yard.command("list", "--profile", "other", env=elsewhere, expect=2).stderr


def test_a_program_that_a_profile_names_gives_the_keys(yard, remote):
    keys = {
        "Version": 1, "AccessKeyId": remote.endpoint.variables["AWS_ACCESS_KEY_ID"],
        "SecretAccessKey": remote.endpoint.variables["AWS_SECRET_ACCESS_KEY"],
    }
    printed = yard.file("printed.json", json.dumps(keys))
    asked = yard.file("asked", "")
    yard.file("home/.aws/config", f"[profile ci]\ncredential_process = sh -c 'echo once >> {asked}; cat {printed}'\n")
    yard.give_away(data=False)
    elsewhere = {"TRAINYARD_DATA_DIR": str(yard.root / "nothing")}
    listed = ("list", "--profile", "ci", "--endpoint", remote.endpoint.url)
    yard.command(*listed, env=elsewhere)
    assert asked.read_text() == "once\n"
    printed.write_text(json.dumps({**keys, "SecretAccessKey": "wrong"}))
    assert "InvalidSignatureException" in yard.command(*listed, env=elsewhere, expect=1).stderr
    printed.write_text("no keys but a secret")
    ended = yard.command(*listed, env=elsewhere, expect=1)
    assert "profile ci" in ended.stderr and "AccessKeyId" in ended.stderr and "secret" not in ended.stderr.lower().split()


class Lender(BaseHTTPRequestHandler):
    """STS that lends the keys of `server.keys`, and keeps what it was asked."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((dict(self.headers), dict(urllib.parse.parse_qsl(body))))
        access, secret = self.server.keys
        until = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        answer = (
            "<AssumeRoleResponse><AssumeRoleResult><Credentials>"
            f"<AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>lent</SessionToken><Expiration>{until}</Expiration>"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        ).encode()
        if access is None:
            answer = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"
        self.send_response(403 if access is None else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def test_a_role_is_taken_on_through_sts_by_the_keys_that_its_profile_names(yard, remote):
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Lender)
    server.keys, server.asked = tuple(remote.endpoint.variables[name] for name in names), []
    threading.Thread(target=server.serve_forever).start()
    try:
        yard.file("home/.aws/credentials", "[base]\naws_access_key_id = BASE\naws_secret_access_key = b\n")
        role = "arn:aws:iam::000000000000:role/trainer"
        yard.file("home/.aws/config", f"[profile ci]\nrole_arn = {role}\nsource_profile = base\nrole_session_name = me\n")
        yard.give_away(data=False)
        environment = {
            "TRAINYARD_DATA_DIR": str(yard.root / "nothing"), "AWS_ENDPOINT_URL": remote.endpoint.url,
            "AWS_ENDPOINT_URL_STS": f"http://127.0.0.1:{server.server_port}",
        }
        yard.command("list", "--profile", "ci", env=environment)
        ((headers, form),) = server.asked
        assert (form["Action"], form["RoleArn"], form["RoleSessionName"]) == ("AssumeRole", role, "me")
        assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=BASE/")
        assert "/us-east-1/sts/aws4_request" in headers["authorization"]
        server.keys = (None, None)
        ended = yard.command("list", "--profile", "ci", env=environment, expect=1)
        assert "AssumeRole" in ended.stderr and "not you (AccessDenied)" in ended.stderr
    finally:
        server.shutdown()
        server.server_close()


def test_every_command_shows_examples_and_completes(yard):
    for command in ("submit", "list", "describe", "logs", "wait", "top", "stop", "delete", "artifact", "run"):
        assert "Example" in yard.command(command, "--help").stdout, command
    for shell in ("bash", "zsh", "fish"):
        script = yard.command("completions", shell).stdout
        assert all(command in script for command in ("submit", "describe", "artifact")), shell
