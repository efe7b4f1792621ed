#!/usr/bin/env bash
# The endpoint under load: a store of 100,000 jobs, creations, 500 followers of a log, memory; moto beside it.
#
#   bench/endpoint/run.sh [--jobs N] [--minutes M] [--followers F]
#
# Needs the environment of the end-to-end tests. moto is measured where MOTO_PYTHON names a Python that has it
# (`pip install 'moto[server,sagemaker]'`).
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release --quiet --bin trainyard
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')
exec target/test-venv/bin/python bench/endpoint/load.py "$target/release/trainyard" ${MOTO_PYTHON:+--moto "$MOTO_PYTHON"} "$@"
