//! How much of a kernel runs at once: asked of the server's driver once for each question, since the answer depends on the kernel, its
//! attributes and the device alone.

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Acting, Driver};
use crate::image::Known;
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
    /// The driver's verdict on the launch while its stream captures: the status, and [`CAPTURE_ENDS`] where that costs the capture.
    Captured = 4,
}

const CAPTURE_ENDS: i64 = 1 << 32;

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

/// Sizes of blocks to ask about, the largest first, in steps of a warp. Both numbers are a server's, and each size is a question to it.
fn block_sizes(warp: i32, largest: i32) -> impl Iterator<Item = i32> {
    let warp = warp.clamp(WARPS.0, WARPS.1);
    let largest = largest.min(LARGEST_BLOCK);
    let warps = (largest + warp - 1) / warp;
    (1..=warps)
        .rev()
        .map(move |warps| (warps * warp).min(largest))
}

impl Driver {
    /// The answer to a question about a function.
    pub(crate) fn occupancy(
        &self,
        question: Question,
        function: CUfunction,
        words: &[u64],
    ) -> Result<i64, CUresult> {
        let (acting, known, number) = self.at_function(function)?;
        acting.answer_to(question, &known, number, words)
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
        let (acting, known, number) = self.at_function(function)?;
        let device = self.device(acting.context.device)?;
        let of = |attribute| device.attribute(attribute);
        let most = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        let mut largest = self.told_attribute(&acting, &known, number, most)?;
        if limit > 0 {
            largest = largest.min(limit);
        }
        let full = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
        let (mut best, mut best_threads) = ((0, 0), 0);
        for threads in block_sizes(of(CU_DEVICE_ATTRIBUTE_WARP_SIZE), largest) {
            let blocks = self.active_blocks(function, threads, shared_of(threads), flags)?;
            let active = blocks.saturating_mul(threads);
            if active > best_threads {
                (best, best_threads) = ((threads, blocks), active);
            }
            if best_threads >= full {
                break;
            }
        }
        let (threads, blocks) = best;
        let processors = of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        Ok((threads, blocks.saturating_mul(processors)))
    }
}

impl Acting<'_> {
    /// Asks the server, once for each question.
    fn answer_to(
        &self,
        question: Question,
        known: &Known,
        number: u64,
        words: &[u64],
    ) -> Result<i64, CUresult> {
        let (device, kind) = (self.context.device, question as u32);
        if let Some(answer) = known.occupancy(device, kind, words) {
            return Ok(answer);
        }
        let request = wire::Occupancy {
            kind,
            function: wire::FunctionHandle(number),
            count: words.len() as u32,
            words: wire::List::Values(words),
        };
        let body = self.call_for("cuOccupancy", &request)?;
        let reply = wire::OccupancyReply::decode(&body).map_err(|_| self.malformed())?;
        let answer = reply.answer.ok_or_else(|| self.malformed())?;
        known.note_occupancy(device, kind, words, answer);
        Ok(answer)
    }

    /// The driver's status for a launch while its stream captures, and whether the capture is worth nothing afterwards.
    pub(crate) fn judge_captured(
        &self,
        known: &Known,
        number: u64,
        shape: Shape,
        attributes: &Attributes,
    ) -> Result<(), (CUresult, bool)> {
        let words = launch_words(shape, attributes);
        let answer = self
            .answer_to(Question::Captured, known, number, &words)
            .map_err(|status| (status, false))?;
        match answer as CUresult {
            CUDA_SUCCESS => Ok(()),
            status => Err((status, answer & CAPTURE_ENDS != 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_tried_from_the_largest_down_by_warps() {
        let sizes: Vec<i32> = block_sizes(32, 100).collect();
        assert_eq!(sizes, [100, 96, 64, 32]);
        assert_eq!(block_sizes(32, 0).count(), 0);
    }

    #[test]
    fn sizes_that_no_device_has_cause_few_questions() {
        for warp in [i32::MIN, -1, 0, 1, 32, i32::MAX] {
            let questions = block_sizes(warp, i32::MAX).take(10_000).count();
            assert!(questions <= 512, "{questions} with warps of {warp}");
            assert_eq!(block_sizes(warp, i32::MIN).next(), None);
        }
    }
}
