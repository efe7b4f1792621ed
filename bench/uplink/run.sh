#!/usr/bin/env bash
# Throughput out of a network namespace through an uplink, against the same over loopback, slirp4netns and pasta,
# interleaved, medians.
#
#   bench/uplink/run.sh [ROUNDS]
#
# Needs `ip` (iproute2). Peers are measured where they are installed; slirp4netns needs root here, for /dev/net/tun.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release --quiet -p trainyard-uplink --example through
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')
exec python3 bench/uplink/measure.py "$target/release/examples/through" "${1:-3}"
