#!/bin/sh
# Every target for so many seconds (120), from the seeds: fuzz/run.sh [SECONDS] [TARGET…].
#
# Needs cargo-fuzz; the stable compiler is enough. Ends with the first finding, which is left in the folder artifacts
# beside the target. SANITIZER=address watches memory too, which is several times as slow and needs a nightly compiler
# (RUSTUP_TOOLCHAIN=nightly): nothing that the targets of this folder read is read by unsafe code.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
seconds=${1:-120}
[ $# -eq 0 ] || shift
matrices="npy npz parquet arrow csv safetensors hdf5 vectors"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- request envelope signature uri manifest recordio archive tar $matrices

# Their seeds are the files of the tests, by what the names end in.
files() {
    case $1 in
        arrow) echo "arrow arrows feather" ;;
        csv) echo "csv tsv" ;;
        hdf5) echo h5 ;;
        vectors) echo fvecs ;;
        *) echo "$1" ;;
    esac
}

for target in "$@"; do
    case " $matrices " in
        *" $target "*)
            cd "$root/crates/allpairs"
            mkdir -p "fuzz/corpus/$target"
            for ending in $(files "$target"); do
                find tests/data -name "*.$ending" -exec cp {} "fuzz/corpus/$target" \;
            done
            seeds=""
            # A packed buffer may claim up to 1 GiB (see arrow_file.rs); nothing may take more.
            limits="-rss_limit_mb=3072 -malloc_limit_mb=1100 -max_len=65536"
            ;;
        *)
            cd "$root"
            mkdir -p "fuzz/corpus/$target"
            seeds=fuzz/seeds/$target
            limits="-rss_limit_mb=1024 -max_len=16384 -dict=fuzz/words.dict"
            ;;
    esac
    # What is found goes into the first folder.
    # shellcheck disable=SC2086
    cargo fuzz run -s "${SANITIZER:-none}" "$target" "fuzz/corpus/$target" $seeds -- $limits \
        -max_total_time="$seconds" -timeout=20 -print_final_stats=1
done
