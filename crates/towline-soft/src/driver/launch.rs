//! Launches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use towline_backend::cuda::*;

use super::attributes::{BLOCK_SIDES, BLOCK_THREADS, GRID_SIDES, SHARED_BYTES};
use super::modules::Function;
use super::streams::Queue;
use super::{Context, SoftCuda, SoftTier};
use crate::exec::{self, Launch, Print};
use crate::image::Kernel;
use crate::jit::Cache;
use crate::memory::{Arena, Purpose};
use crate::messages::{Messages, shown};
use crate::texture::Seen;

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

/// A launch that nothing stands in the way of: what to carry out, as often as is wanted.
#[derive(Clone)]
pub struct Plan {
    kernel: Kernel,
    arena: Arc<Arena>,
    textures: Seen,
    context: Arc<Context>,
    shape: Shape,
    /// Shared memory of a block.
    shared_bytes: u32,
    parameters: Vec<u8>,
    /// Blocks that are said to run at once.
    resident: u64,
    host_threads: usize,
    heap_bytes: u64,
    memory_limit: usize,
    limit: Option<Duration>,
    tier: SoftTier,
    codes: Arc<Cache>,
    launches: Arc<AtomicU64>,
    print: Print,
    messages: Arc<Messages>,
}

/// What a launch's attribute says: whether its blocks are to run at once, `None` where that is not what it is about; those that a
/// software device cannot heed are refused.
pub(super) fn cooperative(
    id: u32,
    value: [u32; 3],
    messages: &Messages,
) -> Result<Option<bool>, CUresult> {
    match id {
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE => Ok(Some(value[0] != 0)),
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION if value != [1; 3] => {
            messages.tell("a launch", "clusters of blocks", || {
                "a launch asks for clusters of several blocks, which software devices do not have: leave the attribute out, or use a \
                 server with a GPU"
                    .into()
            });
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        // The others are about speed.
        _ => Ok(None),
    }
}

impl Plan {
    fn blocks(&self) -> u64 {
        let sides = self.shape.grid.iter();
        sides.map(|side| u64::from(*side)).product()
    }

    /// Takes an attribute of the launch.
    pub(super) fn take_attribute(&mut self, id: u32, value: [u32; 3]) -> Result<(), CUresult> {
        if let Some(wanted) = cooperative(id, value, &self.messages)? {
            self.shape.cooperative = wanted;
            self.check_together()?;
        }
        Ok(())
    }

    /// Takes the attributes of another launch.
    pub(super) fn inherit(&mut self, before: &Self) -> Result<(), CUresult> {
        self.shape.cooperative = before.shape.cooperative;
        self.check_together()
    }

    /// Blocks of a cooperative launch must all run at once.
    fn check_together(&self) -> Result<(), CUresult> {
        match self.shape.cooperative && self.blocks() > self.resident {
            true => Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
            false => Ok(()),
        }
    }

    /// The launch as either tier takes it.
    fn launch(self) -> Launch {
        let now = Instant::now();
        Launch {
            device: self.context.device as u32,
            cancelled: Arc::clone(&self.context.cancelled),
            number: self.launches.fetch_add(1, Ordering::Relaxed),
            deadline: self.limit.and_then(|limit| now.checked_add(limit)),
            kernel: self.kernel,
            code: None,
            arena: self.arena,
            textures: self.textures,
            grid: self.shape.grid,
            block: self.shape.block,
            shared_bytes: self.shared_bytes,
            dynamic_bytes: self.shape.dynamic_bytes,
            parameters: self.parameters,
            resident_blocks: self.resident,
            workspace: 0,
            host_threads: self.host_threads,
            heap_bytes: self.heap_bytes,
            memory_limit: self.memory_limit,
            started: now,
            executed: AtomicU64::new(0),
            print: self.print,
        }
    }

    /// Carries it out.
    pub(super) fn run(self) -> CUresult {
        let (cooperative, limit) = (self.shape.cooperative, self.limit);
        let (tier, codes) = (self.tier, Arc::clone(&self.codes));
        let messages = Arc::clone(&self.messages);
        let mut launch = self.launch();
        if cooperative {
            match workspace(&launch) {
                Ok(workspace) => launch.workspace = workspace,
                Err(status) => return status,
            }
        }
        launch.code = tier.code(&launch, &codes);
        // What compiling took is not the kernel's.
        launch.started = Instant::now();
        launch.deadline = limit.and_then(|limit| launch.started.checked_add(limit));
        let launch = Arc::new(launch);
        let outcome = exec::run(&launch);
        let executed = launch.executed.load(Ordering::Relaxed);
        launch.kernel.has_done(executed);
        if launch.workspace != 0 {
            launch.arena.free(launch.workspace, Purpose::Image);
        }
        match outcome {
            Ok(()) => CUDA_SUCCESS,
            Err(fault) => {
                let kernel = &launch.kernel;
                let text = || fault.message(kernel, launch.shared_bytes);
                messages.tell(kernel.name(), fault.kind.name(), text);
                fault.kind.status()
            }
        }
    }
}

/// Zeroed memory in which the blocks of a cooperative kernel count themselves.
fn workspace(launch: &Launch) -> Result<u64, CUresult> {
    let arena = &launch.arena;
    let found = arena.allocate(WORKSPACE_BYTES, launch.device, Purpose::Image);
    let address = found.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Some(span) = arena.range(address, WORKSPACE_BYTES) {
        span.write(address, &[0; WORKSPACE_BYTES as usize]);
    }
    Ok(address)
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
        let plan = self.plan(function, shape, queue.context(), parameters)?;
        self.streams.push(queue, Box::new(move || plan.run()));
        Ok(())
    }

    /// Makes a launch ready, or says why it cannot be.
    pub(super) fn plan(
        &self,
        function: &Arc<Function>,
        shape: Shape,
        context: &Arc<Context>,
        parameters: Vec<u8>,
    ) -> Result<Plan, CUresult> {
        let image = self.image(&function.module)?;
        let name = function.name.to_string_lossy();
        let kernel = image.kernel(function.id).map_err(|why| {
            let text = || {
                let remedy = image.remedy(function.id, self.capability());
                format!("cannot run on this software device: {why}; {remedy}")
            };
            self.messages.tell(&name, "cannot run here", text);
            CUDA_ERROR_NO_BINARY_FOR_GPU
        })?;
        let shared_bytes = self.check(&kernel, function, shape)?;
        let threads: u32 = shape.block.iter().product();
        let at_once = u64::from(self.blocks_at_once(threads, shared_bytes));
        let plan = Plan {
            kernel,
            arena: Arc::clone(&self.arena),
            textures: Seen::new(&self.bindings),
            context: Arc::clone(context),
            shape,
            shared_bytes,
            parameters,
            resident: (at_once * self.host_threads as u64).max(1),
            host_threads: self.host_threads,
            heap_bytes: self.heap_bytes.load(Ordering::Relaxed) as u64,
            memory_limit: usize::try_from(self.options.launch_bytes).unwrap_or(usize::MAX),
            limit: self.time_limit(),
            tier: self.options.tier,
            codes: Arc::clone(&self.codes),
            launches: Arc::clone(&self.launches),
            print: Arc::clone(&self.print),
            messages: Arc::clone(&self.messages),
        };
        let launch = plan.clone().launch();
        if launch.block_bytes().is_none() {
            let text = || {
                format!(
                    "cannot launch the kernel `{}`: registers and local memory of a block of {threads} threads take more than a \
                     software device has for them (--soft-launch-memory of the server); launch smaller blocks",
                    shown(&name)
                )
            };
            self.messages.tell(&name, "too few resources", text);
            return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        let plan = Plan {
            resident: plan.resident.min(launch.most_resident()),
            ..plan
        };
        plan.check_together()?;
        Ok(plan)
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

    /// Dynamic shared memory that each of so many blocks may have, so that a multiprocessor holds them.
    pub(super) fn shared_left(
        &self,
        function: &Function,
        blocks: i32,
        threads: i32,
    ) -> Result<usize, CUresult> {
        let most = self.occupancy(function, threads, 0)?;
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks > 0);
        let blocks = blocks.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if blocks > most as u32 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fixed = self.image(&function.module)?.shared_bytes(function.id);
        let share = self.most_shared() as u32 / blocks;
        Ok(share.saturating_sub(fixed) as usize)
    }
}
