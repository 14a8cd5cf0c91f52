// ---- the C ABI (stub)

/// Reads pairs up to a zero name, if there are any.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clInputList(context: cl_context, properties: *const u64) -> cl_int {
    guard("clInputList", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clInputList(library, context, properties) }
    })
}

// ---- the contract (backend)

    /// Reads pairs up to a zero name, if there are any.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clInputList(&self, context: cl_context, properties: *const u64) -> cl_int {
        let _ = (context, properties);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Reads pairs up to a zero name, if there are any.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clInputList(&self, context: cl_context, properties: Option<&[u64]>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clInputList(&self, context: cl_context, properties: *const u64) -> cl_int {
        // SAFETY: the caller's contract: `properties` is NULL or points as far as the declaration says.
        let properties = unsafe { raw::list(properties) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clInputList(self, context, properties) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clInputList(&self, context: cl_context, properties: *const u64) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract: `properties` is NULL or a list of pairs that ends with a zero name.
        let properties = unsafe { crate::raw::pairs(properties.cast()) };
        let request = wire::InputList { context: wire::ContextHandle::from_raw(context), properties: properties.as_deref().map(wire::List::Values) };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::InputListReply::decode(&body) else {
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

    unsafe fn clInputList(&self, context: cl_context, properties: *const u64) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clInputList {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, properties) };
        }
        let _ = (context, properties);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clInputList`: Reads pairs up to a zero name, if there are any.
#[derive(Debug, Clone, PartialEq)]
pub struct InputList<'a> {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `properties`.
    pub properties: Option<List<'a, u64>>,
}
impl<'a> Message<'a> for InputList<'a> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        put_flag(out, self.properties.is_some());
        if let Some(value) = &self.properties { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let properties = if decoder.flag()? { Some(decoder.list::<u64>()?) } else { None };
        decoder.finish()?;
        let message = Self { context, properties };
        Ok(message)
    }
}
impl<'a> Request<'a> for InputList<'a> {
    const ID: u16 = 0x010c;
    const NAME: &'static str = "clInputList";
}
/// Reply to `clInputList`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct InputListReply {
}
impl<'a> Message<'a> for InputListReply {
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

            0x010c => self.take_InputList(number, body),
    #[inline(never)]
    fn take_InputList(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clInputList(number, wire::InputList::decode(body)?)
    }
    fn on_clInputList(&mut self, number: u64, request: wire::InputList<'_>) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            let properties: smallvec::SmallVec<[u64; 8]> = request.properties.iter().flat_map(|list| list.iter()).map(|value| value as u64).chain([0]).collect();
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clInputList(context, (if request.properties.is_none() { std::ptr::null() } else { properties.as_ptr() })) }
        };
        self.reply(number, status, &wire::InputListReply {  });
        Ok(())
    }
