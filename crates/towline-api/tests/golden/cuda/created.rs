// ---- the C ABI (export)

/// A handle comes out of it.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCreated(phStream: *mut CUstream, Flags: u32) -> CUresult {
    guard("cuCreated", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuCreated(driver, phStream, Flags) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuCreated", since: 2000, per_thread: false, name: "cuCreated" },

// ---- the contract (backend)

    /// A handle comes out of it.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuCreated(&self, phStream: *mut CUstream, Flags: u32) -> CUresult {
        let _ = (phStream, Flags);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's half (remote)

    unsafe fn cuCreated(&self, phStream: *mut CUstream, Flags: u32) -> CUresult {
        let session = match self.session_for(0) {
            Ok(session) => session,
            Err(status) => return status,
        };
        let request = wire::Created { phStream: wire::StreamHandle(session.mint(wire::StreamHandle::TAG)), Flags: Flags as u32 };
        match session.post(&request) {
            Ok(()) => {
                {
                    // SAFETY: the caller's contract: `phStream` is writable.
                    unsafe { phStream.write(request.phStream.to_raw()) };
                }
                wire::CUDA_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuCreated(&self, phStream: *mut CUstream, Flags: u32) -> CUresult {
        if let Some(vendor) = self.functions.cuCreated {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(phStream, Flags) };
        }
        let _ = (phStream, Flags);
        NOT_SUPPORTED as CUresult
    }

// ---- the messages (codec)

/// Request `cuCreated`: A handle comes out of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    /// Parameter `phStream`.
    pub phStream: StreamHandle,
    /// Parameter `Flags`.
    pub Flags: u32,
}
impl<'a> Message<'a> for Created {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.phStream.put(out);
        self.Flags.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let phStream = decoder.scalar::<StreamHandle>()?;
        let Flags = decoder.scalar::<u32>()?;
        decoder.finish()?;
        let message = Self { phStream, Flags };
        Ok(message)
    }
}
impl<'a> Request<'a> for Created {
    const ID: u16 = 0x0101;
    const NAME: &'static str = "cuCreated";
}

// ---- the worker's half (dispatch)

            0x0101 => self.take_Created(number, body),
    #[inline(never)]
    fn take_Created(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_cuCreated(number, wire::Created::decode(body)?)
    }
    fn on_cuCreated(&mut self, number: u64, request: wire::Created) -> Result<(), ProtocolError> {
        let mut phStream_native: CUstream = std::ptr::null_mut();
        let status = 'call: {
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.cuCreated(&raw mut phStream_native, request.Flags as u32) }
        };
        if let Some(handle) = Some(request.phStream) { self.born(handle.0, wire::StreamHandle::TAG, phStream_native.cast(), status)?; }
        self.settle(number, 0x0101, status);
        Ok(())
    }
