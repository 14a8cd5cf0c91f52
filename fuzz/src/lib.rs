//! Fuzz targets: one function per decoder that takes any bytes and asserts what must hold whatever they are.
//!
//! The same functions run in two ways. `cargo test` feeds each its committed corpus, then mutants of it (`tests/corpus.rs`), on any
//! toolchain; `TOWLINE_FUZZ_SECONDS` makes that last. `cargo +nightly fuzz run --features libfuzzer TARGET` lets libFuzzer follow the
//! coverage. `cargo run --example seeds` writes the seeds anew from the real encoders after a change of the protocol.

pub mod memory;
pub mod mutate;
pub mod targets;

/// A decoder under test.
pub struct Target {
    /// Name of the target and of its folder in the corpus.
    pub name: &'static str,
    /// Feeds it one input; panics when something does not hold.
    pub run: fn(&[u8]),
    /// Inputs from real encoders, by file name.
    pub seeds: fn() -> Vec<Seed>,
}

/// One input to start from.
pub struct Seed {
    /// File name in the corpus.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

impl Seed {
    /// A named input.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.into(),
        }
    }
}
