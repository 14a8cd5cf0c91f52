//! What the generated dispatcher stands on: devices by number, and the answer under way.

use std::ffi::c_void;
use std::sync::Arc;

use towline_backend::nvml as wire;
use towline_backend::nvml::*;
use towline_wire::control::{Answer, Question};
use towline_wire::error::{CloseCode, ProtocolError};

/// Room that a question may ask for, in bytes.
const ROOM: u64 = 32 << 10;

/// Room for an answer, checked before it is allocated.
pub(super) fn room<T: Default + Clone>(count: u64) -> Result<Vec<T>, ProtocolError> {
    let bytes = count.saturating_mul(size_of::<T>() as u64);
    if bytes > ROOM {
        let detail = format!("a question asks room for {bytes} bytes, the limit is {ROOM}");
        return Err(ProtocolError::new(CloseCode::LimitExceeded, detail));
    }
    Ok(vec![T::default(); count as usize])
}

/// One of the library's devices. It is a token of the library's, never looked into.
#[derive(Clone, Copy)]
pub(super) struct Native(pub(super) nvmlDevice_t);

// SAFETY: NVML may be called from any thread, and the token is not dereferenced here.
unsafe impl Send for Native {}

/// The library, and whom it answers now.
pub(super) struct Session {
    pub(super) api: Arc<dyn NvmlApi>,
    devices: Vec<Native>,
    answer: Option<Answer>,
}

impl Session {
    pub(super) fn new(api: Arc<dyn NvmlApi>, devices: Vec<Native>) -> Self {
        Self {
            api,
            devices,
            answer: None,
        }
    }

    /// The library's answer to a question.
    pub(super) fn ask(&mut self, question: &Question) -> Result<Answer, ProtocolError> {
        self.answer = None;
        self.dispatch(0, question.call, &question.body)?;
        let none = || ProtocolError::new(CloseCode::Internal, "a call that gave no answer");
        self.answer.take().ok_or_else(none)
    }

    /// The library's device that a client's handle means.
    pub(super) fn native(
        &self,
        handle: u64,
        _tag: u8,
    ) -> Result<Result<*mut c_void, nvmlReturn_t>, ProtocolError> {
        let device = wire::DeviceHandle(handle)
            .number()
            .and_then(|number| self.devices.get(number));
        Ok(device
            .map(|device| device.0.cast())
            .ok_or(NVML_ERROR_INVALID_ARGUMENT))
    }

    /// The device of a request that is written by hand.
    pub(super) fn device(&self, device: wire::DeviceHandle) -> Result<nvmlDevice_t, nvmlReturn_t> {
        let found = self.native(device.0, wire::DeviceHandle::TAG);
        found
            .unwrap_or(Err(NVML_ERROR_INVALID_ARGUMENT))
            .map(<*mut c_void>::cast)
    }

    pub(super) fn reply<'a>(
        &mut self,
        _number: u64,
        status: nvmlReturn_t,
        reply: &impl Message<'a>,
    ) {
        let mut body = Vec::new();
        if status == NVML_SUCCESS {
            reply.encode(&mut body);
        }
        self.answer = Some(Answer { status, body });
    }
}
