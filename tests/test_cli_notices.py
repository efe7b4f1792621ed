"""Notices: who wants to know that a job has ended is told, by a signed request or by a program."""

import base64
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yard as yards
from endpoint import Endpoint

pytestmark = pytest.mark.one_user

KEY = b"0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Hook(BaseHTTPRequestHandler):
    """A receiver as the Standard Webhooks specification wants it."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        stamp, notice = self.headers["webhook-timestamp"], self.headers["webhook-id"]
        signed = f"{notice}.{stamp}.".encode() + body
        signature = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        right = self.headers["webhook-signature"] == f"v1,{signature}" and abs(int(stamp) - time.time()) < 60
        server = self.server
        with server.changed:
            server.seen.append((notice, json.loads(body), right))
            server.changed.notify_all()
            # A receiver that hangs until it is let go.
            server.changed.wait_for(lambda: not server.hanging)
        self.send_response(server.status if right else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Receiver(ThreadingHTTPServer):
    """What has come, and what is answered."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Hook)
        self.changed = threading.Condition()
        self.seen, self.hanging, self.status = [], False, 204
        self.url = f"http://127.0.0.1:{self.server_port}/hook/token"
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= count, yards.DEADLINE), self.seen
            return list(self.seen)

    def let_go(self):
        with self.changed:
            self.hanging = False
            self.changed.notify_all()

    def handle_error(self, request, client_address):
        """A sender that was killed is no matter."""

    def close(self):
        self.let_go()
        self.shutdown()
        self.thread.join()
        self.server_close()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


def config(yard, text):
    path = yard.file("config.toml", text)
    yard.give_away(data=False)
    return path


def hook(receiver, more=""):
    return f"[notify.team]\nurl = '{receiver.url}'\nsecret = '{SECRET}'\n{more}\n"


def test_run_sends_a_signed_request_when_the_job_has_ended(yard, receiver):
    path = config(yard, hook(receiver))
    job = yard.job(yard.sh("echo because > /opt/ml/output/failure; exit 7"), TrainingJobName="fails")
    yard.run(job, "--config", path, expect=10)
    ((notice, body, right),) = receiver.seen
    assert right and notice.startswith("fails-") and notice.endswith("-1")
    assert body["type"] == "training_job.failed"
    told = body["data"]
    assert (told["TrainingJobName"], told["TrainingJobStatus"], told["SecondaryStatus"]) == ("fails", "Failed", "Failed")
    assert "because" in told["FailureReason"] and told["TrainingEndTime"] >= told["CreationTime"]


def test_those_are_told_who_want_to_know_of_that_end(yard, receiver):
    tell = yard.sh('cat >> "$OUT"; echo " $TRAINYARD_STATUS $TRAINYARD_JOB" >> "$OUT"', name="tell")
    out = yard.file("out")
    text = hook(receiver, "on = ['Completed']") + f"[notify.desk]\ncommand = ['{tell}']\non = ['Stopped', 'Failed']\n"
    path = config(yard, text)
    endpoint = Endpoint(yard, "--config", path, env={"OUT": str(out)})
    sagemaker = endpoint.client("sagemaker")
    role = "arn:aws:iam::000000000000:role/r"
    for name, script in (("good", "echo 1 > /opt/ml/model/m"), ("bad", "exit 1"), ("slow", "exec sleep 60")):
        job = yard.job(yard.sh(script), TrainingJobName=name, RoleArn=role)
        yard.give_away(data=False)
        sagemaker.create_training_job(**job)
    sagemaker.stop_training_job(TrainingJobName="slow")
    ((_, body, right),) = receiver.wait_for(1)
    assert right and body["data"]["TrainingJobName"] == "good"
    assert body["data"]["ModelArtifacts"]["S3ModelArtifacts"] == "s3://results/out/good/output/model.tar.gz"
    yards.wait_until(lambda: out.read_text().count("\n") == 2, "two notices at the desk")
    lines = dict(line.rsplit(" ", 1)[::-1] for line in out.read_text().splitlines())
    assert lines["bad"].endswith(" Failed") and lines["slow"].endswith(" Stopped")
    assert json.loads(lines["bad"].rsplit(" ", 1)[0])["data"]["FailureReason"].startswith("AlgorithmError")
    endpoint.stop()
    assert len(receiver.seen) == 1


def test_a_notice_that_was_not_taken_is_sent_again_and_holds_up_no_job(yard, receiver):
    path = config(yard, hook(receiver))
    receiver.status = 500
    endpoint = Endpoint(yard, "--config", path)
    job = yard.job(yard.sh("true"), TrainingJobName="again")
    yard.give_away(data=False)
    yard.command("submit", "-", "--wait", "--data-dir", yard.data, stdin=json.dumps(job))
    receiver.wait_for(1)
    receiver.status = 200
    seen = receiver.wait_for(2)
    assert {notice for notice, _, _ in seen} == {seen[0][0]}
    endpoint.running.process.terminate()
    ended = endpoint.running.end()
    assert f"notice {seen[0][0]} to team: 127.0.0.1 answers 500" in ended.stderr
    assert "token" not in ended.stderr and SECRET not in ended.stderr


def test_a_notice_outlives_the_server_that_was_killed_before_it_was_taken(yard, receiver):
    path = config(yard, hook(receiver))
    receiver.hanging = True
    endpoint = Endpoint(yard, "--config", path)
    job = yard.job(yard.sh("exit 1"), TrainingJobName="survives")
    yard.give_away(data=False)
    yard.command("submit", "-", "--wait", "--data-dir", yard.data, stdin=json.dumps(job), expect=10)
    first = receiver.wait_for(1)[0]
    endpoint.kill()
    receiver.let_go()
    endpoint = Endpoint(yard, "--config", path)
    second = receiver.wait_for(2)[1]
    assert first == second and first[2]
    yard.command("describe", "survives", "--data-dir", yard.data)
    endpoint.stop()
    Endpoint(yard, "--config", path).stop()
    assert len(receiver.seen) == 2


def test_run_does_not_wait_for_a_receiver_that_hangs_and_the_next_process_goes_on(yard, receiver):
    receiver.hanging = True
    path = config(yard, hook(receiver, "timeout = 600"))
    running = yard.start(yard.job(yard.sh("true"), TrainingJobName="hangs"), "--config", path)
    receiver.wait_for(1)
    running.interrupt()
    ended = yard.ended(running)
    assert "not everybody could be told of the end yet" in ended.stderr
    receiver.let_go()
    endpoint = Endpoint(yard, "--config", path)
    seen = receiver.wait_for(2)
    assert seen[0] == seen[1]
    endpoint.stop()


def test_a_wrong_notify_table_is_told_and_no_secret_is_shown(yard):
    path = config(yard, f"[notify.team]\nurl = 'https://example.org/'\nsecret = '{SECRET}'\n")
    shown = yard.command("config", "--config", path).stdout
    assert '[notify."team"]' in shown and "https://example.org/" in shown and SECRET not in shown
    path = config(yard, "[notify.team]\nurl = 'https://example.org/'\n")
    assert "notify.team: a webhook is signed" in yard.command("config", "--config", path, expect=2).stderr
    path = config(yard, "[notify.team]\nurl = 'https://example.org/'\nsecret_file = 'nothing'\n")
    job = yard.job(yard.sh("true"))
    assert "notify.team: secret_file" in yard.refused(job, "--config", path)
