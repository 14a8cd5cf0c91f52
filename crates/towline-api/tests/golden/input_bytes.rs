// ---- the C ABI (stub)

/// Reads bytes.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clInputBytes(buffer: cl_mem, size: usize, value: *const c_void) -> cl_int {
    guard("clInputBytes", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clInputBytes(library, buffer, size, value) }
    })
}

// ---- the contract (backend)

    /// Reads bytes.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clInputBytes(&self, buffer: cl_mem, size: usize, value: *const c_void) -> cl_int {
        let _ = (buffer, size, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Reads bytes.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clInputBytes(&self, buffer: cl_mem, size: usize, value: *const c_void) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clInputBytes(&self, buffer: cl_mem, size: usize, value: *const c_void) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clInputBytes(self, buffer, size, value) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clInputBytes(&self, buffer: cl_mem, size: usize, value: *const c_void) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract: `value` is NULL or readable for its count.
        let value = unsafe { crate::raw::slice(value.cast::<u8>(), (size as usize)) };
        let Some(value) = value else {
            return wire::CL_INVALID_VALUE;
        };
        let request = wire::InputBytes { buffer: wire::MemHandle::from_raw(buffer), size: size as u64, value };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::InputBytesReply::decode(&body) else {
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

    unsafe fn clInputBytes(&self, buffer: cl_mem, size: usize, value: *const c_void) -> cl_int {
        if let Some(function) = self.vendor(buffer.cast()).functions.clInputBytes {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(buffer, size, value) };
        }
        let _ = (buffer, size, value);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clInputBytes`: Reads bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct InputBytes<'a> {
    /// Parameter `buffer`.
    pub buffer: MemHandle,
    /// Parameter `size`.
    pub size: u64,
    /// Parameter `value`.
    pub value: &'a [u8],
}
impl<'a> Message<'a> for InputBytes<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.buffer.put(out);
        self.size.put(out);
        put_blob(out, self.value);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let buffer = decoder.scalar::<MemHandle>()?;
        let size = decoder.scalar::<u64>()?;
        let value = decoder.blob()?;
        decoder.finish()?;
        let message = Self { buffer, size, value };
        if message.value.len() as u64 != (message.size as u64)
        {
            return Err(DecodeError::LengthMismatch { what: "value", said: (message.size as u64), found: message.value.len() as u64 });
        }
        Ok(message)
    }
}
impl<'a> Request<'a> for InputBytes<'a> {
    const ID: u16 = 0x010a;
    const NAME: &'static str = "clInputBytes";
}
/// Reply to `clInputBytes`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct InputBytesReply {
}
impl<'a> Message<'a> for InputBytesReply {
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

            0x010a => self.take_InputBytes(number, body),
    #[inline(never)]
    fn take_InputBytes(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clInputBytes(number, wire::InputBytes::decode(body)?)
    }
    fn on_clInputBytes(&mut self, number: u64, request: wire::InputBytes<'_>) -> Result<(), ProtocolError> {
        let status = 'call: {
            let buffer: cl_mem = match self.native(request.buffer.0, wire::MemHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            let value = aligned(request.value);
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clInputBytes(buffer, request.size as usize, (value.as_ptr().cast())) }
        };
        self.reply(number, status, &wire::InputBytesReply {  });
        Ok(())
    }
