//! How much of a kernel runs at once: asked of the server's driver once for each question, since the answer depends on the kernel, its
//! attributes and the device alone.

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::Driver;
use crate::launch::{ATTRIBUTE_WORDS, Attributes, Shape};

/// What can be asked; the numbers are the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// How many clusters run at once.
    ActiveClusters = 0,
    /// The largest cluster that a launch can have.
    LargestCluster = 1,
    /// How many blocks run at once on a multiprocessor.
    ActiveBlocks = 2,
    /// How much dynamic shared memory blocks can have.
    SharedMemory = 3,
}

/// What is asked about a launch before it is one: its shape, then its attributes.
pub(crate) fn launch_words(shape: Shape, attributes: &Attributes) -> Vec<u64> {
    let Shape {
        grid,
        block,
        shared_bytes,
    } = shape;
    let sides = grid.into_iter().chain(block).chain([shared_bytes]);
    let mut words: Vec<u64> = sides.map(u64::from).collect();
    debug_assert!(attributes.len().is_multiple_of(ATTRIBUTE_WORDS));
    words.extend_from_slice(attributes);
    words
}

/// Smallest and largest size of a warp that is believed.
const WARPS: (i32, i32) = (8, 128);
/// Most threads of a block that are believed.
const LARGEST_BLOCK: i32 = 4096;

impl Driver {
    /// The answer to a question about a function.
    pub(crate) fn occupancy(
        &self,
        question: Question,
        function: CUfunction,
        words: &[u64],
    ) -> Result<i64, CUresult> {
        let (acting, known, number) = self.at_function(function)?;
        let (device, kind) = (acting.context.device, question as u32);
        if let Some(answer) = known.occupancy(device, kind, words) {
            return Ok(answer);
        }
        let request = wire::Occupancy {
            kind,
            function: wire::FunctionHandle(number),
            count: words.len() as u32,
            words: wire::List::Values(words),
        };
        let body = acting.call_for("cuOccupancy", &request)?;
        let reply = wire::OccupancyReply::decode(&body).map_err(|_| acting.malformed())?;
        let answer = reply.answer.ok_or_else(|| acting.malformed())?;
        known.note_occupancy(device, kind, words, answer);
        Ok(answer)
    }

    /// Blocks of so many threads that run at once on a multiprocessor.
    pub(crate) fn active_blocks(
        &self,
        function: CUfunction,
        threads: i32,
        dynamic: usize,
        flags: u32,
    ) -> Result<i32, CUresult> {
        let Ok(size) = u64::try_from(threads) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let words = [size, dynamic as u64, u64::from(flags)];
        let blocks = self.occupancy(Question::ActiveBlocks, function, &words)?;
        Ok(blocks as i32)
    }

    /// The block size with which most threads run at once, the largest of those that are as good, and the blocks that fill the device.
    /// As the toolkit's occupancy calculator searches: from the largest size down in steps of a warp.
    pub(crate) fn best_block(
        &self,
        function: CUfunction,
        shared_of: impl Fn(i32) -> usize,
        limit: i32,
        flags: u32,
    ) -> Result<(i32, i32), CUresult> {
        if limit < 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (acting, known, _) = self.at_function(function)?;
        let number = acting.context.device;
        let device = self.device(number)?;
        let of = |attribute| device.attribute(attribute);
        // A server's numbers: each step asks it once.
        let warp = of(CU_DEVICE_ATTRIBUTE_WARP_SIZE).clamp(WARPS.0, WARPS.1);
        let mut largest = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK).min(LARGEST_BLOCK);
        if let Some(most) = known.attribute(number, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
            largest = largest.min(most);
        }
        if limit > 0 {
            largest = largest.min(limit);
        }
        let full = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
        let (mut best, mut best_threads) = ((0, 0), 0);
        let mut aligned = (largest + warp - 1) / warp * warp;
        while aligned > 0 {
            let threads = aligned.min(largest);
            let blocks = self.active_blocks(function, threads, shared_of(threads), flags)?;
            let active = blocks.saturating_mul(threads);
            if active > best_threads {
                (best, best_threads) = ((threads, blocks), active);
            }
            if best_threads >= full {
                break;
            }
            aligned -= warp;
        }
        let (threads, blocks) = best;
        let processors = of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        Ok((threads, blocks.saturating_mul(processors)))
    }
}
