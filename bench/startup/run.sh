#!/usr/bin/env bash
# Start to exit of two instances whose `train` is `true`: Trainyard with an image, with a program of the machine and
# through Docker, against `docker run` of the same and the SageMaker SDK's local mode; interleaved, medians.
#
#   bench/startup/run.sh [ROUNDS]
#
# Peers are measured where they are there: Docker needs a daemon that answers, the SDK `pip install
# 'sagemaker<3'` (name its Python in SDK_PYTHON) and Docker Compose. What is missing is said.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release --quiet --bin trainyard
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')
exec python3 bench/startup/measure.py "$target/release/trainyard" "${1:-20}"
