// ---- the C ABI (export)

/// Declared for later.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPlanned(hStream: CUstream) -> CUresult {
    guard("cuPlanned", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuPlanned(driver, hStream) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuPlanned", since: 2000, per_thread: false, name: "cuPlanned" },

// ---- the contract (backend)

    /// Declared for later.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuPlanned(&self, hStream: CUstream) -> CUresult {
        let _ = (hStream,);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's half (remote)

    unsafe fn cuPlanned(&self, hStream: CUstream) -> CUresult {
        let session = match self.session_for(hStream.addr() as u64) {
            Ok(session) => session,
            Err(status) => return status,
        };
        let request = wire::Planned { hStream: session.stream(hStream) };
        match session.post(&request) {
            Ok(()) => {
                self.ended(request.hStream.0);
                wire::CUDA_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuPlanned(&self, hStream: CUstream) -> CUresult {
        if let Some(vendor) = self.functions.cuPlanned {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(hStream) };
        }
        let _ = (hStream,);
        NOT_SUPPORTED as CUresult
    }

// ---- the messages (codec)

/// Request `cuPlanned`: Declared for later.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Parameter `hStream`.
    pub hStream: StreamHandle,
}
impl<'a> Message<'a> for Planned {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.hStream.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let hStream = decoder.scalar::<StreamHandle>()?;
        decoder.finish()?;
        let message = Self { hStream };
        Ok(message)
    }
}
impl<'a> Request<'a> for Planned {
    const ID: u16 = 0x0109;
    const NAME: &'static str = "cuPlanned";
}

// ---- the worker's half (dispatch)

            0x0109 => self.take_Planned(number, body),
    #[inline(never)]
    fn take_Planned(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_cuPlanned(number, wire::Planned::decode(body)?)
    }
    fn on_cuPlanned(&mut self, number: u64, request: wire::Planned) -> Result<(), ProtocolError> {
        let status = 'call: {
            let hStream: CUstream = match self.native(request.hStream.0, wire::StreamHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.cuPlanned(hStream) }
        };
        self.destroy(request.hStream.0, wire::StreamHandle::TAG)?;
        self.settle(number, 0x0109, status);
        Ok(())
    }
