"""Makes the small files of this folder with the libraries that users make theirs with.

Needs numpy, scipy and pyarrow; run it in this folder. Each sparse file stands beside a dense .npy file of the
same content, as SciPy's toarray() gives it.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

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
