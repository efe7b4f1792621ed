"""Product and libraries on the same matrices, taking turns; prints medians as Markdown tables.

    suite.py PROGRAM FOLDER [--rounds 3] [--threads 2] [--quick] [--small] [--million] [--large] [--wordnet FILE.npz] [--only WORD]

PROGRAM is the crate's example `neighbours`, FOLDER is where matrices are made and kept. Its whole process is measured,
from the file to the written and compressed part with its report; the libraries from the matrix in memory to arrays in
memory (all scores: to a file on the disk), normalising included. `--quick` leaves out libraries that take minutes,
`--small` takes a tenth of all rows, to see whether all works, and `--large` shares out a million rows of 384 columns between
instances, which takes twenty minutes.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("folder")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--quick", action="store_true")
parser.add_argument("--small", action="store_true")
parser.add_argument("--million", action="store_true")
parser.add_argument("--large", action="store_true")
parser.add_argument("--wordnet")
parser.add_argument("--only", default="")
options = parser.parse_args()
SMALLER = 10 if options.small else 1
KEYS = ["cpu", "wall", "mib", "pairs"]
BARS = []


def say(line=""):
    print(line, flush=True)


def bar(what, value, least=None, most=None):
    """Prints a figure beside what it is to reach, and keeps it for the list at the end."""
    held = value >= least if most is None else value <= most
    wanted = f"at least {least}" if most is None else f"at most {most}"
    BARS.append(f"| {what} | {value:.2f} | {wanted} | {'yes' if held else 'NO'} |")
    say(f"- {what}: {value:.2f} ({wanted}: {'yes' if held else 'NO'})")


def measure(command):
    """One process: what it prints as JSON, with wall clock, CPU seconds and peak memory."""
    begin = time.perf_counter()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return json.loads(printed) | {"process_wall": time.perf_counter() - begin, "mib": usage.ru_maxrss / 1024,
                                  "process_cpu": usage.ru_utime + usage.ru_stime}


def product(matrix, threads, **settings):
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        os.mkdir(f"{folder}/matrix")
        os.link(matrix, f"{folder}/matrix/matrix{os.path.splitext(matrix)[1]}")
        given = [f"{name}={value}" for name, value in settings.items()]
        run = measure([options.program, f"{folder}/matrix", f"{folder}/out", f"threads={threads}", *given])
    return run | {"name": f"trainyard, {threads} thread{'s' * (threads > 1)}", "cpu": run["process_cpu"],
                  "wall": run["process_wall"], "seconds": run["compare_seconds"]}


def library(name, matrix, task, *rest):
    script = "peers_sparse.py" if matrix.endswith(".npz") else "peers.py"
    return measure([sys.executable, f"{here}/{script}", name, matrix, options.threads, task, *rest])


def disk(size):
    """What the disk takes, past the page cache."""
    file, blocks = f"{options.folder}/direct", -(-size // (32 << 20))
    begin = time.perf_counter()
    subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=32M", f"count={blocks}", "oflag=direct", "status=none"],
                   check=True)
    wall = (time.perf_counter() - begin) * size / (blocks * (32 << 20))
    os.remove(file)
    return {"name": "dd oflag=direct", "cpu": 0.0, "wall": wall, "mib": 32, "pairs": size // 4}


def compare(title, runs, once=()):
    """Lets all take turns, those of `once` in the first round only. Returns the medians by name."""
    if options.only not in title:
        return {}
    found = {}
    for turn in range(options.rounds):
        for run in [run() for run in [*runs, *(once if turn == 0 else ())]]:
            found.setdefault(run["name"], []).append(run)
    medians = {name: {key: statistics.median(run[key] for run in of_name) for key in KEYS}
               for name, of_name in found.items()}
    ours = next(iter(medians.values()))
    say(f"\n**{title}** (load {os.getloadavg()[0]:.1f})\n")
    say("| | CPU s | ratio | wall s | ratio | peak MiB | pairs |\n|---|---|---|---|---|---|---|")
    for name, run in medians.items():
        note = " (1 round)" if len(found[name]) < options.rounds else ""
        say(f"| {name}{note} | {run['cpu']:.2f} | {run['cpu'] / ours['cpu']:.2f} | {run['wall']:.2f} | "
            f"{run['wall'] / ours['wall']:.2f} | {run['mib']:.0f} | {run['pairs']:.0f} |")
    return medians


def named(medians, word):
    """The medians of the one whose name begins with the word; none if it did not take part."""
    return next((run for name, run in medians.items() if name.startswith(word)), None)


def compare_with(medians, title, least, key="wall"):
    """How many times as long as the product the named libraries take, beside the least that is wanted."""
    ours = named(medians, "trainyard")
    for word, wanted in least.items():
        theirs = named(medians, word)
        if theirs:
            bar(f"{title}: {word} over product, {'wall' if key == 'wall' else 'CPU'}", theirs[key] / ours[key], wanted)


def threads_and_memory(medians, title, matrix):
    alone, together = named(medians, "trainyard, 1 thread"), named(medians, f"trainyard, {options.threads} threads")
    if alone and together and options.threads == 2:
        bar(f"{title}: one thread over two, wall", alone["wall"] / together["wall"], 1.9)
    if together:
        bar(f"{title}: peak memory over input", together["mib"] / (os.path.getsize(matrix) / 2**20), most=1.2)
        if unpacked(matrix) > os.path.getsize(matrix):
            say(f"- {title}: peak memory over the matrix as it is once decompressed: "
                f"{together['mib'] / (unpacked(matrix) / 2**20):.2f}")


def unpacked(matrix):
    """Bytes of the arrays of a file."""
    if not matrix.endswith(".npz"):
        return os.path.getsize(matrix)
    with zipfile.ZipFile(matrix) as archive:
        return sum(member.file_size for member in archive.infolist())


def made(script, name, *arguments):
    path = f"{options.folder}/{name}"
    if not os.path.exists(path):
        subprocess.run([sys.executable, f"{here}/{script}", *map(str, arguments), f"{path}.new{path[-4:]}"], check=True)
        os.rename(f"{path}.new{path[-4:]}", path)
    return path


def clustered(rows, columns):
    rows //= SMALLER
    return made("clustered.py", f"{rows}x{columns}.npy", rows, columns)


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


def both(matrix, **settings):
    """The product on all threads and on one."""
    counts = dict.fromkeys([options.threads, 1])
    return [lambda count=count: product(matrix, count, **settings) for count in counts]


DENSE = ["faiss", "numpy", "sklearn", *(["torch"] if has("torch") else [])]


def dense():
    for rows, columns in [(20_000, 128), (20_000, 768), (50_000, 384)]:
        matrix = clustered(rows, columns)
        say(f"\n{os.path.getsize(matrix) / 2**20:.0f} MiB:")
        peers = [lambda name=name: library(name, matrix, "top10") for name in DENSE]
        title = f"dense {rows:,} x {columns}, top 10"
        medians = compare(title, both(matrix, top_k=10) + peers)
        compare_with(medians, title, {"faiss": 3.5, "sklearn": 10})
        threads_and_memory(medians, title, matrix)
        peers = [lambda name=name: library(name, matrix, "above0.8") for name in DENSE]
        title = f"dense {rows:,} x {columns}, at least 0.8"
        compare_with(compare(title, both(matrix, threshold=0.8) + peers), title, {"faiss": 3.5})


def exactness():
    """The part of the time that goes into scores in float64, by sampling; only where `perf` is."""
    for rows, columns in [(20_000, 128), (20_000, 768)]:
        title = f"exactness, {rows:,} x {columns}"
        if options.only not in title or not shutil.which("perf"):
            continue
        say(f"\n**{title}**\n")
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            os.mkdir(f"{folder}/matrix")
            os.link(clustered(rows, columns), f"{folder}/matrix/matrix.npy")
            recorded = ["perf", "record", "-q", "-F", "5000", "-o", f"{folder}/perf", options.program, f"{folder}/matrix",
                        f"{folder}/out", "top_k=10", "threads=1"]
            report = ["perf", "report", "-i", f"{folder}/perf", "--no-children", "--stdio"]
            if subprocess.run(recorded, capture_output=True).returncode != 0:
                say("`perf` may not record here.")
                return
            lines = subprocess.run(report, capture_output=True, text=True).stdout.splitlines()
        shares = [float(line.split("%")[0]) for line in lines if "%" in line and "machine::exact" in line]
        bar(f"{title}: percent of the time in exact scores", sum(shares), most=5)


def shares():
    matrix, rows = clustered(50_000, 384), 50_000 // SMALLER
    share = [lambda: product(matrix, options.threads, top_k=10, rank=0, hosts=4, symmetric="false"),
             lambda: library("faiss", matrix, "top10", rows // 4)]
    title = "one share of four of 50,000 x 384, top 10"
    compare_with(compare(title, share), title, {"faiss": 1.6})
    if options.only in "instances":
        shared = [(1, "false"), (2, "true"), (4, "true"), (7, "true"), (4, "false")]
        instances(50_000, shared, 1 if options.quick else options.rounds)
        if options.million:
            # A matrix of which one instance has enough to do.
            instances(200_000, [(1, "false"), (4, "true"), (4, "false")], 1)
        if options.large:
            instances(1_000_000, [(1, "false"), (4, "true"), (4, "false")], 1)


def instances(rows, shared, rounds):
    """The instances of a job one after the other: what they take together, and the longest of them."""
    matrix, name = clustered(rows, 384), f"{rows:,} x 384"
    say(f"\n**Instances of a job, one after the other, {name}, top 10**\n")
    say("| instances | CPU s in all | over one instance | longest, wall s | longest x N over one instance |")
    say("|---|---|---|---|---|")
    found = []
    for hosts, symmetric in shared:
        turns = [[product(matrix, options.threads, top_k=10, rank=rank, hosts=hosts, symmetric=symmetric)
                  for rank in range(hosts)] for _ in range(rounds)]
        spent = statistics.median(sum(run["cpu"] for run in turn) for turn in turns)
        longest = statistics.median(max(run["wall"] for run in turn) for turn in turns)
        found.append((hosts, symmetric, spent, longest))
        _, _, spent_alone, alone = found[0]
        how = "" if hosts == 1 else ", pairs shared out" if symmetric == "true" else ", rows shared out"
        say(f"| {hosts}{how} | {spent:.2f} | {spent / spent_alone:.2f} | {longest:.2f} | {longest * hosts / alone:.2f} |")
    _, _, spent_alone, alone = found[0]
    for hosts, symmetric, spent, longest in found:
        if (hosts, symmetric) == (4, "true"):
            bar(f"{name}: longest of four instances x 4 over one instance, wall", longest * hosts / alone, most=1.1)
            shared_out = spent
    bar(f"{name}: pairs over rows shared out between four, CPU in all", shared_out / found[-1][2], most=0.6)


def sparse():
    matrices = {"names": made("sparse.py", f"names-{SMALLER}.npz", "names", 100_000 // SMALLER),
                "zipf": made("sparse.py", f"zipf-{SMALLER}.npz", "zipf", 100_000 // SMALLER)}
    scores = {"names": ["0.8", "0.6", "0.4", "none"], "zipf": ["0.8", "0.6", "0.4", *([] if options.quick else ["none"])]}
    if options.wordnet:
        matrices["wordnet"], scores["wordnet"] = f"{options.folder}/wordnet.npz", ["0.8", "0.3"]
        shutil.copyfile(options.wordnet, matrices["wordnet"])
    for name, matrix in matrices.items():
        size, arrays = os.path.getsize(matrix) / 2**20, unpacked(matrix) / 2**20
        say(f"\n{size:.0f} MiB{f', {arrays:.0f} once decompressed' if arrays > size else ''}:")
        for score in scores[name]:
            limit = {} if score == "none" else {"threshold": score}
            number = "0" if score == "none" else score
            peer = [lambda: library("sp_matmul_rs", matrix, number)]
            slow = ["sparse_dot_topn", "scipy"] if (name, score) == ("names", "0.8") and not options.quick else []
            slow = [lambda slower=slower: library(slower, matrix, number) for slower in slow]
            title = f"sparse {name}, ten best above {score}"
            medians = compare(title, both(matrix, top_k=10, **limit) + peer, slow)
            if score != "none":
                compare_with(medians, title, {"sp_matmul_rs": 11 if score == "0.8" else 1.9}, "cpu")
            threads_and_memory(medians, title, matrix)


def full():
    matrix, rows = clustered(20_000, 384), 20_000 // SMALLER
    size = rows // 2 * rows * 4
    file = f"{options.folder}/scores"
    peers = [lambda name=name: library(name, matrix, "full", rows // 2, file) for name in DENSE if name != "faiss"]
    ours = lambda: product(matrix, options.threads, full="true", rank=0, hosts=2) | {"pairs": size // 4}
    title = f"all scores of half of 20,000 x 384, {size / 1e6:.0f} MB"
    medians = compare(title, [ours, lambda: disk(size), *peers])
    if medians:
        bar(f"{title}: product over the disk's direct write, wall",
            named(medians, "trainyard")["wall"] / named(medians, "dd")["wall"], most=1.2)
    if os.path.exists(file):
        os.remove(file)


def million():
    matrix = clustered(1_000_000, 128)
    run = product(matrix, options.threads, top_k=10, rank=0, hosts=100, symmetric="true")
    read = run["wall"] - run["seconds"]
    say(f"\n**1,000,000 x 128, top 10**: one percent of all pairs compared in {run['seconds']:.1f} s with "
        f"{options.threads} threads, read in {read:.1f} s, {run['mib']:.0f} MiB; so all of them take about "
        f"{run['seconds'] * 100 + read:.0f} s on one instance.")


say(f"{options.threads} threads, medians of {options.rounds} rounds in turns; ratios to the product on all threads.")
for part in [dense, exactness, shares, sparse, full]:
    part()
if options.million:
    million()
say("\n**What was to be reached**\n\n| what | figure | wanted | reached |\n|---|---|---|---|")
say("\n".join(BARS))
