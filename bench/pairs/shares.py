"""What several instances need, and what a large matrix would: shares.py PROGRAM MATRIX.npy|npz HOSTS [--ranks 0,1]

Runs the product for the instances of a job one after the other, symmetric or not, and prints CPU seconds of each. With
only some ranks the work of all is extrapolated: with HOSTS = 100 and one rank, one percent of all blocks is measured.
"""

import argparse
import json
import os
import subprocess
import tempfile

options = argparse.ArgumentParser()
options.add_argument("program")
options.add_argument("matrix")
options.add_argument("hosts", type=int)
options.add_argument("--ranks", default="")
options.add_argument("--threads", default="1")
options.add_argument("--symmetric", default="true,false")
options = options.parse_args()
ranks = [int(rank) for rank in options.ranks.split(",")] if options.ranks else range(options.hosts)

with tempfile.TemporaryDirectory() as folder:
    channel, output = f"{folder}/matrix", f"{folder}/model"
    os.mkdir(channel)
    os.symlink(os.path.abspath(options.matrix), f"{channel}/matrix{os.path.splitext(options.matrix)[1]}")
    for symmetric in options.symmetric.split(","):
        spent, comparing = [], []
        for rank in ranks:
            command = [options.program, channel, output, "top_k=10", f"threads={options.threads}", f"rank={rank}",
                       f"hosts={options.hosts}", f"symmetric={symmetric}"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            report = json.loads(process.stdout.read())
            _, _, usage = os.wait4(process.pid, 0)
            spent.append(usage.ru_utime + usage.ru_stime)
            comparing.append(report["compare_seconds"])
        whole = sum(spent) * options.hosts / len(spent)
        print(f"{os.path.basename(options.matrix)}, {options.hosts} hosts, symmetric {symmetric}: CPU s of each "
              f"{', '.join(f'{s:.2f}' for s in spent[:12])}; all {whole:.1f}; longest wall of comparing "
              f"{max(comparing):.1f} s, MiB {usage.ru_maxrss / 1024:.0f}, load {os.getloadavg()[0]:.1f}")
