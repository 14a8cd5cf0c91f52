#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| towline_fuzz::targets::collective::target(bytes));
