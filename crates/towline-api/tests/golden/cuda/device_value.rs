// ---- the C ABI (export)

/// A value that the driver picks and the device interprets.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceValue(value: *mut CUdeviceptr) -> CUresult {
    guard("cuDeviceValue", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuDeviceValue(driver, value) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuDeviceValue", since: 2000, per_thread: false, name: "cuDeviceValue" },

// ---- the contract (backend)

    /// A value that the driver picks and the device interprets.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuDeviceValue(&self, value: *mut CUdeviceptr) -> CUresult {
        let _ = (value,);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's half (remote)

    unsafe fn cuDeviceValue(&self, value: *mut CUdeviceptr) -> CUresult {
        let session = match self.session_for(0) {
            Ok(session) => session,
            Err(status) => return status,
        };
        let request = wire::DeviceValue {  };
        match session.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::DeviceValueReply::decode(&body) else {
            return session.malformed();
                };
                let _ = &reply;
                let place = value;
                if let Some(value) = reply.value {
                    // SAFETY: the caller's contract: `place` is NULL or writable for its count, which `fill` does not exceed.
                    unsafe { crate::raw::fill(place, 1, [value as CUdeviceptr].into_iter()) };
                }
                wire::CUDA_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuDeviceValue(&self, value: *mut CUdeviceptr) -> CUresult {
        if let Some(vendor) = self.functions.cuDeviceValue {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(value) };
        }
        let _ = (value,);
        NOT_SUPPORTED as CUresult
    }

// ---- the messages (codec)

/// Request `cuDeviceValue`: A value that the driver picks and the device interprets.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceValue {
}
impl<'a> Message<'a> for DeviceValue {
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
impl<'a> Request<'a> for DeviceValue {
    const ID: u16 = 0x0107;
    const NAME: &'static str = "cuDeviceValue";
}
/// Reply to `cuDeviceValue`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceValueReply {
    /// What `value` receives.
    pub value: Option<u64>,
}
impl<'a> Message<'a> for DeviceValueReply {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_flag(out, self.value.is_some());
        if let Some(value) = &self.value { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let value = if decoder.flag()? { Some(decoder.scalar::<u64>()?) } else { None };
        decoder.finish()?;
        let message = Self { value };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x0107 => self.take_DeviceValue(number, body),
    #[inline(never)]
    fn take_DeviceValue(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_cuDeviceValue(number, wire::DeviceValue::decode(body)?)
    }
    fn on_cuDeviceValue(&mut self, number: u64, request: wire::DeviceValue) -> Result<(), ProtocolError> {
        let mut value: CUdeviceptr = Default::default();
        let status = 'call: {
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.cuDeviceValue(&raw mut value) }
        };
        self.reply(number, status, &wire::DeviceValueReply { value: true.then_some(value as u64) });
        Ok(())
    }
