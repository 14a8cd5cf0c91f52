//! The driver of software devices: contexts, modules, memory and streams.
//!
//! [`api`] is the contract's face: it turns pointers into values and back, and holds what is unsafe. Everything else answers with
//! `Result`. Kernels and copies are commands of streams ([`streams`]) and run on threads of those. A kernel that fails leaves its context
//! unusable, as a GPU's does: every later call in it answers the same.

mod api;
mod arrays;
mod attributes;
mod copy;
mod graphs;
mod launch;
mod link;
mod modules;
mod operations;
mod peer;
mod pools;
mod references;
mod streams;
mod textures;
mod virtual_memory;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towline_backend::cuda::arrays::Arrays;
use towline_backend::cuda::graphs::Graphs;
use towline_backend::cuda::*;
use towline_ptx::ComputeCapability;

use crate::exec::{LAUNCH_LIMIT, Print};
use crate::jit::Cache;
use crate::memory::mapped::Physical;
use crate::memory::{Arena, Purpose};
use crate::messages::Messages;
use crate::texture::Bindings;
pub use crate::tier::SoftTier;
use arrays::ArrayMemory;
use link::Link;
use modules::{Function, Module};
use pools::Pools;
use references::References;
use streams::{Event, Queue, Streams};

/// Addresses for pinned memory, beside those of the devices' own.
const PINNED_BYTES: u64 = 64 << 30;
/// What kernels may allocate, unless the program sets another limit.
const HEAP_BYTES: usize = 8 << 20;
/// What the driver answers for the size of a thread's stack; here it grows as it must.
const STACK_BYTES: usize = 1024;
const FIFO_BYTES: usize = 1 << 20;

/// What software devices are like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoftOptions {
    /// How many there are.
    pub devices: usize,
    /// Memory of each, in bytes. It is taken from the host as it is used.
    pub memory_bytes: u64,
    /// Compute capability that they report: major, minor.
    pub capability: (u32, u32),
    /// How long a launch may run.
    pub time_limit: Option<Duration>,
    /// Most memory of the host that the blocks of a launch may take at once, beside what the program allocates.
    pub launch_bytes: u64,
    /// Threads of the host that a launch may use; `None` for all.
    pub host_threads: Option<usize>,
    /// How kernels are carried out.
    pub tier: SoftTier,
}

impl SoftOptions {
    /// Compute capabilities that can be reported: nvcc makes code for each of them.
    pub const CAPABILITIES: [(u32, u32); 6] = [(7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0)];
}

impl Default for SoftOptions {
    fn default() -> Self {
        Self {
            devices: 1,
            memory_bytes: 4 << 30,
            // The lowest that today's compilers make code for, so that they leave out what only newer devices have.
            capability: (7, 5),
            time_limit: None,
            launch_bytes: LAUNCH_LIMIT as u64,
            host_threads: None,
            tier: SoftTier::Auto,
        }
    }
}

/// Software devices behind the driver's contract.
pub struct SoftCuda {
    options: SoftOptions,
    host_threads: usize,
    arena: Arc<Arena>,
    streams: Arc<Streams>,
    state: Mutex<State>,
    /// Taken after the state, where both are.
    pools: Arc<Mutex<Pools>>,
    /// Textures and surfaces as kernels know them.
    bindings: Arc<Bindings>,
    /// Taken by itself.
    references: Mutex<References>,
    /// Taken by itself.
    arrays: Mutex<Arrays<ArrayMemory>>,
    /// Taken first of all.
    graphs: Mutex<Graphs<Self>>,
    heap_bytes: AtomicUsize,
    /// How long a launch may run, in milliseconds; 0 limits nothing.
    time_limit_ms: AtomicU64,
    launches: Arc<AtomicU64>,
    /// Kernels that were compiled.
    codes: Arc<Cache>,
    print: Print,
    pub(crate) messages: Arc<Messages>,
}

/// Everything that has a handle.
#[derive(Default)]
struct State {
    /// Primary contexts by device, and how often each is retained.
    primaries: HashMap<CUdevice, (usize, Arc<Context>)>,
    contexts: HashMap<usize, Arc<Context>>,
    modules: HashMap<usize, Arc<Module>>,
    libraries: HashMap<usize, Arc<Module>>,
    functions: HashMap<usize, Arc<Function>>,
    queues: HashMap<usize, Arc<Queue>>,
    events: HashMap<usize, Arc<Event>>,
    links: HashMap<usize, Link>,
    /// Device memory of contexts: the handle of each allocation's.
    memory: HashMap<u64, usize>,
    physical: HashMap<u64, Arc<Physical>>,
    /// The context of each texture and surface, and whether it is a surface.
    bound: HashMap<u64, (usize, bool)>,
    /// Streams that capture, and whether what was captured is worth something.
    captures: HashMap<usize, bool>,
}

/// A context.
pub(crate) struct Context {
    handle: usize,
    device: CUdevice,
    /// What every call in it answers, once something has failed.
    failed: AtomicI32,
    /// It ends: kernels stop.
    cancelled: Arc<AtomicBool>,
    default: Mutex<Option<Arc<Queue>>>,
    /// Contexts whose memory it asked to reach, by handle.
    peers: Mutex<HashSet<usize>>,
}

impl Context {
    fn status(&self) -> Result<(), CUresult> {
        match self.failed.load(Ordering::Acquire) {
            CUDA_SUCCESS => Ok(()),
            status => Err(status),
        }
    }

    /// Whether what runs in it may go on.
    fn may_go_on(&self) -> Result<(), CUresult> {
        match self.cancelled.load(Ordering::Acquire) {
            true => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
            false => Ok(()),
        }
    }

    /// Keeps the first failure.
    fn fail(&self, status: CUresult) {
        let (order, none) = (Ordering::AcqRel, CUDA_SUCCESS);
        let _ = self
            .failed
            .compare_exchange(none, status, order, Ordering::Acquire);
    }
}

thread_local! {
    /// The context that is current on this thread, by its handle.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Handles of all drivers of the process, so that none is mistaken for another's.
static HANDLES: AtomicUsize = AtomicUsize::new(1);

/// A number for an object: aligned like a pointer, and none of the streams with fixed numbers.
fn fresh() -> usize {
    HANDLES.fetch_add(1, Ordering::Relaxed) * 64
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SoftCuda {
    /// Devices that print to the standard output of this process.
    pub fn new(options: SoftOptions) -> std::io::Result<Self> {
        Self::with_print(options, Arc::new(print_to_stdout))
    }

    /// Devices that print elsewhere.
    pub fn with_print(options: SoftOptions, print: Print) -> std::io::Result<Self> {
        let devices = options.devices as u64;
        let addresses = options
            .memory_bytes
            .saturating_mul(devices)
            .saturating_add(PINNED_BYTES);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            arena: Arc::new(Arena::reserve(addresses)?),
            host_threads: options.host_threads.unwrap_or(threads).max(1),
            time_limit_ms: AtomicU64::new(
                options
                    .time_limit
                    .map_or(0, |limit| limit.as_millis() as u64),
            ),
            options,
            streams: Arc::default(),
            state: Mutex::default(),
            pools: Arc::default(),
            heap_bytes: AtomicUsize::new(HEAP_BYTES),
            launches: Arc::new(AtomicU64::new(1)),
            bindings: Arc::default(),
            references: Mutex::default(),
            arrays: Mutex::default(),
            graphs: Mutex::default(),
            codes: Arc::default(),
            print,
            messages: Arc::default(),
        })
    }

    /// How long launches may run from now on; zero limits nothing.
    pub fn set_time_limit(&self, limit: Duration) {
        self.time_limit_ms
            .store(limit.as_millis() as u64, Ordering::Relaxed);
    }

    /// The compute capability that the devices report.
    fn capability(&self) -> ComputeCapability {
        let (major, minor) = self.options.capability;
        ComputeCapability::new(major, minor)
    }

    fn time_limit(&self) -> Option<Duration> {
        match self.time_limit_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Allocations that live, those of modules counted.
    pub fn live_allocations(&self) -> usize {
        self.arena.live()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn check_device(&self, device: CUdevice) -> Result<u32, CUresult> {
        match usize::try_from(device) {
            Ok(number) if number < self.options.devices => Ok(number as u32),
            _ => Err(CUDA_ERROR_INVALID_DEVICE),
        }
    }

    /// The current context, whatever has failed in it.
    fn current(&self) -> Result<Arc<Context>, CUresult> {
        self.find_context(CURRENT.get())
    }

    /// The current context, if nothing has failed in it.
    fn context(&self) -> Result<Arc<Context>, CUresult> {
        let context = self.current()?;
        context.status()?;
        Ok(context)
    }

    fn new_context(&self, device: CUdevice) -> Arc<Context> {
        Arc::new(Context {
            handle: fresh(),
            device,
            failed: AtomicI32::new(CUDA_SUCCESS),
            cancelled: Arc::default(),
            default: Mutex::default(),
            peers: Mutex::default(),
        })
    }

    fn retain_primary(&self, device: CUdevice) -> Result<usize, CUresult> {
        self.check_device(device)?;
        let fresh = self.new_context(device);
        let mut state = self.lock();
        let (count, context) = state.primaries.entry(device).or_insert((0, fresh));
        *count += 1;
        Ok(context.handle)
    }

    fn release_primary(&self, device: CUdevice) -> Result<(), CUresult> {
        self.check_device(device)?;
        let mut state = self.lock();
        let Some((count, _)) = state.primaries.get_mut(&device) else {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        };
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        let ended = state.primaries.remove(&device);
        drop(state);
        if let Some((_, context)) = ended {
            self.end(&context);
        }
        Ok(())
    }

    /// Ends a primary context though it is retained: a new one takes its place at the next call.
    fn reset_primary(&self, device: CUdevice) -> Result<(), CUresult> {
        self.check_device(device)?;
        let ended = self.lock().primaries.remove(&device);
        if let Some((_, context)) = ended {
            self.end(&context);
        }
        Ok(())
    }

    fn create_context(&self, device: CUdevice) -> Result<usize, CUresult> {
        self.check_device(device)?;
        let context = self.new_context(device);
        let handle = context.handle;
        self.lock().contexts.insert(handle, context);
        CURRENT.set(handle);
        Ok(handle)
    }

    fn destroy_context(&self, handle: usize) -> Result<(), CUresult> {
        let ended = self.lock().contexts.remove(&handle);
        let context = ended.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if CURRENT.get() == handle {
            CURRENT.set(0);
        }
        self.end(&context);
        Ok(())
    }

    /// Stops what runs in a context, and takes away what belongs to it.
    fn end(&self, context: &Arc<Context>) {
        context.cancelled.store(true, Ordering::Release);
        let mut queues: Vec<_> = lock(&context.default).take().into_iter().collect();
        self.lock().queues.retain(|_, queue| {
            let stays = queue.context().handle != context.handle;
            if !stays {
                queues.push(Arc::clone(queue));
            }
            stays
        });
        for queue in queues {
            self.streams.end(&queue);
        }
        // What still runs is about to stop, and finds other contents, nobody else's, until then.
        let mut gone = Vec::new();
        let mut state = self.lock();
        state.memory.retain(|address, home| {
            let stays = *home != context.handle;
            if !stays {
                gone.push(*address);
            }
            stays
        });
        let bindings = &self.bindings;
        state.bound.retain(|object, (home, _)| {
            let stays = *home != context.handle;
            if !stays {
                bindings.remove(*object);
            }
            stays
        });
        let primaries = state.primaries.values().map(|(_, context)| context);
        let mut others = primaries.chain(state.contexts.values());
        let is_left = others.all(|other| other.device != context.device);
        let device = is_left.then_some(context.device as u32);
        Self::end_modules(&mut state, context.handle, device);
        if let Some(device) = device {
            gone.extend(lock(&self.pools).end_on(device));
        }
        drop(state);
        for reference in lock(&self.references).end_context(context.handle) {
            self.bindings.remove(reference as u64);
        }
        drop(lock(&self.arrays).end_context(context.handle));
        for address in gone {
            self.arena.free(address, Purpose::Device);
        }
    }

    /// The stream of a handle; NULL and 1 are the current context's default stream, and so is 2, the one of the thread.
    fn queue(&self, stream: CUstream) -> Result<Arc<Queue>, CUresult> {
        let context = self.context()?;
        if stream.addr() > 2 {
            let found = self.lock().queues.get(&stream.addr()).cloned();
            let queue = found.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            queue.context().status()?;
            return Ok(queue);
        }
        let mut default = lock(&context.default);
        let queue =
            default.get_or_insert_with(|| Queue::start(&self.streams, &context, true, true));
        Ok(Arc::clone(queue))
    }

    fn event(&self, event: CUevent) -> Result<Arc<Event>, CUresult> {
        let found = self.lock().events.get(&event.addr()).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Bytes that are allocated on a device, physical memory of the program's own apart.
    fn allocated_bytes(&self, device: u32) -> u64 {
        let elsewhere = |purpose| {
            matches!(
                purpose,
                Purpose::Pinned | Purpose::Registered | Purpose::Mapped
            )
        };
        let counts = |purpose| !elsewhere(purpose);
        self.arena.used(device, counts)
    }

    /// Bytes of a device that are free.
    fn free_bytes(&self, device: u32) -> u64 {
        let physical = self.arena.physical_bytes(device);
        let used = self.allocated_bytes(device).saturating_add(physical);
        self.options.memory_bytes.saturating_sub(used)
    }

    fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, CUresult> {
        let context = self.context()?;
        let device = context.device as u32;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if bytes as u64 > self.free_bytes(device) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let found = self.arena.allocate(bytes as u64, device, Purpose::Device);
        let address = found.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        self.lock().memory.insert(address, context.handle);
        Ok(address)
    }

    /// Takes memory back, once nothing runs that may use it.
    fn free(&self, address: CUdeviceptr) -> Result<(), CUresult> {
        if address == 0 {
            return Ok(());
        }
        let context = self.context()?;
        self.streams.wait_all(None);
        context.status()?;
        if self.arena.free(address, Purpose::Device).is_some() {
            self.lock().memory.remove(&address);
            lock(&self.pools).ended(address);
            return Ok(());
        }
        // What a graph allocates keeps its address as long as the graph.
        match self.arena.rest(address, Purpose::Graph) {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn limit(&self, limit: CUlimit) -> Result<usize, CUresult> {
        self.context()?;
        match limit {
            CU_LIMIT_STACK_SIZE => Ok(STACK_BYTES),
            CU_LIMIT_PRINTF_FIFO_SIZE => Ok(FIFO_BYTES),
            CU_LIMIT_MALLOC_HEAP_SIZE => Ok(self.heap_bytes.load(Ordering::Relaxed)),
            _ => Err(CUDA_ERROR_UNSUPPORTED_LIMIT),
        }
    }

    fn set_limit(&self, limit: CUlimit, value: usize) -> Result<(), CUresult> {
        self.context()?;
        match limit {
            CU_LIMIT_MALLOC_HEAP_SIZE => self.heap_bytes.store(value, Ordering::Relaxed),
            // Stacks grow, and what is printed is never dropped.
            CU_LIMIT_STACK_SIZE | CU_LIMIT_PRINTF_FIFO_SIZE => {}
            _ => return Err(CUDA_ERROR_UNSUPPORTED_LIMIT),
        }
        Ok(())
    }
}

impl Drop for SoftCuda {
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.lock());
        let primaries = state.primaries.into_values().map(|(_, context)| context);
        for context in primaries.chain(state.contexts.into_values()) {
            context.cancelled.store(true, Ordering::Release);
            if let Some(queue) = lock(&context.default).take() {
                self.streams.end(&queue);
            }
        }
        for queue in state.queues.into_values() {
            self.streams.end(&queue);
        }
    }
}

fn print_to_stdout(text: &[u8]) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // Nobody to tell when it cannot be written.
    let _ = out.write_all(text);
    let _ = out.flush();
}

#[cfg(test)]
#[allow(unsafe_code, reason = "the contract's functions are unsafe to call")]
mod tests;
