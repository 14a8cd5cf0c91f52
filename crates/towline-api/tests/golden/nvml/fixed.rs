// ---- the C ABI (export)

/// An answer that never changes.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[cfg_attr(target_os = "linux", unsafe(export_name = "towline_nvmlFixed"))]
#[cfg_attr(not(target_os = "linux"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvmlFixed(device: nvmlDevice_t, cores: *mut u32) -> nvmlReturn_t {
    guard("nvmlFixed", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { NvmlApi::nvmlFixed(driver, device, cores) }
    })
}

// ---- the contract (backend)

    /// An answer that never changes.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn nvmlFixed(&self, device: nvmlDevice_t, cores: *mut u32) -> nvmlReturn_t {
        let _ = (device, cores);
        NOT_SUPPORTED as nvmlReturn_t
    }

// ---- the session's half (remote)

    unsafe fn nvmlFixed(&self, device: nvmlDevice_t, cores: *mut u32) -> nvmlReturn_t {
        let session = match self.session_for(device.addr() as u64) {
            Ok(session) => session,
            Err(status) => return status,
        };
        let request = wire::Fixed { device: wire::DeviceHandle::from_raw(device) };
        match session.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::FixedReply::decode(&body) else {
            return session.malformed();
                };
                let _ = &reply;
                if let Some(value) = reply.cores {
                    // SAFETY: the caller's contract: `cores` is NULL or writable for its count, which `fill` does not exceed.
                    unsafe { crate::raw::fill(cores, 1, [value as u32].into_iter()) };
                }
                wire::NVML_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn nvmlFixed(&self, device: nvmlDevice_t, cores: *mut u32) -> nvmlReturn_t {
        if let Some(vendor) = self.functions.nvmlFixed {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(device, cores) };
        }
        let _ = (device, cores);
        NOT_SUPPORTED as nvmlReturn_t
    }

// ---- the messages (codec)

/// Request `nvmlFixed`: An answer that never changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixed {
    /// Parameter `device`.
    pub device: DeviceHandle,
}
impl<'a> Message<'a> for Fixed {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.device.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let device = decoder.scalar::<DeviceHandle>()?;
        decoder.finish()?;
        let message = Self { device };
        Ok(message)
    }
}
impl<'a> Request<'a> for Fixed {
    const ID: u16 = 0x0103;
    const NAME: &'static str = "nvmlFixed";
}
/// Reply to `nvmlFixed`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedReply {
    /// What `cores` receives.
    pub cores: Option<u32>,
}
impl<'a> Message<'a> for FixedReply {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_flag(out, self.cores.is_some());
        if let Some(value) = &self.cores { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let cores = if decoder.flag()? { Some(decoder.scalar::<u32>()?) } else { None };
        decoder.finish()?;
        let message = Self { cores };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x0103 => self.take_Fixed(number, body),
    #[inline(never)]
    fn take_Fixed(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_nvmlFixed(number, wire::Fixed::decode(body)?)
    }
    fn on_nvmlFixed(&mut self, number: u64, request: wire::Fixed) -> Result<(), ProtocolError> {
        let mut cores: u32 = Default::default();
        let status = 'call: {
            let device: nvmlDevice_t = match self.native(request.device.0, wire::DeviceHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.nvmlFixed(device, &raw mut cores) }
        };
        self.reply(number, status, &wire::FixedReply { cores: true.then_some(cores as u32) });
        Ok(())
    }
