"""Makes the small files of this folder with the libraries that users make theirs with.

Needs numpy, scipy, pyarrow, pandas, safetensors and h5py; run it in this folder. Each sparse file stands beside a dense .npy file of the
same content, as SciPy's toarray() gives it.
"""

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from pyarrow import feather
from safetensors.numpy import save_file

rng = np.random.default_rng(7)


def matrix(rows, columns):
    dense = rng.integers(-3, 9, (rows, columns)) * (rng.random((rows, columns)) < 0.3)
    dense[5] = 0
    dense[rows - 1] = dense[2]
    return dense


def save(name, sparse, compressed=True):
    sp.save_npz(f"{name}.npz", sparse, compressed=compressed)
    np.save(f"{name}.npy", sparse.toarray())


save("csr-i4", sp.csr_matrix(matrix(24, 17).astype(np.float32)))

wide = sp.csr_matrix(matrix(21, 30) / 7)
wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
save("csr-i8-stored", wide, compressed=False)

indices, data, indptr = [], [], [0]
for row in range(25):
    count = int(rng.integers(0, 9))
    indices += rng.integers(0, 12, count).tolist()
    data += (rng.integers(-4, 5, count) * 0.1).tolist()
    indptr.append(len(indices))
parts = (np.array(data, np.float32), np.array(indices, np.int32), np.array(indptr, np.int32))
save("csr-unsorted-duplicates", sp.csr_matrix(parts, shape=(25, 12)))

save("csr-int-data", sp.csr_matrix(matrix(22, 9).astype(np.int16)))

dense = np.ones((10, 8), np.float32)
dense[4, 6] = np.nan
sp.save_npz("csr-nan.npz", sp.csr_matrix(dense))

sp.save_npz("csc.npz", sp.csc_matrix(matrix(12, 5).astype(np.float32)))
np.savez("savez.npz", a=matrix(12, 5))

dense = rng.standard_normal((40, 6)).astype(np.float32)
np.save("pyarrow-lists.npy", dense)
lists = pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), 6)
pq.write_table(pa.table({"vector": lists}), "pyarrow-lists.parquet", compression="zstd")

# One matrix in many formats, with ids where the format has room for them.
tables = Path("tables")
tables.mkdir(exist_ok=True)
dense = rng.standard_normal((40, 6)).astype(np.float32)
dense[5] = 0
dense[30:33] = dense[2]
np.save(tables / "dense.npy", dense)
np.save(tables / "fortran.npy", np.asfortranarray(dense))
words = [f"wort-{row * 7 % 40:02}" for row in range(40)]
columns = pa.table({"id": words} | {f"c{at}": dense[:, at] for at in range(6)})
lists = pa.table({"id": np.arange(40) * 3 + 1000, "vector": pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), 6)})
feather.write_feather(columns, tables / "lz4.feather", chunksize=13)
feather.write_feather(lists, tables / "zstd.arrow", compression="zstd")
with pa.ipc.new_stream(tables / "stream.arrows", columns.schema) as stream:
    stream.write_table(columns.slice(0, 0))
    stream.write_table(columns, max_chunksize=7)
dictionary = columns.set_column(0, "id", columns["id"].combine_chunks().dictionary_encode())
with pa.ipc.new_file(tables / "dictionary.arrow", dictionary.schema) as file:
    file.write_table(dictionary)
frame = pd.DataFrame(dense.astype(np.float64), index=words)
frame.to_parquet(tables / "pandas-index.parquet")
frame.to_csv(tables / "pandas-index.csv")
frame.to_csv(tables / "glove.tsv", sep="\t", header=False)
np.savetxt(tables / "numpy.csv", dense.astype(np.float64), delimiter=",", fmt="%.17g")
columns.to_pandas().to_csv(tables / "crlf.csv", index=False, lineterminator="\r\n")
save_file({"emb.weight": dense, "bias": dense[0]}, tables / "one.safetensors")
save_file({"a": dense[:3, :2].copy(), "b": dense}, tables / "two.safetensors")
heads = np.full((40, 1), 6, "<i4")
np.hstack([heads, dense.view("<i4")]).tofile(tables / "v.fvecs")
with h5py.File(tables / "gzip.h5", "w") as file:
    file.create_dataset("group/emb", data=dense, chunks=(11, 4), compression="gzip", shuffle=True)
    file.create_dataset("label", data=np.arange(40))
with h5py.File(tables / "plain.h5", "w") as file:
    file.create_dataset("emb", data=dense.astype(np.float64))

csr = sp.csr_matrix(matrix(24, 17).astype(np.float32))
sp.save_npz(tables / "sparse.npz", csr)
rows = [csr[row] for row in range(24)]
pairs = {"indices": [row.indices.tolist() for row in rows], "values": [row.data for row in rows]}
pq.write_table(pa.table(pairs | {"id": [f"s{row}" for row in range(24)]}), tables / "sparse-lists.parquet")
feather.write_feather(pa.table(pairs), tables / "sparse-lists.feather")
