// ---- the C ABI (stub)

/// Reads one scalar.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clInputScalar(context: cl_context, value: *const cl_uint) -> cl_int {
    guard("clInputScalar", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clInputScalar(library, context, value) }
    })
}

// ---- the contract (backend)

    /// Reads one scalar.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clInputScalar(&self, context: cl_context, value: *const cl_uint) -> cl_int {
        let _ = (context, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Reads one scalar.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clInputScalar(&self, context: cl_context, value: Option<&cl_uint>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clInputScalar(&self, context: cl_context, value: *const cl_uint) -> cl_int {
        // SAFETY: the caller's contract: `value` is NULL or points as far as the declaration says.
        let value = unsafe { raw::one(value) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clInputScalar(self, context, value) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clInputScalar(&self, context: cl_context, value: *const cl_uint) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract: `value` is NULL or readable for its count.
        let value = unsafe { crate::raw::slice(value, 1) };
        let value = value.and_then(|list| list.first().copied()).map(|value| value as u32);
        let Some(value) = value else {
            return wire::CL_INVALID_VALUE;
        };
        let request = wire::InputScalar { context: wire::ContextHandle::from_raw(context), value };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::InputScalarReply::decode(&body) else {
            return self.malformed();
                };
                let _ = &reply;
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clInputScalar(&self, context: cl_context, value: *const cl_uint) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clInputScalar {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, value) };
        }
        let _ = (context, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clInputScalar`: Reads one scalar.
#[derive(Debug, Clone, PartialEq)]
pub struct InputScalar {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `value`.
    pub value: u32,
}
impl<'a> Message<'a> for InputScalar {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.value.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let value = decoder.scalar::<u32>()?;
        decoder.finish()?;
        let message = Self { context, value };
        Ok(message)
    }
}
impl<'a> Request<'a> for InputScalar {
    const ID: u16 = 0x0106;
    const NAME: &'static str = "clInputScalar";
}
/// Reply to `clInputScalar`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct InputScalarReply {
}
impl<'a> Message<'a> for InputScalarReply {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        let _ = out;
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let decoder = Decoder::new(body);
        decoder.finish()?;
        let message = Self {  };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x0106 => self.take_InputScalar(number, body),
    #[inline(never)]
    fn take_InputScalar(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clInputScalar(number, wire::InputScalar::decode(body)?)
    }
    fn on_clInputScalar(&mut self, number: u64, request: wire::InputScalar) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            let value = Some(request.value).map(|value| value as cl_uint);
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clInputScalar(context, (value.as_ref().map_or(std::ptr::null(), std::ptr::from_ref))) }
        };
        self.reply(number, status, &wire::InputScalarReply {  });
        Ok(())
    }
