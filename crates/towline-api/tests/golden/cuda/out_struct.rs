// ---- the C ABI (export)

/// A structure with another and with arrays in it, out.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOutStruct(room: *mut CUDA_ROOM_DESCRIPTOR, ctx: CUcontext) -> CUresult {
    guard("cuOutStruct", |driver| {
        // SAFETY: the application's contract, passed on.
        unsafe { CudaApi::cuOutStruct(driver, room, ctx) }
    })
}

// ---- its symbols (symbols)

    ProcSymbol { base: "cuOutStruct", since: 2000, per_thread: false, name: "cuOutStruct" },

// ---- the contract (backend)

    /// A structure with another and with arrays in it, out.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn cuOutStruct(&self, room: *mut CUDA_ROOM_DESCRIPTOR, ctx: CUcontext) -> CUresult {
        let _ = (room, ctx);
        NOT_SUPPORTED as CUresult
    }

// ---- the session's half (remote)

    unsafe fn cuOutStruct(&self, room: *mut CUDA_ROOM_DESCRIPTOR, ctx: CUcontext) -> CUresult {
        let session = match self.session_for(ctx.addr() as u64) {
            Ok(session) => session,
            Err(status) => return status,
        };
        let request = wire::OutStruct { ctx: wire::ContextHandle::from_raw(ctx) };
        match session.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::OutStructReply::decode(&body) else {
            return session.malformed();
                };
                let _ = &reply;
                if let Some(value) = reply.room {
                    // SAFETY: the caller's contract: `room` is NULL or writable for its count, which `fill` does not exceed.
                    unsafe { crate::raw::fill(room, 1, [value.to_raw()].into_iter()) };
                }
                wire::CUDA_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn cuOutStruct(&self, room: *mut CUDA_ROOM_DESCRIPTOR, ctx: CUcontext) -> CUresult {
        if let Some(vendor) = self.functions.cuOutStruct {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { vendor(room, ctx) };
        }
        let _ = (room, ctx);
        NOT_SUPPORTED as CUresult
    }

// ---- the messages (codec)

/// Request `cuOutStruct`: A structure with another and with arrays in it, out.
#[derive(Debug, Clone, PartialEq)]
pub struct OutStruct {
    /// Parameter `ctx`.
    pub ctx: ContextHandle,
}
impl<'a> Message<'a> for OutStruct {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.ctx.put(out);
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let ctx = decoder.scalar::<ContextHandle>()?;
        decoder.finish()?;
        let message = Self { ctx };
        Ok(message)
    }
}
impl<'a> Request<'a> for OutStruct {
    const ID: u16 = 0x0105;
    const NAME: &'static str = "cuOutStruct";
}
/// Reply to `cuOutStruct`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct OutStructReply {
    /// What `room` receives.
    pub room: Option<RoomDescriptor>,
}
impl<'a> Message<'a> for OutStructReply {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_flag(out, self.room.is_some());
        if let Some(value) = &self.room { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let room = if decoder.flag()? { Some(decoder.scalar::<RoomDescriptor>()?) } else { None };
        decoder.finish()?;
        let message = Self { room };
        Ok(message)
    }
}

// ---- the worker's half (dispatch)

            0x0105 => self.take_OutStruct(number, body),
    #[inline(never)]
    fn take_OutStruct(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_cuOutStruct(number, wire::OutStruct::decode(body)?)
    }
    fn on_cuOutStruct(&mut self, number: u64, request: wire::OutStruct) -> Result<(), ProtocolError> {
        let mut room: CUDA_ROOM_DESCRIPTOR = <wire::RoomDescriptor as wire::Scalar>::take(&[0; <wire::RoomDescriptor as wire::Scalar>::WIDTH]).to_raw();
        let status = 'call: {
            let ctx: CUcontext = match self.native(request.ctx.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.cuOutStruct(&raw mut room, ctx) }
        };
        self.reply(number, status, &wire::OutStructReply { room: true.then(|| wire::RoomDescriptor::from(room)) });
        Ok(())
    }
