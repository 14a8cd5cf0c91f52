//! Events: whether the last recording of each has passed.

use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Driver, EventCalls, lock, read, status, tell, write};

/// An event of the application.
pub(crate) struct Recorded {
    pub(crate) context: u64,
    /// The server tells under this number when the last recording has passed.
    mark: Mutex<Option<u64>>,
}

const KNOWN_FLAGS: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

impl Driver {
    pub(crate) fn event(&self, event: CUevent) -> Result<Arc<Recorded>, CUresult> {
        self.ready()?;
        let found = read(&self.events).get(&(event.addr() as u64)).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn create_event(&self, flags: u32) -> Result<CUevent, CUresult> {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags & CU_EVENT_INTERPROCESS != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let acting = self.session_for(0)?;
        let handle = wire::EventHandle(acting.mint(wire::EventHandle::TAG));
        acting.post(&wire::EventCreate {
            phEvent: handle,
            Flags: flags,
        })?;
        let event = Recorded {
            context: acting.context.number,
            mark: Mutex::new(None),
        };
        write(&self.events).insert(handle.0, Arc::new(event));
        Ok(handle.to_raw())
    }

    fn record(&self, event: CUevent, stream: CUstream, flags: u32) -> Result<(), CUresult> {
        let known = self.event(event)?;
        let (acting, stream) = self.on(stream)?;
        let context = self.context(known.context)?;
        if context.number != acting.context.number {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        // Under the event's lock, so that its mark is that of the recording posted last.
        let mut held = lock(&known.mark);
        let mark = acting.session.mark();
        let posted = acting.post(&wire::EventRecord {
            event: wire::EventHandle::from_raw(event),
            stream,
            flags,
            record: mark,
        });
        if let Err(status) = posted {
            acting.session.forget(mark);
            return Err(status);
        }
        if let Some(before) = held.replace(mark) {
            acting.session.forget(before);
        }
        drop(held);
        acting.touch(stream);
        Ok(())
    }

    /// Waits until the last recording of an event has passed.
    pub(crate) fn wait_event(
        &self,
        known: &Recorded,
        event: wire::EventHandle,
    ) -> Result<(), CUresult> {
        let acting = self.acting_in(self.context(known.context)?)?;
        let mark = *lock(&known.mark);
        match mark.map(|mark| acting.session.ended(mark)) {
            // Never recorded, or known to have passed.
            None => return Ok(()),
            Some(Some(ended)) if ended != CUDA_SUCCESS => return Err(ended),
            Some(Some(_)) => return acting.session.fault().map_or(Ok(()), Err),
            Some(None) => {}
        }
        acting.call_for("cuEventSynchronize", &wire::SynchronizeEvent { event })?;
        acting.session.take_failure(Some(0)).map_or(Ok(()), Err)
    }
}

impl EventCalls for Driver {
    unsafe fn cuEventCreate(&self, phEvent: *mut CUevent, Flags: u32) -> CUresult {
        if phEvent.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the caller's contract.
        unsafe { tell(phEvent, self.create_event(Flags)) }
    }

    unsafe fn cuEventDestroy_v2(&self, hEvent: CUevent) -> CUresult {
        status(self.event(hEvent).and_then(|known| {
            let acting = self.acting_in(self.context(known.context)?)?;
            let handle = wire::EventHandle::from_raw(hEvent);
            acting.post(&wire::EventDestroyV2 { hEvent: handle })?;
            if let Some(mark) = lock(&known.mark).take() {
                acting.session.forget(mark);
            }
            write(&self.events).remove(&handle.0);
            Ok(())
        }))
    }

    unsafe fn cuEventRecord(&self, hEvent: CUevent, hStream: CUstream) -> CUresult {
        status(self.record(hEvent, hStream, 0))
    }

    unsafe fn cuEventRecordWithFlags(
        &self,
        hEvent: CUevent,
        hStream: CUstream,
        flags: u32,
    ) -> CUresult {
        status(self.record(hEvent, hStream, flags))
    }

    unsafe fn cuEventQuery(&self, hEvent: CUevent) -> CUresult {
        status(self.event(hEvent).and_then(|known| {
            let acting = self.acting_in(self.context(known.context)?)?;
            let Some(mark) = *lock(&known.mark) else {
                return Ok(());
            };
            match acting.session.ended(mark) {
                None => Err(CUDA_ERROR_NOT_READY),
                Some(CUDA_SUCCESS) => acting.session.fault().map_or(Ok(()), Err),
                Some(failed) => Err(failed),
            }
        }))
    }

    unsafe fn cuEventSynchronize(&self, hEvent: CUevent) -> CUresult {
        status(
            self.event(hEvent)
                .and_then(|known| self.wait_event(&known, wire::EventHandle::from_raw(hEvent))),
        )
    }
}
