// ---- the C ABI (stub)

/// Reads one structure, if there is one.
///
/// # Safety
/// The contract of the C function.
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn clInputStruct(context: cl_context, region: *const cl_region) -> cl_int {
    guard("clInputStruct", OUT_OF_HOST_MEMORY, std::ptr::null_mut(), |library| {
        // SAFETY: the application's contract, passed on.
        unsafe { OpenClApi::clInputStruct(library, context, region) }
    })
}

// ---- the contract (backend)

    /// Reads one structure, if there is one.
    ///
    /// # Safety
    /// The contract of the C function: pointers are valid for what the call does with them, handles are live.
    unsafe fn clInputStruct(&self, context: cl_context, region: *const cl_region) -> cl_int {
        let _ = (context, region);
        NOT_SUPPORTED as cl_int
    }

// ---- the platform's method to write (stub)

    /// Reads one structure, if there is one.
    ///
    /// # Safety
    /// The contract of the C function, for what is still a pointer here.
    unsafe fn clInputStruct(&self, context: cl_context, region: Option<&cl_region>) -> Result<(), cl_int>;

// ---- the platform's glue (stub)

    unsafe fn clInputStruct(&self, context: cl_context, region: *const cl_region) -> cl_int {
        // SAFETY: the caller's contract: `region` is NULL or points as far as the declaration says.
        let region = unsafe { raw::one(region) };
        // SAFETY: the caller's contract, passed on.
        let result = unsafe { CallsCalls::clInputStruct(self, context, region) };
        raw::status(result)
    }

// ---- the session's half (remote)

    unsafe fn clInputStruct(&self, context: cl_context, region: *const cl_region) -> cl_int {
        let _call = self.enter();
        // SAFETY: the caller's contract: `region` is NULL or readable for its count.
        let region = unsafe { crate::raw::slice(region, 1) };
        let region = region.and_then(|list| list.first().copied()).map(|value| wire::Region::from(value));
        let request = wire::InputStruct { context: wire::ContextHandle::from_raw(context), region };
        match self.call(&request) {
            Ok(body) => {
                let Ok(reply) = wire::InputStructReply::decode(&body) else {
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

    unsafe fn clInputStruct(&self, context: cl_context, region: *const cl_region) -> cl_int {
        if let Some(function) = self.vendor(context.cast()).functions.clInputStruct {
            // SAFETY: the caller's contract is the contract of the vendor's function.
            return unsafe { function(context, region) };
        }
        let _ = (context, region);
        NOT_SUPPORTED as cl_int
    }

// ---- the messages (codec)

/// Request `clInputStruct`: Reads one structure, if there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct InputStruct {
    /// Parameter `context`.
    pub context: ContextHandle,
    /// Parameter `region`.
    pub region: Option<Region>,
}
impl<'a> Message<'a> for InputStruct {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.context.put(out);
        put_flag(out, self.region.is_some());
        if let Some(value) = &self.region { value.put(out); }
    }
    #[inline]
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(body);
        let context = decoder.scalar::<ContextHandle>()?;
        let region = if decoder.flag()? { Some(decoder.scalar::<Region>()?) } else { None };
        decoder.finish()?;
        let message = Self { context, region };
        Ok(message)
    }
}
impl<'a> Request<'a> for InputStruct {
    const ID: u16 = 0x0107;
    const NAME: &'static str = "clInputStruct";
}
/// Reply to `clInputStruct`, behind the status.
#[derive(Debug, Clone, PartialEq)]
pub struct InputStructReply {
}
impl<'a> Message<'a> for InputStructReply {
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

            0x0107 => self.take_InputStruct(number, body),
    #[inline(never)]
    fn take_InputStruct(&mut self, number: u64, body: &[u8]) -> Result<(), ProtocolError> {
        self.on_clInputStruct(number, wire::InputStruct::decode(body)?)
    }
    fn on_clInputStruct(&mut self, number: u64, request: wire::InputStruct) -> Result<(), ProtocolError> {
        let status = 'call: {
            let context: cl_context = match self.native(request.context.0, wire::ContextHandle::TAG)? { Ok(raw) => raw.cast(), Err(status) => break 'call status };
            let region = match request.region {
                None => None,
                Some(value) => {
                    #[allow(unused_mut)]
                    let mut raw = value.to_raw();
                    Some(raw)
                }
            };
            // SAFETY: handles come from the session's table, lengths were compared with their lists when the request was decoded.
            unsafe { self.api.clInputStruct(context, (region.as_ref().map_or(std::ptr::null(), std::ptr::from_ref))) }
        };
        self.reply(number, status, &wire::InputStructReply {  });
        Ok(())
    }
