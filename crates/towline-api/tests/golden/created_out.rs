// ---- the C ABI (stub)

/// Creates a handle behind a pointer, if the caller wants it.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clCreatedOut(buffer: cl_mem, event: *mut cl_event) -> cl_int {
    guard("clCreatedOut", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clCreatedOut(library, buffer, event) }
    })
}

// ---- the contract (backend)

    /// Creates a handle behind a pointer, if the caller wants it.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clCreatedOut(&self, buffer: cl_mem, event: *mut cl_event) -> cl_int {
        let _ = (buffer, event);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Creates a handle behind a pointer, if the caller wants it.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clCreatedOut(&self, buffer: cl_mem, event: Out<cl_event>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clCreatedOut(&self, buffer: cl_mem, event: *mut cl_event) -> cl_int {
        // SAFETY: the caller's contract: `event` is NULL or points as far as the declaration says.
        let event = unsafe { Out::new(event) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clCreatedOut(self, buffer, event) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clCreatedOut(&self, buffer: cl_mem, event: *mut cl_event) -> cl_int {
        let _call = self.enter();
        let request = wire::CreatedOut { buffer: wire::MemHandle::from_raw(buffer), event: (!event.is_null()).then(|| self.mint_event(0)) };
        match self.post(&request) {
            Ok(()) => {
                if let Some(handle) = request.event {
                    // SAFETY: the caller's contract: `event` is writable.
                    unsafe { event.write(handle.to_raw()) };
                }
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clCreatedOut(&self, buffer: cl_mem, event: *mut cl_event) -> cl_int {
        if let Some(function) = self.vendor(buffer.cast()).functions.clCreatedOut {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(buffer, event) };
        }
        let _ = (buffer, event);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clCreatedOut`: Creates a handle behind a pointer, if the caller wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedOut {
    /// Parameter `buffer`.
    pub buffer: MemHandle,
    /// Parameter `event`.
    pub event: Option<EventHandle>,
}
impl<'a> Message<'a> for CreatedOut {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.buffer.put(out);
        put_flag(out, self.event.is_some());
        if let Some(value) = &self.event { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let buffer = decoder.scalar::<MemHandle>()?;
        let event = if decoder.flag()? { Some(decoder.scalar::<EventHandle>()?) } else { None };
        decoder.finish()?;
        let message = Self { buffer, event };
        Ok(message)
    }
}
impl<'a> Request<'a> for CreatedOut {
    const ID: u16 = 0x0105;
    const NAME: &'static str = "clCreatedOut";
}

// ---- the worker's half (dispatch)

            0x0105 => self.take_CreatedOut(number, body),
    #[inline(never)]
    fn take_CreatedOut(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clCreatedOut(number, wire::CreatedOut::decode(body)?)
    }
    fn on_clCreatedOut(&mut self, number: u64, request: wire::CreatedOut) -> Result<(), ProtocolError> {
        let mut event_native: cl_event = std::ptr::null_mut();
        let status = 'call: {
            let buffer: cl_mem = match self.native(request.buffer.0, wire::MemHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clCreatedOut(buffer, if self.wants_event(request.event.is_some()) { &raw mut event_native } else { std::ptr::null_mut() }) }
        };
        self.enqueued(request.event, event_native, status)?;
        self.settle(number, 0x0105, status);
        Ok(())
    }
