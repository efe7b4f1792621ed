#!/bin/sh
# Product and peers side by side: bench/pairs/run.sh. Needs Python 3 with venv, and cargo. THREADS and ROUNDS are heeded.
# MILLION=1 also measures one percent of the top 10 of 1,000,000 rows of 128 numbers.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --quiet --release --manifest-path "$here/../../Cargo.toml" -p trainyard-allpairs --example neighbours
program=${CARGO_TARGET_DIR:-$here/../../target}/release/examples/neighbours

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.4.6 scikit-learn==1.9.1 scipy==1.17.1 \
    sp_matmul_rs==0.2.1 sparse-dot-topn==1.2.0
python="$work/venv/bin/python"
compare() {
    "$python" "$here/compare.py" "$program" "$@" --threads "${THREADS:-1}" --rounds "${ROUNDS:-3}"
}

for columns in 128 768; do
    matrix="$work/20000x$columns.npy"
    "$python" "$here/clustered.py" 20000 $columns "$matrix"
    compare "$matrix" --task top10
    compare "$matrix" --task above0.8
done
"$python" "$here/shares.py" "$program" "$work/20000x768.npy" 4 --threads "${THREADS:-1}"

"$python" "$here/sparse.py" names 100000 "$work/names.npz"
"$python" "$here/sparse.py" zipf 100000 "$work/zipf.npz"
for score in 0.8 0.6 0.4; do
    compare "$work/names.npz" --task $score
done
compare "$work/zipf.npz" --task 0.8

if [ -n "${MILLION:-}" ]; then
    "$python" "$here/clustered.py" 1000000 128 "$work/million.npy"
    "$python" "$here/shares.py" "$program" "$work/million.npy" 100 --ranks 0 --symmetric true --threads "${THREADS:-1}"
fi
