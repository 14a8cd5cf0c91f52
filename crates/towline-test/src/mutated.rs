//! Sessions of whole programs whose messages are changed on their way, in either direction, one after the other for as long as a test has.
//! For every message of a peer the process lives, every call returns once the connection has ended, nothing beside the memory that a call was lent
//! is written, and nothing of it is sent.
//!
//! `TOWLINE_FUZZ_SECONDS` makes it last, with seeds by chance, of which the first is printed; `TOWLINE_FUZZ_SEED` begins with one.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use towline_transport::Transport;
use towline_worker::RunError;

use crate::guarded::SECRET;
use crate::tamper::{Mutator, TamperedTransport, Victim};

/// A session that stands still for so long is cut: a peer that does not answer cannot be told from a long kernel.
const STALL: Duration = Duration::from_millis(400);
/// Nothing takes longer once the connection is cut.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a test runs unless the environment says otherwise.
const USUAL: Duration = Duration::from_secs(10);

/// Panics of any thread.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// A session that has been set up.
pub struct Begun {
    /// Runs the program, and ends its session.
    pub program: Box<dyn FnOnce() + Send>,
    /// How the worker's session ended.
    pub worker: Receiver<Result<(), RunError>>,
}

/// The snapshot that the client is told.
pub type Told<'a> = &'a dyn Fn(Vec<u8>) -> Vec<u8>;

/// Runs sessions as `begin` sets them up on a network of their own: first those of `seeds`, which have found something once.
pub fn sessions(
    victim: Victim,
    seeds: &[u64],
    network: impl Fn(u64) -> Box<dyn Transport>,
    begin: impl Fn(&Arc<TamperedTransport>, Told<'_>) -> Begun,
) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        hook(info);
    }));
    let number = |variable: &str| -> Option<u64> {
        let value = std::env::var(variable).ok()?;
        Some(value.parse().expect("it must be a number"))
    };
    let budget = number("TOWLINE_FUZZ_SECONDS").map(Duration::from_secs);
    let first = number("TOWLINE_FUZZ_SEED").unwrap_or_else(|| match budget {
        // The keys of a new map are random, which is what is needed of it.
        Some(_) => RandomState::new().hash_one(0) >> 16,
        None => 1,
    });
    println!("the first seed is {first}");
    let began = Instant::now();
    let mut count = 0_u64;
    for seed in seeds.iter().copied().chain(first..) {
        if began.elapsed() >= budget.unwrap_or(USUAL) {
            break;
        }
        let transport = TamperedTransport::over(network(seed), victim, Mutator::new(seed));
        session(victim, seed, &Arc::new(transport), &begin);
        count += 1;
    }
    println!("{count} sessions");
    assert!(count > 10, "the sessions take too long to test anything");
}

/// Runs the program in a session that `seed` describes.
fn session(
    victim: Victim,
    seed: u64,
    transport: &Arc<TamperedTransport>,
    begin: impl Fn(&Arc<TamperedTransport>, Told<'_>) -> Begun,
) {
    let panics = PANICS.load(Ordering::Relaxed);
    let traffic = transport.traffic();
    let Begun { program, worker } = begin(transport, &|mut snapshot| {
        if victim == Victim::Client && seed.is_multiple_of(8) {
            let mut mutator = Mutator::new(seed);
            (0..1 + seed % 3).for_each(|_| mutator.renumber(&mut snapshot));
        }
        snapshot
    });
    let (sender, done) = channel();
    let client = std::thread::spawn(move || {
        program();
        // The test may have given up.
        let _ = sender.send(());
    });
    let mut over = comes(&done, STALL, "the client");
    transport.cut();
    over = over || comes(&done, PATIENCE, "the client");
    assert!(
        over,
        "seed {seed}: a call has not returned {PATIENCE:?} after its connection was cut"
    );
    client.join().expect("the client does not panic");
    assert!(
        comes(&worker, PATIENCE, "the worker"),
        "seed {seed}: the worker hangs"
    );
    assert!(
        !traffic.holds(SECRET),
        "seed {seed}: memory that was not lent has been sent"
    );
    assert_eq!(
        PANICS.load(Ordering::Relaxed),
        panics,
        "seed {seed}: a thread panicked"
    );
}

/// Waits for something, and says whether it came; a sender that panicked ends the test.
fn comes<T>(from: &Receiver<T>, within: Duration, what: &str) -> bool {
    match from.recv_timeout(within) {
        Ok(_) => true,
        Err(RecvTimeoutError::Timeout) => false,
        Err(RecvTimeoutError::Disconnected) => panic!("{what} panicked"),
    }
}
