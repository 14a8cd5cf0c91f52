//! A word of host memory that the device writes when a stream has come so far. The lane sees it at once and for nothing, where asking
//! the driver takes a microsecond a time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use towline_backend::cuda::*;

use super::context::Context;
use super::pinned::SMALL;
use super::streams::Target;
use crate::link::Raw;

/// Waits of a context before it gets a signal: programs that wait a few times need no pinned memory for it.
const WAITS_BEFORE: u32 = 16;

/// A context's signal. One look at a time uses it: a later one takes another number, so that what an earlier one left behind, for a
/// stream that came so far when nobody looked any more, is not taken for its own.
#[derive(Default)]
pub(crate) struct Signal {
    waits: AtomicU32,
    /// In pinned memory of the context; `None` where there is none.
    word: OnceLock<Option<Raw>>,
    /// The driver has refused to write it: on streams that were created, and on a default one.
    refused: [AtomicBool; 2],
    /// The number last taken.
    last: AtomicU32,
}

impl Signal {
    /// Has the device tell when all that is on the stream by now is done. Gives what [`Self::came`] takes; `None` where the driver is to
    /// be asked. The stream's context must be current; on a default stream with others behind it the signal would hold those up.
    pub(crate) fn ask(&self, api: &dyn CudaApi, context: &Context, target: &Target) -> Option<u32> {
        if self.waits.load(Ordering::Relaxed) < WAITS_BEFORE {
            self.waits.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let refused = &self.refused[usize::from(target.is_default())];
        if refused.load(Ordering::Relaxed) {
            return None;
        }
        let word = self.word.get_or_init(|| {
            let block = context.pinned.take(api, SMALL, true).ok()?;
            // SAFETY: nobody else has the block, which stays pinned until the context ends.
            unsafe { block.memory.0.cast::<AtomicU32>().write(AtomicU32::new(0)) };
            Some(block.memory)
        });
        let word = word.as_ref()?;
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut operation = CUstreamBatchMemOpParams {
            writeValue: CUstreamBatchMemOpParams_writeValue {
                operation: CU_STREAM_MEM_OP_WRITE_VALUE_32,
                // Pinned memory has one address for host and device.
                address: word.0.addr() as CUdeviceptr,
                either: CUstreamBatchMemOpParams_writeValue_either { value: number },
                flags: CU_STREAM_WRITE_VALUE_DEFAULT,
                alias: 0,
            },
        };
        // SAFETY: the stream is live, and the word stays until its context ends.
        let status =
            unsafe { api.cuStreamBatchMemOp_v2(target.stream(), 1, &raw mut operation, 0) };
        if status != CUDA_SUCCESS {
            log::debug!(
                "the driver does not signal: {}",
                status_name(status).unwrap_or("?")
            );
            refused.store(true, Ordering::Relaxed);
            return None;
        }
        Some(number)
    }

    /// Whether the stream has come so far. A stream that has failed never does.
    #[inline]
    pub(crate) fn came(&self, number: u32) -> bool {
        let Some(word) = self.word.get().and_then(Option::as_ref) else {
            return false;
        };
        // SAFETY: as above; the device writes the word as a whole.
        let word = unsafe { &*word.0.cast::<AtomicU32>() };
        word.load(Ordering::Acquire) == number
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towline_backend::cuda::NullCuda;

    use super::*;

    #[test]
    fn the_device_signals_after_a_few_waits_and_each_number_once() {
        let api = NullCuda::new(1);
        let (mut native, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a place for the result.
        let retained = unsafe { api.cuDevicePrimaryCtxRetain(&raw mut native, 0) };
        assert_eq!(retained, CUDA_SUCCESS);
        let context = Arc::new(Context::new(1, native, (0, 0), true, 0, &Arc::default()));
        assert_eq!(context.enter(&api), CUDA_SUCCESS);
        // SAFETY: as above.
        let made = unsafe { api.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) };
        assert_eq!(made, CUDA_SUCCESS);
        let target = Target {
            key: 2,
            id: 2,
            native: Raw(stream.cast()),
            depth: Arc::clone(&context.depth),
            context: Arc::clone(&context),
            blocking: false,
        };
        let ask = || context.signal.ask(&api, &context, &target);
        assert!((0..WAITS_BEFORE).all(|_| ask().is_none()));
        let numbers: Vec<u32> = (0..3).filter_map(|_| ask()).collect();
        assert_eq!(numbers, [1, 2, 3]);
        // SAFETY: the stream is live.
        let waited = unsafe { api.cuStreamSynchronize(stream) };
        assert_eq!(waited, CUDA_SUCCESS);
        let came: Vec<bool> = (0..5).map(|number| context.signal.came(number)).collect();
        assert_eq!(came, [false, false, false, true, false]);
        assert_eq!(context.end(&api), CUDA_SUCCESS);
    }
}
