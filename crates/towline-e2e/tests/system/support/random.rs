//! Chances, which can be had again.

/// Numbers that a seed gives.
pub(crate) struct Random(u64);

impl Random {
    /// The seed that `TOWLINE_SEED` names, else another one each time; it is told.
    pub(crate) fn new() -> Self {
        let set = std::env::var("TOWLINE_SEED").ok();
        let seed = set.and_then(|seed| seed.trim().parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::UNIX_EPOCH.elapsed();
            now.map_or(1, |now| now.as_nanos() as u64)
        });
        println!("TOWLINE_SEED={seed}");
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}
