//! Contexts, and what the session itself asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_session::Entry;
use towline_wire::error::{CloseCode, ProtocolError};

use crate::cuda::context::{Context, one_ended};
use crate::cuda::session::{Session, unknown};
use crate::cuda::shared::{Shared, lock};
use crate::cuda::streams::Target;
use crate::decode::broken;
use crate::link::Raw;

/// Most that a context is charged: others may allocate while it is measured.
const CONTEXT_BYTES: u64 = 1 << 30;
/// Most requests for a primary context that wait for the end of the one before.
const MOST_WAITING: usize = 64;

/// Free memory of the current context's device.
pub(super) fn free(api: &dyn CudaApi) -> u64 {
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: two places for the answers.
    unsafe { api.cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    free as u64
}

/// A number for a context that means another one, or a context that has another number.
fn twice(id: u64) -> ProtocolError {
    let detail = format!("there is a context {id:#x} already, or it has another number");
    ProtocolError::new(CloseCode::DuplicateHandle, detail)
}

impl Session {
    /// Free memory of a device that the session has a context on, where its limit makes that worth asking.
    fn free_bytes(&self, device: CUdevice) -> Option<u64> {
        if !self.shared.counters.has_limit_of_its_own() {
            return None;
        }
        let context = self.contexts.values().find(|one| one.device == device)?;
        (context.enter(&*self.api) == CUDA_SUCCESS).then(|| free(&*self.api))
    }

    pub(crate) fn Act(&mut self, _number: u64, request: wire::Act) -> Result<(), ProtocolError> {
        let id = request.context.0;
        self.acting = match self.contexts.get(&id) {
            Some(context) => Some(Arc::clone(context)),
            None if id == 0 => None,
            // Its creation failed: what acts in it fails for want of a context.
            None => {
                self.native(id, wire::ContextHandle::TAG)?.err();
                None
            }
        };
        Ok(())
    }

    fn enter_context(
        &mut self,
        id: u64,
        native: CUcontext,
        device: CUdevice,
        primary: bool,
        bytes: u64,
    ) -> Result<(), ProtocolError> {
        let entered = self.table.insert(
            id,
            wire::ContextHandle::TAG,
            Entry::Live(Raw(native.cast())),
        );
        let place = self.devices.iter().position(|known| *known == device);
        let place = place.map_or(u32::MAX, |place| place as u32);
        let pinned = &self.shared.pinned;
        let context = Context::new(id, native, (place, device), primary, bytes, pinned);
        let context = Arc::new(context);
        if let Err(error) = entered {
            context.end(&*self.api);
            return Err(broken(error));
        }
        // The default stream, which keeps order with all that do.
        let default = Target::default_of(Arc::clone(&context), 0);
        self.shared.streams.add(&default);
        self.contexts.insert(id, context);
        Ok(())
    }

    pub(crate) fn ContextCreate(
        &mut self,
        number: u64,
        request: wire::ContextCreate,
    ) -> Result<(), ProtocolError> {
        let id = request.context.0;
        if lock(&self.shared.ending).contains_key(&id) {
            return Err(twice(id));
        }
        let mut native: CUcontext = std::ptr::null_mut();
        let status = match self.device(request.device) {
            Err(status) => status,
            Ok(_) if self.shared.is_over_limit() => CUDA_ERROR_OUT_OF_MEMORY,
            Ok(device) => {
                let before = self.free_bytes(device);
                // SAFETY: one place for the context.
                let status = unsafe {
                    self.api
                        .cuCtxCreate_v2(&raw mut native, request.flags, device)
                };
                // It is current on this thread now, and we have not noted that.
                one_ended();
                if status == CUDA_SUCCESS {
                    let taken = before.map_or(0, |before| before.saturating_sub(free(&*self.api)));
                    let bytes = taken.min(CONTEXT_BYTES);
                    let counters = &self.shared.counters;
                    counters.context_bytes.fetch_add(bytes, Ordering::Relaxed);
                    self.enter_context(request.context.0, native, device, false, bytes)?;
                    self.ahead.give_up_all(&*self.api);
                }
                status
            }
        };
        self.reply(number, status, &wire::ContextCreateReply {});
        Ok(())
    }

    pub(crate) fn PrimaryRetain(
        &mut self,
        number: u64,
        request: wire::PrimaryRetain,
    ) -> Result<(), ProtocolError> {
        let ends = lock(&self.shared.ending)
            .get_mut(&request.context.0)
            .map(|waiting| {
                let waits = waiting.len() < MOST_WAITING;
                waits.then(|| waiting.push(number))
            });
        match ends {
            Some(Some(())) => return Ok(()),
            Some(None) => {
                self.reply(number, CUDA_ERROR_NOT_READY, &wire::PrimaryRetainReply {});
                return Ok(());
            }
            None => {}
        }
        let mut native: CUcontext = std::ptr::null_mut();
        let status = match self.device(request.device) {
            Err(status) => status,
            Ok(device) => {
                let id = request.context.0;
                // Under two numbers it would live on when one of them ends, and what lies in it.
                if *self.primaries.entry(device).or_insert(id) != id {
                    return Err(twice(id));
                }
                if request.flags != 0 {
                    self.ahead.give_up(&*self.api, device);
                    // Refused where the context lives already with others; that it has these is then the client's to know.
                    // SAFETY: no pointers.
                    unsafe {
                        self.api
                            .cuDevicePrimaryCtxSetFlags_v2(device, request.flags)
                    };
                }
                // SAFETY: one place for the context.
                let status = unsafe { self.api.cuDevicePrimaryCtxRetain(&raw mut native, device) };
                if status == CUDA_SUCCESS {
                    self.enter_context(request.context.0, native, device, true, 0)?;
                    self.ahead.give_up_all(&*self.api);
                }
                status
            }
        };
        self.reply(number, status, &wire::PrimaryRetainReply {});
        Ok(())
    }

    /// Takes a context out of the tables.
    fn forget_context(
        &mut self,
        id: u64,
        primary: bool,
    ) -> Result<Option<Arc<Context>>, ProtocolError> {
        let found = self.contexts.get(&id);
        if found.is_some_and(|context| context.primary != primary) {
            return Err(unknown("such context", id));
        }
        self.table
            .remove(id, wire::ContextHandle::TAG)
            .map_err(broken)?;
        // A wait earlier in this frame would ask the driver about its streams.
        self.glance = None;
        Ok(self.contexts.remove(&id))
    }

    pub(crate) fn PrimaryRelease(
        &mut self,
        number: u64,
        request: wire::PrimaryRelease,
    ) -> Result<(), ProtocolError> {
        if let Some(context) = self.forget_context(request.context.0, true)? {
            self.end_context(number, <wire::PrimaryRelease as Request<'_>>::ID, context);
        }
        Ok(())
    }

    pub(crate) fn PrimaryReset(
        &mut self,
        number: u64,
        request: wire::PrimaryReset,
    ) -> Result<(), ProtocolError> {
        let device = self.device(request.device);
        let reset = move |shared: &Arc<Shared>| {
            let status = device.map_or_else(
                |status| status,
                |device| {
                    one_ended();
                    // SAFETY: no pointers.
                    unsafe { shared.api.cuDevicePrimaryCtxReset_v2(device) }
                },
            );
            shared.reply(number, status, &wire::PrimaryResetReply {});
        };
        let mut of_device = self.contexts.values();
        let primary = of_device.find(|context| context.primary && Ok(context.device) == device);
        // The session's objects of it go first: the client makes it anew under the same number.
        match primary.map(|context| context.id) {
            None => self.wait(reset),
            Some(id) => {
                if let Some(context) = self.forget_context(id, true)? {
                    self.end_context_then(context, move |shared, _| reset(shared));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn ContextDestroy(
        &mut self,
        number: u64,
        request: wire::ContextDestroy,
    ) -> Result<(), ProtocolError> {
        if let Some(context) = self.forget_context(request.context.0, false)? {
            self.end_context(number, <wire::ContextDestroy as Request<'_>>::ID, context);
        }
        Ok(())
    }

    pub(crate) fn Goodbye(
        &mut self,
        _number: u64,
        _request: wire::Goodbye,
    ) -> Result<(), ProtocolError> {
        self.goodbye = true;
        Ok(())
    }

    pub(crate) fn Usage(
        &mut self,
        number: u64,
        _request: wire::Usage,
    ) -> Result<(), ProtocolError> {
        let usage = &self.shared.usage;
        let reply = wire::UsageReply {
            lane_ns: Some(usage.lane_ns.load(Ordering::Relaxed)),
            device_ns: Some(usage.device_ns.load(Ordering::Relaxed)),
        };
        self.reply(number, CUDA_SUCCESS, &reply);
        Ok(())
    }

    pub(crate) fn Ping(&mut self, number: u64, _request: wire::Ping) -> Result<(), ProtocolError> {
        self.reply(number, CUDA_SUCCESS, &wire::PingReply {});
        Ok(())
    }
}
