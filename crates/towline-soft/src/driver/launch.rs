//! Launches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use towline_backend::cuda::*;

use super::SoftCuda;
use super::attributes::{BLOCK_SIDES, BLOCK_THREADS, GRID_SIDES, SHARED_BYTES};
use super::modules::Function;
use super::streams::Queue;
use crate::exec::{self, Launch};
use crate::fault::{Fault, FaultKind};
use crate::image::Kernel;
use crate::memory::Purpose;

/// Bytes that cooperative kernels count their blocks in.
const WORKSPACE_BYTES: u64 = 64;

/// How a launch is laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) dynamic_bytes: u32,
    pub(super) cooperative: bool,
}

impl SoftCuda {
    /// Launches a kernel with packed parameters.
    pub(super) fn launch(
        &self,
        function: &Arc<Function>,
        shape: Shape,
        queue: &Arc<Queue>,
        parameters: Vec<u8>,
    ) -> Result<(), CUresult> {
        let image = self.image(&function.module)?;
        let kernel = image.kernel(function.id).map_err(|why| {
            log::error!(
                "cannot run the kernel `{}` on a software device: {why}; compile it for an earlier architecture (nvcc \
                 -arch=compute_75), or use a server with a GPU",
                function.name.to_string_lossy()
            );
            CUDA_ERROR_NOT_SUPPORTED
        })?;
        let shared_bytes = self.check(&kernel, function, shape)?;
        let threads: u32 = shape.block.iter().product();
        let at_once = u64::from(self.blocks_at_once(threads, shared_bytes));
        let resident = (at_once * self.host_threads as u64).max(1);
        let blocks: u64 = shape.grid.iter().map(|side| u64::from(*side)).product();
        let device = queue.context().device as u32;
        let mut launch = Launch {
            kernel,
            code: None,
            arena: Arc::clone(&self.arena),
            device,
            grid: shape.grid,
            block: shape.block,
            shared_bytes,
            dynamic_bytes: shape.dynamic_bytes,
            parameters,
            resident_blocks: resident,
            workspace: 0,
            number: self.launches.fetch_add(1, Ordering::Relaxed),
            host_threads: self.host_threads,
            heap_bytes: self.heap_bytes.load(Ordering::Relaxed) as u64,
            started: Instant::now(),
            deadline: None,
            executed: AtomicU64::new(0),
            cancelled: Arc::clone(&queue.context().cancelled),
            print: Arc::clone(&self.print),
        };
        if launch.block_bytes().is_none() {
            log::error!(
                "cannot launch the kernel `{}`: registers and local memory of a block of {threads} threads take more than a \
                 software device has for them; launch smaller blocks",
                function.name.to_string_lossy()
            );
            return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        launch.resident_blocks = resident.min(launch.most_resident());
        if shape.cooperative {
            if blocks > launch.resident_blocks {
                return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
            }
            launch.workspace = self.workspace(device)?;
        }
        let limit = self.options.time_limit;
        let tier = self.options.tier;
        let cache = Arc::clone(&self.codes);
        let work = move || {
            let code = tier.code(&launch, &cache);
            let now = Instant::now();
            let launch = Arc::new(Launch {
                code,
                started: now,
                deadline: limit.and_then(|limit| now.checked_add(limit)),
                ..launch
            });
            let outcome = exec::run(&launch);
            launch
                .kernel
                .has_done(launch.executed.load(Ordering::Relaxed));
            if launch.workspace != 0 {
                launch.arena.free(launch.workspace, Purpose::Image);
            }
            match outcome {
                Ok(()) => CUDA_SUCCESS,
                Err(fault) => tell(&launch.kernel, &fault),
            }
        };
        self.streams.push(queue, Box::new(work));
        Ok(())
    }

    /// Refuses what the driver refuses; gives the shared memory of a block.
    fn check(&self, kernel: &Kernel, function: &Function, shape: Shape) -> Result<u32, CUresult> {
        let within = |sides: [u32; 3], most: [u32; 3]| {
            sides
                .iter()
                .zip(most)
                .all(|(side, most)| (1..=most).contains(side))
        };
        if !within(shape.grid, GRID_SIDES) || !within(shape.block, BLOCK_SIDES) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let threads: u64 = shape.block.iter().map(|side| u64::from(*side)).product();
        let limits = kernel
            .image
            .program
            .function(kernel.entry())
            .map(|one| one.limits)
            .unwrap_or_default();
        let most = limits
            .most_threads
            .map_or(u64::from(BLOCK_THREADS), |sides| {
                let [x, y, z] = sides.map(u64::from);
                x.saturating_mul(y).saturating_mul(z)
            });
        if threads > u64::from(BLOCK_THREADS).min(most) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if limits
            .exact_threads
            .is_some_and(|exact| exact != shape.block)
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let allowed = function.most_dynamic.load(Ordering::Relaxed);
        let room = match allowed {
            -1 => SHARED_BYTES as u32,
            allowed => kernel.shared_bytes().saturating_add(allowed as u32),
        };
        let needed = u64::from(kernel.shared_bytes()) + u64::from(shape.dynamic_bytes);
        if needed > u64::from(room) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // What the launch adds may have to start a little behind the static part.
        let total = kernel.dynamic_start().checked_add(shape.dynamic_bytes);
        total.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Zeroed memory in which the blocks of a cooperative kernel count themselves.
    fn workspace(&self, device: u32) -> Result<u64, CUresult> {
        let found = self.arena.allocate(WORKSPACE_BYTES, device, Purpose::Image);
        let address = found.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Some(span) = self.arena.range(address, WORKSPACE_BYTES) {
            span.write(address, &[0; WORKSPACE_BYTES as usize]);
        }
        Ok(address)
    }

    /// Blocks of a kernel that a multiprocessor is said to hold.
    pub(super) fn occupancy(
        &self,
        function: &Function,
        threads: i32,
        dynamic_bytes: usize,
    ) -> Result<i32, CUresult> {
        let image = self.image(&function.module)?;
        let threads = u32::try_from(threads).unwrap_or(0);
        if threads == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fixed = image.shared_bytes(function.id);
        let dynamic = u32::try_from(dynamic_bytes).unwrap_or(u32::MAX);
        let shared = fixed.saturating_add(dynamic);
        Ok(self.blocks_at_once(threads, shared) as i32)
    }
}

/// Logs what went wrong, and gives what the driver answers for it.
fn tell(kernel: &Kernel, fault: &Fault) -> CUresult {
    let line = kernel.image.line(fault.at);
    if let FaultKind::Assertion(text) = &fault.kind {
        // Where the vendor's runtime writes them.
        eprintln!("{text}");
    }
    log::error!("kernel `{}`: {fault}: {line}", kernel.name());
    fault.kind.status()
}
