#!/usr/bin/env bash
# The endpoint under load: a store of 100,000 jobs, creations, 500 followers of a log, memory; moto beside it.
#
#   bench/endpoint/run.sh [--with-moto] [--jobs N] [--minutes M] [--followers F]
#   bench/endpoint/run.sh --soak MINUTES [--rate R]
#
# Needs the environment of the end-to-end tests. --with-moto puts moto into an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release --quiet --bin trainyard
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')
moto=()
if [ "${1:-}" = --with-moto ]; then
    shift
    [ -x target/moto-venv/bin/moto_server ] || {
        python3 -m venv target/moto-venv
        target/moto-venv/bin/pip install --quiet 'moto[server]==5.2.5'
    }
    moto=(--moto target/moto-venv/bin/python)
fi
exec target/test-venv/bin/python bench/endpoint/load.py "$target/release/trainyard" "${moto[@]}" "$@"
