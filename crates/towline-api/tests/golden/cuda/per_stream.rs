// ---- the C ABI (export)

/// A stream, which is the thread's own under another name; an older name means the same.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPerStream_v2(stream: CUstream, address: CUdeviceptr, value: u64) -> CUresult {
    guard("cuPerStream_v2", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuPerStream_v2(driver, stream, address, value) }
    })
}
/// A stream, which is the thread's own under another name; an older name means the same.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPerStream(stream: CUstream, address: CUdeviceptr, value: u64) -> CUresult {
    guard("cuPerStream", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuPerStream_v2(driver, stream, address, value) }
    })
}
/// A stream, which is the thread's own under another name; an older name means the same.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPerStream_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u64) -> CUresult {
    guard("cuPerStream_v2_ptsz", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuPerStream_v2(driver, per_thread(stream), address, value) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuPerStream", since: 11070, per_thread: false, name: "cuPerStream_v2" },
    ProcSymbol { base: "cuPerStream", since: 8000, per_thread: false, name: "cuPerStream" },
    ProcSymbol { base: "cuPerStream", since: 11070, per_thread: true, name: "cuPerStream_v2_ptsz" },

// ---- the contract (backend)

    /// A stream, which is the thread's own under another name; an older name means the same.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuPerStream_v2(&self, stream: CUstream, address: CUdeviceptr, value: u64) -> CUresult {
        let _ = (stream, address, value);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's half (remote)

    unsafe fn cuPerStream_v2(&self, stream: CUstream, address: CUdeviceptr, value: u64) -> CUresult {
        let session = match self.session_for(stream.addr() as u64) {
            Ok(session) => session,
            Err(status) => return status,
        };
        let request = wire::PerStreamV2 { stream: session.stream(stream), address: address as u64, value: value as u64 };
        match session.post(&request) {
            Ok(()) => {
                wire::CUDA_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuPerStream_v2(&self, stream: CUstream, address: CUdeviceptr, value: u64) -> CUresult {
        if let Some(vendor) = self.functions.cuPerStream_v2 {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(stream, address, value) };
        }
        let _ = (stream, address, value);
        NOT_SUPPORTED as CUresult
    }

// ---- the messages (codec)

/// Request `cuPerStream_v2`: A stream, which is the thread's own under another name; an older name means the same.
#[derive(Debug, Clone, PartialEq)]
pub struct PerStreamV2 {
    /// Parameter `stream`.
    pub stream: StreamHandle,
    /// Parameter `address`.
    pub address: u64,
    /// Parameter `value`.
    pub value: u64,
}
impl<'a> Message<'a> for PerStreamV2 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.stream.put(out);
        self.address.put(out);
        self.value.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let stream = decoder.scalar::<StreamHandle>()?;
        let address = decoder.scalar::<u64>()?;
        let value = decoder.scalar::<u64>()?;
        decoder.finish()?;
        let message = Self { stream, address, value };
        Ok(message)
    }
}
impl<'a> Request<'a> for PerStreamV2 {
    const ID: u16 = 0x0102;
    const NAME: &'static str = "cuPerStream_v2";
}

// ---- the worker's half (dispatch)

            0x0102 => self.take_PerStreamV2(number, body),
    #[inline(never)]
    fn take_PerStreamV2(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_cuPerStream_v2(number, wire::PerStreamV2::decode(body)?)
    }
    fn on_cuPerStream_v2(&mut self, number: u64, request: wire::PerStreamV2) -> Result<(), ProtocolError> {
        let status = 'call: {
            let stream: CUstream = match self.native(request.stream.0, wire::StreamHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.cuPerStream_v2(stream, request.address as CUdeviceptr, request.value as u64) }
        };
        self.settle(number, 0x0102, status);
        Ok(())
    }
