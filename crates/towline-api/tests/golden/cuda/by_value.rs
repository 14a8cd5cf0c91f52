// ---- the C ABI (export)

/// A structure by value.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuByValue(extent: CUextent) -> CUresult {
    guard("cuByValue", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuByValue(driver, extent) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuByValue", since: 2000, per_thread: false, name: "cuByValue" },

// ---- the contract (backend)

    /// A structure by value.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuByValue(&self, extent: CUextent) -> CUresult {
        let _ = (extent,);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's half (remote)

    unsafe fn cuByValue(&self, extent: CUextent) -> CUresult {
        let session = match self.session_for(0) {
            Ok(session) => session,
            Err(status) => return status,
        };
        let request = wire::ByValue { extent: wire::Extent::from(extent) };
        match session.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::ByValueReply::decode(&body) else {
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

    unsafe fn cuByValue(&self, extent: CUextent) -> CUresult {
        if let Some(vendor) = self.functions.cuByValue {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(extent) };
        }
        let _ = (extent,);
        NOT_SUPPORTED as CUresult
    }

// ---- the messages (codec)

/// Request `cuByValue`: A structure by value.
#[derive(Debug, Clone, PartialEq)]
pub struct ByValue {
    /// Parameter `extent`.
    pub extent: Extent,
}
impl<'a> Message<'a> for ByValue {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.extent.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let extent = decoder.scalar::<Extent>()?;
        decoder.finish()?;
        let message = Self { extent };
        Ok(message)
    }
}
impl<'a> Request<'a> for ByValue {
    const ID: u16 = 0x0104;
    const NAME: &'static str = "cuByValue";
}
/// Reply to `cuByValue`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct ByValueReply {
}
impl<'a> Message<'a> for ByValueReply {
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

            0x0104 => self.take_ByValue(number, body),
    #[inline(never)]
    fn take_ByValue(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_cuByValue(number, wire::ByValue::decode(body)?)
    }
    fn on_cuByValue(&mut self, number: u64, request: wire::ByValue) -> Result<(), ProtocolError> {
        let status = 'call: {
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.cuByValue(request.extent.to_raw()) }
        };
        self.reply(number, status, &wire::ByValueReply {  });
        Ok(())
    }
