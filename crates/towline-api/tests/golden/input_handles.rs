// ---- the C ABI (stub)

/// Reads handles, if there are any.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clInputHandles(context: cl_context, count: cl_uint, events: *const cl_event) -> cl_int {
    guard("clInputHandles", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clInputHandles(library, context, count, events) }
    })
}

// ---- the contract (backend)

    /// Reads handles, if there are any.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clInputHandles(&self, context: cl_context, count: cl_uint, events: *const cl_event) -> cl_int {
        let _ = (context, count, events);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Reads handles, if there are any.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clInputHandles(&self, context: cl_context, count: cl_uint, events: Option<&[cl_event]>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clInputHandles(&self, context: cl_context, count: cl_uint, events: *const cl_event) -> cl_int {
        // SAFETY: the caller's contract: `events` is NULL or points as far as the declaration says.
        let events = unsafe { raw::slice(events, count as usize) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clInputHandles(self, context, count, events) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clInputHandles(&self, context: cl_context, count: cl_uint, events: *const cl_event) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract: `events` is NULL or readable for its count.
        let events = unsafe { crate::raw::slice(events, (count as usize)) };
        let events = events.map(|list| list.iter().map(|&value| wire::EventHandle::from_raw(value)).collect::<smallvec::SmallVec<[_; 8]>>());
        let request = wire::InputHandles { context: wire::ContextHandle::from_raw(context), count: count as u32, events: events.as_deref().map(wire::List::Values) };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::InputHandlesReply::decode(&body) else {
            return self.malformed();
                };
                let _ = &reply;
                wire::CL_SUCCESS
            }
            Err(status) => {
            return status;
            }
        }
    }

// ---- the vendors' half (backend)

    unsafe fn clInputHandles(&self, context: cl_context, count: cl_uint, events: *const cl_event) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clInputHandles {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, count, events) };
        }
        let _ = (context, count, events);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clInputHandles`: Reads handles, if there are any.
#[derive(Debug, Clone, PartialEq)]
pub struct InputHandles<'a> {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `count`.
    pub count: u32,
    /// Parameter `events`.
    pub events: Option<List<'a, EventHandle>>,
}
impl<'a> Message<'a> for InputHandles<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        self.count.put(out);
        put_flag(out, self.events.is_some());
        if let Some(value) = &self.events { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let count = decoder.scalar::<u32>()?;
        let events = if decoder.flag()? { Some(decoder.list::<EventHandle>()?) } else { None };
        decoder.finish()?;
        let message = Self { context, count, events };
        if let Some(list) = &message.events
            && list.len() as u64 != (message.count as u64)
        {
            return Err(DecodeError::LengthMismatch { what: "events", said: (message.count as u64), found: list.len() as u64 });
        }
        Ok(message)
    }
}
impl<'a> Request<'a> for InputHandles<'a> {
    const ID: u16 = 0x0109;
    const NAME: &'static str = "clInputHandles";
}
/// Reply to `clInputHandles`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct InputHandlesReply {
}
impl<'a> Message<'a> for InputHandlesReply {
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

            0x0109 => self.take_InputHandles(number, body),
    #[inline(never)]
    fn take_InputHandles(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clInputHandles(number, wire::InputHandles::decode(body)?)
    }
    fn on_clInputHandles(&mut self, number: u64, request: wire::InputHandles<'_>) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            let mut events = smallvec::SmallVec::<[cl_event; 8]>::new();
            if let Some(list) = &request.events {
                for handle in list.iter() {
                    events.push(match self.native(handle.0, wire::EventHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status });
                }
            }
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clInputHandles(context, request.count as cl_uint, (if events.is_empty() { std::ptr::null() } else { events.as_ptr() })) }
        };
        self.reply(number, status, &wire::InputHandlesReply {  });
        Ok(())
    }
