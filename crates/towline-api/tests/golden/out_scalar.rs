// ---- the C ABI (stub)

/// Answers with one scalar.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clOutScalar(context: cl_context, value: *mut cl_uint) -> cl_int {
    guard("clOutScalar", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clOutScalar(library, context, value) }
    })
}

// ---- the contract (backend)

    /// Answers with one scalar.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clOutScalar(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        let _ = (context, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Answers with one scalar.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clOutScalar(&self, context: cl_context, value: Out<cl_uint>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clOutScalar(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        // SAFETY: the caller's contract: `value` is NULL or points as far as the declaration says.
        let value = unsafe { Out::new(value) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clOutScalar(self, context, value) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clOutScalar(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        let _call = self.enter();
        let request = wire::OutScalar { context: wire::ContextHandle::from_raw(context) };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::OutScalarReply::decode(&body) else {
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

    unsafe fn clOutScalar(&self, context: cl_context, value: *mut cl_uint) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clOutScalar {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, value) };
        }
        let _ = (context, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clOutScalar`: Answers with one scalar.
#[derive(Debug, Clone, PartialEq)]
pub struct OutScalar {
    /// Parameter `context`.
    pub context: ContextHandle,
}
impl<'a> Message<'a> for OutScalar {
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
impl<'a> Request<'a> for OutScalar {
    const ID: u16 = 0x010d;
    const NAME: &'static str = "clOutScalar";
}
/// Reply to `clOutScalar`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct OutScalarReply {
    /// What `value` receives.
    pub value: Option<u32>,
}
impl<'a> Message<'a> for OutScalarReply {
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

            0x010d => self.take_OutScalar(number, body),
    #[inline(never)]
    fn take_OutScalar(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clOutScalar(number, wire::OutScalar::decode(body)?)
    }
    fn on_clOutScalar(&mut self, number: u64, request: wire::OutScalar) -> Result<(), ProtocolError> {
        let mut value: cl_uint = Default::default();
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clOutScalar(context, &raw mut value) }
        };
        self.reply(number, status, &wire::OutScalarReply { value: true.then_some(value as u32) });
        Ok(())
    }
