#![no_main]

// Files and streams are told apart by their first bytes.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trainyard_allpairs_fuzz::read("arrow", bytes));
