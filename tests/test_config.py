"""The configuration file, the environment and the command line: which wins, and how what is wrong is told."""

import tomllib


def settings(yard, *flags, env=None):
    """What `trainyard config` prints, read back."""
    ended = yard.command("config", *flags, env=env)
    return ended.stdout, tomllib.loads(ended.stdout)


def test_an_unknown_key_is_refused_with_its_place_and_what_is_known(yard):
    file = yard.file("wrong.toml", "\ndata-dir = '/x'\n")
    error = yard.command("config", "--config", file, expect=2).stderr
    assert f"{file}, line 2, column 1" in error
    assert "data-dir" in error and "data_dir" in error and "buckets" in error


def test_a_file_that_was_asked_for_must_be_there(yard):
    error = yard.refused(yard.job(yard.sh("exit 0")), "--config", yard.root / "none.toml")
    assert "none.toml" in error


def test_the_file_of_the_user_is_read_and_its_paths_start_beside_it(yard):
    train = yard.sh("echo of the file\n")
    yard.file("home/.config/trainyard/config.toml", f"[images]\n'my/image' = 'host:../../../{train.relative_to(yard.root)}'\n")
    assert yard.run(yard.job("my/image")).log() == ["of the file"]


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(yard):
    file = yard.file("config.toml", "data_dir = 'of-file'\n[buckets]\na = 'a'\nb = 'b'\n")
    text, found = settings(yard, "--config", file)
    assert found["data_dir"] == str(yard.root / "of-file") and f"# {file}" in text
    text, found = settings(yard, "--config", file, env={"TRAINYARD_DATA_DIR": "/of-variable"})
    assert found["data_dir"] == "/of-variable" and "# TRAINYARD_DATA_DIR" in text
    text, found = settings(yard, "--data-dir", "/of-flag", "--bucket", "a=/of-flag",
                           env={"TRAINYARD_DATA_DIR": "/of-variable", "TRAINYARD_CONFIG": str(file)})
    assert found["data_dir"] == "/of-flag" and "# --data-dir" in text
    assert found["buckets"] == {"a": "/of-flag", "b": str(yard.root / "b")}


def test_what_config_prints_can_be_used_as_a_configuration_file(yard):
    flags = ["--data-dir", "/srv/jobs", "--bucket", 'odd "name"=/b', "--image", "my/image=host:/bin/true"]
    text, found = settings(yard, *flags)
    again, same = settings(yard, "--config", yard.file("printed.toml", text))
    assert found == same and "printed.toml" in again


def test_config_shows_stores_the_cache_and_what_is_collected(yard):
    file = yard.file(
        "config.toml",
        "[storage]\nendpoint = 'http://minio:9000'\nprofile = 'minio'\n"
        "[storage.bucket.public]\nregion = 'eu-west-1'\nanonymous = true\n[cache]\nmax = '50 GB'\n[gc]\nkeep_jobs_days = 9\n",
    )
    text, found = settings(yard, "--config", file)
    assert found["storage"] == {
        "default": "aws", "endpoint": "http://minio:9000", "profile": "minio",
        "bucket": {"public": {"region": "eu-west-1", "anonymous": True}},
    }
    assert (found["cache"], found["gc"]) == ({"max": "50000000000"}, {"keep_jobs_days": 9})
    assert f"# {file}" in text[text.index("[cache]"):]
    _, same = settings(yard, "--config", yard.file("printed.toml", text))
    assert same["storage"] == found["storage"]
    text, found = settings(yard)
    assert found["storage"] == {"default": "folders"} and "# default" in text[text.index("[cache]"):]
