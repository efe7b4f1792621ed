#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trainyard_fuzz::tar(bytes));
