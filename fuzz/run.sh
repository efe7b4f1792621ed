#!/bin/sh
# Every target for so many seconds (120), from the seeds: fuzz/run.sh [SECONDS] [TARGET…].
# Needs a nightly compiler and cargo-fuzz. Ends with the first finding, which is left in fuzz/artifacts.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-120}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- request envelope signature uri manifest recordio archive tar
for target in "$@"; do
    # What is found goes into the first folder.
    mkdir -p "fuzz/corpus/$target"
    # Without a sanitizer, which is several times as fast: nothing that is read here is read by unsafe code.
    cargo +nightly fuzz run -s none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=20 -max_len=16384 -dict=fuzz/words.dict \
        -print_final_stats=1
done
