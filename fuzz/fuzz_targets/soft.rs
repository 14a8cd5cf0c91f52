#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = towline_soft::differ::compare(bytes) {
        panic!("{why}");
    }
});
