//! Values in memory that streams and graphs wait for and write.
#![allow(unsafe_code, reason = "operations are told in unions")]

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use towline_backend::cuda::*;

use super::{Context, SoftCuda};
use crate::memory::Arena;

/// How long a wait sleeps before it looks again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(1));
/// Most operations of a batch, as of a GPU's driver.
const BATCH_LIMIT: u32 = 256;

/// Operations, in their order.
#[derive(Debug, Clone)]
pub struct Operations(Arc<[Operation]>);

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Waits for a value of so many bytes.
    Wait(u64, u64, u64, Wanted),
    Write(u64, u64, u64),
    Barrier,
}

/// What a value is compared for.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    AtLeast,
    Equal,
    And,
    Nor,
}

impl Operation {
    fn read(words: [u64; 6]) -> Result<Self, CUresult> {
        let [kind, address, value, flags, ..] = words;
        let bytes = match kind as u32 {
            CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => 8,
            _ => 4,
        };
        let value = match bytes {
            8 => value,
            _ => u64::from(value as u32),
        };
        let operation = match kind as u32 {
            CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                // Nothing is written past this machine's caches: a flush has nothing to do.
                let wanted = match flags as u32 & !CU_STREAM_WAIT_VALUE_FLUSH {
                    CU_STREAM_WAIT_VALUE_GEQ => Wanted::AtLeast,
                    CU_STREAM_WAIT_VALUE_EQ => Wanted::Equal,
                    CU_STREAM_WAIT_VALUE_AND => Wanted::And,
                    CU_STREAM_WAIT_VALUE_NOR => Wanted::Nor,
                    _ => return Err(CUDA_ERROR_INVALID_VALUE),
                };
                Self::Wait(address, bytes, value, wanted)
            }
            CU_STREAM_MEM_OP_WRITE_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                Self::Write(address, bytes, value)
            }
            CU_STREAM_MEM_OP_BARRIER => return Ok(Self::Barrier),
            CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        match address.is_multiple_of(bytes) {
            true => Ok(operation),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn run(self, arena: &Arena, context: &Context) -> Result<(), CUresult> {
        match self {
            Self::Barrier => {
                fence(Ordering::SeqCst);
                Ok(())
            }
            Self::Write(address, bytes, value) => {
                let span = arena.span(address).ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
                let stored = span.store(address, bytes, value, Ordering::SeqCst);
                stored.map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS)
            }
            Self::Wait(address, bytes, value, wanted) => {
                let (mut pause, longest) = PAUSE;
                loop {
                    // Memory that is freed, or a context that ends, ends the wait.
                    let span = arena.span(address).ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
                    let there = span.load(address, bytes, Ordering::SeqCst);
                    let there = there.map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS)?;
                    if wanted.is_met(there, value, bytes) {
                        return Ok(());
                    }
                    context.may_go_on()?;
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(longest);
                }
            }
        }
    }
}

impl Wanted {
    fn is_met(self, there: u64, value: u64, bytes: u64) -> bool {
        let all = u64::MAX >> (64 - 8 * bytes);
        match self {
            // The difference of both as a number with a sign.
            Self::AtLeast => there.wrapping_sub(value) & all <= all >> 1,
            Self::Equal => there == value,
            Self::And => there & value != 0,
            Self::Nor => !(there | value) & all != 0,
        }
    }
}

impl Operations {
    /// Takes operations of the caller's.
    ///
    /// # Safety
    ///
    /// There are as many as `count` says.
    pub(super) unsafe fn of(
        operations: *const CUstreamBatchMemOpParams,
        count: u32,
    ) -> Result<Self, CUresult> {
        if operations.is_null() || count == 0 || count > BATCH_LIMIT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let one = |index: u32| {
            let place = operations.cast::<[u64; 6]>().wrapping_add(index as usize);
            // SAFETY: the caller's contract: as many as it says, each of 48 bytes.
            Operation::read(unsafe { place.read() })
        };
        (0..count).map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Carries them out, waiting where one waits.
    pub(super) fn run(&self, arena: &Arena, context: &Context) -> CUresult {
        let mut all = self.0.iter();
        let outcome = all.try_for_each(|one| one.run(arena, context));
        outcome.err().unwrap_or(CUDA_SUCCESS)
    }
}

impl SoftCuda {
    pub(super) fn operate(&self, stream: CUstream, operations: Operations) -> Result<(), CUresult> {
        let queue = self.queue(stream)?;
        for operation in operations.0.iter() {
            if let Operation::Wait(address, bytes, ..) | Operation::Write(address, bytes, _) =
                operation
            {
                self.check_range(*address, *bytes)?;
            }
        }
        let (arena, context) = (Arc::clone(&self.arena), Arc::clone(queue.context()));
        let work = move || operations.run(&arena, &context);
        self.streams.push(&queue, Box::new(work));
        Ok(())
    }
}

/// The methods of the contract: an `impl` cannot be in two files.
macro_rules! operation_calls {
    () => {
        unsafe fn cuStreamBatchMemOp_v2(
            &self,
            stream: CUstream,
            count: u32,
            operations: *mut CUstreamBatchMemOpParams,
            _flags: u32,
        ) -> CUresult {
            // SAFETY: the contract of the call: as many as it says.
            let operations = unsafe { Operations::of(operations, count) };
            status(operations.and_then(|operations| self.operate(stream, operations)))
        }
    };
}
pub(super) use operation_calls;
