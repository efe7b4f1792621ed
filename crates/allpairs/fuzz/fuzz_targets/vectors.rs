#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for ending in ["fvecs", "bvecs", "ivecs"] {
        trainyard_allpairs_fuzz::read(ending, bytes);
    }
});
