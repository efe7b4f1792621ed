"""Product and libraries on the same matrix, one after the other in each round; prints medians as a table.

    compare.py PROGRAM MATRIX.npy [--threads 1] [--rounds 3] [--task top10|above0.8] [--peers faiss,numpy,sklearn]
    compare.py PROGRAM MATRIX.npz --task 0.8 [--peers sp_matmul_rs,sparse_dot_topn,scipy]

For sparse rows the task is a score: the ten best above it are found.

PROGRAM is the crate's example `neighbours`. Its whole process is measured, from the file to the written and
compressed part; the libraries only from the matrix in memory to arrays in memory. CPU seconds (user and system)
are the figure to compare: on a busy machine wall time says little.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
options = argparse.ArgumentParser()
options.add_argument("program")
options.add_argument("matrix")
options.add_argument("--threads", default="1")
options.add_argument("--rounds", type=int, default=3)
options.add_argument("--task", default="top10")
options.add_argument("--peers")
options = options.parse_args()
is_sparse = options.matrix.endswith(".npz")
peers = (options.peers or ("sp_matmul_rs" if is_sparse else "faiss,numpy,sklearn")).split(",")


def product(channel, output):
    settings = {"top10": ["top_k=10"], "above0.8": ["threshold=0.8"]}
    settings = settings.get(options.task, ["top_k=10", f"threshold={options.task}"])
    command = [options.program, channel, output, *settings, f"threads={options.threads}"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    report = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{options.program} failed")
    return {
        "peer": "trainyard allpairs",
        "wall": time.perf_counter() - begin,
        "cpu": usage.ru_utime + usage.ru_stime,
        "mib": usage.ru_maxrss / 1024,
        "pairs": report["pairs"],
    }


def library(name):
    command = [sys.executable, f"{here}/{'peers_sparse' if is_sparse else 'peers'}.py", name, options.matrix, options.threads, options.task]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


runs = {}
with tempfile.TemporaryDirectory() as folder:
    channel, output = f"{folder}/matrix", f"{folder}/model"
    os.mkdir(channel)
    os.symlink(os.path.abspath(options.matrix), f"{channel}/matrix{os.path.splitext(options.matrix)[1]}")
    for _ in range(options.rounds):
        for run in [product(channel, output)] + [library(name) for name in peers]:
            runs.setdefault(run["peer"], []).append(run)

median = {peer: {key: statistics.median(run[key] for run in of_peer) for key in ("cpu", "wall", "mib", "pairs")}
          for peer, of_peer in runs.items()}
ours = median["trainyard allpairs"]
print(f"{os.path.basename(options.matrix)}, {options.task}, {options.threads} thread(s), "
      f"medians of {options.rounds}, load {os.getloadavg()[0]:.1f}")
print(f"{'':22}{'cpu s':>9}{'ratio':>8}{'wall s':>9}{'ratio':>8}{'MiB':>8}{'pairs':>12}")
for peer, run in median.items():
    print(f"{peer:22}{run['cpu']:9.2f}{run['cpu'] / ours['cpu']:8.2f}{run['wall']:9.2f}"
          f"{run['wall'] / ours['wall']:8.2f}{run['mib']:8.0f}{run['pairs']:12.0f}")
