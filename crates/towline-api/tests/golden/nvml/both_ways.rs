// ---- the C ABI (export)

/// A structure that says its own size, in and out again.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[cfg_attr(target_os = "linux", unsafe(export_name = "towline_nvmlBothWays"))]
#[cfg_attr(not(target_os = "linux"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvmlBothWays(device: nvmlDevice_t, room: *mut nvmlRoom_v1_t) -> nvmlReturn_t {
    guard("nvmlBothWays", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { NvmlApi::nvmlBothWays(driver, device, room) }
    })
}

// ---- the contract (backend)

    /// A structure that says its own size, in and out again.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn nvmlBothWays(&self, device: nvmlDevice_t, room: *mut nvmlRoom_v1_t) -> nvmlReturn_t {
        let _ = (device, room);
        NOT_SUPPORTED as nvmlReturn_t
    }

// ---- the session's half (remote)

    unsafe fn nvmlBothWays(&self, device: nvmlDevice_t, room: *mut nvmlRoom_v1_t) -> nvmlReturn_t {
        let session = match self.session_for(device.addr() as u64) {
            Ok(session) => session,
            Err(status) => return status,
        };
        // SAFETY: the caller's contract: `room` is NULL or a structure that says its own size.
        let room_in = match unsafe { crate::raw::versioned(room) } {
            Some(Some(value)) => wire::RoomV1::from(value),
            Some(None) => {
            return wire::NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
            }
            None => {
            return wire::NVML_ERROR_INVALID_ARGUMENT;
            }
        };
        let request = wire::BothWays { device: wire::DeviceHandle::from_raw(device), room: room_in };
        match session.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::BothWaysReply::decode(&body) else {
            return session.malformed();
                };
                let _ = &reply;
                if let Some(value) = reply.room {
                    // SAFETY: the caller's contract: `room` is writable.
                    unsafe { crate::raw::fill(room, 1, [value.to_raw()].into_iter()) };
                }
                wire::NVML_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn nvmlBothWays(&self, device: nvmlDevice_t, room: *mut nvmlRoom_v1_t) -> nvmlReturn_t {
        if let Some(vendor) = self.functions.nvmlBothWays {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(device, room) };
        }
        let _ = (device, room);
        NOT_SUPPORTED as nvmlReturn_t
    }

// ---- the messages (codec)

/// Request `nvmlBothWays`: A structure that says its own size, in and out again.
#[derive(Debug, Clone, PartialEq)]
pub struct BothWays {
    /// Parameter `device`.
    pub device: DeviceHandle,
    /// Parameter `room`.
    pub room: RoomV1,
}
impl<'a> Message<'a> for BothWays {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.device.put(out);
        self.room.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let device = decoder.scalar::<DeviceHandle>()?;
        let room = decoder.scalar::<RoomV1>()?;
        decoder.finish()?;
        let message = Self { device, room };
        Ok(message)
    }
}
impl<'a> Request<'a> for BothWays {
    const ID: u16 = 0x0101;
    const NAME: &'static str = "nvmlBothWays";
}
/// Reply to `nvmlBothWays`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct BothWaysReply {
    /// What `room` receives.
    pub room: Option<RoomV1>,
}
impl<'a> Message<'a> for BothWaysReply {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_flag(out, self.room.is_some());
        if let Some(value) = &self.room { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let room = if decoder.flag()? { Some(decoder.scalar::<RoomV1>()?) } else { None };
        decoder.finish()?;
        let message = Self { room };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x0101 => self.take_BothWays(number, body),
    #[inline(never)]
    fn take_BothWays(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_nvmlBothWays(number, wire::BothWays::decode(body)?)
    }
    fn on_nvmlBothWays(&mut self, number: u64, request: wire::BothWays) -> Result<(), ProtocolError> {
        let mut room: nvmlRoom_v1_t = <wire::RoomV1 as wire::Scalar>::take(&[0; <wire::RoomV1 as wire::Scalar>::WIDTH]).to_raw();
        let status = 'call: {
            let device: nvmlDevice_t = match self.native(request.device.0, wire::DeviceHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            if request.room.version & 0x00ff_ffff != size_of::<nvmlRoom_v1_t>() as u32 { break 'call wire::NVML_ERROR_ARGUMENT_VERSION_MISMATCH }
            room = request.room.to_raw();
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.nvmlBothWays(device, &raw mut room) }
        };
        self.reply(number, status, &wire::BothWaysReply { room: Some(wire::RoomV1::from(room)) });
        Ok(())
    }
