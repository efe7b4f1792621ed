#!/usr/bin/env bash
# Packing against `tar | pigz` at the same level and threads, and against Python's tarfile as people call it
# (`w:gz`, which is level 9) and at the same level.
#
#   bench/packing/run.sh [ROUNDS] [LEVEL] [THREADS]
#
# All take turns, so that a busy machine slows all of them; medians are shown. On a busy machine the
# seconds flatter those with one thread, and the processor time says more. Each time runs
# until the archive is on the disk: ours syncs by itself, the others are followed by `sync FILE`.
# Needs pigz, GNU tar, python3 and about 4 GB below $TMPDIR.
set -euo pipefail
cd "$(dirname "$0")/../.."

rounds=${1:-3} level=${2:-6} threads=${3:-$(nproc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --release -q -p trainyard-engine --example pack
ours=${CARGO_TARGET_DIR:-target}/release/examples/pack

with_ours() { "$ours" "$1" "$2" "$level" "$threads" > "$2.json"; }
with_pigz() { tar -C "$1" -cf - . | pigz -p "$threads" "-$level" > "$2"; sync "$2"; }
with_python() { python_tarfile "$1" "$2" 9; }
with_python_same_level() { python_tarfile "$1" "$2" "$level"; }
python_tarfile() {
    python3 - "$1" "$2" "$3" <<'PYTHON'
import os, sys, tarfile
folder, archive, level = sys.argv[1:]
with tarfile.open(archive, "w:gz", compresslevel=int(level)) as tar:
    for name in sorted(os.listdir(folder)):
        tar.add(os.path.join(folder, name), name)
PYTHON
    sync "$2"
}

# measure TOOL FOLDER: appends seconds and processor seconds of one run to $work/TOOL.times, leaves
# $work/TOOL.tar.gz.
measure() {
    local archive=$work/$1.tar.gz TIMEFORMAT='%R %U %S'
    rm -f "$archive"
    sync
    { time "with_$1" "$2" "$archive" 2>&3; } 3>&2 2>> "$work/$1.times"
}

middle='{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
seconds() { awk '{ print $1 }' "$work/$1.times" | sort -n | awk "$middle"; }
processor_seconds() { awk '{ print $2 + $3 }' "$work/$1.times" | sort -n | awk "$middle"; }

echo "# $(pigz --version 2>&1), $(tar --version | head -1)"
echo "# $(python3 -c 'import sys, zlib; print("Python", sys.version.split()[0], "with zlib", zlib.ZLIB_RUNTIME_VERSION)')"
echo "# zlib-rs $(grep -A1 'name = "zlib-rs"' Cargo.lock | sed -n 's/version = "\(.*\)"/\1/p')," \
    "level $level, $threads threads, $rounds rounds, $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg)"

python3 bench/packing/make_input.py large "$work/large"
cat "$work"/large/* > /dev/null
tools="ours pigz python python_same_level"
for _ in $(seq "$rounds"); do
    for tool in $tools; do measure "$tool" "$work/large"; done
done
echo "1 GiB, half compressible:  seconds  processor  ours is N times as fast       bytes"
for tool in $tools; do
    awk -v tool="$tool" -v time="$(seconds "$tool")" -v ours="$(seconds ours)" \
        -v processor="$(processor_seconds "$tool")" -v bytes="$(stat -c %s "$work/$tool.tar.gz")" \
        'BEGIN { printf "%-25s %8.2f %10.2f %23.2f %11d\n", tool, time, processor, time / ours, bytes }'
done
echo "peak memory of ours: $(sed -n 's/.*"peak_memory_kib":\([0-9]*\).*/\1/p' "$work/ours.tar.gz.json") KiB"
tar -dzf "$work/ours.tar.gz" -C "$work/large"
rm -rf "$work/large" "$work"/*.tar.gz

python3 bench/packing/make_input.py small "$work/small"
"$ours" "$work/small" "$work/small.tar.gz" "$level" "$threads" | sed 's/^/200,000 files of 1 KB: /'
tar -dzf "$work/small.tar.gz" -C "$work/small"
