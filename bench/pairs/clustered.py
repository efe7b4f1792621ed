"""clustered.py ROWS COLUMNS FILE.npy: float32 rows in clusters of twenty, cosine about 0.83 inside of one."""

import sys

import numpy as np

rows, columns = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(1)
centres = rng.standard_normal((rows // 20, columns), dtype=np.float32)
matrix = centres[rng.integers(0, len(centres), rows)]
matrix += np.float32(0.45) * rng.standard_normal(matrix.shape, dtype=np.float32)
np.save(sys.argv[3], matrix * rng.uniform(0.5, 2, (rows, 1)).astype(np.float32))
