"""sparse.py names|zipf ROWS FILE.npz: float32 rows as CSR, a quarter of them near-copies of others.

names: TF-IDF of the character trigrams of made-up company names. zipf: 36 columns of 50,000, frequent ones more often.
"""

import sys

import numpy as np
import scipy.sparse

SYLLABLES = """ba be bo ca ce co da de do fa fi ga go ha he in ja ka ki la le li lo ma me mi mo na ne no or pa pe po ra re
ri ro sa se si so ta te ti to va ve vi vo wa we xa ya za zen tron tech soft gen max net dyn sys lux nova""".split()
FORMS = {"inc": 0.22, "ltd": 0.2, "gmbh": 0.12, "llc": 0.14, "corp": 0.1, "group": 0.06, "holdings": 0.05, "sa": 0.04,
         "bv": 0.03, "co": 0.04}

kind, rows, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(1)
originals = int(rows * 0.75)


def misspelt(name):
    """One letter of a name replaced, left out or put in."""
    at, how = int(rng.integers(0, len(name))), int(rng.integers(0, 3))
    letter = "" if how == 1 else chr(97 + int(rng.integers(0, 26)))
    return name[:at] + letter + name[at + (how < 2):]


def names():
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = ["".join(rng.choice(SYLLABLES, rng.integers(2, 5))) for _ in range(30_000)]
    likely = 1 / (np.arange(len(words)) + 20.0)
    lengths = rng.integers(1, 4, originals)
    picked = rng.choice(len(words), (originals, 3), p=likely / likely.sum())
    forms = rng.choice(len(FORMS), originals, p=list(FORMS.values()))
    made = [" ".join([words[word] for word in of_name[:length]] + [list(FORMS)[form]])
            for of_name, length, form in zip(picked, lengths, forms)]
    made += [misspelt(made[source]) for source in rng.integers(0, originals, rows - originals)]
    return TfidfVectorizer(analyzer="char", ngram_range=(3, 3), dtype=np.float32).fit_transform(made)


def zipf(columns=50_000, entries=36):
    share = 1 / (np.arange(columns) + 10.0)
    share = np.cumsum(share / share.sum())
    column_of = lambda count: np.searchsorted(share, rng.random(count))
    made = [np.unique(column_of(entries)) for _ in range(originals)]
    for source in rng.integers(0, originals, rows - originals):
        copy = made[source].copy()
        changed = max(1, len(copy) // 8)
        copy[rng.integers(0, len(copy), changed)] = column_of(changed)
        made.append(np.unique(copy))
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in made])])
    indices = np.minimum(np.concatenate(made), columns - 1)
    weights = np.log((1 + rows) / (1 + np.bincount(indices, minlength=columns))) + 1
    return scipy.sparse.csr_matrix((weights[indices].astype(np.float32), indices, indptr), (rows, columns))


matrix = {"names": names, "zipf": zipf}[kind]().tocsr()
norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
matrix.data /= np.repeat(norms, np.diff(matrix.indptr)).astype(np.float32)
scipy.sparse.save_npz(path, matrix, compressed=False)
