//! Swapping a CUDA session: what it holds in [memory apart from its addresses](super::placed) goes to host memory and comes back to the same
//! addresses, so that neither its program nor its kernels can tell.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use towline_backend::cuda::*;

use super::context::{Context, look_again};
use super::placed::check;
use super::region::Way;
use super::shared::{Shared, lock};
use crate::link::Raw;
use crate::swap::{Mover, SwapRequest};

/// Bytes that a thread moves at once, through pinned memory. To pin the memory of the contents itself takes a driver longer than the copies.
const PART: u64 = 32 << 20;
/// Most threads that move.
const THREADS: usize = 8;

/// Host memory for the contents of a run.
pub(crate) struct HostCopy {
    start: Raw,
    size: usize,
}

impl HostCopy {
    pub(crate) fn new(size: u64) -> Result<Self, CUresult> {
        let size = size as usize;
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, wherever there is room.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size, access, kind) };
        let start = mapped.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        // Without large pages it is slower.
        // SAFETY: advice about memory of our own.
        let _ = unsafe { rustix::mm::madvise(start, size, Advice::LinuxHugepage) };
        Ok(Self {
            start: Raw(start),
            size,
        })
    }

    /// Parts of the run that begins at `address`.
    pub(crate) fn parts(
        &self,
        device: CUdevice,
        address: CUdeviceptr,
    ) -> impl Iterator<Item = Part> + use<> {
        let (host, size) = (self.start, self.size);
        let places = (0..size).step_by(PART as usize);
        places.map(move |place| Part {
            device,
            address: address + place as u64,
            size: (size - place).min(PART as usize),
            host: Raw(host.0.wrapping_byte_add(place)),
        })
    }
}

impl Drop for HostCopy {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.0, self.size) };
    }
}

/// A part of a run, and where it is on the host.
pub(crate) struct Part {
    device: CUdevice,
    address: CUdeviceptr,
    size: usize,
    host: Raw,
}

/// Makes a context of a device current.
pub(crate) type Enter<'a> = &'a (dyn Fn(CUdevice) -> Result<(), CUresult> + Sync);

/// Pinned memory and a stream, through which a thread moves parts.
struct Stage<'a> {
    api: &'a dyn CudaApi,
    stream: CUstream,
    buffer: Raw,
}

impl<'a> Stage<'a> {
    /// In the current context.
    fn new(api: &'a dyn CudaApi) -> Result<Self, CUresult> {
        let (mut stream, mut buffer) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: one place for the stream.
        check(unsafe { api.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) })?;
        // SAFETY: one place for the address.
        let status = unsafe { api.cuMemHostAlloc(&raw mut buffer, PART as usize, 0) };
        let stage = Self {
            api,
            stream,
            buffer: Raw(buffer),
        };
        check(status).map(|()| stage)
    }

    fn carry(&self, part: &Part, way: Way) -> Result<(), CUresult> {
        match way {
            Way::ToHost => self.out(part),
            Way::ToDevice => self.back(part),
        }
    }

    fn out(&self, part: &Part) -> Result<(), CUresult> {
        let (api, buffer) = (self.api, self.buffer.0);
        // SAFETY: the device's memory is the session's, and the buffer is as long.
        check(unsafe { api.cuMemcpyDtoHAsync_v2(buffer, part.address, part.size, self.stream) })?;
        // An older kernel makes the pages one by one.
        // SAFETY: advice about memory of our own.
        let _ = unsafe { rustix::mm::madvise(part.host.0, part.size, Advice::LinuxPopulateWrite) };
        // SAFETY: the stream is ours.
        check(unsafe { api.cuStreamSynchronize(self.stream) })?;
        // SAFETY: both are as long, and nobody else is at either.
        unsafe {
            std::ptr::copy_nonoverlapping::<u8>(buffer.cast(), part.host.0.cast(), part.size)
        };
        Ok(())
    }

    fn back(&self, part: &Part) -> Result<(), CUresult> {
        let (api, buffer) = (self.api, self.buffer.0);
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping::<u8>(part.host.0.cast(), buffer.cast(), part.size)
        };
        // SAFETY: as above.
        check(unsafe { api.cuMemcpyHtoDAsync_v2(part.address, buffer, part.size, self.stream) })?;
        // SAFETY: the stream is ours.
        check(unsafe { api.cuStreamSynchronize(self.stream) })
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream is ours.
        unsafe { self.api.cuStreamDestroy_v2(self.stream) };
        if !self.buffer.0.is_null() {
            // SAFETY: the memory is ours, and no copy uses it.
            unsafe { self.api.cuMemFreeHost(self.buffer.0) };
        }
    }
}

/// Copies all parts of each device, on several threads.
pub(crate) fn copy(
    api: &dyn CudaApi,
    enter: Enter<'_>,
    parts: &[Part],
    way: Way,
) -> Result<(), CUresult> {
    let of_devices = parts.chunk_by(|one, next| one.device == next.device);
    of_devices
        .map(|parts| {
            let next = AtomicUsize::new(0);
            let run = || {
                let place = || parts.get(next.fetch_add(1, Ordering::Relaxed));
                let Some(first) = place() else {
                    return Ok(());
                };
                enter(first.device)?;
                let stage = Stage::new(api)?;
                stage.carry(first, way)?;
                while let Some(part) = place() {
                    stage.carry(part, way)?;
                }
                Ok(())
            };
            let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
            let further = (cores / 2).min(THREADS).min(parts.len()).saturating_sub(1);
            std::thread::scope(|scope| {
                let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, run).ok();
                let threads: Vec<_> = (0..further).filter_map(spawn).collect();
                let own = run();
                let joined = threads.into_iter().map(|thread| thread.join());
                let results = joined.map(|result| result.unwrap_or(Err(CUDA_ERROR_UNKNOWN)));
                results.fold(own, Result::and)
            })
        })
        .fold(Ok(()), Result::and)
}

/// How long kernels of a session that is to give way may run on.
const KERNELS_PATIENCE: Duration = Duration::from_secs(20);
/// How long its threads may wait while no kernel runs: they wait for its client.
const THREADS_PATIENCE: Duration = Duration::from_millis(300);
/// Between two looks whether it is at rest.
const LOOK: Duration = Duration::from_millis(1);
/// Between two attempts to get room on the device.
const RETRY: Duration = Duration::from_millis(100);
/// After so long without room, the log has a word of it.
const LONG: Duration = Duration::from_secs(30);

fn name_of(status: CUresult) -> &'static str {
    status_name(status).unwrap_or("an unknown error")
}

/// Moves a session's contents.
pub(crate) struct Moves(Weak<Shared>);

impl Moves {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }
}

impl Mover for Moves {
    fn out(&self, request: SwapRequest) -> Result<u64, String> {
        let shared = self.0.upgrade().ok_or("it is over")?;
        shared.swap_out(request)
    }

    fn back(&self) -> bool {
        let Some(shared) = self.0.upgrade() else {
            return false;
        };
        // The request that waits for this acts in it.
        let mut current: CUcontext = std::ptr::null_mut();
        // SAFETY: one place for the context.
        unsafe { shared.api.cuCtxGetCurrent(&raw mut current) };
        let is_back = self.bring_back();
        // SAFETY: it was current before.
        unsafe { shared.api.cuCtxSetCurrent(current) };
        look_again();
        is_back
    }
}

impl Moves {
    fn bring_back(&self) -> bool {
        let since = Instant::now();
        let mut told = false;
        loop {
            let Some(shared) = self.0.upgrade() else {
                return false;
            };
            let lacking = lock(&shared.placed).lacking();
            let is_charged = shared.counters.charge(lacking);
            let status = match is_charged {
                true => shared.swap_in(),
                false => Err(CUDA_ERROR_OUT_OF_MEMORY),
            };
            if status.is_ok() {
                return true;
            }
            if is_charged {
                shared.counters.credit(lacking);
            }
            if let Err(status) = status
                && status != CUDA_ERROR_OUT_OF_MEMORY
            {
                let name = name_of(status);
                log::error!("the session's memory does not come back from the host: {name}");
                return false;
            }
            if shared.counters.swap.is_stopping() {
                return false;
            }
            if !is_charged && !shared.counters.is_within_own_limit(lacking) {
                log::error!(
                    "the session's memory exceeds its limit, and does not come back from the host"
                );
                return false;
            }
            if !shared.broker.make_room(lacking, !is_charged) {
                std::thread::sleep(RETRY);
            }
            if since.elapsed() > LONG && !std::mem::replace(&mut told, true) {
                log::warn!(
                    "no session gives way to this one, which has been swapped out for {LONG:?}"
                );
            }
        }
    }
}

impl Shared {
    fn swap_out(&self, SwapRequest { most, idle }: SwapRequest) -> Result<u64, String> {
        if self.collectives.are_used() {
            return Err("it runs collectives with others".to_owned());
        }
        self.rest(idle)?;
        let contexts = self.streams.contexts();
        // Streams that were destroyed do what they had, and nobody else sees them.
        for context in &contexts {
            let entered = check(context.enter(&*self.api));
            // SAFETY: no pointers.
            let through = entered.and_then(|()| check(unsafe { self.api.cuCtxSynchronize() }));
            through.map_err(|status| format!("its device has failed: {}", name_of(status)))?;
        }
        // Only now: memory may have been freed meanwhile.
        let mut placed = lock(&self.placed);
        let freed = placed.swappable();
        if freed == 0 {
            return Err("it has no memory that can be swapped".to_owned());
        }
        if freed > most {
            return Err(format!(
                "its {freed} bytes exceed the {most} bytes of host memory left for it"
            ));
        }
        let moved = placed.swap_out(&*self.api, &|device| self.enter_one(&contexts, device));
        drop(placed);
        moved.map_err(|status| format!("its memory cannot be moved: {}", name_of(status)))?;
        self.counters.credit(freed);
        Ok(freed)
    }

    fn swap_in(&self) -> Result<(), CUresult> {
        let contexts = self.streams.contexts();
        lock(&self.placed).swap_in(&*self.api, &|device| self.enter_one(&contexts, device))
    }

    /// Makes a context of a device current.
    fn enter_one(&self, contexts: &[Arc<Context>], device: CUdevice) -> Result<(), CUresult> {
        let context = contexts.iter().find(|context| context.device == device);
        match context.map(|context| context.enter(&*self.api)) {
            Some(CUDA_SUCCESS) => Ok(()),
            Some(status) => Err(status),
            None => Err(CUDA_ERROR_INVALID_CONTEXT),
        }
    }

    /// Waits until devices and threads have nothing of the session to do; the lane brings nothing meanwhile. In the error, why that does not come.
    fn rest(&self, now: bool) -> Result<(), String> {
        let since = Instant::now();
        let mut idle_since = None;
        loop {
            // In this order: threads give devices work, and devices give threads none.
            let are_through = self.streams.are_at_rest();
            let works = self.devices_at_work() > 0;
            if are_through && !works {
                return Ok(());
            }
            if now {
                return Err("it is busy".to_owned());
            }
            let idle = match works {
                true => Duration::ZERO,
                false => idle_since.get_or_insert_with(Instant::now).elapsed(),
            };
            if works {
                idle_since = None;
            }
            if idle > THREADS_PATIENCE {
                return Err("it waits for its program".to_owned());
            }
            if since.elapsed() > KERNELS_PATIENCE {
                return Err("its kernels take long".to_owned());
            }
            std::thread::sleep(LOOK);
        }
    }
}
