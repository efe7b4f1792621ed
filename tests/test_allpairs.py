"""The built-in workload on a real matrix: exact neighbours, whatever the number of instances."""

import csv
import json
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest
from yard import channel

DIGITS = Path(__file__).parents[1] / "examples/digits"
EXPECTED = Path(__file__).with_name("expected") / "digits-top10.csv"


@pytest.fixture
def allpairs(yard):
    """Runs the workload on a matrix; the merged file's path."""

    def run(matrix, instances=1, expect=0, **hyperparameters):
        numpy.save(yard.bucket("in") / "matrix.npy", matrix)
        job = yard.job(
            "trainyard/allpairs",
            instances=instances,
            channels=[channel("matrix", "s3://in/matrix.npy")],
            HyperParameters=hyperparameters,
            Trainyard={"Merge": {"Glob": "part-*.parquet", "Output": "neighbours.parquet"}},
        )
        return yard.run(job, expect=expect)

    return run


def pairs(path):
    table = pyarrow.parquet.read_table(path)
    return list(zip(*(table[name].to_pylist() for name in ("row", "col", "similarity")), strict=True))


@pytest.fixture(scope="module")
def expected():
    with EXPECTED.open() as file:
        return [(int(row), int(col), float(similarity)) for row, col, similarity in list(csv.reader(file))[1:]]


def test_the_merged_neighbours_of_the_digits_are_exact_for_any_number_of_instances(allpairs, expected):
    matrix = numpy.load(DIGITS / "digits.npy")
    merged = [allpairs(matrix, instances, top_k="10").merged for instances in (1, 2, 3, 7, 12)]
    assert_equal(pairs(merged[0]), expected)
    assert {path.read_bytes() for path in merged} == {merged[0].read_bytes()}


def test_hosts_that_share_out_pairs_and_hosts_that_share_out_rows_have_the_same_result(allpairs):
    matrix = numpy.load(DIGITS / "digits.npy")
    for task in ({"top_k": "10"}, {"threshold": "0.95"}):
        results = [allpairs(matrix, 3, symmetric=symmetric, **task) for symmetric in ("true", "false")]
        reports = [json.loads(result.text("report-algo-2.json")) for result in results]
        assert [report["symmetric"] for report in reports] == [True, False]
        assert results[0].merged.read_bytes() == results[1].merged.read_bytes()


def test_an_archive_of_shared_out_pairs_is_merged_by_the_command_too(yard, allpairs):
    ended = allpairs(numpy.load(DIGITS / "digits.npy"), 4, top_k="10")
    out = yard.root / "again.parquet"
    yard.command("merge", ended.model, "-o", out)
    assert out.read_bytes() == ended.merged.read_bytes()


def test_a_wrong_matrix_refuses_the_job_with_the_row(allpairs):
    matrix = numpy.ones((5, 2), dtype="float32")
    matrix[3, 1] = numpy.nan
    ended = allpairs(matrix, expect=10, top_k="2")
    assert "row 3" in ended.reason
    assert "algo-1" in ended.reason


def test_a_hyperparameter_that_is_no_number_is_named(allpairs):
    ended = allpairs(numpy.ones((5, 2), dtype="float32"), expect=10, top_k="many")
    assert "top_k" in ended.reason
    assert "many" in ended.reason


def test_equal_scores_are_ordered_by_the_lower_row_and_self_is_left_out(allpairs):
    matrix = numpy.array([[1, 0], [2, 0], [0, 0], [-1, 0]], dtype="float32")
    found = pairs(allpairs(matrix, instances=2, top_k="3").merged)
    assert found == [
        (0, 1, 1.0), (0, 2, 0.0), (0, 3, -1.0),
        (1, 0, 1.0), (1, 2, 0.0), (1, 3, -1.0),
        (2, 0, 0.0), (2, 1, 0.0), (2, 3, 0.0),
        (3, 2, 0.0), (3, 0, -1.0), (3, 1, -1.0),
    ]


def test_the_schema_is_the_documented_one(allpairs):
    path = allpairs(numpy.eye(3, dtype="float64"), top_k="1").merged
    schema = pyarrow.parquet.read_schema(path)
    assert [(field.name, str(field.type)) for field in schema] == [
        ("row", "int64"), ("col", "int64"), ("similarity", "float")
    ]


def test_more_instances_than_rows_is_no_failure(allpairs):
    found = pairs(allpairs(numpy.eye(2, dtype="float32"), instances=4, top_k="5").merged)
    assert found == [(0, 1, 0.0), (1, 0, 0.0)]


def test_the_example_runs_as_its_job_file_stands(yard, expected):
    for name in ("job.json", "digits.npy"):
        target = yard.root / "digits" / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((DIGITS / name).read_bytes())
    ended = yard.run(yard.root / "digits/job.json")
    assert json.loads((DIGITS / "job.json").read_text())["ResourceConfig"]["InstanceCount"] == 3
    assert ended.merged == yard.root / "digits/out/digits/output/neighbours.parquet"
    assert_equal(pairs(ended.merged), expected)


def assert_equal(found, expected):
    assert [pair[:2] for pair in found] == [pair[:2] for pair in expected]
    assert max(abs(ours[2] - theirs[2]) for ours, theirs in zip(found, expected, strict=True)) <= 1e-6
