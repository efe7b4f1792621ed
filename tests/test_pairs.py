"""`trainyard pairs`: a matrix without a job."""

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import numpy
import pyarrow.ipc
import pyarrow.parquet
import pytest
from yard import find_binary, wait_until

DIGITS = Path(__file__).parents[1] / "examples/digits/digits.npy"
EXPECTED = Path(__file__).with_name("expected") / "digits-top10.csv"


@pytest.fixture
def matrix(yard):
    """Saves an array in the yard; its path."""

    def save(array, name="matrix.npy"):
        path = yard.root / name
        numpy.save(path, array)
        path.chmod(0o644)
        return path

    return save


def scores(array):
    """Cosine similarities as NumPy computes them."""
    rows = array.astype("float64")
    norms = numpy.linalg.norm(rows, axis=1)
    unit = rows / numpy.where(norms > 0, norms, 1)[:, None]
    return numpy.clip(unit @ unit.T, -1, 1)


def clustered(rows, columns=24, seed=3):
    rng = numpy.random.default_rng(seed)
    centres = rng.standard_normal((max(rows // 20, 1), columns))
    return (centres[rng.integers(0, len(centres), rows)] + 0.4 * rng.standard_normal((rows, columns))).astype("float32")


# A small process of its own, so that what this one has held does not count.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def test_the_best_ten_take_no_more_memory_than_the_file_and_a_fifth(yard, matrix):
    """The file is never in memory as a whole, nor the same rows twice."""
    if yard.uid != os.geteuid():
        pytest.skip("once is enough: users make no difference for memory")
    path = matrix(clustered(80_000, 384))
    command = [find_binary(), "pairs", path, "-k", "10", "-o", yard.root / "out.parquet", "--threads", "2"]
    peak = int(subprocess.check_output([sys.executable, "-c", PEAK, *command]))
    assert peak < 1.2 * path.stat().st_size
    assert pyarrow.parquet.read_metadata(yard.root / "out.parquet").num_rows == 800_000


def test_the_digits_have_the_known_neighbours_in_parquet_and_csv(yard, matrix):
    digits = matrix(numpy.load(DIGITS))
    expected = [(int(row), int(col)) for row, col, _ in list(csv.reader(EXPECTED.open()))[1:]]
    for name in ("digits.parquet", "digits.csv"):
        yard.command("pairs", digits, "-k", "10", "-o", yard.root / name)
    table = pyarrow.parquet.read_table(yard.root / "digits.parquet")
    assert list(zip(table["row"].to_pylist(), table["col"].to_pylist(), strict=True)) == expected
    with (yard.root / "digits.csv").open() as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["row", "col", "similarity"]
    assert [(int(row), int(col)) for row, col, _ in lines[1:]] == expected


def test_pairs_above_a_threshold_are_those_of_numpy_once_and_twice(yard, matrix):
    array = clustered(400)
    found = scores(array)
    numpy.fill_diagonal(found, -2)
    wanted = {(int(row), int(col)) for row, col in zip(*numpy.nonzero(found >= 0.8), strict=True)}
    assert len(wanted) > 100
    path = matrix(array)
    for flags, expected in (([], wanted), (["--once"], {pair for pair in wanted if pair[0] < pair[1]})):
        yard.command("pairs", path, "--threshold", "0.8", "-o", yard.root / "out.parquet", *flags)
        table = pyarrow.parquet.read_table(yard.root / "out.parquet")
        pairs = list(zip(table["row"].to_pylist(), table["col"].to_pylist(), strict=True))
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == expected


def test_the_whole_matrix_is_that_of_numpy_and_a_sparse_result_fits_it(yard, matrix):
    array = clustered(150)
    array[7] = 0
    path = matrix(array)
    yard.command("pairs", path, "--full", "-o", yard.root / "all.npy")
    full = numpy.load(yard.root / "all.npy")
    assert full.dtype == numpy.float32 and full.shape == (150, 150)
    numpy.testing.assert_allclose(full, scores(array), atol=1e-6)
    assert (full[7] == 0).all()
    yard.command("pairs", path, "-k", "5", "-o", yard.root / "near.npz")
    near = numpy.load(yard.root / "near.npz")
    assert near["shape"].tolist() == [150, 150] and near["format"].item() == b"csr"
    assert near["indptr"].tolist() == list(range(0, 751, 5))
    rows = numpy.repeat(numpy.arange(150), 5)
    numpy.testing.assert_allclose(near["data"], full[rows, near["indices"]], atol=1e-6)


def test_rows_of_a_query_are_compared_with_the_matrix_and_ids_are_carried_through(yard):
    query = yard.file("query.csv", "sku,a,b\nnew-1,1,0\nnew-2,-1,0.5\n")
    table = pyarrow.table({"id": ["x", "y", "z"], "a": [2.0, 0.0, -3.0], "b": [0.0, 1.0, 0.0]})
    pyarrow.parquet.write_table(table, yard.root / "catalogue.parquet")
    (yard.root / "catalogue.parquet").chmod(0o644)
    yard.command("pairs", yard.root / "catalogue.parquet", "--query", query, "-k", "2", "--distance",
                 "-o", yard.root / "out.arrow", expect=1)
    query.write_text(query.read_text().replace("sku", "id"))
    yard.command("pairs", yard.root / "catalogue.parquet", "--query", query, "-k", "2", "--distance",
                 "-o", yard.root / "out.arrow")
    found = pyarrow.ipc.open_file(yard.root / "out.arrow").read_all().to_pydict()
    assert found["row"] == ["new-1", "new-1", "new-2", "new-2"]
    assert found["col"] == ["x", "y", "z", "y"]
    numpy.testing.assert_allclose(found["distance"], [0, 1, 1 - 2 / 5**0.5, 1 - 1 / 5**0.5], atol=1e-6)


def test_one_row_is_shown_with_the_names_of_its_neighbours(yard, matrix):
    path = matrix(numpy.array([[1, 0], [1, 0.1], [0, 1], [-1, 0]]))
    names = yard.file("names.txt", "one\ntwo\nthree\nfour\n")
    result = yard.root / "out.parquet"
    yard.command("pairs", path, "-k", "2", "-o", result)
    shown = yard.command("pairs", "show", result, "--row", "1", "--names", names).stdout
    assert "row 1 two: 2 neighbours by similarity" in shown
    assert [line.split()[-1] for line in shown.splitlines()[1:]] == ["one", "three"]
    listed = json.loads(yard.command("pairs", "show", result, "--row", "3", "--names", names, "--json").stdout)
    assert listed["row"] == 3 and listed["name"] == "four"
    assert [(n["col"], n["name"]) for n in listed["neighbours"]] == [(2, "three"), (1, "two")]
    assert "no neighbours" in yard.command("pairs", "show", result, "--row", "99").stdout
    assert "there is no line for row 1" in yard.command(
        "pairs", "show", result, "--row", "0", "--names", yard.file("short.txt", "one\n"), expect=2).stderr


def test_a_report_lies_beside_the_result(yard, matrix):
    array = clustered(60)
    array[10] = array[3]
    array[20] = 0
    path = matrix(array)
    ended = yard.command("pairs", path, "-k", "3", "-o", yard.root / "out.parquet", "--json")
    report = json.loads((yard.root / "out.report.json").read_text())
    assert json.loads(ended.stdout) == report
    assert (report["pairs"], report["duplicate_rows"], report["zero_rows"]["first"]) == (180, 1, [20])
    assert report["bytes_read"] == path.stat().st_size
    assert sum(report["scores"]["counts"]) == 180
    assert (yard.root / "out.report.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(("flags", "said"), [
    (["-k", "0"], "`top_k` is `0`: it must be a whole number of at least 1"),
    (["-k", "3", "--once"], "`pairs` does not go with `top_k`"),
    (["--full", "--threshold", "0.5"], "`threshold` does not go with `full`"),
    (["-o", "out.txt"], "the ending must be .parquet, .csv, .arrow or .npz"),
    (["--full", "-o", "out.parquet"], "the ending must be .npy"),
])
def test_a_wrong_option_is_refused_with_what_would_be_right(yard, matrix, flags, said):
    refused = yard.command("pairs", matrix(numpy.eye(3)), *flags, expect=2)
    assert said in refused.stderr


def test_a_whole_matrix_above_the_limit_is_refused_with_its_size(yard, matrix):
    refused = yard.command("pairs", matrix(numpy.ones((60_000, 1), "int8")), "--full", "-o", yard.root / "x.npy", expect=2)
    assert "14400000000 bytes" in refused.stderr and "force" in refused.stderr
    assert not (yard.root / "x.npy").exists()


def test_a_wrong_matrix_is_refused_with_file_row_and_column(yard, matrix):
    array = numpy.ones((4, 3))
    array[2, 1] = numpy.nan
    error = yard.command("pairs", matrix(array), "-o", yard.root / "x.parquet", expect=1).stderr
    assert "row 2 of the matrix, column 1 is NaN" in error and "matrix.npy" in error
    error = yard.command("pairs", yard.file("m.csv", "a,b\n1,2\n3,x\n"), expect=1).stderr
    assert "m.csv: line 3, column `b` is `x`" in error


def test_the_result_never_becomes_part_of_the_matrix(yard, matrix):
    path = matrix(numpy.eye(3))
    assert "part of the matrix" in yard.command("pairs", path.parent, "-o", path.parent / "x.parquet", expect=2).stderr
    assert "part of the matrix" in yard.command("pairs", path, "--full", "-o", path, expect=2).stderr


@pytest.fixture
def in_one_cpu(yard):
    """The words that start a command in a control group with the time of one CPU."""
    if yard.uid != 0 or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("only root makes control groups, and it takes two CPUs to see a limit of one")
    groups = Path("/sys/fs/cgroup")
    unified = (groups / "cgroup.controllers").exists()
    group = (groups if unified else groups / "cpu") / f"pairs-{uuid.uuid4().hex[:12]}"
    try:
        group.mkdir()
        limit, value = ("cpu.max", "100000 100000") if unified else ("cpu.cfs_quota_us", "100000")
        (group / limit).write_text(value)
    except OSError as error:
        pytest.skip(f"no control group with a limit of CPUs can be made here: {error}")
    yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    group.rmdir()


def test_there_are_as_many_threads_as_the_control_group_has_cpus(yard, matrix, in_one_cpu):
    arguments = ["pairs", matrix(clustered(60)), "-k", "3", "-o", yard.root / "out.parquet", "--json"]
    assert json.loads(yard.command(*arguments).stdout)["threads"] == len(os.sched_getaffinity(0))
    ended = yard._start(arguments, None, before=in_one_cpu).end()
    assert json.loads(ended.stdout)["threads"] == 1, ended


def cpu_seconds(pid):
    """What a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_cpu_seconds():
    """What all processes have computed that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_half_file_and_the_file_that_was_there(yard, matrix, number):
    path = matrix(numpy.random.default_rng(1).standard_normal((40_000, 256)).astype("float32"))
    result = yard.root / "out.parquet"
    result.write_text("as it was")
    result.chmod(0o666)
    already = children_cpu_seconds()
    running = yard.start_command("pairs", path, "-k", "5", "-o", result, "--threads", "1")
    wait_until((yard.root / "out.parquet.unfinished").exists, "the work to begin")
    before = cpu_seconds(running.process.pid)
    running.process.send_signal(number)
    ended, spent = running.end(), children_cpu_seconds() - already
    # A second is promised. On a machine that is busy with other things it takes longer by the clock, not by what the
    # program's one thread may still compute in a second.
    assert spent - before < 1
    assert ended.exit_code == 11
    assert "stopped" in ended.stderr
    assert sorted(p.name for p in yard.root.glob("out*")) == ["out.parquet"]
    assert result.read_text() == "as it was"
