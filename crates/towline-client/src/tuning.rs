//! The few numbers that trade latency, processor time and memory; each can be set for measurements.

use std::sync::OnceLock;
use std::time::Duration;

/// Tuning of this process.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// How long a thread looks for what is soon to come before it sleeps (`TOWLINE_SPIN_US`). Waking a sleeping thread costs several
    /// microseconds; looking costs a core, so it is off where there are few.
    pub spin: Duration,
    /// How long the thread that sends looks for the next request: about what it costs to wake it, since for that long it may take half
    /// of a processor from the program's own thread, which a virtual machine often does not tell.
    pub spin_for_request: Duration,
    /// How long a thread of the program that waits for an answer looks for it before it sleeps: it has nothing else to do.
    pub spin_for_answer: Duration,
    /// The same of a thread that waits for a GPU, unless it asked to sleep: natively it would not sleep at all.
    pub spin_for_gpu: Duration,
    /// Writes up to this size travel with their request (`TOWLINE_INLINE_BYTES`); `None` is [`INLINE_BYTES`], and what each API has
    /// been measured with.
    pub inline_bytes: Option<usize>,
    /// Payload connections per session (`TOWLINE_PAYLOAD_LANES`); `None` takes what the server suggests.
    pub payload_lanes: Option<u16>,
    /// Repeated kernel arguments are not sent again (`TOWLINE_ARG_CACHE=0` turns that off, for measurements).
    pub argument_cache: bool,
    /// Pageable memory is copied into memory that the worker shares, where that is on this host (`TOWLINE_STAGING=0` turns that off, for
    /// measurements).
    pub staging: bool,
    /// Threads that copy a long read out of shared memory side by side (`TOWLINE_COPY_THREADS`).
    pub copy_threads: usize,
    /// Transfers overlap network and device (`TOWLINE_PIPELINE=0` turns that off, for measurements).
    pub pipeline: bool,
}

/// Writes up to this size travel with their request where nothing else was measured.
pub(crate) const INLINE_BYTES: usize = 64 << 10;
/// Inline writes that the server may hold at once: beyond it, payload lanes take over, whose memory is bounded.
pub(crate) const INLINE_CREDIT: u64 = 16 << 20;
/// Bytes posted before the calling thread itself sends: bounds the queue, and blocks a caller that is ahead of the network.
pub(crate) const OUTBOX_LIMIT: usize = 1 << 20;
/// Most threads of a read.
const COPY_THREADS: usize = 4;
/// Size that boxes and images are cut into when they travel on payload lanes.
pub(crate) const SLAB_BYTES: usize = 16 << 20;

/// The process's tuning, read from the environment once.
pub fn tuning() -> &'static Tuning {
    static TUNING: OnceLock<Tuning> = OnceLock::new();
    TUNING.get_or_init(|| {
        let number = |name: &str| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
            let number = value.trim().parse::<u64>().ok();
            if number.is_none() {
                log::warn!("{name}={value} is no number: it has no effect");
            }
            number
        };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let usual = if cores >= 4 { 50 } else { 0 };
        let spin = number("TOWLINE_SPIN_US").unwrap_or(usual).min(1000);
        Tuning {
            spin: Duration::from_micros(spin),
            spin_for_request: Duration::from_micros(spin) / 10,
            spin_for_answer: Duration::from_micros(spin * 20),
            spin_for_gpu: Duration::from_micros(spin * 200),
            inline_bytes: number("TOWLINE_INLINE_BYTES").map(|bytes| bytes.min(1 << 20) as usize),
            payload_lanes: number("TOWLINE_PAYLOAD_LANES").map(|lanes| lanes.clamp(1, 32) as u16),
            argument_cache: number("TOWLINE_ARG_CACHE") != Some(0),
            staging: number("TOWLINE_STAGING") != Some(0),
            copy_threads: number("TOWLINE_COPY_THREADS")
                .map_or(cores / 4, |threads| threads as usize)
                .clamp(1, COPY_THREADS),
            pipeline: number("TOWLINE_PIPELINE") != Some(0),
        }
    })
}
