"""The examples, each run as its README says."""

import csv
import re
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(yard):
    """Copies an example, so that its output does not end up in the repository, and runs its README's command."""

    def run(name):
        shutil.copytree(EXAMPLES / name, yard.root / "examples" / name, ignore=shutil.ignore_patterns("out"))
        readme = (EXAMPLES / name / "README.md").read_text()
        (command,) = re.findall(r"^    trainyard run (.*)$", readme, re.MULTILINE)
        job, *flags = command.split()
        return yard.run(yard.root / job, *flags)

    return run


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_row_ranges_in_python_find_the_nearest_row_of_every_row(example):
    ended = example("rows-python")
    matrix = [
        [float(value) for value in row.values()] for row in read(EXAMPLES / "rows-python/bucket/matrix/digits.csv")
    ]
    rows = read(ended.merged)
    assert [int(row["row"]) for row in rows] == list(range(len(matrix))) == list(range(300))
    for row in rows:
        best, similarity = nearest(matrix, int(row["row"]))
        assert int(row["nearest"]) == best
        assert abs(float(row["similarity"]) - similarity) < 1e-8
    assert sorted(ended.files()) == [f"part-algo-{number}.csv" for number in range(1, 5)]


def nearest(matrix, row):
    """The same in other words: the greatest cosine, and of equal ones the lowest row."""
    cosines = [cosine(values, matrix[row]) if other != row else -2 for other, values in enumerate(matrix)]
    return cosines.index(max(cosines)), max(cosines)


def cosine(left, right):
    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    return dot(left, right) / (dot(left, left) * dot(right, right)) ** 0.5


def test_files_dealt_out_to_a_shell_script_are_all_counted_once(example):
    ended = example("sharded-shell")
    texts = sorted((EXAMPLES / "sharded-shell/bucket/words").iterdir())
    assert len(texts) == 20
    expected = [{"file": text.stem, "words": str(len(text.read_text().split()))} for text in texts]
    assert read(ended.merged) == expected
    lines = [content.count(b"\n") - 1 for _, content in sorted(ended.files().items())]
    assert lines == [4, 4, 3, 3, 3, 3]
