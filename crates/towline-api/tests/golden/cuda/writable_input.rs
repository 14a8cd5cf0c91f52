// ---- the C ABI (export)

/// Bytes in, through a pointer that could be written to.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuWritableInput(value: *mut c_void) -> CUresult {
    guard("cuWritableInput", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuWritableInput(driver, value) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuWritableInput", since: 2000, per_thread: false, name: "cuWritableInput" },

// ---- the contract (backend)

    /// Bytes in, through a pointer that could be written to.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuWritableInput(&self, value: *mut c_void) -> CUresult {
        let _ = (value,);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's half (remote)

    unsafe fn cuWritableInput(&self, value: *mut c_void) -> CUresult {
        let session = match self.session_for(0) {
            Ok(session) => session,
            Err(status) => return status,
        };
        // SAFETY: the caller's contract: `value` is NULL or readable for its count.
        let value = unsafe { crate::raw::slice(value.cast::<u8>(), 8) };
        let Some(value) = value else {
            return wire::CUDA_ERROR_INVALID_VALUE;
        };
        let request = wire::WritableInput { value };
        match session.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::WritableInputReply::decode(&body) else {
            return session.malformed();
                };
                let _ = &reply;
                wire::CUDA_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuWritableInput(&self, value: *mut c_void) -> CUresult {
        if let Some(vendor) = self.functions.cuWritableInput {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(value) };
        }
        let _ = (value,);
        NOT_SUPPORTED as CUresult
    }

// ---- the messages (codec)

/// Request `cuWritableInput`: Bytes in, through a pointer that could be written to.
#[derive(Debug, Clone, PartialEq)]
pub struct WritableInput<'a> {
    /// Parameter `value`.
    pub value: &'a [u8],
}
impl<'a> Message<'a> for WritableInput<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_blob(out, self.value);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let value = decoder.blob()?;
        decoder.finish()?;
        let message = Self { value };
        if message.value.len() as u64 != 8
        {
            return Err(DecodeError::LengthMismatch { what: "value", said: 8, found: message.value.len() as u64 });
        }
        Ok(message)
    }
}
impl<'a> Request<'a> for WritableInput<'a> {
    const ID: u16 = 0x0106;
    const NAME: &'static str = "cuWritableInput";
}
/// Reply to `cuWritableInput`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct WritableInputReply {
}
impl<'a> Message<'a> for WritableInputReply {
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

            0x0106 => self.take_WritableInput(number, body),
    #[inline(never)]
    fn take_WritableInput(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_cuWritableInput(number, wire::WritableInput::decode(body)?)
    }
    fn on_cuWritableInput(&mut self, number: u64, request: wire::WritableInput<'_>) -> Result<(), ProtocolError> {
        let status = 'call: {
            let value = aligned(request.value);
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.cuWritableInput((value.as_ptr().cast::<c_void>()).cast_mut()) }
        };
        self.reply(number, status, &wire::WritableInputReply {  });
        Ok(())
    }
