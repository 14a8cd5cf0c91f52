//! Contexts as the session keeps them, and which of them is current on which thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use towline_backend::cuda::*;

use super::pinned::{Pinned, PinnedBytes};
use super::signal::Signal;
use super::streams::Depth;
use crate::link::Raw;

/// A context of the session.
pub(crate) struct Context {
    /// The client's number.
    pub(crate) id: u64,
    pub(crate) native: Raw,
    pub(crate) device: CUdevice,
    /// The device's place among those of the session.
    pub(crate) place: u32,
    /// The device's primary context, of which the session holds one reference.
    pub(crate) primary: bool,
    pub(crate) pinned: Pinned,
    pub(crate) signal: Signal,
    /// Of its default stream.
    pub(crate) depth: Arc<Depth>,
    /// Device memory that it was seen to take.
    pub(crate) bytes: u64,
    /// Events of our own that are free to be recorded.
    events: Mutex<Vec<Raw>>,
}

/// Counts the contexts that have ended: an address that is current may mean another context after that.
static ENDED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread made current, when so many contexts had ended.
    static CURRENT: Cell<(u64, usize)> = const { Cell::new((u64::MAX, 0)) };
}

/// Some context has ended: threads look again.
pub(crate) fn one_ended() {
    ENDED.fetch_add(1, Ordering::AcqRel);
}

/// Others may have made another context current on this thread: it looks again.
pub(crate) fn look_again() {
    let (ended, _) = CURRENT.get();
    CURRENT.set((ended, 0));
}

impl Context {
    pub(crate) fn new(
        id: u64,
        native: CUcontext,
        (place, device): (u32, CUdevice),
        primary: bool,
        bytes: u64,
        pinned: &Arc<PinnedBytes>,
    ) -> Self {
        Self {
            id,
            native: Raw(native.cast()),
            device,
            place,
            primary,
            bytes,
            pinned: Pinned::of(pinned),
            signal: Signal::default(),
            depth: Arc::default(),
            events: Mutex::default(),
        }
    }

    /// Makes this the calling thread's context.
    #[inline]
    pub(crate) fn enter(&self, api: &dyn CudaApi) -> CUresult {
        let now = (ENDED.load(Ordering::Acquire), self.native.0.addr());
        if CURRENT.get() == now {
            return CUDA_SUCCESS;
        }
        if CURRENT.get().0 == u64::MAX {
            // A capture of the application's must not forbid what the session does for itself.
            let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
            // SAFETY: `mode` is read and written.
            unsafe { api.cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        }
        // SAFETY: the context lives as long as requests may name it.
        let status = unsafe { api.cuCtxSetCurrent(self.native.0.cast()) };
        if status == CUDA_SUCCESS {
            CURRENT.set(now);
        }
        status
    }

    /// An event of our own; `None` when the driver gives none. The context must be current.
    pub(crate) fn take_event(&self, api: &dyn CudaApi) -> Result<Raw, CUresult> {
        let free = self.lock_events().pop();
        if let Some(event) = free {
            return Ok(event);
        }
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: one place for the event.
        let status = unsafe { api.cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING) };
        if status == CUDA_SUCCESS {
            Ok(Raw(event.cast()))
        } else {
            Err(status)
        }
    }

    /// The event has passed, or was never recorded.
    pub(crate) fn give_event(&self, event: Raw) {
        self.lock_events().push(event);
    }

    fn lock_events(&self) -> std::sync::MutexGuard<'_, Vec<Raw>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the context with what the session made in it. Nothing uses it any more.
    pub(crate) fn end(&self, api: &dyn CudaApi) -> CUresult {
        if self.enter(api) == CUDA_SUCCESS {
            for event in std::mem::take(&mut *self.lock_events()) {
                // SAFETY: the event is ours and not in use.
                unsafe { api.cuEventDestroy_v2(event.0.cast()) };
            }
            self.pinned.release(api);
        }
        one_ended();
        if self.primary {
            // SAFETY: this is the reference that the session took.
            unsafe { api.cuDevicePrimaryCtxRelease_v2(self.device) }
        } else {
            // SAFETY: the context is the session's own, and ended once.
            unsafe { api.cuCtxDestroy_v2(self.native.0.cast()) }
        }
    }
}
