"""One result file out of the parts, as the last step of a job and as a command."""

import json

import numpy
import pyarrow.parquet
import pytest

PARTS = """
import json, os
config = json.load(open("/opt/ml/input/config/resourceconfig.json"))
host = config["current_host"]
number = int(host.rpartition("-")[2])
os.chdir("/opt/ml/model")
with open(f"part-{host}.csv", "w") as file:
    file.write(f"row,name\\n{100 - number},{host}\\n")
with open(f"part-{host}.jsonl", "w") as file:
    file.write(json.dumps({"row": 100 - number, "name": host}) + "\\n")
"""

HOSTS = [f"algo-{number}" for number in range(1, 13)]


def merge_step(output, **more):
    return {"Merge": {"Glob": f"part-*{output[output.rindex('.'):]}", "Output": output, **more}}


@pytest.fixture
def parts(yard):
    """An archive with the parts of twelve hosts."""
    return yard.run(yard.job(yard.python(PARTS), instances=12)).model


def test_parts_are_joined_in_number_order_of_the_hosts_with_one_header(yard, parts):
    out = yard.root / "merged.csv"
    yard.command("merge", parts, "-o", out, "--glob", "part-*.csv")
    expected = [f"{100 - number},algo-{number}" for number in range(1, 13)]
    assert out.read_text().splitlines() == ["row,name", *expected]


def test_rows_can_be_ordered_by_a_column(yard, parts):
    out = yard.root / "merged.csv"
    yard.command("merge", parts, "-o", out, "--glob", "part-*.csv", "--order-by", "row")
    assert [line.split(",")[1] for line in out.read_text().splitlines()[1:]] == HOSTS[::-1]


def test_json_lines_are_joined(yard, parts):
    out = yard.root / "merged.jsonl"
    yard.command("merge", parts, "-o", out, "--glob", "part-*.jsonl")
    assert [json.loads(line)["name"] for line in out.read_text().splitlines()] == HOSTS


def test_text_parts_can_become_parquet(yard, parts):
    out = yard.root / "merged.parquet"
    yard.command("merge", parts, "-o", out, "--glob", "part-*.csv")
    table = pyarrow.parquet.read_table(out)
    assert table["row"].to_pylist() == [100 - number for number in range(1, 13)]
    assert table["name"].to_pylist() == HOSTS


def test_arrays_are_joined_by_their_rows(yard):
    (yard.root / "arrays").mkdir()
    for number in (1, 2):
        array = numpy.arange(6, dtype="<f4").reshape(3, 2) + number * 100
        numpy.save(yard.root / "arrays" / f"part-algo-{number}.npy", array)
    program = yard.sh(f'cp {yard.root}/arrays/part-$(hostname).npy /opt/ml/model/')
    ended = yard.run(yard.job(program, instances=2, Trainyard=merge_step("all.npy")))
    merged = numpy.load(ended.merged)
    assert merged.dtype == numpy.float32
    assert merged.tolist() == [[100, 101], [102, 103], [104, 105], [200, 201], [202, 203], [204, 205]]


def test_the_merged_file_lies_beside_the_archive(yard):
    ended = yard.run(yard.job(yard.python(PARTS), instances=3, Trainyard=merge_step("all.csv")))
    assert ended.merged == ended.model.parent / "all.csv"
    assert ended.merged.read_text().splitlines() == ["row,name", "99,algo-1", "98,algo-2", "97,algo-3"]
    assert "all.csv" not in ended.files(), "the archive holds the parts only"


def test_a_part_that_does_not_fit_is_named(yard):
    program = yard.sh("""
if [ "$(hostname)" = algo-2 ]; then header=other; else header=row; fi
printf '%s\\n1\\n' "$header" >"/opt/ml/model/part-$(hostname).csv"
""")
    ended = yard.run(yard.job(program, instances=3, Trainyard=merge_step("all.csv")), expect=10)
    assert "part-algo-2.csv" in ended.reason
    assert "other" in ended.reason
    assert sorted(ended.files()) == ["part-algo-1.csv", "part-algo-2.csv", "part-algo-3.csv"], "nothing is lost"


def test_an_archive_without_parts_is_told(yard, parts):
    error = yard.command("merge", parts, "-o", yard.root / "merged.csv", "--glob", "*.nothing", expect=1).stderr
    assert error.startswith("error: ")
    assert "*.nothing" in error
    assert not (yard.root / "merged.csv").exists()


def test_a_failed_job_is_not_merged(yard):
    job = yard.job(yard.sh("echo row >/opt/ml/model/part-1.csv; exit 1"), Trainyard=merge_step("all.csv"))
    ended = yard.run(job, expect=10)
    assert ended.ended["merged"] is None
    assert not (ended.model.parent / "all.csv").exists()
