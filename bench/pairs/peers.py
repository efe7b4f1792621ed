"""One library, one process: the ten most similar other rows of every row by cosine, all pairs above 0.8, or all scores.

    peers.py faiss|numpy|sklearn|torch MATRIX.npy THREADS top10|above0.8|full [ROWS] [FILE]

Only for the first ROWS rows, if given; `full` writes to FILE. Prints one line of JSON. The timed span begins with the
raw matrix in memory, so that normalising (and building the index) is inside it, and ends when the result arrays, or the
file on the disk, are complete. Imports and loading are outside.
"""

import json
import os
import resource
import sys
import time

peer, path, threads, task = sys.argv[1:5]
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = threads  # read when the libraries are loaded

import numpy as np  # noqa: E402

K, THRESHOLD, CHUNK = 10, 0.8, 1024


def unit_rows(x):
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    norms[norms == 0] = 1
    return (x / norms).astype(np.float32)


def pick(scores, first):
    rows = np.arange(scores.shape[0])
    scores[rows, rows + first] = -np.inf
    if task == "above0.8":
        row, col = np.nonzero(scores >= THRESHOLD)
        return row + first, col, scores[row, col]
    best = np.argpartition(scores, -K, axis=1)[:, -K:]
    values = np.take_along_axis(scores, best, 1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(best, order, 1), np.take_along_axis(values, order, 1)


def by_chunks(scores_of, pick=pick):
    if task == "full":
        return to_disk(scores_of)
    chunks = range(0, rows, CHUNK)
    found = [pick(scores_of(first, min(rows, first + CHUNK)), first) for first in chunks]
    return sum(int(np.prod(chunk[-1].shape)) for chunk in found)


def to_disk(scores_of):
    with open(sys.argv[6], "wb", buffering=0) as file:
        for first in range(0, rows, CHUNK):
            file.write(memoryview(np.ascontiguousarray(scores_of(first, min(rows, first + CHUNK)))).cast("B"))
        os.fsync(file.fileno())
        return file.tell() // 4


def run_numpy(x):
    unit = unit_rows(x)
    return by_chunks(lambda begin, end: unit[begin:end] @ unit.T)


def run_sklearn(x):
    return by_chunks(lambda begin, end: sklearn.metrics.pairwise.cosine_similarity(x[begin:end], x))


def run_torch(x):
    torch.set_num_threads(int(threads))
    unit = torch.nn.functional.normalize(torch.from_numpy(x))

    def best(scores, first):
        at = torch.arange(scores.shape[0])
        scores[at, at + first] = -torch.inf
        if task == "above0.8":
            found = torch.nonzero(scores >= THRESHOLD)
            return found, scores[found[:, 0], found[:, 1]]
        return torch.topk(scores, K, dim=1)

    with torch.no_grad():
        return by_chunks(lambda begin, end: unit[begin:end] @ unit.T, best)


def run_faiss(x):
    faiss.omp_set_num_threads(int(threads))
    unit = unit_rows(x)
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(unit)
    if task == "above0.8":
        return index.range_search(unit[:rows], THRESHOLD)[1].size - rows
    return index.search(unit[:rows], K + 1)[1].size - rows


if peer == "faiss":
    import faiss

    version = faiss.__version__
elif peer == "sklearn":
    import sklearn
    import sklearn.metrics.pairwise

    version = sklearn.__version__
elif peer == "torch":
    import torch

    version = torch.__version__
else:
    version = np.__version__

matrix = np.load(path)
rows = int(sys.argv[5]) if len(sys.argv) > 5 else len(matrix)
usage = resource.getrusage(resource.RUSAGE_SELF)
cpu, wall = usage.ru_utime + usage.ru_stime, time.perf_counter()
pairs = {"faiss": run_faiss, "numpy": run_numpy, "sklearn": run_sklearn, "torch": run_torch}[peer](matrix)
wall = time.perf_counter() - wall
usage = resource.getrusage(resource.RUSAGE_SELF)
cpu = usage.ru_utime + usage.ru_stime - cpu
print(json.dumps({"name": f"{peer} {version}", "wall": wall, "cpu": cpu, "mib": usage.ru_maxrss / 1024, "pairs": pairs}))
