// ---- the C ABI (stub)

/// Is posted.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clPosted(context: cl_context, count: cl_uint) -> cl_int {
    guard("clPosted", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clPosted(library, context, count) }
    })
}

// ---- the contract (backend)

    /// Is posted.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clPosted(&self, context: cl_context, count: cl_uint) -> cl_int {
        let _ = (context, count);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Is posted.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clPosted(&self, context: cl_context, count: cl_uint) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clPosted(&self, context: cl_context, count: cl_uint) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clPosted(self, context, count) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clPosted(&self, context: cl_context, count: cl_uint) -> cl_int {
        let _call = self.enter();
        let request = wire::Posted { context: wire::ContextHandle::from_raw(context), count: count as u32 };
        match self.post(&request) {
            Ok(()) => {
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clPosted(&self, context: cl_context, count: cl_uint) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clPosted {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, count) };
        }
        let _ = (context, count);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clPosted`: Is posted.
#[derive(Debug, Clone, PartialEq)]
pub struct Posted {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `count`.
    pub count: u32,
}
impl<'a> Message<'a> for Posted {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.count.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let count = decoder.scalar::<u32>()?;
        decoder.finish()?;
        let message = Self { context, count };
        Ok(message)
    }
}
impl<'a> Request<'a> for Posted {
    const ID: u16 = 0x0102;
    const NAME: &'static str = "clPosted";
}

// ---- the worker's half (dispatch)

            0x0102 => self.take_Posted(number, body),
    #[inline(never)]
    fn take_Posted(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clPosted(number, wire::Posted::decode(body)?)
    }
    fn on_clPosted(&mut self, number: u64, request: wire::Posted) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clPosted(context, request.count as cl_uint) }
        };
        self.settle(number, 0x0102, status);
        Ok(())
    }
