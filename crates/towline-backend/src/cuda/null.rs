//! A CUDA device in host memory, without a vendor: for tests and measurements.
//!
//! Its memory is the process's own, its streams are threads, and it has a handful of kernels. An image is text: a first line
//! `towline null image`, then a line per kernel, `kernel NAME`, and per variable, `global NAME BYTES`, and per texture or surface
//! reference, `reference NAME`. The kernels:
//!
//! | name | parameters | does |
//! | --- | --- | --- |
//! | `add_one` | address, count | adds 1 to so many 32-bit numbers |
//! | `scale` | address, count, factor | multiplies them |
//! | `spin_until` | address | waits until the 32-bit number there is not 0 |
//! | `fetch` | texture or surface, address, count | copies so many bytes from the start of what it is over |
//! | `fault` | | fails as a kernel does that uses an address nobody has |
//! | `count_down` | address, handle | takes 1 from the 32-bit number there, and sets the conditional value to what is left |
//!
//! As a driver's, a stream takes only so many commands before the caller has to wait.

mod array;
mod device;
mod graph;
mod link;
mod operations;
mod pools;
mod streams;
mod texture;
mod virtual_memory;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arrays::{ArrayDevice, Arrays, without_contexts};
use super::graphs::Graphs;
use super::references::{Bound, Reference, ReferenceDevice};
use super::*;
use array::box_calls;
use device::{Allocation, Kernel};
use link::{Link, Logs, link_calls};
use operations::operate;
use pools::{Pool, Pooled, pool_calls};
use streams::{Event, Queue, Streams};
use texture::{Binding, texture_calls};
use virtual_memory::{VirtualMemory, virtual_memory_calls};

/// See the module's text.
pub struct NullCuda {
    devices: usize,
    /// Taken before the state, where both are.
    graphs: Mutex<Graphs<Self>>,
    state: Arc<Mutex<State>>,
    streams: Arc<Streams>,
    next: AtomicUsize,
    /// What images are refused with; success where they are not.
    refusal: AtomicI32,
    /// The same for contexts.
    context_refusal: AtomicI32,
    waits: AtomicUsize,
    stray_queries: AtomicUsize,
}

/// What lives on the devices.
#[derive(Default)]
struct State {
    /// References of each primary context.
    primaries: HashMap<CUdevice, (usize, usize)>,
    contexts: HashMap<usize, CUdevice>,
    modules: HashMap<usize, Image>,
    libraries: HashMap<usize, Image>,
    kernels: HashMap<usize, Arc<Kernel>>,
    queues: HashMap<usize, Arc<Queue>>,
    defaults: HashMap<usize, Arc<Queue>>,
    events: HashMap<usize, Arc<Event>>,
    memory: HashMap<u64, Allocation>,
    pinned: HashMap<usize, Allocation>,
    /// Host memory that was registered: bytes by where it begins.
    registered: BTreeMap<usize, usize>,
    arrays: Arrays<Allocation>,
    bindings: HashMap<u64, Binding>,
    references: HashMap<usize, Reference>,
    /// Contexts that reach another's memory, with that one.
    peers: HashSet<(usize, usize)>,
    links: HashMap<usize, Link>,
    virtual_memory: VirtualMemory,
    pools: HashMap<usize, Pool>,
    pooled: Pooled,
    conditions: HashMap<u64, graph::Condition>,
    /// Memory that graphs allocate: it stays where it is as long as its node, whoever frees it.
    rooms: HashSet<u64>,
}

#[derive(Clone, Default)]
struct Image {
    kernels: Vec<usize>,
    globals: HashMap<Vec<u8>, (u64, usize)>,
    references: HashMap<Vec<u8>, usize>,
}

thread_local! {
    static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

const MAGIC: &[u8] = b"towline null image";

fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the contract of every call here: places for answers are writable.
        unsafe { place.write(value) };
    }
}

/// Tells an outcome to where the caller wants it.
fn tell<T>(place: *mut T, outcome: Result<T, CUresult>) -> CUresult {
    match outcome {
        Ok(value) => {
            put(place, value);
            CUDA_SUCCESS
        }
        Err(status) => status,
    }
}

/// Gives the caller a handle.
fn hand_out<T>(place: *mut *mut T, outcome: Result<usize, CUresult>) -> CUresult {
    tell(place, outcome.map(std::ptr::without_provenance_mut))
}

impl State {
    /// The last registered range that begins below `end`.
    fn registered_from(&self, end: usize) -> Option<(usize, usize)> {
        let (start, size) = self.registered.range(..end).next_back()?;
        Some((*start, *size))
    }

    fn is_registered(&self, start: usize, size: usize) -> bool {
        let range = self.registered_from(start.saturating_add(1));
        range.is_some_and(|(at, len)| start.saturating_add(size) <= at + len)
    }
}

impl NullCuda {
    /// So many devices.
    pub fn new(devices: usize) -> Self {
        Self {
            devices,
            graphs: Mutex::default(),
            state: Arc::default(),
            streams: Arc::default(),
            next: AtomicUsize::new(1),
            refusal: AtomicI32::new(CUDA_SUCCESS),
            context_refusal: AtomicI32::new(CUDA_SUCCESS),
            waits: AtomicUsize::new(0),
            stray_queries: AtomicUsize::new(0),
        }
    }

    /// Has contexts refused with a status from now on, as by a device whose memory others have; with success no more.
    pub fn refuse_contexts(&self, status: CUresult) {
        self.context_refusal.store(status, Ordering::Relaxed);
    }

    /// Has every image from now on be refused with this status, until it is that of success.
    pub fn refuse_images(&self, status: CUresult) {
        self.refusal.store(status, Ordering::Relaxed);
    }

    /// Questions after streams that do not live. A genuine driver need not survive one.
    pub fn stray_queries(&self) -> usize {
        self.stray_queries.load(Ordering::Relaxed)
    }

    /// Objects that live, pinned memory and references to primary contexts counted.
    pub fn live_objects(&self) -> usize {
        let graphs = self.graph_lock().live();
        let state = self.lock();
        let primaries: usize = state.primaries.values().map(|(count, _)| count).sum();
        graphs
            + primaries
            + state.contexts.len()
            + state.modules.len()
            + state.libraries.len()
            + state.queues.len()
            + state.events.len()
            + state.pinned.len()
            + state.registered.len()
            + state.arrays.live()
            + state
                .bindings
                .values()
                .filter(|binding| !binding.ended)
                .count()
            + state.references.len()
            + state.links.len()
            + state.pools.len()
            + state.virtual_memory.live()
    }

    /// How often somebody has waited for a stream, or for all of a context.
    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    /// Bytes of device memory that are allocated; what belongs to images is not counted.
    pub fn allocated_bytes(&self) -> usize {
        let state = self.lock();
        let images = state.modules.values().chain(state.libraries.values());
        let globals: usize = images
            .flat_map(|image| image.globals.values())
            .map(|(_, bytes)| bytes)
            .sum();
        let arrays = state.arrays.arrays.values().map(|array| array.memory.len());
        let all = state.memory.values().map(Allocation::len).chain(arrays);
        all.sum::<usize>() + state.virtual_memory.bytes() - globals
    }

    /// Values that attributes of streams were set to, whichever stream's.
    pub fn stream_attributes(&self) -> Vec<(u32, [u8; 64])> {
        let state = self.lock();
        let queues = state.queues.values().chain(state.defaults.values());
        queues.flat_map(|queue| queue.attributes()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn graph_lock(&self) -> MutexGuard<'_, Graphs<Self>> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> usize {
        // Aligned like a pointer, and no stream of a fixed number.
        self.next.fetch_add(1, Ordering::Relaxed) * 64
    }

    /// The stream of a handle; NULL and 1 are the current context's default stream.
    fn queue(&self, stream: CUstream) -> Result<Arc<Queue>, CUresult> {
        let mut state = self.lock();
        if stream.addr() > 2 {
            let found = state.queues.get(&stream.addr());
            return found.cloned().ok_or(CUDA_ERROR_INVALID_HANDLE);
        }
        let context = CURRENT.get();
        if !state.contexts.contains_key(&context)
            && !state.primaries.values().any(|(_, known)| *known == context)
        {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let streams = &self.streams;
        if let Some(default) = state.defaults.get(&context) {
            return Ok(Arc::clone(default));
        }
        let default = Queue::start(streams, context, true, true)?;
        state.defaults.insert(context, Arc::clone(&default));
        Ok(default)
    }

    /// Enqueues what computes with device memory.
    fn enqueue(
        &self,
        stream: CUstream,
        work: impl FnOnce(&Mutex<State>) -> CUresult + Send + 'static,
    ) -> CUresult {
        let status = self.streams.status();
        if status != CUDA_SUCCESS {
            return status;
        }
        let state = Arc::clone(&self.state);
        match self.queue(stream) {
            Err(status) => status,
            Ok(queue) => {
                let streams = Arc::clone(&self.streams);
                self.streams
                    .push(&queue, Box::new(move || streams.note(work(&state))));
                CUDA_SUCCESS
            }
        }
    }

    fn read_image(&self, bytes: *const c_void) -> Result<Image, CUresult> {
        let refusal = self.refusal.load(Ordering::Relaxed);
        if refusal != CUDA_SUCCESS {
            return Err(refusal);
        }
        // SAFETY: an image is text that ends with a NUL.
        let text = unsafe { std::ffi::CStr::from_ptr(bytes.cast::<c_char>()) }.to_bytes();
        let mut lines = text.split(|byte| *byte == b'\n');
        if lines.next() != Some(MAGIC) {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let mut image = Image::default();
        let mut state = self.lock();
        for line in lines {
            let mut words = line.split(|byte| *byte == b' ');
            match (words.next(), words.next(), words.next()) {
                (Some(b"kernel"), Some(name), None) => {
                    let kernel = Kernel::named(name).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
                    let handle = self.fresh();
                    state.kernels.insert(handle, Arc::new(kernel));
                    image.kernels.push(handle);
                }
                (Some(b"global"), Some(name), Some(bytes)) => {
                    let bytes = std::str::from_utf8(bytes).ok();
                    let bytes = bytes.and_then(|bytes| bytes.parse().ok());
                    let bytes: usize = bytes.ok_or(CUDA_ERROR_INVALID_IMAGE)?;
                    let memory = Allocation::new(bytes);
                    let address = memory.address();
                    state.memory.insert(address, memory);
                    image.globals.insert(name.to_vec(), (address, bytes));
                }
                (Some(b"reference"), Some(name), None) => {
                    let handle = self.fresh();
                    state.references.insert(handle, Reference::default());
                    image.references.insert(name.to_vec(), handle);
                }
                _ => {}
            }
        }
        Ok(image)
    }

    fn unload(&self, image: Option<Image>) -> CUresult {
        let Some(image) = image else {
            return CUDA_ERROR_INVALID_HANDLE;
        };
        let mut state = self.lock();
        for kernel in image.kernels {
            state.kernels.remove(&kernel);
        }
        for (address, _) in image.globals.into_values() {
            state.memory.remove(&address);
        }
        for reference in image.references.into_values() {
            state.references.remove(&reference);
        }
        CUDA_SUCCESS
    }

    fn kernel(&self, handle: usize) -> Result<Arc<Kernel>, CUresult> {
        let found = self.lock().kernels.get(&handle).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn event(&self, handle: CUevent) -> Result<Arc<Event>, CUresult> {
        let found = self.lock().events.get(&handle.addr()).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn create_queue(&self, stream: *mut CUstream, flags: u32) -> CUresult {
        let context = CURRENT.get();
        if context == 0 {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        let blocking = flags & CU_STREAM_NON_BLOCKING == 0;
        let queue = match Queue::start(&self.streams, context, blocking, false) {
            Ok(queue) => queue,
            Err(status) => return status,
        };
        let handle = self.fresh();
        self.lock().queues.insert(handle, queue);
        put(stream, std::ptr::without_provenance_mut(handle));
        CUDA_SUCCESS
    }

    fn param(&self, handle: usize, index: usize, offset: *mut usize, size: *mut usize) -> CUresult {
        match self.kernel(handle) {
            Err(status) => status,
            Ok(kernel) => match kernel.parameters().get(index) {
                None => CUDA_ERROR_INVALID_VALUE,
                Some((at, bytes)) => {
                    put(offset, *at);
                    put(size, *bytes);
                    CUDA_SUCCESS
                }
            },
        }
    }

    fn fill(
        &self,
        address: CUdeviceptr,
        pattern: Vec<u8>,
        (pitch, width, height): (usize, usize, usize),
        stream: CUstream,
    ) -> CUresult {
        let row = pattern.repeat(width);
        self.enqueue(stream, move |state| {
            for line in 0..height {
                let at = address + (line * pitch) as u64;
                let status = device::write(state, at, &row);
                if status != CUDA_SUCCESS {
                    return status;
                }
            }
            CUDA_SUCCESS
        })
    }

    fn global(
        &self,
        image: Option<&Image>,
        name: *const c_char,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
    ) -> CUresult {
        let Some(image) = image else {
            return CUDA_ERROR_INVALID_HANDLE;
        };
        // SAFETY: the contract of the call: the name ends with a NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        match image.globals.get(name.to_bytes()) {
            None => CUDA_ERROR_NOT_FOUND,
            Some((at, size)) => {
                put(address, *at);
                put(bytes, *size);
                CUDA_SUCCESS
            }
        }
    }
}

fn list<T>(handles: &[usize], place: *mut *mut T, room: u32) {
    for (index, handle) in handles.iter().take(room as usize).enumerate() {
        // SAFETY: the contract of the call: room for as many as it says.
        unsafe {
            place
                .wrapping_add(index)
                .write(std::ptr::without_provenance_mut(*handle))
        };
    }
}

/// What the one kind of device answers; the others are 0.
fn attribute(which: CUdevice_attribute) -> i32 {
    match which {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        // Descriptors and, which nobody here has a use for, fabric handles.
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => 9,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR
        | CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 1,
        _ => 0,
    }
}

impl CudaApi for NullCuda {
    unsafe fn cuInit(&self, _flags: u32) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuDriverGetVersion(&self, version: *mut i32) -> CUresult {
        put(version, 13_000);
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGetCount(&self, count: *mut i32) -> CUresult {
        put(count, self.devices as i32);
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGet(&self, device: *mut CUdevice, ordinal: i32) -> CUresult {
        put(device, ordinal);
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGetName(&self, name: *mut c_char, len: i32, _dev: CUdevice) -> CUresult {
        let text = c"Towline null device".to_bytes_with_nul();
        for (index, byte) in text.iter().take(len.max(0) as usize).enumerate() {
            // SAFETY: the contract of the call: `name` has room for `len` bytes.
            unsafe { name.wrapping_add(index).write(*byte as c_char) };
        }
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGetUuid_v2(&self, uuid: *mut CUuuid, dev: CUdevice) -> CUresult {
        let mut bytes = *b"towline-null-cu0";
        bytes[15] = b'0'.wrapping_add(dev as u8);
        // SAFETY: the contract of the call: room for one.
        unsafe { uuid.cast::<[u8; 16]>().write(bytes) };
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceTotalMem_v2(&self, bytes: *mut usize, _dev: CUdevice) -> CUresult {
        put(bytes, 8 << 30);
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceGetAttribute(
        &self,
        value: *mut i32,
        which: CUdevice_attribute,
        _dev: CUdevice,
    ) -> CUresult {
        put(value, attribute(which));
        CUDA_SUCCESS
    }
    unsafe fn cuDevicePrimaryCtxRetain(&self, context: *mut CUcontext, dev: CUdevice) -> CUresult {
        let refusal = self.context_refusal.load(Ordering::Relaxed);
        if refusal != CUDA_SUCCESS {
            return refusal;
        }
        let handle = self.fresh();
        let mut state = self.lock();
        let primary = state.primaries.entry(dev).or_insert((0, handle));
        primary.0 += 1;
        put(context, std::ptr::without_provenance_mut(primary.1));
        CUDA_SUCCESS
    }
    unsafe fn cuDevicePrimaryCtxRelease_v2(&self, dev: CUdevice) -> CUresult {
        let mut state = self.lock();
        let Some((count, context)) = state.primaries.get_mut(&dev) else {
            return CUDA_ERROR_INVALID_CONTEXT;
        };
        *count -= 1;
        let (left, context) = (*count, *context);
        if left == 0 {
            state.primaries.remove(&dev);
            Self::end_residents(&mut state, context);
            let default = state.defaults.remove(&context);
            drop(state);
            default
                .into_iter()
                .for_each(|queue| self.streams.end(&queue));
        }
        CUDA_SUCCESS
    }
    unsafe fn cuDevicePrimaryCtxSetFlags_v2(&self, _dev: CUdevice, _flags: u32) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuCtxCreate_v2(
        &self,
        context: *mut CUcontext,
        _flags: u32,
        dev: CUdevice,
    ) -> CUresult {
        let refusal = self.context_refusal.load(Ordering::Relaxed);
        if refusal != CUDA_SUCCESS {
            return refusal;
        }
        let handle = self.fresh();
        self.lock().contexts.insert(handle, dev);
        CURRENT.set(handle);
        put(context, std::ptr::without_provenance_mut(handle));
        CUDA_SUCCESS
    }
    unsafe fn cuCtxDestroy_v2(&self, ctx: CUcontext) -> CUresult {
        let mut state = self.lock();
        let known = state.contexts.remove(&ctx.addr()).is_some();
        Self::end_residents(&mut state, ctx.addr());
        let default = state.defaults.remove(&ctx.addr());
        drop(state);
        default
            .into_iter()
            .for_each(|queue| self.streams.end(&queue));
        if known {
            CUDA_SUCCESS
        } else {
            CUDA_ERROR_INVALID_CONTEXT
        }
    }
    unsafe fn cuCtxSetCurrent(&self, ctx: CUcontext) -> CUresult {
        CURRENT.set(ctx.addr());
        CUDA_SUCCESS
    }
    unsafe fn cuCtxGetCurrent(&self, pctx: *mut CUcontext) -> CUresult {
        let current = std::ptr::without_provenance_mut(CURRENT.get());
        // SAFETY: the contract's: one place for the context.
        unsafe { pctx.write(current) };
        CUDA_SUCCESS
    }
    unsafe fn cuThreadExchangeStreamCaptureMode(
        &self,
        _mode: *mut CUstreamCaptureMode,
    ) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuCtxGetLimit(&self, value: *mut usize, _limit: CUlimit) -> CUresult {
        put(value, 1024);
        CUDA_SUCCESS
    }
    unsafe fn cuCtxSetLimit(&self, _limit: CUlimit, _value: usize) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuCtxSetCacheConfig(&self, _config: CUfunc_cache) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuCtxSetSharedMemConfig(&self, _config: CUsharedconfig) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuCtxResetPersistingL2Cache(&self) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuCtxGetStreamPriorityRange(&self, least: *mut i32, greatest: *mut i32) -> CUresult {
        put(least, 0);
        put(greatest, -5);
        CUDA_SUCCESS
    }
    unsafe fn cuCtxSynchronize(&self) -> CUresult {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.streams.wait_all(Some(CURRENT.get()));
        self.streams.status()
    }
    unsafe fn cuMemGetInfo_v2(&self, free: *mut usize, total: *mut usize) -> CUresult {
        put(free, (8 << 30) - self.allocated_bytes());
        put(total, 8 << 30);
        CUDA_SUCCESS
    }
    unsafe fn cuMemAlloc_v2(&self, address: *mut CUdeviceptr, size: usize) -> CUresult {
        if size == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if size > (8 << 30) - self.allocated_bytes().min(8 << 30) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        let memory = Allocation::new(size);
        put(address, memory.address());
        self.lock().memory.insert(memory.address(), memory);
        CUDA_SUCCESS
    }
    unsafe fn cuMemFree_v2(&self, address: CUdeviceptr) -> CUresult {
        self.streams.wait_all(None);
        let state = &mut *self.lock();
        if state.rooms.contains(&address) {
            return CUDA_SUCCESS;
        }
        match state.memory.remove(&address) {
            Some(_) => {
                state.pooled.remove(&address);
                CUDA_SUCCESS
            }
            None => Self::close_pooled(state, address),
        }
    }
    unsafe fn cuMemAllocAsync(
        &self,
        address: *mut CUdeviceptr,
        size: usize,
        _stream: CUstream,
    ) -> CUresult {
        // SAFETY: the caller's.
        unsafe { self.cuMemAlloc_v2(address, size) }
    }
    unsafe fn cuMemFreeAsync(&self, address: CUdeviceptr, stream: CUstream) -> CUresult {
        self.enqueue(stream, move |state| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.rooms.contains(&address) {
                return CUDA_SUCCESS;
            }
            match state.memory.remove(&address) {
                Some(_) => {
                    state.pooled.remove(&address);
                    CUDA_SUCCESS
                }
                None if Self::close_pooled(&mut state, address) == CUDA_SUCCESS => CUDA_SUCCESS,
                None => CUDA_ERROR_ILLEGAL_ADDRESS,
            }
        })
    }
    unsafe fn cuMemHostAlloc(&self, place: *mut *mut c_void, size: usize, _flags: u32) -> CUresult {
        let memory = Allocation::new(size);
        let address = memory.address() as usize;
        put(place, memory.pointer().cast());
        self.lock().pinned.insert(address, memory);
        CUDA_SUCCESS
    }
    unsafe fn cuMemFreeHost(&self, memory: *mut c_void) -> CUresult {
        // As the driver does: copies from and to the memory may be under way.
        self.streams.wait_all(None);
        match self.lock().pinned.remove(&memory.addr()) {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_INVALID_VALUE,
        }
    }
    unsafe fn cuMemHostRegister_v2(&self, p: *mut c_void, size: usize, _flags: u32) -> CUresult {
        let start = p.addr();
        if size == 0 || start == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let mut state = self.lock();
        if state
            .registered_from(start.saturating_add(size))
            .is_some_and(|(at, len)| at + len > start)
        {
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        }
        state.registered.insert(start, size);
        CUDA_SUCCESS
    }
    unsafe fn cuMemHostUnregister(&self, p: *mut c_void) -> CUresult {
        match self.lock().registered.remove(&p.addr()) {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        }
    }
    unsafe fn cuMemHostGetDevicePointer_v2(
        &self,
        place: *mut CUdeviceptr,
        p: *mut c_void,
        _flags: u32,
    ) -> CUresult {
        if !self.lock().is_registered(p.addr(), 1) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        put(place, p.expose_provenance() as u64);
        CUDA_SUCCESS
    }
    unsafe fn cuMemcpyHtoDAsync_v2(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        size: usize,
        stream: CUstream,
    ) -> CUresult {
        if self.lock().is_registered(from.addr(), size) {
            // Read when the stream comes to it, as a device does.
            let from = device::Place(from.cast_mut().cast());
            return self.enqueue(stream, move |state| {
                let from = from;
                // SAFETY: the contract of the call: so many bytes are readable until the copy is done.
                let bytes = unsafe { std::slice::from_raw_parts(from.0, size) };
                device::write(state, to, bytes)
            });
        }
        // SAFETY: the contract of the call: so many bytes are readable.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) }.to_vec();
        self.enqueue(stream, move |state| device::write(state, to, &bytes))
    }
    unsafe fn cuMemcpyDtoHAsync_v2(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> CUresult {
        let to = device::Place(to.cast());
        self.enqueue(stream, move |state| device::read(state, from, size, to))
    }
    unsafe fn cuMemcpyDtoDAsync_v2(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> CUresult {
        self.enqueue(stream, move |state| {
            let mut bytes = vec![0; size];
            let place = device::Place(bytes.as_mut_ptr());
            match device::read(state, from, size, place) {
                CUDA_SUCCESS => device::write(state, to, &bytes),
                status => status,
            }
        })
    }
    unsafe fn cuMemsetD8Async(
        &self,
        to: CUdeviceptr,
        value: u8,
        count: usize,
        stream: CUstream,
    ) -> CUresult {
        self.fill(to, vec![value], (0, count, 1), stream)
    }
    unsafe fn cuMemsetD16Async(
        &self,
        to: CUdeviceptr,
        value: u16,
        count: usize,
        stream: CUstream,
    ) -> CUresult {
        self.fill(to, value.to_ne_bytes().to_vec(), (0, count, 1), stream)
    }
    unsafe fn cuMemsetD32Async(
        &self,
        to: CUdeviceptr,
        value: u32,
        count: usize,
        stream: CUstream,
    ) -> CUresult {
        self.fill(to, value.to_ne_bytes().to_vec(), (0, count, 1), stream)
    }
    unsafe fn cuMemsetD2D8Async(
        &self,
        to: CUdeviceptr,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> CUresult {
        self.fill(to, vec![value], (pitch, width, height), stream)
    }
    box_calls!();
    crate::array_calls!();
    crate::reference_calls!();
    texture_calls!();
    link_calls!();
    pool_calls!();
    virtual_memory_calls!();
    unsafe fn cuDeviceGetGraphMemAttribute(
        &self,
        device: CUdevice,
        _attribute: CUgraphMem_attribute,
        value: *mut c_void,
    ) -> CUresult {
        if device < 0 || device as usize >= self.devices {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        // Graphs have no memory of their own here.
        put(value.cast::<u64>(), 0);
        CUDA_SUCCESS
    }
    unsafe fn cuDeviceSetGraphMemAttribute(
        &self,
        _device: CUdevice,
        attribute: CUgraphMem_attribute,
        _value: *mut c_void,
    ) -> CUresult {
        match attribute {
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH | CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => CUDA_SUCCESS,
            _ => CUDA_ERROR_INVALID_VALUE,
        }
    }
    unsafe fn cuDeviceGraphMemTrim(&self, _device: CUdevice) -> CUresult {
        CUDA_SUCCESS
    }
    unsafe fn cuFuncSetSharedMemConfig(
        &self,
        function: CUfunction,
        _config: CUsharedconfig,
    ) -> CUresult {
        self.kernel(function.addr()).err().unwrap_or(CUDA_SUCCESS)
    }
    unsafe fn cuStreamSetAttribute(
        &self,
        stream: CUstream,
        attribute: CUstreamAttrID,
        value: *const CUlaunchAttributeValue,
    ) -> CUresult {
        // SAFETY: the contract of the call: a whole value.
        let bytes = unsafe { value.cast::<[u8; 64]>().read() };
        match self.queue(stream) {
            Err(status) => status,
            Ok(queue) => {
                queue.set(attribute, bytes);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuStreamBatchMemOp_v2(
        &self,
        stream: CUstream,
        count: u32,
        operations: *mut CUstreamBatchMemOpParams,
        _flags: u32,
    ) -> CUresult {
        self.operate(stream, count, operations)
    }
    unsafe fn cuStreamCreate(&self, stream: *mut CUstream, flags: u32) -> CUresult {
        self.create_queue(stream, flags)
    }
    unsafe fn cuStreamCreateWithPriority(
        &self,
        stream: *mut CUstream,
        flags: u32,
        _priority: i32,
    ) -> CUresult {
        self.create_queue(stream, flags)
    }
    unsafe fn cuStreamGetFlags(&self, stream: CUstream, flags: *mut u32) -> CUresult {
        match self.queue(stream) {
            Err(status) => status,
            Ok(queue) => {
                put(flags, u32::from(!queue.is_blocking()));
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuStreamDestroy_v2(&self, stream: CUstream) -> CUresult {
        let queue = self.lock().queues.remove(&stream.addr());
        match queue {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(queue) => {
                self.streams.end(&queue);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuStreamSynchronize(&self, stream: CUstream) -> CUresult {
        self.waits.fetch_add(1, Ordering::Relaxed);
        match self.queue(stream) {
            Err(status) => status,
            Ok(queue) => {
                self.streams.wait(&queue);
                self.streams.status()
            }
        }
    }
    unsafe fn cuStreamQuery(&self, stream: CUstream) -> CUresult {
        match self.queue(stream) {
            Err(status) => {
                self.stray_queries.fetch_add(1, Ordering::Relaxed);
                status
            }
            Ok(queue) if self.streams.is_idle(&queue) => self.streams.status(),
            Ok(_) => CUDA_ERROR_NOT_READY,
        }
    }
    unsafe fn cuStreamWaitEvent(&self, stream: CUstream, event: CUevent, _flags: u32) -> CUresult {
        match (self.queue(stream), self.event(event)) {
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(queue), Ok(event)) => {
                self.streams.wait_event(&queue, &event);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuEventCreate(&self, event: *mut CUevent, _flags: u32) -> CUresult {
        let handle = self.fresh();
        self.lock().events.insert(handle, Arc::default());
        put(event, std::ptr::without_provenance_mut(handle));
        CUDA_SUCCESS
    }
    unsafe fn cuEventDestroy_v2(&self, event: CUevent) -> CUresult {
        match self.lock().events.remove(&event.addr()) {
            Some(_) => CUDA_SUCCESS,
            None => CUDA_ERROR_INVALID_HANDLE,
        }
    }
    unsafe fn cuEventRecord(&self, event: CUevent, stream: CUstream) -> CUresult {
        // SAFETY: the caller's.
        unsafe { self.cuEventRecordWithFlags(event, stream, 0) }
    }
    unsafe fn cuEventRecordWithFlags(
        &self,
        event: CUevent,
        stream: CUstream,
        _flags: u32,
    ) -> CUresult {
        match (self.queue(stream), self.event(event)) {
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(queue), Ok(event)) => {
                self.streams.record(&queue, &event);
                self.streams.status()
            }
        }
    }
    unsafe fn cuEventQuery(&self, event: CUevent) -> CUresult {
        match self.event(event) {
            Err(status) => status,
            Ok(event) if self.streams.has_passed(&event) => self.streams.status(),
            Ok(_) => CUDA_ERROR_NOT_READY,
        }
    }
    unsafe fn cuEventSynchronize(&self, event: CUevent) -> CUresult {
        match self.event(event) {
            Err(status) => status,
            Ok(event) => {
                self.streams.wait_passed(&event);
                self.streams.status()
            }
        }
    }
    unsafe fn cuEventElapsedTime_v2(
        &self,
        milliseconds: *mut f32,
        start: CUevent,
        end: CUevent,
    ) -> CUresult {
        match (self.event(start), self.event(end)) {
            (Err(status), _) | (_, Err(status)) => status,
            (Ok(start), Ok(end)) => {
                put(milliseconds, self.streams.between(&start, &end));
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuModuleLoadDataEx(
        &self,
        module: *mut CUmodule,
        image: *const c_void,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the contract of the call.
        let logs = unsafe { Logs::of(count, options, values) };
        match self.read_image(image) {
            Err(status) => {
                logs.say_wrong("this is no null image");
                status
            }
            Ok(image) => {
                logs.remark(&format!("{} kernels", image.kernels.len()));
                let handle = self.fresh();
                self.lock().modules.insert(handle, image);
                put(module, std::ptr::without_provenance_mut(handle));
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuModuleUnload(&self, module: CUmodule) -> CUresult {
        let image = self.lock().modules.remove(&module.addr());
        self.unload(image)
    }
    unsafe fn cuModuleGetFunctionCount(&self, count: *mut u32, module: CUmodule) -> CUresult {
        let state = self.lock();
        match state.modules.get(&module.addr()) {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(image) => {
                put(count, image.kernels.len() as u32);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuModuleEnumerateFunctions(
        &self,
        functions: *mut CUfunction,
        room: u32,
        module: CUmodule,
    ) -> CUresult {
        let state = self.lock();
        match state.modules.get(&module.addr()) {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(image) => {
                list(&image.kernels, functions, room);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuModuleGetGlobal_v2(
        &self,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    ) -> CUresult {
        self.global(
            self.lock().modules.get(&module.addr()),
            name,
            address,
            bytes,
        )
    }
    unsafe fn cuLibraryLoadData(
        &self,
        library: *mut CUlibrary,
        image: *const c_void,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_count: u32,
    ) -> CUresult {
        // SAFETY: the contract of the call.
        let logs = unsafe { Logs::of(count, options, values) };
        match self.read_image(image) {
            Err(status) => {
                logs.say_wrong("this is no null image");
                status
            }
            Ok(image) => {
                logs.remark(&format!("{} kernels", image.kernels.len()));
                let handle = self.fresh();
                self.lock().libraries.insert(handle, image);
                put(library, std::ptr::without_provenance_mut(handle));
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuLibraryUnload(&self, library: CUlibrary) -> CUresult {
        let image = self.lock().libraries.remove(&library.addr());
        self.unload(image)
    }
    unsafe fn cuLibraryGetKernelCount(&self, count: *mut u32, library: CUlibrary) -> CUresult {
        let state = self.lock();
        match state.libraries.get(&library.addr()) {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(image) => {
                put(count, image.kernels.len() as u32);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuLibraryEnumerateKernels(
        &self,
        kernels: *mut CUkernel,
        room: u32,
        library: CUlibrary,
    ) -> CUresult {
        let state = self.lock();
        match state.libraries.get(&library.addr()) {
            None => CUDA_ERROR_INVALID_HANDLE,
            Some(image) => {
                list(&image.kernels, kernels, room);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuLibraryGetModule(&self, module: *mut CUmodule, library: CUlibrary) -> CUresult {
        put(module, library.cast());
        CUDA_SUCCESS
    }
    unsafe fn cuLibraryGetGlobal(
        &self,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> CUresult {
        self.global(
            self.lock().libraries.get(&library.addr()),
            name,
            address,
            bytes,
        )
    }
    unsafe fn cuKernelGetFunction(&self, function: *mut CUfunction, kernel: CUkernel) -> CUresult {
        put(function, kernel.cast());
        CUDA_SUCCESS
    }
    unsafe fn cuFuncGetName(&self, name: *mut *const c_char, function: CUfunction) -> CUresult {
        match self.kernel(function.addr()) {
            Err(status) => status,
            Ok(kernel) => {
                put(name, kernel.name().as_ptr());
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuKernelGetName(&self, name: *mut *const c_char, kernel: CUkernel) -> CUresult {
        // SAFETY: the caller's; kernels and functions are one here.
        unsafe { self.cuFuncGetName(name, kernel.cast()) }
    }
    unsafe fn cuFuncGetParamInfo(
        &self,
        function: CUfunction,
        index: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> CUresult {
        self.param(function.addr(), index, offset, size)
    }
    unsafe fn cuKernelGetParamInfo(
        &self,
        kernel: CUkernel,
        index: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> CUresult {
        self.param(kernel.addr(), index, offset, size)
    }
    unsafe fn cuFuncGetAttribute(
        &self,
        value: *mut i32,
        which: CUfunction_attribute,
        function: CUfunction,
    ) -> CUresult {
        let kernel = match self.kernel(function.addr()) {
            Ok(kernel) => kernel,
            Err(status) => return status,
        };
        if which == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES && !kernel.loaded.load(Ordering::Acquire) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's; kernels and functions are one here.
        unsafe { self.cuKernelGetAttribute(value, which, function.cast(), 0) }
    }
    unsafe fn cuFuncLoad(&self, function: CUfunction) -> CUresult {
        match self.kernel(function.addr()) {
            Err(status) => status,
            Ok(kernel) => {
                kernel.loaded.store(true, Ordering::Release);
                CUDA_SUCCESS
            }
        }
    }
    unsafe fn cuKernelGetAttribute(
        &self,
        value: *mut i32,
        which: CUfunction_attribute,
        kernel: CUkernel,
        _dev: CUdevice,
    ) -> CUresult {
        let known = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        put(value, if known { 1024 } else { 0 });
        self.kernel(kernel.addr()).err().unwrap_or(CUDA_SUCCESS)
    }
    unsafe fn cuFuncSetAttribute(
        &self,
        function: CUfunction,
        _which: CUfunction_attribute,
        _value: i32,
    ) -> CUresult {
        self.kernel(function.addr()).err().unwrap_or(CUDA_SUCCESS)
    }
    unsafe fn cuKernelSetAttribute(
        &self,
        _which: CUfunction_attribute,
        _value: i32,
        kernel: CUkernel,
        _dev: CUdevice,
    ) -> CUresult {
        self.kernel(kernel.addr()).err().unwrap_or(CUDA_SUCCESS)
    }
    unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &self,
        blocks: *mut i32,
        function: CUfunction,
        _threads: i32,
        _dynamic: usize,
        _flags: u32,
    ) -> CUresult {
        put(blocks, 2);
        self.kernel(function.addr()).err().unwrap_or(CUDA_SUCCESS)
    }
    unsafe fn cuLaunchKernel(
        &self,
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        _shared_bytes: u32,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult {
        let kernel = match self.kernel(function.addr()) {
            Ok(kernel) => kernel,
            Err(status) => return status,
        };
        let sides = [grid_x, grid_y, grid_z, block_x, block_y, block_z];
        let threads = u64::from(block_x) * u64::from(block_y) * u64::from(block_z);
        if sides.contains(&0) || threads > 1024 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the contract of the call.
        let arguments = unsafe { device::arguments(&kernel, params, extra) };
        match arguments {
            None => CUDA_ERROR_INVALID_VALUE,
            Some(arguments) => self.enqueue(stream, move |state| kernel.run(state, &arguments)),
        }
    }
    unsafe fn cuLaunchKernelEx(
        &self,
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult {
        // SAFETY: the contract of the call.
        let config = unsafe { *config };
        // SAFETY: as above.
        unsafe {
            self.cuLaunchKernel(
                function,
                config.gridDimX,
                config.gridDimY,
                config.gridDimZ,
                config.blockDimX,
                config.blockDimY,
                config.blockDimZ,
                config.sharedMemBytes,
                config.hStream,
                params,
                extra,
            )
        }
    }
    crate::graph_calls!();
}
