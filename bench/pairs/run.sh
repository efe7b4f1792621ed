#!/bin/sh
# Product and peers side by side: bench/pairs/run.sh > results.md. Needs Python 3 with venv, and cargo.
#
# QUICK=1 leaves out what takes long, SMALL=1 takes a tenth of all rows; THREADS (2) and ROUNDS (3) are heeded.
# MILLION=1 also measures one percent of the top 10 of 1,000,000 rows of 128 numbers, and instances of 200,000 rows; LARGE=1
# instances of 1,000,000 rows of 384 numbers, which takes twenty minutes. PYTHON is a Python that has the
# peers already, FOLDER keeps the matrices, WORDNET is a sparse matrix of one's own. ONLY=WORD takes what has the word
# in its title.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --quiet --release --manifest-path "$here/../../Cargo.toml" -p trainyard-allpairs --example neighbours
program=${CARGO_TARGET_DIR:-$here/../../target}/release/examples/neighbours

if [ -z "${PYTHON:-}" ]; then
    python3 -m venv "$work/venv"
    PYTHON=$work/venv/bin/python
    "$PYTHON" -m pip install --quiet faiss-cpu==1.15.1 numpy==2.4.6 scikit-learn==1.9.1 scipy==1.17.1 \
        sp_matmul_rs==0.2.1 sparse-dot-topn==1.2.0 ${TORCH:+torch==2.15.0}
fi
folder=${FOLDER:-$work/matrices}
mkdir -p "$folder"
"$PYTHON" "$here/suite.py" "$program" "$folder" --threads "${THREADS:-2}" --rounds "${ROUNDS:-3}" --only "${ONLY:-}" \
    ${QUICK:+--quick} ${SMALL:+--small} ${MILLION:+--million} ${LARGE:+--large} ${WORDNET:+--wordnet "$WORDNET"}
