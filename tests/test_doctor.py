"""What a machine has for running jobs, and how what it lacks is told."""

import json

import daemon


def findings(yard, *flags, expect=None, env=None):
    ended = yard.command("doctor", "--data-dir", yard.data, "--json", *flags, expect=expect, env=env)
    said = json.loads(ended.stdout)
    assert ended.exit_code == (0 if said["good"] else 1)
    assert said["good"] == all(finding["state"] != "bad" for finding in said["findings"])
    return {finding["what"]: finding for finding in said["findings"]}


def test_every_part_is_told_in_one_line_with_its_mark(yard):
    ended = yard.command("doctor", "--data-dir", yard.data, expect=None)
    lines = ended.stdout.splitlines()
    assert all(line[:2] in ("✓ ", "✗ ", "– ") for line in lines), lines
    assert len(lines) == len(findings(yard)) and "\x1b" not in ended.stdout


def test_what_runs_jobs_here_is_found_good(yard):
    found = findings(yard)
    for what in ("kernel", "namespaces", "overlay", "data folder", "processors"):
        assert found[what]["state"] == "good", found[what]


def test_a_daemon_that_is_there_is_told_with_its_version(yard):
    daemon.skip_without_daemon()
    yard.groups = [daemon.group_of_socket()]
    found = findings(yard, env={"DOCKER_HOST": f"unix://{daemon.SOCKET}"})["Docker or Podman"]
    assert found["state"] == "good" and str(daemon.SOCKET) in found["said"]


def test_a_daemon_that_was_named_and_is_not_there_is_a_fault(yard):
    found = findings(yard, expect=1, env={"DOCKER_HOST": "unix:///nowhere/docker.sock"})["Docker or Podman"]
    assert found["state"] == "bad" and "/nowhere/docker.sock" in found["said"] and found["help"]


def test_a_data_folder_that_can_not_be_written_to_is_a_fault(yard):
    ended = yard.command("doctor", "--data-dir", "/proc/data", "--json", expect=1)
    found = {finding["what"]: finding for finding in json.loads(ended.stdout)["findings"]}["data folder"]
    assert found["state"] == "bad" and "--data-dir" in found["help"]


def test_damaged_credentials_are_a_fault(yard):
    yard.file("home/.docker/config.json", "{")
    found = findings(yard, expect=1)["credentials for registries"]
    assert found["state"] == "bad" and "config.json" in found["said"]
