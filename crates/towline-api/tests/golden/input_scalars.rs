// ---- the C ABI (stub)

/// Reads scalars, as many as another argument says.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clInputScalars(context: cl_context, count: cl_uint, values: *const usize) -> cl_int {
    guard("clInputScalars", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clInputScalars(library, context, count, values) }
    })
}

// ---- the contract (backend)

    /// Reads scalars, as many as another argument says.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clInputScalars(&self, context: cl_context, count: cl_uint, values: *const usize) -> cl_int {
        let _ = (context, count, values);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Reads scalars, as many as another argument says.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clInputScalars(&self, context: cl_context, count: cl_uint, values: Option<&[usize]>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clInputScalars(&self, context: cl_context, count: cl_uint, values: *const usize) -> cl_int {
        // SAFETY: the caller's contract: `values` is NULL or points as far as the declaration says.
        let values = unsafe { raw::slice(values, count as usize) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clInputScalars(self, context, count, values) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clInputScalars(&self, context: cl_context, count: cl_uint, values: *const usize) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract: `values` is NULL or readable for its count.
        let values = unsafe { crate::raw::slice(values, (count as usize)) };
        let values = values.map(|list| list.iter().map(|&value| value as u64).collect::<smallvec::SmallVec<[_; 8]>>());
        let Some(values) = values else {
            return wire::CL_INVALID_VALUE;
        };
        let request = wire::InputScalars { context: wire::ContextHandle::from_raw(context), count: count as u32, values: wire::List::Values(&values) };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::InputScalarsReply::decode(&body) else {
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

    unsafe fn clInputScalars(&self, context: cl_context, count: cl_uint, values: *const usize) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clInputScalars {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, count, values) };
        }
        let _ = (context, count, values);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clInputScalars`: Reads scalars, as many as another argument says.
#[derive(Debug, Clone, PartialEq)]
pub struct InputScalars<'a> {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `count`.
    pub count: u32,
    /// Parameter `values`.
    pub values: List<'a, u64>,
}
impl<'a> Message<'a> for InputScalars<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.count.put(out);
        self.values.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let count = decoder.scalar::<u32>()?;
        let values = decoder.list::<u64>()?;
        decoder.finish()?;
        let message = Self { context, count, values };
        if message.values.len() as u64 != (message.count as u64)
        {
            return Err(DecodeError::LengthMismatch { what: "values", said: (message.count as u64), found: message.values.len() as u64 });
        }
        Ok(message)
    }
}
impl<'a> Request<'a> for InputScalars<'a> {
    const ID: u16 = 0x0108;
    const NAME: &'static str = "clInputScalars";
}
/// Reply to `clInputScalars`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct InputScalarsReply {
}
impl<'a> Message<'a> for InputScalarsReply {
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

            0x0108 => self.take_InputScalars(number, body),
    #[inline(never)]
    fn take_InputScalars(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clInputScalars(number, wire::InputScalars::decode(body)?)
    }
    fn on_clInputScalars(&mut self, number: u64, request: wire::InputScalars<'_>) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            let values: smallvec::SmallVec<[usize; 8]> = request.values.iter().map(|value| value as usize).collect();
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clInputScalars(context, request.count as cl_uint, (values.as_ptr())) }
        };
        self.reply(number, status, &wire::InputScalarsReply {  });
        Ok(())
    }
