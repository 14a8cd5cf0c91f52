// ---- the C ABI (stub)

/// Takes scalars and a handle by value.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clValue(context: cl_context, count: cl_uint, size: usize) -> cl_int {
    guard("clValue", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clValue(library, context, count, size) }
    })
}

// ---- the contract (backend)

    /// Takes scalars and a handle by value.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clValue(&self, context: cl_context, count: cl_uint, size: usize) -> cl_int {
        let _ = (context, count, size);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Takes scalars and a handle by value.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clValue(&self, context: cl_context, count: cl_uint, size: usize) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clValue(&self, context: cl_context, count: cl_uint, size: usize) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clValue(self, context, count, size) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clValue(&self, context: cl_context, count: cl_uint, size: usize) -> cl_int {
        let _call = self.enter();
        let request = wire::Value { context: wire::ContextHandle::from_raw(context), count: count as u32, size: size as u64 };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::ValueReply::decode(&body) else {
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

    unsafe fn clValue(&self, context: cl_context, count: cl_uint, size: usize) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clValue {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, count, size) };
        }
        let _ = (context, count, size);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clValue`: Takes scalars and a handle by value.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `count`.
    pub count: u32,
    /// Parameter `size`.
    pub size: u64,
}
impl<'a> Message<'a> for Value {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.count.put(out);
        self.size.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let count = decoder.scalar::<u32>()?;
        let size = decoder.scalar::<u64>()?;
        decoder.finish()?;
        let message = Self { context, count, size };
        Ok(message)
    }
}
impl<'a> Request<'a> for Value {
    const ID: u16 = 0x0101;
    const NAME: &'static str = "clValue";
}
/// Reply to `clValue`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueReply {
}
impl<'a> Message<'a> for ValueReply {
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

            0x0101 => self.take_Value(number, body),
    #[inline(never)]
    fn take_Value(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clValue(number, wire::Value::decode(body)?)
    }
    fn on_clValue(&mut self, number: u64, request: wire::Value) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clValue(context, request.count as cl_uint, request.size as usize) }
        };
        self.reply(number, status, &wire::ValueReply {  });
        Ok(())
    }
