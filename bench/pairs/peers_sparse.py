"""One library, one process, sparse rows: of every row the ten most similar other rows above a score (0: all positive ones).

    peers_sparse.py sp_matmul_rs|sparse_dot_topn|scipy MATRIX.npz THREADS SCORE

Prints one line of JSON. The rows have norm 1 already, which the product does not know. The timed span begins with the
matrix in memory and ends when the row itself is left out and the ten best of the others are kept.
"""

import importlib
import json
import resource
import sys
import time

import numpy as np
import scipy.sparse

peer, path, threads, score = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
K, CHUNK = 10, 2000


def best(scores, first=0):
    rows = np.repeat(np.arange(scores.shape[0]) + first, np.diff(scores.indptr))
    kept = (scores.indices != rows) & (scores.data >= score) & (scores.data > 0)
    rows, columns, values = rows[kept], scores.indices[kept], scores.data[kept]
    order = np.lexsort((columns, -values, rows))
    rows = rows[order]
    return int((np.arange(rows.size) - np.searchsorted(rows, rows) < K).sum())


def by_library(x):
    product = importlib.import_module(peer).sp_matmul_topn
    return best(product(x, x.T.tocsr(), top_n=K + 1, threshold=score, sort=True, n_threads=threads))


def by_scipy(x):
    turned = x.T.tocsr()
    return sum(best((x[first:first + CHUNK] @ turned).tocsr(), first) for first in range(0, x.shape[0], CHUNK))


module = importlib.import_module(peer)
version = importlib.import_module("importlib.metadata").version(peer)
matrix = scipy.sparse.load_npz(path).tocsr()
before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
pairs = (by_scipy if peer == "scipy" else by_library)(matrix)
wall, usage = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
cpu = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps({"name": f"{peer} {version}", "wall": wall, "cpu": cpu, "mib": usage.ru_maxrss / 1024, "pairs": pairs}))
