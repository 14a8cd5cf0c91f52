// ---- the C ABI (stub)

/// Ends a handle's life.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clDestroys(buffer: cl_mem) -> cl_int {
    guard("clDestroys", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clDestroys(library, buffer) }
    })
}

// ---- the contract (backend)

    /// Ends a handle's life.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clDestroys(&self, buffer: cl_mem) -> cl_int {
        let _ = (buffer,);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Ends a handle's life.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clDestroys(&self, buffer: cl_mem) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clDestroys(&self, buffer: cl_mem) -> cl_int {
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clDestroys(self, buffer) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clDestroys(&self, buffer: cl_mem) -> cl_int {
        let _call = self.enter();
        let request = wire::Destroys { buffer: wire::MemHandle::from_raw(buffer) };
        match self.post(&request) {
            Ok(()) => {
                self.ended(request.buffer.0);
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clDestroys(&self, buffer: cl_mem) -> cl_int {
        if let Some(function) = self.vendor(buffer.cast()).functions.clDestroys {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(buffer) };
        }
        let _ = (buffer,);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clDestroys`: Ends a handle's life.
#[derive(Debug, Clone, PartialEq)]
pub struct Destroys {
    /// Parameter `buffer`.
    pub buffer: MemHandle,
}
impl<'a> Message<'a> for Destroys {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.buffer.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let buffer = decoder.scalar::<MemHandle>()?;
        decoder.finish()?;
        let message = Self { buffer };
        Ok(message)
    }
}
impl<'a> Request<'a> for Destroys {
    const ID: u16 = 0x0103;
    const NAME: &'static str = "clDestroys";
}

// ---- the worker's half (dispatch)

            0x0103 => self.take_Destroys(number, body),
    #[inline(never)]
    fn take_Destroys(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clDestroys(number, wire::Destroys::decode(body)?)
    }
    fn on_clDestroys(&mut self, number: u64, request: wire::Destroys) -> Result<(), ProtocolError> {
        let status = 'call: {
            let buffer: cl_mem = match self.native(request.buffer.0, wire::MemHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clDestroys(buffer) }
        };
        self.destroy(request.buffer.0, wire::MemHandle::TAG)?;
        self.settle(number, 0x0103, status);
        Ok(())
    }
