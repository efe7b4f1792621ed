#!/bin/sh
# Every target for so many seconds (180), from the files of the tests: crates/allpairs/fuzz/run.sh [SECONDS] [TARGET…].
# Needs a nightly compiler and cargo-fuzz. Ends with the first finding, which is left in fuzz/artifacts.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-180}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- npy npz parquet arrow csv safetensors hdf5 vectors
for target in "$@"; do
    seeds=fuzz/corpus/$target
    mkdir -p "$seeds"
    case $target in
        npy) cp tests/data/*.npy tests/data/tables/*.npy "$seeds" ;;
        npz) cp tests/data/*.npz tests/data/tables/*.npz "$seeds" ;;
        parquet) cp tests/data/*.parquet tests/data/tables/*.parquet "$seeds" ;;
        arrow) cp tests/data/tables/*.arrow tests/data/tables/*.arrows tests/data/tables/*.feather "$seeds" ;;
        csv) cp tests/data/tables/*.csv tests/data/tables/*.tsv "$seeds" ;;
        safetensors) cp tests/data/tables/*.safetensors "$seeds" ;;
        hdf5) cp tests/data/tables/*.h5 "$seeds" ;;
        vectors) cp tests/data/tables/*.fvecs "$seeds" ;;
    esac
    # A packed buffer may claim up to 1 GiB (see arrow_file.rs); nothing may take more.
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=3072 -malloc_limit_mb=1100 \
        -timeout=20 -max_len=65536 -print_final_stats=1
done
