"""sparse.py names|zipf ROWS FILE.npz: float32 rows as CSR, a quarter of them near-copies of others.

names: TF-IDF of the character trigrams of made-up company names. zipf: 36 columns of 50,000, frequent ones more often.
"""

import sys

import numpy as np
import scipy.sparse

kind, rows, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(1)
originals = rows * 3 // 4


def names():
    from sklearn.feature_extraction.text import TfidfVectorizer

    syllables = [c + v for c in "bcdfghjklmnprstvwxz" for v in "aeio"] + ["tech", "soft", "gen", "max", "net", "sys"]
    words = ["".join(rng.choice(syllables, rng.integers(2, 5))) for _ in range(30_000)]
    likely = 1 / (np.arange(len(words)) + 20)
    picked = rng.choice(len(words), (originals, 3), p=likely / likely.sum())
    forms = rng.choice(["inc", "ltd", "gmbh", "llc", "corp", "group"], originals)
    made = [" ".join([words[w] for w in of_name[: rng.integers(1, 4)]] + [form])
            for of_name, form in zip(picked, forms)]
    for source in rng.integers(0, originals, rows - originals):
        name, at = made[source], int(rng.integers(0, len(made[source])))
        made.append(name[:at] + chr(97 + int(rng.integers(0, 26))) + name[at + int(rng.integers(0, 2)):])
    return TfidfVectorizer(analyzer="char", ngram_range=(3, 3), dtype=np.float32).fit_transform(made)


def zipf(columns=50_000, entries=36):
    share = np.cumsum(1 / (np.arange(columns) + 10))
    column_of = lambda count: np.searchsorted(share / share[-1], rng.random(count))
    made = [np.unique(column_of(entries)) for _ in range(originals)]
    for source in rng.integers(0, originals, rows - originals):
        copy = made[source].copy()
        copy[rng.integers(0, len(copy), len(copy) // 8)] = column_of(len(copy) // 8)
        made.append(np.unique(copy))
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in made])])
    indices = np.concatenate(made)
    weights = np.log((1 + rows) / (1 + np.bincount(indices, minlength=columns))) + 1
    return scipy.sparse.csr_matrix((weights[indices].astype(np.float32), indices, indptr), (rows, columns))


matrix = {"names": names, "zipf": zipf}[kind]().tocsr()
norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
matrix.data /= np.repeat(norms, np.diff(matrix.indptr)).astype(np.float32)
scipy.sparse.save_npz(path, matrix, compressed=False)
