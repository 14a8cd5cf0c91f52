// ---- the C ABI (stub)

/// Creates a handle and returns it.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clCreated(context: cl_context, errcode_ret: *mut cl_int) -> cl_mem {
    guard("clCreated", std::ptr::null_mut(), errcode_ret, |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clCreated(library, context, errcode_ret) }
    })
}

// ---- the contract (backend)

    /// Creates a handle and returns it.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clCreated(&self, context: cl_context, errcode_ret: *mut cl_int) -> cl_mem {
        let _ = (context, errcode_ret);
        if !errcode_ret.is_null() {
            // SAFETY: the caller's contract: `errcode_ret` is writable when it is not NULL.
            unsafe { errcode_ret.write(NOT_SUPPORTED) };
        }
        std::ptr::null_mut()
    }

// ---- the platform's method to write (stub)

    /// Creates a handle and returns it.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clCreated(&self, context: cl_context) -> Result<cl_mem, cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clCreated(&self, context: cl_context, errcode_ret: *mut cl_int) -> cl_mem {
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clCreated(self, context) };
        // SAFETY: the caller's contract: `errcode_ret` is NULL or writable.
        unsafe { raw::created(result, errcode_ret) }
    }

// ---- the session's half (remote)

    unsafe fn clCreated(&self, context: cl_context, errcode_ret: *mut cl_int) -> cl_mem {
        let _call = self.enter();
        let request = wire::Created { context: wire::ContextHandle::from_raw(context), created: wire::MemHandle(self.mint(wire::MemHandle::TAG)) };
        match self.post(&request) {
            Ok(()) => {
                self.made(request.created.0, &request);
                // SAFETY: the caller's contract: `errcode_ret` is NULL or writable.
                unsafe { crate::raw::fill(errcode_ret, 1, [wire::CL_SUCCESS].into_iter()) };
                request.created.to_raw()
            }
            Err(status) => {
            if !errcode_ret.is_null() {
                // SAFETY: the caller's contract: `errcode_ret` is writable when it is not NULL.
                unsafe { errcode_ret.write(status) };
            }
            return std::ptr::null_mut();
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clCreated(&self, context: cl_context, errcode_ret: *mut cl_int) -> cl_mem {
        if let Some(function) = self.vendor(context.cast()).functions.clCreated {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, errcode_ret) };
        }
        let _ = (context, errcode_ret);
        if !errcode_ret.is_null() {
            // SAFETY: the caller's contract: `errcode_ret` is writable when it is not NULL.
            unsafe { errcode_ret.write(NOT_SUPPORTED) };
        }
        std::ptr::null_mut()
    }

// ---- the messages (codec)

/// Request `clCreated`: Creates a handle and returns it.
#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// The number that the client gave the new handle.
    pub created: MemHandle,
}
impl<'a> Message<'a> for Created {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.created.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let created = decoder.scalar::<MemHandle>()?;
        decoder.finish()?;
        let message = Self { context, created };
        Ok(message)
    }
}
impl<'a> Request<'a> for Created {
    const ID: u16 = 0x0104;
    const NAME: &'static str = "clCreated";
}

// ---- the worker's half (dispatch)

            0x0104 => self.take_Created(number, body),
    #[inline(never)]
    fn take_Created(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clCreated(number, wire::Created::decode(body)?)
    }
    fn on_clCreated(&mut self, number: u64, request: wire::Created) -> Result<(), ProtocolError> {
        let mut errcode_ret: cl_int = Default::default();
        let mut created: cl_mem = std::ptr::null_mut();
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            created = unsafe { self.api.clCreated(context, &raw mut errcode_ret) };
            errcode_ret
        };
        self.born(request.created.0, wire::MemHandle::TAG, created.cast(), status)?;
        self.settle(number, 0x0104, status);
        Ok(())
    }
