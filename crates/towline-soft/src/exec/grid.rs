//! A grid: blocks in the order of their numbers, on as many threads of the host as there are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_ptx::ptx::Position;

use super::Launch;
use super::block::Block;
use super::pool;
use crate::fault::{Fault, FaultKind};
use crate::jit::Threads;

/// How long a thread of the host sleeps when all its blocks poll memory, and others may change it.
const NAP: Duration = Duration::from_micros(50);

/// What the threads of the host share.
struct Progress {
    next: AtomicU64,
    /// Blocks that have started and not ended.
    resident: AtomicU64,
    stop: AtomicBool,
    fault: Mutex<Option<Box<Fault>>>,
}

/// Why a block stops for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    Done,
    /// Everything in it that could go on polls memory.
    Polling,
    /// It has had its share.
    Spent,
}

/// A block that is being carried out, in one way or another.
pub(crate) trait Work<'a>: Sized {
    /// What all blocks need besides the launch.
    type Shared: Sync;

    /// A block at the start of the kernel. It may take over from one that has ended.
    fn start(
        launch: &'a Launch,
        shared: &'a Self::Shared,
        number: u64,
        spent: Option<Box<Self>>,
    ) -> Box<Self>;

    /// Goes on until it ends, has had its share, or only polls.
    fn run(&mut self) -> Result<Pause, Box<Fault>>;
}

/// Carries out a launch, on as many threads of the host as it may have and has blocks for.
pub(crate) fn run(launch: &Arc<Launch>) -> Result<(), Box<Fault>> {
    let progress = Arc::new(Progress {
        next: AtomicU64::new(0),
        resident: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        fault: Mutex::new(None),
    });
    let threads = launch.blocks().min(launch.host_threads as u64) as usize;
    let (launch, shared) = (Arc::clone(launch), Arc::clone(&progress));
    pool::share(threads.saturating_sub(1), move || match &launch.code {
        Some(code) => work::<Threads<'_>>(&launch, code, &shared),
        None => work::<Block<'_>>(&launch, &(), &shared),
    });
    let fault = progress.fault.lock();
    match fault.unwrap_or_else(PoisonError::into_inner).take() {
        None => Ok(()),
        Some(fault) => Err(fault),
    }
}

/// The number of the next block to start, while there are some and there is room for them.
fn next(launch: &Launch, progress: &Progress) -> Option<u64> {
    if !enter(&progress.resident, launch.resident_blocks) {
        return None;
    }
    let number = progress.next.fetch_add(1, Ordering::Relaxed);
    if number >= launch.blocks() {
        progress.resident.fetch_sub(1, Ordering::AcqRel);
        return None;
    }
    Some(number)
}

/// Counts one more unless `limit` are counted.
fn enter(counted: &AtomicU64, limit: u64) -> bool {
    let mut seen = counted.load(Ordering::Acquire);
    while seen < limit {
        match counted.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Runs blocks until all have been run. A block that polls memory makes room for another, as it may wait for that.
fn work<'a, W: Work<'a>>(launch: &'a Launch, shared: &'a W::Shared, progress: &Progress) {
    let mut blocks: VecDeque<Box<W>> = VecDeque::new();
    let mut spent = None;
    let mut polling = 0;
    loop {
        if progress.stop.load(Ordering::Relaxed) {
            return;
        }
        if blocks.len() <= polling {
            match next(launch, progress) {
                Some(number) => {
                    blocks.push_front(W::start(launch, shared, number, spent.take()));
                }
                None if blocks.is_empty() => return,
                // Others may be what all of these wait for.
                None => {
                    std::thread::sleep(NAP);
                    polling = 0;
                }
            }
        }
        let Some(mut block) = blocks.pop_front() else {
            continue;
        };
        match block.run() {
            Ok(Pause::Done) => {
                progress.resident.fetch_sub(1, Ordering::AcqRel);
                polling = 0;
                spent = Some(block);
            }
            Ok(Pause::Spent) => {
                blocks.push_front(block);
                polling = 0;
            }
            Ok(Pause::Polling) => {
                blocks.push_back(block);
                polling += 1;
            }
            Err(fault) => return fail(progress, fault),
        }
        if launch.cancelled.load(Ordering::Relaxed) {
            progress.stop.store(true, Ordering::Relaxed);
        }
        if launch
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            let kernel = launch.kernel.name().to_owned();
            return fail(progress, Box::new(out_of_time(kernel)));
        }
    }
}

fn out_of_time(function: String) -> Fault {
    Fault {
        kind: FaultKind::TimeLimit,
        function,
        at: Position { line: 1, column: 1 },
        block: [0; 3],
        thread: [0; 3],
    }
}

/// Keeps the first fault, and stops everybody.
fn fail(progress: &Progress, fault: Box<Fault>) {
    let mut first = progress
        .fault
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    first.get_or_insert(fault);
    progress.stop.store(true, Ordering::Relaxed);
}
