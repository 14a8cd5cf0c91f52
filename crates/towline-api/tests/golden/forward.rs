// ---- the C ABI (stub)

/// Is passed on by the platform as it is.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clForward(context: cl_context, value: *mut cl_uint) -> cl_int {
    guard("clForward", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clForward(library, context, value) }
    })
}

// ---- the contract (backend)

    /// Is passed on by the platform as it is.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clForward(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        let _ = (context, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's glue (stub)

    unsafe fn clForward(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        use crate::forward::{Forwarded, Route};
        crate::forward::call(|| {
            let mut route = Route::default();
            context.note(&mut route)?;
            if value.is_null() { return Err(CL_INVALID_VALUE); }
            let settled = route.settle()?;
            let context = context.on(&settled)?;
            // SAFETY: the handles are the provider's own, of objects that the application must keep; the rest is the caller's contract.
            Ok(unsafe { settled.api().clForward(context, value) })
        })
    }

// ---- the session's half (remote)

    unsafe fn clForward(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        let _call = self.enter();
        let request = wire::Forward { context: wire::ContextHandle::from_raw(context) };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::ForwardReply::decode(&body) else {
            return self.malformed();
                };
                let _ = &reply;
                let place = value;
                if let Some(value) = reply.value {
                    // SAFETY: the caller's contract: `place` is NULL or writable for its count, which `fill` does not exceed.
                    unsafe { crate::raw::fill(place, 1, [value as cl_uint].into_iter()) };
                }
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clForward(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clForward {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, value) };
        }
        let _ = (context, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clForward`: Is passed on by the platform as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    /// Parameter `context`.
    pub context: ContextHandle,
}
impl<'a> Message<'a> for Forward {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        decoder.finish()?;
        let message = Self { context };
        Ok(message)
    }
}
impl<'a> Request<'a> for Forward {
    const ID: u16 = 0x0112;
    const NAME: &'static str = "clForward";
}
/// Reply to `clForward`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct ForwardReply {
    /// What `value` receives.
    pub value: Option<u32>,
}
impl<'a> Message<'a> for ForwardReply {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_flag(out, self.value.is_some());
        if let Some(value) = &self.value { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let value = if decoder.flag()? { Some(decoder.scalar::<u32>()?) } else { None };
        decoder.finish()?;
        let message = Self { value };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x0112 => self.take_Forward(number, body),
    #[inline(never)]
    fn take_Forward(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clForward(number, wire::Forward::decode(body)?)
    }
    fn on_clForward(&mut self, number: u64, request: wire::Forward) -> Result<(), ProtocolError> {
        let mut value: cl_uint = Default::default();
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clForward(context, &raw mut value) }
        };
        self.reply(number, status, &wire::ForwardReply { value: true.then_some(value as u32) });
        Ok(())
    }
