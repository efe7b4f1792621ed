#!/bin/sh
# Product and peers side by side: bench/pairs/run.sh [MATRIX.npy …]
# Without a matrix: 20,000 clustered rows of 128 and of 768 numbers. Needs Python 3 with venv, and cargo.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --quiet --release --manifest-path "$here/../../Cargo.toml" -p trainyard-allpairs --example neighbours
target=${CARGO_TARGET_DIR:-$here/../../target}

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.4.6 scikit-learn==1.9.1
python="$work/venv/bin/python"

if [ $# -eq 0 ]; then
    "$python" "$here/clustered.py" 20000 128 "$work/20000x128.npy"
    "$python" "$here/clustered.py" 20000 768 "$work/20000x768.npy"
    set -- "$work/20000x128.npy" "$work/20000x768.npy"
fi
for matrix in "$@"; do
    for task in top10 above0.8; do
        "$python" "$here/compare.py" "$target/release/examples/neighbours" "$matrix" --task "$task" \
            --threads "${THREADS:-1}" --rounds "${ROUNDS:-3}"
    done
done
