// ---- the C ABI (stub)

/// Answers a query: bytes, and how many there are.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clOutBytes(context: cl_context, param_name: cl_uint, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int {
    guard("clOutBytes", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clOutBytes(library, context, param_name, param_value_size, param_value, param_value_size_ret) }
    })
}

// ---- the contract (backend)

    /// Answers a query: bytes, and how many there are.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clOutBytes(&self, context: cl_context, param_name: cl_uint, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int {
        let _ = (context, param_name, param_value_size, param_value, param_value_size_ret);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Answers a query: bytes, and how many there are.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clOutBytes(&self, context: cl_context, param_name: cl_uint, answer: Answer) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clOutBytes(&self, context: cl_context, param_name: cl_uint, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int {
        // SAFETY: the caller's contract: `param_value` is NULL or points as far as the declaration says.
        let answer = unsafe { Answer::new(param_value_size, param_value, param_value_size_ret) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clOutBytes(self, context, param_name, answer) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clOutBytes(&self, context: cl_context, param_name: cl_uint, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int {
        let _call = self.enter();
        let request = wire::OutBytes { context: wire::ContextHandle::from_raw(context), param_name: param_name as u32, param_value_size: crate::raw::room(param_value_size as u64, 1) as u64, want_param_value: !param_value.is_null() };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::OutBytesReply::decode(&body) else {
            return self.malformed();
                };
                let _ = &reply;
                if let Some(value) = reply.param_value {
                    // SAFETY: the caller's contract: `param_value` is NULL or writable for its count, which `fill` does not exceed.
                    unsafe { crate::raw::fill(param_value.cast::<u8>(), (param_value_size as usize), value.iter().copied()) };
                }
                // SAFETY: the caller's contract: `param_value_size_ret` is NULL or writable.
                unsafe { crate::raw::fill(param_value_size_ret, 1, [reply.param_value_size_ret as usize].into_iter()) };
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clOutBytes(&self, context: cl_context, param_name: cl_uint, param_value_size: usize, param_value: *mut c_void, param_value_size_ret: *mut usize) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clOutBytes {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, param_name, param_value_size, param_value, param_value_size_ret) };
        }
        let _ = (context, param_name, param_value_size, param_value, param_value_size_ret);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clOutBytes`: Answers a query: bytes, and how many there are.
#[derive(Debug, Clone, PartialEq)]
pub struct OutBytes {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `param_name`.
    pub param_name: u32,
    /// Parameter `param_value_size`.
    pub param_value_size: u64,
    /// Whether the caller gave room for `param_value`.
    pub want_param_value: bool,
}
impl<'a> Message<'a> for OutBytes {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.param_name.put(out);
        self.param_value_size.put(out);
        put_flag(out, self.want_param_value);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let param_name = decoder.scalar::<u32>()?;
        let param_value_size = decoder.scalar::<u64>()?;
        let want_param_value = decoder.flag()?;
        decoder.finish()?;
        let message = Self { context, param_name, param_value_size, want_param_value };
        Ok(message)
    }
}
impl<'a> Request<'a> for OutBytes {
    const ID: u16 = 0x010f;
    const NAME: &'static str = "clOutBytes";
}
/// Reply to `clOutBytes`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct OutBytesReply<'a> {
    /// What `param_value` receives.
    pub param_value: Option<&'a [u8]>,
    /// What `param_value_size_ret` receives.
    pub param_value_size_ret: u64,
}
impl<'a> Message<'a> for OutBytesReply<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_flag(out, self.param_value.is_some());
        if let Some(value) = &self.param_value { put_blob(out, value); }
        self.param_value_size_ret.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let param_value = if decoder.flag()? { Some(decoder.blob()?) } else { None };
        let param_value_size_ret = decoder.scalar::<u64>()?;
        decoder.finish()?;
        let message = Self { param_value, param_value_size_ret };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x010f => self.take_OutBytes(number, body),
    #[inline(never)]
    fn take_OutBytes(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clOutBytes(number, wire::OutBytes::decode(body)?)
    }
    fn on_clOutBytes(&mut self, number: u64, request: wire::OutBytes) -> Result<(), ProtocolError> {
        let mut param_value: Vec<u8> = Vec::new();
        let mut param_value_size_ret: usize = Default::default();
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            param_value = if request.want_param_value { room::<u8>((request.param_value_size as u64))? } else { Vec::new() };
            if withheld(request.param_name) { break 'call wire::CL_INVALID_VALUE }
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clOutBytes(context, request.param_name as cl_uint, request.param_value_size as usize, if request.want_param_value { param_value.as_mut_ptr().cast() } else { std::ptr::null_mut() }, &raw mut param_value_size_ret) }
        };
        self.reply(number, status, &wire::OutBytesReply { param_value: request.want_param_value.then(|| param_value.get(..reported(param_value.len(), param_value_size_ret as u64)).unwrap_or_default()), param_value_size_ret: param_value_size_ret as u64 });
        Ok(())
    }
